"""Shares and means that have no value where there is nothing to share: None, never NaN and never 0."""

from __future__ import annotations

import math
from collections.abc import Sequence


def share(part: float, whole: float) -> float | None:
    """part / whole; None where the whole is 0."""
    return part / whole if whole else None


def mean(values: Sequence[float]) -> float | None:
    """The mean, summed without rounding, so that no order and no equal sum in another order makes a difference.

    None without a value.
    """
    return math.fsum(values) / len(values) if values else None
