"""The settings to try, all combinations of weights with all combinations of thresholds, and where they lead.

A decision weighs recorded numbers and compares the sums with thresholds. A path says which branch of it a question
takes; each method numbers its paths from 0. With given weights, the thresholds under which a question takes a path are
a rectangle, whose edges are found by binary search among the values of each threshold.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from arbitrag.errors import UsageError, unknown
from arbitrag.methods.base import Method
from arbitrag.types import Decision, Verdict

Values = Mapping[str, tuple[float, ...]]  # by setting, rising
Settings = Mapping[str, float]
Show = Callable[[int, int, str], None]  # progress: done, of how many, what
Round = Mapping[str, float]  # numbers of a decision, by name
MOST = 1_000  # values of one setting
_PAIRS, _CELLS = 1 << 13, 1 << 17  # of weights and questions, and settings, at a time: about 20 MB of arrays
_DECIMALS = 9


class Numbers(ABC):
    """The recorded numbers of some ``questions``, round by round, and how a method decides by them.

    ``values`` are tried without ``--grid``; ``fixed`` are settings without which no threshold decides; ``tuned`` are
    the settings that matter to these questions.
    """

    method: ClassVar[type[Method]]
    weights: ClassVar[tuple[str, ...]]
    thresholds: ClassVar[tuple[str, ...]]
    values: ClassVar[Values]
    fixed: ClassVar[Mapping[str, object]] = {}

    tuned: tuple[str, ...]
    paths: int
    notes: tuple[str, ...] = ()

    def __init__(self, rounds: Sequence[Sequence[Round]]) -> None:
        self.questions = len(rounds)

    @staticmethod
    @abstractmethod
    def read(decisions: Sequence[Decision]) -> tuple[Round, ...]:
        """The numbers of a verdict's decision. Raises ValueError or LookupError when they are not there."""

    @abstractmethod
    def combinations(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        """The weights (w, names) that decide differently, and for each combination of the values which of them it is.

        The combinations are in the order of ``product``; -1 stands for one that the method does not allow.
        """

    @abstractmethod
    def regions(self, weights: np.ndarray, *thresholds: np.ndarray) -> np.ndarray:
        """Where questions take which path: ``rectangles`` that cover all thresholds for all weights (w, names).

        The values of the first threshold are rows and those of the second columns; of a single one they are columns.
        """

    @abstractmethod
    def path_of(self, verdict: Verdict) -> int:
        """The path that a verdict took."""


@dataclass(frozen=True)
class Grid:
    """All settings, (w, t): ``weights`` (w, names) and ``thresholds`` (t, names); ``index`` as in ``combinations``."""

    numbers: Numbers
    values: Values
    weights: np.ndarray
    thresholds: np.ndarray
    index: np.ndarray

    @classmethod
    def of(cls, numbers: Numbers, values: Values) -> Grid:
        tuned = {name: values[name] for name in numbers.tuned}
        weights, index = numbers.combinations(tuned)
        return cls(numbers, tuned, weights, combined([values[name] for name in numbers.thresholds]), index)

    def settings(self, row: int, column: int) -> dict[str, float]:
        """The settings at a place, with the weights that do not matter."""
        named = [*self.numbers.weights, *self.numbers.thresholds]
        return dict(zip(named, [*self.weights[row].tolist(), *self.thresholds[column].tolist()], strict=True))

    def paths_at(self, settings: Settings) -> np.ndarray:
        """The path (questions,) under settings that need not be in the grid."""
        weights = np.array([[settings[name] for name in self.numbers.weights]])
        thresholds = (np.array([settings[name]]) for name in self.numbers.thresholds)
        _, question, path, *_ = self.numbers.regions(weights, *thresholds)
        paths: np.ndarray = path[np.argsort(question)]
        return paths

    def representatives(self) -> list[dict[int, Settings]]:
        """For each question, one setting of the grid for each path that it takes."""
        places = np.full(self.numbers.questions * self.numbers.paths, -1)
        for block, (weights, question, path, top, _, left, _) in self._regions():
            place = np.ravel_multi_index((block.start + weights, top, left), (len(self.weights), *self._shape))
            places[question * self.numbers.paths + path] = place
        found: list[dict[int, Settings]] = [{} for _ in range(self.numbers.questions)]
        for number in np.flatnonzero(places >= 0).tolist():
            question, path = divmod(number, self.numbers.paths)
            found[question][path] = self.settings(*divmod(int(places[number]), len(self.thresholds)))
        return found

    def sums(self, *tables: np.ndarray, show: Show, what: str) -> list[np.ndarray]:
        """For each table (questions, paths), the sums (w, t) over the questions at every setting.

        A rectangle changes the sums at its four corners, which running sums along rows and columns spread over it. They
        are rounded, so that sums of the same scores in another order are equal.
        """
        sums = [np.empty((len(self.weights), len(self.thresholds))) for _ in tables]
        for block, (weights, question, path, top, bottom, left, right) in self._regions():
            show(block.start, len(self.weights), what)
            shape = block.stop - block.start, *(size + 1 for size in self._shape)
            corners = ((top, left), (bottom, right), (top, right), (bottom, left))
            places = np.concatenate([np.ravel_multi_index((weights, *corner), shape) for corner in corners])
            for each, table in zip(sums, tables, strict=True):
                values = table[question, path].astype(float)
                changes = np.bincount(places, np.concatenate([values, values, -values, -values]), math.prod(shape))
                summed = changes.reshape(shape).cumsum(1).cumsum(2)[:, :-1, :-1]
                each[block] = summed.reshape(len(summed), -1).round(_DECIMALS)
        return sums

    @property
    def _shape(self) -> tuple[int, int]:
        """The rows and columns of the thresholds; a single threshold has one row."""
        columns = len(self.values[self.numbers.thresholds[-1]])
        return len(self.thresholds) // columns, columns

    def _regions(self) -> Iterator[tuple[slice, np.ndarray]]:
        """The regions of some weights at a time, so that their arrays are bounded."""
        thresholds = [np.array(self.values[name]) for name in self.numbers.thresholds]
        size = max(1, min(_PAIRS // self.numbers.questions, _CELLS // len(self.thresholds)))
        for first in range(0, len(self.weights), size):
            block = slice(first, min(first + size, len(self.weights)))
            yield block, self.numbers.regions(self.weights[block], *thresholds)


def rectangles(*parts: tuple[Any, ...]) -> np.ndarray:
    """Integers (7, n): weights, question, path, and where it is taken: rows ``top`` to before ``bottom``, columns
    ``left`` to before ``right``. Each part has these as arrays or numbers; rectangles without a cell are left out."""
    joined = zip(*(np.broadcast_arrays(*part) for part in parts), strict=True)
    found = np.array([np.concatenate([each.ravel() for each in field]) for field in joined])
    *_, top, bottom, left, right = found
    there: np.ndarray = found[:, (top < bottom) & (left < right)]
    return there


def combined(values: Sequence[Sequence[float]]) -> np.ndarray:
    """Every combination of the values, (combinations, len(values)), in the order of ``itertools.product``."""
    return np.stack(np.meshgrid(*values, indexing="ij"), -1).reshape(-1, len(values))


def spread(first: float, last: float, step: float) -> tuple[float, ...]:
    """The values from ``first`` to ``last``, both within, as decimal numbers."""
    count = math.floor((last - first) / step + 1e-9) + 1
    return tuple(round(first + number * step, 10) + 0.0 for number in range(count))


def values_from(typed: Sequence[str], known: Values) -> Values:
    """The values known, with those typed in their place: ``beta=0.5:1.5:0.1`` or ``beta=0.9,1.1``.

    Raises UsageError for a setting that is not tuned, and for text that is not a list or a range of numbers.
    """
    found = dict(known)
    for text in typed:
        name, equals, values = text.partition("=")
        if equals and name not in known:
            raise unknown("setting to tune", name, known)
        found[name] = _values(text, values)
    return found


def _values(text: str, values: str) -> tuple[float, ...]:
    try:
        numbers = [float(number) for number in values.split(":" if ":" in values else ",")]
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)) or (":" in values and len(numbers) != 3):
        raise UsageError(f"--grid takes NAME=FIRST:LAST:STEP or NAME=VALUE,VALUE; got '{text}'")
    if ":" not in values:
        return tuple(sorted(set(numbers)))
    first, last, step = numbers
    if step <= 0 or last < first:
        raise UsageError(f"--grid goes up from FIRST to LAST by a STEP above 0; got '{text}'")
    if (last - first) / step >= MOST:
        raise UsageError(f"--grid: '{text}' are more than {MOST:,} values of one setting")
    return spread(first, last, step)
