"""What tuning found: the best settings beside the defaults, and maps of the accuracy around them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arbitrag.evaluate.metrics.significance import Interval
from arbitrag.methods import load
from arbitrag.methods.base import settings
from arbitrag.serialization import to_plain

RULES = (
    "Every decision was made again from recorded calls; no model was asked.",
    "A decision that needs a call which was not recorded counts as wrong: a setting reaches at least what is shown.",
    "A failed row counts as wrong under every setting; a question without a row or a trace is left out.",
    "Of settings that are equally good, the one nearest to the defaults is taken.",
    "Within the noise is a setting whose paired difference from the best has 0 in its 95% interval (normal).",
    "The best was chosen on these questions, so on others it may gain less: measure it on a set not used here.",
)


@dataclass(frozen=True, slots=True)
class Point:
    """One setting: its accuracy, the most that it could reach, and the questions that it leaves undecided."""

    settings: Mapping[str, float]
    accuracy: Interval
    at_most: float
    undecided: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The accuracy (rows, columns) of two settings where all others are the best; ``near`` is within the noise.

    ``best`` and ``default`` are places in it, None where the default is not among the values. An accuracy is None where
    every weight is 0.
    """

    rows: str
    columns: str
    row_values: tuple[float, ...]
    column_values: tuple[float, ...]
    accuracy: tuple[tuple[float | None, ...], ...]
    near: tuple[tuple[bool, ...], ...]
    best: tuple[int, int]
    default: tuple[int, int] | None

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest accuracy."""
        cells = [cell for row in self.accuracy for cell in row if cell is not None]
        return min(cells), max(cells)


@dataclass(frozen=True, slots=True)
class Tuned:
    """What came out. ``questions`` are those of the set, ``compared`` those that count, ``failed`` of them failed.

    ``difference`` is that of the best from the default; ``decided`` the same over the questions that both decide, where
    these are fewer. ``points`` were tried; ``tied`` of them are as good as the best, ``near`` within the noise.
    ``reasons`` counts the questions that are undecided somewhere on the grid, by why.
    """

    run: str
    command: str
    method: str
    systems: tuple[str, ...]
    fixed: Mapping[str, Any]
    set: str
    digest: str
    metric: str
    questions: int
    compared: int
    failed: int
    left_out: Mapping[str, tuple[str, ...]]
    grid: Mapping[str, tuple[float, ...]]
    points: int
    best: Point
    default: Point
    difference: Interval
    decided: Interval | None
    tied: int
    near: int
    undecided_points: int
    reasons: Mapping[str, int]
    maps: tuple[HeatMap, ...]
    notes: tuple[str, ...]
    rules: tuple[str, ...] = RULES

    @property
    def options(self) -> str:
        """The best settings, and what else was set, as ``arbitrag ask`` takes them."""
        return " ".join(shlex.quote(word) for pair in self._pairs for word in ("--set", pair))

    @property
    def typed(self) -> str:
        """The same as ``arbitrag bench run --method`` takes it, in one word."""
        return shlex.join([self.method, *self._pairs])

    @property
    def _pairs(self) -> list[str]:
        defaults = settings(load(self.method)())
        others = {key: value for key, value in self.fixed.items() if defaults.get(key) != value}
        return [f"{key}={value}" for key, value in {**others, **self.best.settings}.items()]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        plain: dict[str, Any] = to_plain(self)
        return plain | {"options": self.options, "typed": self.typed}


def level(value: float, low: float, high: float, levels: int) -> int:
    """Which of so many equal steps from ``low`` to ``high``, from 0, a value is in; the last where both are equal."""
    return levels - 1 if high - low < 1e-12 else min(levels - 1, int((value - low) / (high - low) * levels))
