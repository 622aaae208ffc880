"""Refusals and risk: how much is answered, how much of that is wrong, and what a stricter threshold would buy.

A refusal is an outcome of its own. It is neither a wrong answer nor missing, and a share of nothing is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arbitrag.evaluate.metrics.ratios import mean, share


@dataclass(frozen=True, slots=True)
class Refusals:
    """Counts of ``questions``, from which the shares follow. A share of no questions is None.

    ``right`` and ``wrong`` are answers. ``due`` are the refusals that were right, of questions that have no answer; all
    other refusals are neither right nor wrong. ``failed`` are questions to which nothing came back: they count among
    the questions, and are neither answers nor refusals.
    """

    questions: int
    right: int
    wrong: int
    due: int = 0
    failed: int = 0

    @property
    def answered(self) -> int:
        return self.right + self.wrong

    @property
    def refused(self) -> int:
        return self.questions - self.answered - self.failed

    @property
    def coverage(self) -> float | None:
        """answered / questions (El-Yaniv and Wiener 2010)."""
        return share(self.answered, self.questions)

    @property
    def rejection_rate(self) -> float | None:
        """refused / questions, whether or not the refusal was due (RR of BRIDGE)."""
        return share(self.refused, self.questions)

    @property
    def accuracy(self) -> float | None:
        """(right + due) / questions (Acc of BRIDGE)."""
        return share(self.right + self.due, self.questions)

    @property
    def risk(self) -> float | None:
        """wrong / answered (selective risk; El-Yaniv and Wiener 2010); None also where everything was refused."""
        return share(self.wrong, self.answered)

    @property
    def reliability(self) -> float | None:
        """(right + due - wrong) / questions, from -1 to 1: a wrong answer costs what a right one earns."""
        return share(self.right + self.due - self.wrong, self.questions)


def refusals(answered: Sequence[bool], right: Sequence[bool], failed: int = 0) -> Refusals:
    """Count outcomes: of each question whether it was answered, and whether the outcome was right.

    ``failed`` questions come on top of these.

    Raises:
        ValueError: the two are not of one length.
    """
    outcomes = list(zip(answered, right, strict=True))
    return Refusals(
        questions=len(outcomes) + failed,
        right=sum(spoke and good for spoke, good in outcomes),
        wrong=sum(spoke and not good for spoke, good in outcomes),
        due=sum(good and not spoke for spoke, good in outcomes),
        failed=failed,
    )


@dataclass(frozen=True, slots=True)
class RiskCoveragePoint:
    """What comes of answering only at ``threshold`` or above: the share of all questions, and that of wrong answers."""

    threshold: float
    coverage: float
    risk: float


@dataclass(frozen=True, slots=True)
class RiskCoverage:
    """A point for each confidence that occurs, from the strictest threshold to the loosest.

    ``area`` is the mean risk over the coverage that was reached, 1 to ``answered`` of the questions: 0 is best. It is
    None where nothing was answered. Areas compare fairly only at about the same coverage reached, so state both: a
    method that refuses the hard questions on its own is never measured on them.
    """

    questions: int
    answered: int
    points: tuple[RiskCoveragePoint, ...]
    area: float | None


def risk_coverage(right: Sequence[bool], confidence: Sequence[float | None]) -> RiskCoverage:
    """The risk-coverage curve and its area (AURC; Geifman, Uziel and El-Yaniv 2019).

        AURC = 1/n sum_{k=1..n} (wrong among the k most confident) / k

    Answers of equal confidence cannot be told apart by a threshold: they are one point of the curve, and count in the
    area with the mean over all their orders, so that the order of the questions means nothing. ``confidence`` is on
    any scale, larger is surer; None is a question that was refused at every threshold.

    Raises:
        ValueError: the two are not of one length, or a confidence is NaN.
    """
    sure, good, questions = _surest(right, confidence)
    thresholds, group, sizes = np.unique(-sure, return_inverse=True, return_counts=True)
    seen, wrong = np.cumsum(sizes), np.cumsum(np.bincount(group, 1 - good, len(sizes)))
    rows = zip((-thresholds).tolist(), (seen / max(1, questions)).tolist(), (wrong / seen).tolist(), strict=True)
    return RiskCoverage(
        questions, len(sure), tuple(RiskCoveragePoint(*row) for row in rows), risk_area(right, confidence)
    )


def risk_area(right: Sequence[bool], confidence: Sequence[float | None]) -> float | None:
    """The area of ``risk_coverage`` alone, without the curve's points, of which there may be very many.

    Raises:
        ValueError: the two are not of one length, or a confidence is NaN.
    """
    sure, good, _ = _surest(right, confidence)
    _, group, sizes = np.unique(-sure, return_inverse=True, return_counts=True)
    wrong_here = np.bincount(group, 1 - good, len(sizes))
    before, wrong_before = np.cumsum(sizes) - sizes, np.cumsum(wrong_here) - wrong_here
    # Of any j of the tied answers in a group, wrong_here / sizes * j are wrong in the mean over their orders.
    taken = 1 + np.arange(len(sure)) - np.repeat(before, sizes)
    wrong = np.repeat(wrong_before, sizes) + taken * np.repeat(wrong_here / sizes, sizes)
    return mean((wrong / (1 + np.arange(len(sure)))).tolist())


def _surest(right: Sequence[bool], confidence: Sequence[float | None]) -> tuple[np.ndarray, np.ndarray, int]:
    """Confidence and rightness of what was answered, as floats (n,), and the number of questions; checked."""
    both = list(zip(confidence, right, strict=True))
    answers = [(sure, good) for sure, good in both if sure is not None]
    sure, good = np.array(answers, float).reshape(len(answers), 2).T
    if np.isnan(sure).any():
        raise ValueError("a confidence is NaN; expected a number, or None for a refusal")
    return sure, good, len(both)
