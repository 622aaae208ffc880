"""Grid search over a method's settings on a recorded run, without asking a model anything.

Which path the decision of a question takes under every setting follows from the numbers that the run recorded
(``trustmargin``, ``bridge``). What the method answers on a path is decided again from the recorded calls by the method
itself, once for each path and question, and looked up for every setting (``outcomes``). A path that needs a call which
was not recorded is undecided: it is counted, named, and scored as wrong.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arbitrag.errors import UsageError, unknown
from arbitrag.evaluate.metrics.significance import Comparison, Interval, compare
from arbitrag.evaluate.report.measure import chosen
from arbitrag.evaluate.report.report import digest_of
from arbitrag.evaluate.report.statistics import LEVEL, resamples_for
from arbitrag.evaluate.tune.bridge import BridgeNumbers
from arbitrag.evaluate.tune.grid import Grid, Numbers, Settings, Show, values_from
from arbitrag.evaluate.tune.outcomes import Outcomes, outcomes
from arbitrag.evaluate.tune.recorded import Record, Recorded, alike, recorded
from arbitrag.evaluate.tune.result import HeatMap, Point, Tuned
from arbitrag.evaluate.tune.trustmargin import MarginNumbers
from arbitrag.serialization import to_plain
from arbitrag.text import one_line

TUNABLE: Mapping[str, type[Numbers]] = {kind.method.name: kind for kind in (MarginNumbers, BridgeNumbers)}
MOST_POINTS = 20_000_000
_TEST = re.compile(r"(?<![a-z])tests?(?:[ _-]?set)?(?![a-z])", re.IGNORECASE)
_Z = 1.959964  # of a two-sided 95% under the normal distribution
_EQUAL = 1e-9


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
    the place of the values of a setting (``grid.values_from``). ``show(done, total, what)`` is told of progress.

    Raises:
        UsageError: a name or a value is not known, or the set is one to test on and ``on_test`` does not allow it.
        DataError: nothing was recorded that could be decided again.
    """
    if method not in TUNABLE:
        raise UsageError(f"there are settings to tune in {' and '.join(TUNABLE)}; got '{one_line(method)}'")
    kind = TUNABLE[method]
    values = values_from(grid, kind.values)
    combinations = math.prod(map(len, values.values()))
    if combinations > MOST_POINTS:
        raise UsageError(f"{combinations:,} settings are more than {MOST_POINTS:,}; give --grid fewer values")
    used = set_to_tune_on(run, set, on_test)
    systems = alike(run, method, kind.values, kind.fixed, system)
    record = recorded(run, used, systems, kind.read, show)
    tried = Grid.of(kind([case.rounds for case in record.cases]), values)
    items = run.items(used, passages=False)
    judge = chosen([metric] if metric else [], [*items])[0]
    default = {name: float(getattr(kind.method(), name)) for name in (*kind.weights, *kind.thresholds)}
    answers = outcomes(run, used, record.cases, tried, default, judge, show)
    totals, undecided_sums = tried.sums(answers.scores, answers.undecided, show=show, what="trying settings")
    failed, ids = len(record.ids.get("failed", ())), [case.item.id for case in record.cases]
    best = _Setting.of(_best(tried, totals, default), tried, answers, failed)
    usual = _Setting.of(default, tried, answers, failed)
    near = _near(tried, answers, best, show)
    undecided = best.undecided | usual.undecided

    def compared(kept: np.ndarray) -> Comparison:
        sides = {"best": best.scores[kept].tolist(), "default": usual.scores[kept].tolist()}
        return compare(sides, level=LEVEL, resamples=resamples or resamples_for(int(kept.sum())), seed=seed)

    names = tuple(tried.values)
    pairs = tuple(zip(names[0:4:2], names[1:4:2], strict=False))
    both = compared(np.ones(len(undecided), bool))
    return Tuned(
        run=name,
        command=command,
        method=method,
        systems=tuple(each.name for each in systems),
        fixed={key: to_plain(value) for key, value in systems[0].settings.items() if key not in kind.values},
        set=used,
        digest=digest_of(run.meta, used),
        metric=judge.name,
        questions=len(items),
        compared=len(undecided),
        failed=failed,
        left_out={key: record.ids[key] for key in ("waiting", "untraced", "damaged", "apart") if key in record.ids},
        grid=dict(tried.values),
        points=totals.size,
        best=best.point(tried.values, both.means["best"], ids),
        default=usual.point(tried.values, both.means["default"], ids),
        difference=both.differences["best", "default"],
        decided=compared(~undecided).differences["best", "default"] if undecided.any() else None,
        tied=int((totals >= totals.max() - _EQUAL).sum()),
        near=int(near.sum()),
        undecided_points=int((undecided_sums > 0).sum()),
        reasons=answers.reasons,
        maps=tuple(_map(tried, totals / len(undecided), near, pair, best.settings, default) for pair in pairs),
        notes=tuple(_notes(tried, record, best, usual)),
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
class _Setting:
    """One setting question by question: its ``scores`` and which are ``undecided``, (questions,); failed rows last."""

    settings: Settings
    scores: np.ndarray
    undecided: np.ndarray

    @classmethod
    def of(cls, settings: Settings, grid: Grid, answers: Outcomes, failed: int) -> _Setting:
        places = np.arange(grid.numbers.questions), grid.paths_at(settings)
        scores, undecided = answers.scores[places], answers.undecided[places]
        return cls(settings, np.append(scores, np.zeros(failed)), np.append(undecided, np.zeros(failed, bool)))

    def point(self, names: Collection[str], accuracy: Interval, ids: Sequence[str]) -> Point:
        undecided = tuple(ids[number] for number in np.flatnonzero(self.undecided).tolist())
        at_most = (sum(self.scores.tolist()) + len(undecided)) / len(self.scores)
        return Point({name: self.settings[name] for name in names}, accuracy, at_most, undecided)


def _best(grid: Grid, totals: np.ndarray, default: Settings) -> dict[str, float]:
    """The settings with the highest sum; of several the nearest to the defaults, relative to the span of each."""
    numbers = grid.numbers
    columns = {name: grid.weights[:, n, None] for n, name in enumerate(numbers.weights)}
    columns |= {name: grid.thresholds[:, n] for n, name in enumerate(numbers.thresholds)}
    distance = np.zeros((1, 1))
    for name, tried in columns.items():
        if name in grid.values:
            values = grid.values[name]
            distance = distance + np.abs(tried - default[name]) / ((values[-1] - values[0]) or 1.0)
    ties = totals >= totals.max() - _EQUAL
    return grid.settings(*divmod(int(np.argmin(np.where(ties, distance, np.inf))), totals.shape[1]))


def _near(grid: Grid, answers: Outcomes, best: _Setting, show: Show) -> np.ndarray:
    """Which settings (w, t) differ from the best by no more than chance would. Failed rows differ by 0."""
    questions = len(best.scores)
    lost = best.scores[: grid.numbers.questions, None] - answers.scores
    sums, squares = grid.sums(lost, lost * lost, show=show, what="comparing with the best")
    means = sums / questions
    variance = np.maximum(squares / questions - means * means, 0) / max(1, questions - 1)
    near: np.ndarray = means <= _Z * np.sqrt(variance) + _EQUAL
    return near


def _map(
    grid: Grid, accuracy: np.ndarray, near: np.ndarray, pair: Sequence[str], best: Settings, default: Settings
) -> HeatMap:
    """Two settings of the grid, (rows, columns), where all others are the best."""
    rows, columns = (grid.values[name] for name in pair)
    at = {name: slice(None) if name in pair else values.index(best[name]) for name, values in grid.values.items()}
    weights = [name for name in grid.numbers.weights if name in grid.values]
    combination = grid.index.reshape([len(grid.values[name]) for name in weights])[tuple(at[name] for name in weights)]
    places = combination, *(at[name] for name in grid.numbers.thresholds)
    shape = -1, *(len(grid.values[name]) for name in grid.numbers.thresholds)
    cells = np.pad(accuracy, ((0, 1), (0, 0)), constant_values=np.nan).reshape(shape)[places]  # -1 is NaN
    near_cells = np.pad(near, ((0, 1), (0, 0))).reshape(shape)[places]
    inside = default[pair[0]] in rows and default[pair[1]] in columns
    return HeatMap(
        pair[0],
        pair[1],
        rows,
        columns,
        tuple(tuple(None if math.isnan(cell) else cell for cell in row) for row in cells.tolist()),
        tuple(map(tuple, near_cells.tolist())),
        (rows.index(best[pair[0]]), columns.index(best[pair[1]])),
        (rows.index(default[pair[0]]), columns.index(default[pair[1]])) if inside else None,
    )


def _notes(grid: Grid, record: Record, best: _Setting, default: _Setting) -> Iterator[str]:
    yield from grid.numbers.notes
    if apart := len(record.ids.get("apart", ())):
        yield (
            f"Of {apart:,} questions the systems recorded different numbers; only the first system's calls were used "
            "there."
        )
    if default.scores.sum() > best.scores.sum() + _EQUAL:
        yield "The defaults are not on this grid, and they do better than the best that is."
    edges = [
        name
        for name, values in grid.values.items()
        if len(values) > 1
        and best.settings[name] in (values[0], values[-1])
        and best.settings[name] != default.settings[name]
    ]
    if edges:
        yield f"The best lies at the edge of the values tried of {' and '.join(edges)}; try more with --grid."
