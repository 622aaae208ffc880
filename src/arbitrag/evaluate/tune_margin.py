"""TrustMargin's threshold and weight, from the prior and the binding of every question.

A question whose answers agree, or of which a source gave none, is decided without a margin: no setting matters to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from arbitrag.evaluate.tune_grid import Values, spread
from arbitrag.evaluate.tune_record import Round
from arbitrag.methods.base import Method
from arbitrag.methods.trustmargin import TrustMargin
from arbitrag.types import Decision, Strategy, Verdict

VALUES: Values = {"weight": spread(0.0, 2.0, 0.1), "threshold": spread(-5.0, 2.0, 0.1)}
_STAGE = "margin"
_FIXED, _MEMORY, _EVIDENCE = range(3)


def read(decisions: Sequence[Decision]) -> tuple[Round, ...]:
    """The prior and the binding; nothing where the question was decided without."""
    last = decisions[-1]
    return ({key: float(last.inputs[key]) for key in ("prior", "binding")},) if last.stage == _STAGE else ()


@dataclass(frozen=True)
class MarginGrid:
    """One plane: weight by threshold."""

    method: ClassVar[type[Method]] = TrustMargin
    axes: ClassVar[tuple[str, str]] = ("weight", "threshold")
    planes: ClassVar[Sequence[Mapping[str, float]]] = ({},)
    outcomes: ClassVar[int] = 3
    maps: ClassVar[Sequence[tuple[str, str]]] = (axes,)

    values: Values
    prior: np.ndarray  # (questions,), NaN where there is none
    binding: np.ndarray

    @classmethod
    def of(cls, rounds: Sequence[Sequence[Round]], values: Values) -> MarginGrid:
        prior, binding = (
            np.array([each[0][key] if each else np.nan for each in rounds], float) for key in ("prior", "binding")
        )
        return cls(values, prior, binding)

    def codes(
        self, plane: Mapping[str, float], rows: Sequence[float], columns: Sequence[float], questions: slice
    ) -> np.ndarray:
        prior, binding = self.prior[questions, None], self.binding[questions, None]
        margin = prior + np.array(rows) * binding  # (questions, rows)
        codes = np.where(margin[:, :, None] > np.array(columns), np.int8(_EVIDENCE), np.int8(_MEMORY))
        codes[np.isnan(self.prior[questions])] = _FIXED
        return codes

    def taken(self, verdict: Verdict) -> int:
        last = verdict.decisions[-1]
        if last.stage != _STAGE:
            return _FIXED
        return _EVIDENCE if last.outcome == Strategy.EVIDENCE.value else _MEMORY

    def plane_of(self, settings: Mapping[str, float]) -> int:
        return 0

    @property
    def notes(self) -> Sequence[str]:
        fixed = int(np.isnan(self.prior).sum())
        if not fixed:
            return ()
        return (
            f"{fixed:,} of {len(self.prior):,} questions were decided without a margin, so no setting changes them.",
        )
