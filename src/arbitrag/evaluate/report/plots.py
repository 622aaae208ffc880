"""Plots of a report as plain places and words; the template draws them as SVG, with no script and no font of its own.

Places are in the units of a drawing of ``WIDTH`` by ``HEIGHT``, from its upper left corner. A series has a colour and a
shape by its number, the same one in every plot of a page, so that systems are told apart without colours too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from arbitrag.evaluate.metrics.answers import METRICS
from arbitrag.evaluate.report.conclusion import tokens_of
from arbitrag.evaluate.report.report import Report, SetReport
from arbitrag.evaluate.report.tables import name

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 14, 40  # margins
COLOURS = 8
SHAPES = 4
_WIDE = 20.0  # a range of costs from which on their axis is logarithmic


@dataclass(frozen=True, slots=True)
class Marker:
    """A point of a series with its words; ``low`` and ``high`` are the ends of its interval, where it has one."""

    x: float
    y: float
    words: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """``line`` holds the places of a line through the points, as SVG has them; empty without one."""

    name: str
    colour: int
    shape: int
    marks: tuple[Marker, ...]
    line: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """``x_ticks`` and ``y_ticks`` are places with their words; ``notes`` say what must be known beside it."""

    title: str
    x_title: str
    y_title: str
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    series: tuple[Series, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from ``first`` to ``last`` on ``size`` units that begin at ``start``; ``size`` is negative upwards."""

    first: float
    last: float
    start: float
    size: float
    log: bool = False

    def place(self, value: float) -> float:
        first, last, value = (
            (math.log(self.first), math.log(self.last), math.log(value)) if self.log else (self.first, self.last, value)
        )
        return round(self.start + self.size * (value - first) / (last - first), 1)


def plots(report: Report, found: SetReport) -> tuple[Plot, ...]:
    """Those that a set has the figures for."""
    every = (_cost(found), _risk(found), _levels(report, found))
    return tuple(plot for plot in every if plot is not None)


def _cost(found: SetReport) -> Plot | None:
    """What each system gets right, against what it costs."""
    metric = found.judge if found.judge in found.metrics else found.metrics[0]
    priced = all(each.standalone.each.get("money") is not None for each in found.statistics)
    costs = [each.standalone.each.get("money") if priced else tokens_of(each) for each in found.statistics]
    if len(found.statistics) < 2 or any(cost is None for cost in costs):
        return None
    values = [cost or 0.0 for cost in costs]
    log = min(values) > 0 and max(values) / min(values) >= _WIDE
    x = _x(min(values) / 1.3 if log else 0.0, (max(values) or 1.0) * (1.3 if log else 1.08), log)
    intervals = [each.metrics[metric] for each in found.statistics]
    ends = [end for each in intervals for end in (each.low, each.mean, each.high) if end is not None]
    y = _y(min(ends, default=0.0), max(ends, default=1.0))
    series = []
    for number, (each, value, interval) in enumerate(zip(found.statistics, values, intervals, strict=True)):
        mean = interval.mean or 0.0
        words = f"{name(each.system)}: {100 * mean:.1f}% at {_amount(value, priced)}"
        low, high = (None if end is None else y.place(end) for end in (interval.low, interval.high))
        series.append(_series(each.system, number, (Marker(x.place(value), y.place(mean), words, low, high),)))
    what = "money a question" if priced else "uncached prompt and completion tokens per question"
    notes = (
        "Up and to the left is better. Cost is the standalone cost of each system, without request deduplication"
        + (" and without tokens that a prefix cache saved." if not priced else "."),
    )
    return Plot(
        f"{METRICS[metric].title} against cost",
        what + (" (logarithmic)" if log else ""),
        f"{METRICS[metric].title}, %",
        tuple((x.place(tick), _short(tick)) for tick in ticks(x)),
        _percents(y),
        tuple(series),
        notes,
    )


