"""TrustMargin's weight and threshold, from the prior and the binding of every question.

A question whose answers agree, or of which a source gave none, is decided without a margin: no setting changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from arbitrag.evaluate.tune.grid import Numbers, Round, Values, rectangles, spread
from arbitrag.methods.trustmargin import MARGIN, TrustMargin
from arbitrag.types import Decision, Strategy, Verdict

_FIXED, _MEMORY, _EVIDENCE = range(3)


class MarginNumbers(Numbers):
    """``prior`` and ``binding`` are (questions,), NaN where a question was decided without."""

    method = TrustMargin
    weights = ("weight",)
    thresholds = ("threshold",)
    values: ClassVar[Values] = {"weight": spread(0.0, 2.0, 0.1), "threshold": spread(-5.0, 2.0, 0.1)}
    tuned = ("weight", "threshold")
    paths = 3

    def __init__(self, rounds: Sequence[Sequence[Round]]) -> None:
        super().__init__(rounds)
        self.prior, self.binding = (
            np.array([each[0][key] if each else np.nan for each in rounds]) for key in ("prior", "binding")
        )
        if fixed := int(np.isnan(self.prior).sum()):
            told = f"{fixed:,} of {self.questions:,} questions were decided without a margin"
            self.notes = (f"{told}, so no setting changes them.",)

    @staticmethod
    def read(decisions: Sequence[Decision]) -> tuple[Round, ...]:
        last = decisions[-1]
        return ({key: float(last.inputs[key]) for key in ("prior", "binding")},) if last.stage == MARGIN else ()

    def combinations(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        weights = np.array(values["weight"])[:, None]
        return weights, np.arange(len(weights))

    def regions(self, weights: np.ndarray, *thresholds: np.ndarray) -> np.ndarray:
        """The evidence at thresholds below the margin; at exactly the margin memory keeps the answer."""
        (threshold,) = thresholds
        margin, fixed = self.prior + weights * self.binding, np.isnan(self.prior)
        below = np.where(fixed, len(threshold), np.searchsorted(threshold, margin, "left"))  # margin > threshold
        places = np.arange(len(weights))[:, None], np.arange(self.questions)
        return rectangles(
            (*places, np.where(fixed, _FIXED, _EVIDENCE), 0, 1, 0, below),
            (*places, _MEMORY, 0, 1, below, len(threshold)),
        )

    def path_of(self, verdict: Verdict) -> int:
        last = verdict.decisions[-1]
        if last.stage != MARGIN:
            return _FIXED
        return _EVIDENCE if last.outcome == Strategy.EVIDENCE.value else _MEMORY
