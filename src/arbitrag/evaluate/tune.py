"""Tune a method's settings on a recorded run, without asking a model anything.

Where the decision of a question leads under every setting of a grid follows from the numbers that the run recorded, in
arrays (``tune_margin``, ``tune_bridge``). What the method answers there is decided again from the recorded calls, once
for each path that a question takes, by the method itself; so it is also seen that the method takes that path. A path
that needs a call which was not recorded is undecided: it is counted, named, and scored as wrong.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arbitrag.errors import ArbitragError, UsageError, unknown
from arbitrag.evaluate import tune_bridge, tune_margin
from arbitrag.evaluate.metrics.significance import Interval, compare
from arbitrag.evaluate.report.measure import chosen
from arbitrag.evaluate.report.report import digest_of
from arbitrag.evaluate.report.statistics import LEVEL, resamples_for
from arbitrag.evaluate.tune_grid import Grid, Values, values_from
from arbitrag.evaluate.tune_paths import Paths, looked_up
from arbitrag.evaluate.tune_record import Record, Recorded, Show, family, recorded
from arbitrag.methods import load
from arbitrag.methods.base import settings
from arbitrag.serialization import to_plain
from arbitrag.text import one_line

VALUES: Mapping[str, Values] = {"trustmargin": tune_margin.VALUES, "bridge": tune_bridge.VALUES}
MOST_POINTS = 20_000_000
RULES = (
    "Every decision was made again from recorded calls; no model was asked.",
    "A decision that needs a call which was not recorded counts as wrong: a setting reaches at least what is shown.",
    "A failed row counts as wrong under every setting; a question without a row or a trace is left out.",
    "Of settings that are equally good, the one nearest to the defaults is taken.",
    "Within the noise is a setting whose paired difference from the best has 0 in its 95% interval (normal).",
    "The best was chosen on these questions, so on others it may gain less: measure it on a set not used here.",
)
_TEST = re.compile(r"(?<![a-z])tests?(?:[ _-]?set)?(?![a-z])", re.IGNORECASE)
_BLOCK = 4_000_000  # codes at a time, which bounds the memory to some tens of MB
_Z = 1.959964  # of a two-sided 95% under the normal distribution
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Point:
    """One setting: its accuracy, the share that it could reach at most, and the questions that it leaves undecided."""

    settings: Mapping[str, float]
    accuracy: Interval
    at_most: float
    undecided: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The accuracy (rows, columns) of two settings where all others are the best; ``near`` is within the noise.

    ``best`` and ``default`` are places in it, None where the default is not among the values. An accuracy is None where
    no weight is left.
    """

    rows: str
    columns: str
    row_values: tuple[float, ...]
    column_values: tuple[float, ...]
    accuracy: tuple[tuple[float | None, ...], ...]
    near: tuple[tuple[bool, ...], ...]
    best: tuple[int, int]
    default: tuple[int, int] | None


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


def tune(
    run: Recorded,
    method: str,
    *,
    set: str | None = None,
    system: str | None = None,
    metric: str | None = None,
    grid: Sequence[str] = (),
    on_test: bool = False,
    name: str = "",
    command: str = "",
    resamples: int | None = None,
    seed: int = 0,
    show: Show = lambda done, total, note: None,
) -> Tuned:
    """Find the best settings of a method on a question set of a run.

    ``set`` may be left out where the run has one; ``system`` chooses among several forms of the method. ``grid`` takes
    the place of the values of a setting (``tune_grid.values_from``). ``show(done, total, what)`` is told of progress.

    Raises:
        UsageError: a name or a value is not known, or the set is one to test on and ``on_test`` does not allow it.
        DataError: nothing was recorded that could be decided again.
    """
    if method not in VALUES:
        raise UsageError(f"there are settings to tune in {' and '.join(VALUES)}; got '{one_line(method)}'")
    values = values_from(grid, VALUES[method])
    combinations = math.prod(map(len, values.values()))
    if combinations > MOST_POINTS:
        raise UsageError(f"{combinations:,} settings are more than {MOST_POINTS:,}; give --grid fewer values")
    used = set_to_tune_on(run, set, on_test)
    systems = family(run, method, VALUES[method], system)
    if method == "bridge":
        tune_bridge.check(systems[0].settings)
    read = tune_bridge.read if method == "bridge" else tune_margin.read
    record = recorded(run, used, systems, read, show)
    rounds = [case.rounds for case in record.cases]
    made: Grid = (tune_bridge.BridgeGrid if method == "bridge" else tune_margin.MarginGrid).of(rounds, values)
    judge = chosen([metric] if metric else [], [*run.items(used, passages=False)])[0]
    paths = Paths(run, used, record.cases, made, judge, show)
    search = _search(made, paths, len(record.cases), show)
    default = {name: float(getattr(made.method(), name)) for name in made.values}
    best = _best(made, search, default)
    found = _Found(made, paths, record)
    at_best, at_default = found.scores(best), found.scores(default)
    both = compare(
        {"best": at_best, "default": at_default},
        level=LEVEL,
        resamples=resamples or resamples_for(found.questions),
        seed=seed,
    )
    near = _near(made, paths, np.array(at_best[: len(record.cases)]), found.questions, show)
    undecided = sorted({*found.undecided(best), *found.undecided(default)})
    return Tuned(
        name,
        command,
        method,
        tuple(each.name for each in systems),
        {key: to_plain(value) for key, value in systems[0].settings.items() if key not in VALUES[method]},
        used,
        digest_of(run.meta, used),
        judge.name,
        len(run.items(used, passages=False)),
        found.questions,
        len(record.failed),
        {key: ids for key in ("waiting", "untraced", "damaged", "apart") if (ids := getattr(record, key))},
        dict(made.values),
        search.totals.size,
        found.point(best, both.means["best"]),
        found.point(default, both.means["default"]),
        both.differences["best", "default"],
        found.decided(best, default, resamples, seed) if undecided else None,
        int((search.totals >= search.totals.max() - _EQUAL).sum()),
        int(near.sum()),
        int((search.undecided > 0).sum()),
        paths.reasons,
        tuple(_map(made, search, near, pair, best, default, found.questions) for pair in made.maps),
        tuple(_notes(made, record, found, best, default)),
    )


