"""A report as one HTML page that needs nothing else: no script, no font, no picture, no request.

It begins with the answer, then what that rests on: figures with what they suffer from beside them, plots, tables, and
every question with what each system made of it. The template escapes everything; what could act on a reader beyond HTML
(control and direction characters) is made visible before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arbitrag.evaluate.metrics.answers import METRICS
from arbitrag.evaluate.metrics.significance import Interval
from arbitrag.evaluate.report.conclusion import conclusion
from arbitrag.evaluate.report.formats import about
from arbitrag.evaluate.report.pages import rendered
from arbitrag.evaluate.report.per_question import QuestionList
from arbitrag.evaluate.report.plots import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Plot, plots
from arbitrag.evaluate.report.report import Report, SetReport
from arbitrag.evaluate.report.tables import Table, heading, mark, name, ranged, tables
from arbitrag.text import one_line

_LONG = 2000  # characters of a value, such as a command


@dataclass(frozen=True, slots=True)
class Bar:
    """One interval: its ends and its mean in percent of the chart's width, None where there is none."""

    name: str
    low: float | None
    mean: float | None
    high: float | None
    words: str
    mark: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Intervals on one scale. ``ticks`` are places in percent with their words; ``zero`` is that of no difference."""

    title: str
    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]
    zero: float | None


@dataclass(frozen=True, slots=True)
class Section:
    """What the page says of a set: the ``answer`` first; ``first`` is the table with what its figures suffer from."""

    title: str
    answer: tuple[str, ...]
    lines: tuple[str, ...]
    first: Table | None
    charts: tuple[Chart, ...]
    plots: tuple[Plot, ...]
    tables: tuple[Table, ...]
    view: QuestionList | None


def page(report: Report, question_lists: Mapping[str, QuestionList] | None = None) -> str:
    """The page, as a text to be written in UTF-8; ``question_lists`` are the questions of each set, see ``every``."""
    return rendered(
        "report",
        title=name(report.run),
        width=WIDTH,
        height=HEIGHT,
        frame=(LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM),
        sections=[_section(report, each, (question_lists or {}).get(each.name)) for each in report.sets],
        rules=report.rules,
        systems=[
            (name(each.name), name(each.method), name(each.model), one_line(_settings(each.settings), _LONG))
            for each in report.systems
        ],
        about=[(one_line(key, _LONG), one_line(value, _LONG)) for key, value in about(report)],
    )


def _section(report: Report, found: SetReport, view: QuestionList | None) -> Section:
    charts = [_means(found, metric) for metric in found.metrics]
    if found.baseline is not None and len(found.statistics) > 1:
        charts += [_differences(found, metric, found.baseline) for metric in found.metrics]
    first, *others = tables(found, caveats=True) or [None]
    return Section(
        name(found.name),
        conclusion(found),
        heading(found),
        first,
        tuple(charts) if found.compared else (),
        plots(report, found) if found.compared else (),
        tuple(table for table in others if table is not None),
        view,
    )


def _means(found: SetReport, metric: str) -> Chart:
    intervals = [each.metrics[metric] for each in found.statistics]
    marks = [mark(found, metric, each.system) for each in found.statistics]
    return _chart(METRICS[metric].title, [each.system for each in found.statistics], intervals, marks)


def _differences(found: SetReport, metric: str, baseline: str) -> Chart:
    others = [each.system for each in found.statistics if each.system != baseline]
    intervals = []
    for system in others:
        pair = found.pair(metric, baseline, system)
        assert pair is not None
        intervals.append(pair.difference if pair.left == system else _turned(pair.difference))
    marks = [mark(found, metric, system) for system in others]
    title = f"{METRICS[metric].title}: difference from {name(baseline)}"
    return _chart(title, others, intervals, marks, with_zero=True)


def _turned(interval: Interval) -> Interval:
    """Of right - left, given that of left - right."""
    low, mean, high = (None if end is None else -end for end in (interval.high, interval.mean, interval.low))
    return Interval(interval.questions, mean, low, high, interval.level, interval.resamples, interval.seed)


def _chart(
    title: str, names: Sequence[str], intervals: Sequence[Interval], marks: Sequence[str], *, with_zero: bool = False
) -> Chart:
    ends = [end for each in intervals for end in (each.low, each.mean, each.high) if end is not None]
    ends += [0.0] if with_zero or not ends else []
    margin = max(0.01, 0.06 * (max(ends) - min(ends)))
    first, last = min(ends) - margin, max(ends) + margin
    if not with_zero:  # scores are from 0 to 1, and there is nothing beyond
        first, last = max(0.0, first), min(1.0, last)

    def place(value: float | None) -> float | None:
        return None if value is None else round(100 * (value - first) / (last - first), 2)

    bars = tuple(
        Bar(name(each), place(interval.low), place(interval.mean), place(interval.high), ranged(interval), sign)
        for each, interval, sign in zip(names, intervals, marks, strict=True)
    )
    ticks = tuple((round(100 * (tick - first) / (last - first), 2), f"{100 * tick:g}") for tick in _ticks(first, last))
    return Chart(f"{title}, in percent{' points' if with_zero else ''}", bars, ticks, place(0.0) if with_zero else None)


def _ticks(first: float, last: float) -> list[float]:
    """Round numbers of percents from ``first`` to ``last``, at most six, as shares of 1."""
    rough = 100 * (last - first) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(size * unit for size in (1, 2, 5, 10) if size * unit >= rough * (1 - 1e-9))
    return [
        number * step / 100 for number in range(math.ceil(100 * first / step), math.floor(100 * last / step + 1e-9) + 1)
    ]


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in settings.items()) or "none"
