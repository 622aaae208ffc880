"""Whether a confidence means what it says, and whether it tells right from wrong.

Every function takes ``confidence`` and ``right`` of the same answers, one each; refused questions are left out by the
caller. Their order means nothing to any result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from arbitrag.errors import UsageError


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers of similar confidence: how many, how sure in the mean, and the share of right ones."""

    questions: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """``error`` is None where there is no answer. ``bins`` are those that have answers, by rising confidence."""

    questions: int
    error: float | None
    bins: tuple[Bin, ...]


def calibration(
    confidence: Sequence[float],
    right: Sequence[bool],
    *,
    bins: int = 10,
    by: Literal["width", "mass"] = "width",
) -> Calibration:
    """The expected calibration error, and the bins of a reliability diagram.

        ECE = sum_b n_b / n |accuracy_b - confidence_b|

    Bins of equal width (Naeini et al. 2015; Guo et al. 2017) hold the confidences in (i / bins, (i + 1) / bins], the
    first one 0 too. Bins of equal mass (Nguyen and O'Connor 2015) hold n / bins answers each, as nearly as it goes;
    equal confidences stay together, in the bin of the first of them, so that some bins hold more and some none.

    Raises:
        ValueError: the two are not of one length, or a confidence is outside of 0 to 1 or NaN.
        UsageError: fewer than one bin.
    """
    if bins < 1:
        raise UsageError(f"calibration needs 1 bin or more; got {bins}")
    sure, good = _arrays(confidence, right)
    if not len(sure):
        return Calibration(0, None, ())
    if by == "width":
        edges = np.arange(1, bins + 1) / bins  # rounded once, so that a confidence of 0.7 meets the edge 0.7
        places = np.searchsorted(edges, sure)
    else:
        below = np.searchsorted(np.sort(sure), sure)  # how many are less sure
        places = below * bins // len(sure)
    used, where, sizes = np.unique(places, return_inverse=True, return_counts=True)
    means = np.bincount(where, sure, len(used)) / sizes
    shares = np.bincount(where, good, len(used)) / sizes
    error = float(np.abs(shares - means) @ sizes / len(sure))
    rows = zip(sizes.tolist(), means.tolist(), shares.tolist(), strict=True)
    return Calibration(len(sure), error, tuple(Bin(*row) for row in rows))


def brier(confidence: Sequence[float], right: Sequence[bool]) -> float | None:
    """The mean of (confidence - right)^2, right being 0 or 1 (Brier 1950); None where there is no answer.

    Raises:
        ValueError: the two are not of one length, or a confidence is outside of 0 to 1 or NaN.
    """
    sure, good = _arrays(confidence, right)
    return float(((sure - good) ** 2).mean()) if len(sure) else None


def auroc(scores: Sequence[float], right: Sequence[bool]) -> float | None:
    """The probability that a right answer scores above a wrong one; a tie counts half (Hanley and McNeil 1982).

        AUROC = (R - p (p + 1) / 2) / (p q)

    for p right and q wrong answers, R being the sum of the right ones' ranks, where tied scores share their mean rank.
    ``scores`` are on any scale. None where all answers are right or all are wrong.

    Raises:
        ValueError: the two are not of one length, or a score is NaN.
    """
    values, good = np.asarray(scores, float), np.asarray(right, bool)
    _same_length(values, good)
    if np.isnan(values).any():
        raise ValueError("a score is NaN; expected a number")
    positives = int(good.sum())
    negatives = len(good) - positives
    if not positives or not negatives:
        return None
    _, where, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[where]
    return float((ranks[good].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def _arrays(confidence: Sequence[float], right: Sequence[bool]) -> tuple[np.ndarray, np.ndarray]:
    """Both as floats of shape (n,), checked."""
    sure, good = np.asarray(confidence, float), np.asarray(right, float)
    _same_length(sure, good)
    if not ((sure >= 0) & (sure <= 1)).all():
        raise ValueError("a confidence is outside of 0 to 1; calibration is measured on probabilities")
    return sure, good


def _same_length(left: np.ndarray, right: np.ndarray) -> None:
    if left.shape != right.shape:
        raise ValueError(f"one score for each answer is needed; got {left.size} for {right.size}")