def set_to_tune_on(run: Recorded, wanted: str | None, on_test: bool) -> str:
    """The question set named, or the only one that is not one to test on.

    A set says what it is by its name, which is that of its file: ``test`` and ``trd-test`` are to test on. Raises
    UsageError for one of these unless ``on_test`` allows it, and when several are there and none is named.
    """
    if wanted is not None and wanted not in run.sets:
        raise unknown("question set", wanted, run.sets)
    offered = [wanted] if wanted is not None else [each for each in run.sets if on_test or not _TEST.search(each)]
    if len(offered) > 1:
        listed = ", ".join(one_line(each, 60) for each in offered)
        raise UsageError(f"the run has several question sets; choose one with --set: {listed}")
    if not offered or (_TEST.search(offered[0]) and not on_test):
        shown = one_line((offered or list(run.sets) or ["none"])[0], 60)
        raise UsageError(
            f"'{shown}' is a set to test on: what is tuned on it says nothing of other questions.\n"
            "Record a validation set and choose it with --set, or insist: --on-test"
        )
    return offered[0]


@dataclass(frozen=True)
class _Search:
    """The sums of scores, and the number of undecided questions, (planes, rows, columns)."""

    totals: np.ndarray
    undecided: np.ndarray


def _blocks(grid: Grid, questions: int) -> Iterator[tuple[int, slice]]:
    """Every plane and some questions at a time."""
    size = max(1, _BLOCK // (len(grid.values[grid.axes[0]]) * len(grid.values[grid.axes[1]])))
    for number in range(len(grid.planes)):
        for first in range(0, questions, size):
            yield number, slice(first, min(questions, first + size))


def _search(grid: Grid, paths: Paths, questions: int, show: Show) -> _Search:
    rows, columns = (grid.values[axis] for axis in grid.axes)
    shape = (len(grid.planes), len(rows), len(columns))
    totals, undecided = np.zeros(shape), np.zeros(shape, int)
    for number, block in _blocks(grid, questions):
        show(number, len(grid.planes), "trying settings")
        codes = grid.codes(grid.planes[number], rows, columns, block)
        paths.learn(codes, grid.planes[number], rows, columns, block.start)
        totals[number] += looked_up(paths.scores[block], codes).sum(0)
        undecided[number] += looked_up(paths.undecided[block], codes).sum(0)
    return _Search(totals, undecided)


def _near(grid: Grid, paths: Paths, best: np.ndarray, questions: int, show: Show) -> np.ndarray:
    """Which settings (planes, rows, columns) differ from the best by no more than chance would; ``best`` has scores.

    Failed rows are of the ``questions`` but score 0 under every setting, so they differ by 0.
    """
    rows, columns = (grid.values[axis] for axis in grid.axes)
    shape = (len(grid.planes), len(rows), len(columns))
    sums, squares = np.zeros(shape), np.zeros(shape)
    for number, block in _blocks(grid, len(best)):
        show(number, len(grid.planes), "comparing with the best")
        codes = grid.codes(grid.planes[number], rows, columns, block)
        lost = best[block, None, None] - looked_up(paths.scores[block], codes)
        sums[number] += lost.sum(0)
        squares[number] += (lost * lost).sum(0)
    means = sums / questions
    spread = np.maximum(squares / questions - means * means, 0) / max(1, questions - 1)
    near: np.ndarray = means <= _Z * np.sqrt(spread) + _EQUAL
    return near


def _best(grid: Grid, search: _Search, default: Mapping[str, float]) -> dict[str, float]:
    """The settings with the highest sum; of several the nearest to the defaults, each in shares of its values' span."""

    def away(name: str, value: float) -> float:
        values = grid.values[name]
        return abs(value - default[name]) / ((values[-1] - values[0]) or 1.0)

    rows, columns = (grid.values[axis] for axis in grid.axes)
    others = np.array([sum(away(name, plane[name]) for name in grid.values if name in plane) for plane in grid.planes])
    by_row, by_column = (np.array([away(axis, value) for value in grid.values[axis]]) for axis in grid.axes)
    distance = others[:, None, None] + by_row[:, None] + by_column
    ties = search.totals >= search.totals.max() - _EQUAL
    plane, row, column = map(int, np.unravel_index(np.argmin(np.where(ties, distance, np.inf)), distance.shape))
    chosen = {**grid.planes[plane], grid.axes[0]: rows[row], grid.axes[1]: columns[column]}
    return {name: float(chosen[name]) for name in grid.values}


@dataclass(frozen=True)
class _Found:
    """Single settings, question by question; failed rows stand behind the questions that were decided again."""

    grid: Grid
    paths: Paths
    record: Record

    @property
    def questions(self) -> int:
        return len(self.record.cases) + len(self.record.failed)

    def scores(self, settings: Mapping[str, float]) -> list[float]:
        codes = self._codes(settings)
        return [*self.paths.scores[np.arange(len(codes)), codes].tolist(), *([0.0] * len(self.record.failed))]

    def undecided(self, settings: Mapping[str, float]) -> tuple[str, ...]:
        codes = self._codes(settings)
        open_ = np.flatnonzero(self.paths.undecided[np.arange(len(codes)), codes])
        return tuple(self.record.cases[place].item.id for place in open_.tolist())

    def point(self, settings: Mapping[str, float], accuracy: Interval) -> Point:
        undecided = self.undecided(settings)
        at_most = (sum(self.scores(settings)) + len(undecided)) / self.questions
        return Point(settings, accuracy, at_most, undecided)

    def decided(
        self, best: Mapping[str, float], default: Mapping[str, float], resamples: int | None, seed: int
    ) -> Interval:
        """The difference over the questions that both settings decide."""
        open_ = {*self.undecided(best), *self.undecided(default)}
        kept = [case.item.id not in open_ for case in self.record.cases] + [True] * len(self.record.failed)
        sides = {
            name: [score for score, wanted in zip(self.scores(settings), kept, strict=True) if wanted]
            for name, settings in (("best", best), ("default", default))
        }
        number = resamples or resamples_for(sum(kept))
        return compare(sides, level=LEVEL, resamples=number, seed=seed).differences["best", "default"]

    def _codes(self, settings: Mapping[str, float]) -> np.ndarray:
        every = {name: float(getattr(self.grid.method(), name)) for name in self.grid.planes[0]} | dict(settings)
        rows, columns = ([every[axis]] for axis in self.grid.axes)
        plane = {name: every[name] for name in self.grid.planes[0]}
        codes = self.grid.codes(plane, rows, columns, slice(0, len(self.record.cases)))
        self.paths.learn(codes, plane, rows, columns, 0)
        flat: np.ndarray = codes[:, 0, 0].astype(int)
        return flat


def _map(
    grid: Grid,
    search: _Search,
    near: np.ndarray,
    pair: tuple[str, str],
    best: Mapping[str, float],
    default: Mapping[str, float],
    questions: int,
) -> HeatMap:
    first, second = pair
    ticks = (grid.values[first], grid.values[second])

    def at(row: float, column: float) -> tuple[int, int, int] | None:
        """The place of these two values in the grid, all others being the best; None for weights that are all 0."""
        settings = {**grid.planes[0], **best, first: row, second: column}
        places = [grid.values[axis].index(settings[axis]) for axis in grid.axes]
        try:
            return grid.plane_of(settings), places[0], places[1]
        except (KeyError, ArbitragError):
            return None

    places = [[at(row, column) for column in ticks[1]] for row in ticks[0]]
    inside = default[first] in ticks[0] and default[second] in ticks[1]
    return HeatMap(
        first,
        second,
        *ticks,
        tuple(tuple(None if p is None else float(search.totals[p]) / questions for p in row) for row in places),
        tuple(tuple(p is not None and bool(near[p]) for p in row) for row in places),
        (ticks[0].index(best[first]), ticks[1].index(best[second])),
        (ticks[0].index(default[first]), ticks[1].index(default[second])) if inside else None,
    )


def _notes(
    grid: Grid, record: Record, found: _Found, best: Mapping[str, float], default: Mapping[str, float]
) -> Iterator[str]:
    yield from grid.notes
    if record.apart:
        yield (
            f"Of {len(record.apart):,} questions the systems recorded different numbers; only the first system's calls "
            "were used there."
        )
    if sum(found.scores(default)) > sum(found.scores(best)) + _EQUAL:
        yield "The defaults are not on this grid, and they do better than the best that is."
    edges = [
        name
        for name, values in grid.values.items()
        if len(values) > 1 and best[name] in (values[0], values[-1]) and best[name] != default[name]
    ]
    if edges:
        yield f"The best lies at the edge of the values tried of {' and '.join(edges)}; try more with --grid."
