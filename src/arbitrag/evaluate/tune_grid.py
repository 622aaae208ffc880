"""Settings to try: the values of every setting that is tuned, and what a grid over them has to know."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from arbitrag.errors import UsageError, unknown
from arbitrag.methods.base import Method
from arbitrag.types import Verdict

Values = Mapping[str, tuple[float, ...]]  # by setting, rising
MOST = 1_000  # values of one setting


class Grid(Protocol):
    """Every setting of a method on the questions of a record.

    A plane holds the values of two settings (``axes``, rows and columns); ``planes`` are the others. What a question
    comes to is a code below ``outcomes``: the path that its decision takes.
    """

    @property
    def method(self) -> type[Method]: ...

    @property
    def axes(self) -> tuple[str, str]: ...

    @property
    def values(self) -> Values: ...

    @property
    def planes(self) -> Sequence[Mapping[str, float]]: ...

    @property
    def outcomes(self) -> int: ...

    def codes(
        self, plane: Mapping[str, float], rows: Sequence[float], columns: Sequence[float], questions: slice
    ) -> np.ndarray:
        """The codes (questions, rows, columns) of some of the questions."""
        ...

    def taken(self, verdict: Verdict) -> int:
        """The code of the path that a verdict took."""
        ...

    def plane_of(self, settings: Mapping[str, float]) -> int:
        """The number of the plane that decides as these settings do. Raises KeyError where there is none."""
        ...

    @property
    def maps(self) -> Sequence[tuple[str, str]]:
        """The pairs of settings to draw, rows and columns."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What there is to say of the grid itself."""
        ...


def spread(first: float, last: float, step: float) -> tuple[float, ...]:
    """The values from ``first`` to ``last``, both within, as decimal numbers."""
    return tuple(
        round(first + number * step, 10) + 0.0 for number in range(math.floor((last - first) / step + 1e-9) + 1)
    )


def values_from(typed: Sequence[str], known: Values) -> Values:
    """The values known, with those typed in their place: ``beta=0.5:1.5:0.1`` or ``beta=0.9,1.1``.

    Raises UsageError for a setting that is not tuned, and for values that are none.
    """
    found = dict(known)
    for text in typed:
        name, equals, values = text.partition("=")
        if not equals:
            raise UsageError(f"--grid takes NAME=FIRST:LAST:STEP or NAME=VALUE,VALUE; got '{text}'")
        if name not in known:
            raise unknown("setting to tune", name, known)
        found[name] = _values(text, values)
    return found


def _values(text: str, values: str) -> tuple[float, ...]:
    wrong = UsageError(f"--grid takes NAME=FIRST:LAST:STEP or NAME=VALUE,VALUE; got '{text}'")
    spans = values.count(":") > 0
    try:
        numbers = [float(number) for number in values.split(":" if spans else ",")]
    except ValueError:
        raise wrong from None
    if not all(map(math.isfinite, numbers)) or (spans and len(numbers) != 3):
        raise wrong
    if not spans:
        return tuple(sorted(set(numbers)))
    first, last, step = numbers
    if step <= 0 or last < first:
        raise UsageError(f"--grid goes up from FIRST to LAST by a STEP above 0; got '{text}'")
    if (last - first) / step >= MOST:
        raise UsageError(f"--grid: '{text}' are more than {MOST:,} values of one setting")
    return spread(first, last, step)