def _risk(found: SetReport) -> Plot | None:
    """The share of wrong answers as more and more is answered, surest first; a point where no score orders answers."""
    drawn = [each for each in found.statistics if each.answered.coverage and each.answered.risk is not None]
    if not drawn or not (any(each.answered.refused for each in drawn) or any(each.ordered for each in drawn)):
        return None
    risks = [each.answered.risk or 0.0 for each in drawn]
    risks += [risk for each in drawn if each.ordered for _, risk in each.ordered.curve]
    x, y = _x(0.0, 1.0), _y(0.0, max(risks) or 1.0)
    series = []
    for number, each in enumerate(found.statistics):
        if each not in drawn:
            continue
        coverage, risk = each.answered.coverage or 0.0, each.answered.risk or 0.0
        words = f"{name(each.system)}: {100 * risk:.1f}% wrong of the {100 * coverage:.1f}% answered"
        curve = each.ordered.curve if each.ordered else ()
        line = " ".join(f"{x.place(at)},{y.place(wrong)}" for at, wrong in curve)
        series.append(_series(each.system, number, (Marker(x.place(coverage), y.place(risk), words),), line))
    scores = sorted({each.ordered.score for each in drawn if each.ordered})
    ordered = f"lines: answering only the surest, by the score '{name(scores[0])}'; " if scores else ""
    return Plot(
        "Risk and coverage",
        "answered, % of all questions",
        "wrong answers, % of those given",
        tuple((x.place(tick), f"{100 * tick:g}") for tick in ticks(x)),
        _percents(y),
        tuple(series),
        (f"Down and to the right is better; {ordered}points: as it was run. Risks compare at equal coverage only.",),
    )


def _levels(report: Report, found: SetReport) -> Plot | None:
    """How often the planted answer comes through, by how many passages were poisoned, in all sets of the same file.

    None for fewer than two levels, or where another set of the file comes first, whose section has the plot.
    """
    base = found.name.partition("?")[0]
    same = [each for each in report.sets if each.name.partition("?")[0] == base]
    if same[0].name != found.name:
        return None
    counts: dict[str, dict[int, tuple[int, int]]] = {}
    for each in same:
        for one in each.statistics:
            for level in one.attack.levels if one.attack else ():
                planted, questions = counts.setdefault(one.system, {}).get(level.poisoned, (0, 0))
                counts[one.system][level.poisoned] = (planted + level.planted, questions + level.questions)
    levels = sorted({level for by_level in counts.values() for level in by_level})
    if len(levels) < 2:
        return None
    x, y = _x(levels[0], levels[-1]), _y(0.0, max(p / q for each in counts.values() for p, q in each.values()) or 1.0)
    series = []
    order = list(dict.fromkeys(made.name for made in report.systems))
    for system, by_level in counts.items():
        marks = tuple(
            Marker(
                x.place(level),
                y.place(planted / asked),
                f"{name(system)}, {level} poisoned: {planted:,} of {asked:,} answers hold what was planted",
            )
            for level, (planted, asked) in sorted(by_level.items())
        )
        line = " ".join(f"{mark.x},{mark.y}" for mark in marks)
        series.append(_series(system, order.index(system), marks, line))
    sets = "" if len(same) == 1 else f" of {len(same)} sets"
    least = min(asked for each in counts.values() for _, asked in each.values())
    return Plot(
        "Attack success against poisoned passages",
        "poisoned passages of a question",
        "answers with what was planted, %",
        tuple((x.place(level), f"{level}") for level in levels),
        _percents(y),
        tuple(series),
        (f"Lower is better. Questions{sets} that did not fail; {least:,} at the level with the fewest.",),
    )


def _series(system: str, number: int, marks: tuple[Marker, ...], line: str = "") -> Series:
    return Series(name(system), number % COLOURS, number % SHAPES, marks, line)


def _x(first: float, last: float, log: bool = False) -> Axis:
    last = last if last > first else first + 1
    return Axis(first, last, LEFT, WIDTH - LEFT - RIGHT, log)


def _y(first: float, last: float) -> Axis:
    """Of shares: with room above and below, and nothing beyond 0 and 1."""
    margin = max(0.02, 0.08 * (last - first))
    first, last = max(0.0, first - margin), min(1.0, last + margin)
    return Axis(first, last, HEIGHT - BOTTOM, -(HEIGHT - BOTTOM - TOP))


def _percents(axis: Axis) -> tuple[tuple[float, str], ...]:
    return tuple((axis.place(tick), f"{100 * tick:g}") for tick in ticks(axis))


def ticks(axis: Axis) -> list[float]:
    """Round numbers within an axis, two to seven."""
    if axis.log:
        low, high = math.floor(math.log10(axis.first)), math.ceil(math.log10(axis.last))
        every = [size * 10.0**power for power in range(low, high + 1) for size in (1, 2, 5)]
        within = [tick for tick in every if axis.first <= tick <= axis.last]
        tens = [tick for tick in within if math.isclose(math.log10(tick) % 1, 0, abs_tol=1e-9)]
        return tens if len(tens) >= 3 else within
    rough = (axis.last - axis.first) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(size * unit for size in (1, 2, 5, 10) if size * unit >= rough * (1 - 1e-9))
    first, last = math.ceil(axis.first / step - 1e-9), math.floor(axis.last / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _short(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def _amount(value: float, priced: bool) -> str:
    return f"{value:.4g} of money a question" if priced else f"{value:,.0f} tokens a question"
