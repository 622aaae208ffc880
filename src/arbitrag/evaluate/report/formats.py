"""A report as text for a terminal, as markdown and as CSV; ``page`` makes the page of it.

Names and answers come from outside. Nothing in them acts on a terminal or breaks a line (``text.one_line``); markdown's
and HTML's own signs are escaped; and a CSV cell that a spreadsheet would take for a formula, because it begins with
``=``, ``+``, ``-``, ``@``, a tab or a carriage return, gets a ``'`` in front, as OWASP advises. Numbers stay numbers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from arbitrag.evaluate.metrics.significance import Interval
from arbitrag.evaluate.report.report import Report
from arbitrag.evaluate.report.statistics import Answered, Attack, Ordered, SystemStatistics
from arbitrag.evaluate.report.tables import NOTHING, Table, heading, name, tables
from arbitrag.text import one_line

_GAP = 2  # columns between two cells
_MOST_PAIRS = 15  # in a terminal: of six systems
_SIGNS = re.compile(r"[\\`*_|~$]|(?<=\])[(\[:]")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_CSV = ("set", "system", "other", "figure", "value", "low", "high", "questions")


def text(report: Report, width: int = 100) -> str:
    """The report for a terminal of ``width`` columns; wide tables are cut into several with the first column again.

    With more systems than can be read pair by pair, only the pairs with the baseline are told.
    """
    lines: list[str] = []
    for each in report.sets:
        lines += [name(each.name), *(f"  {line}" for line in heading(each)), ""]
        for table in tables(each, most_pairs=_MOST_PAIRS):
            lines += [table.title, *plain_table(table, width)]
            lines += [line for note in table.notes for line in _wrapped(note, width)]
            lines.append("")
    lines += [line for rule in report.rules for line in _wrapped(rule, width)]
    return "\n".join(lines)


def plain_table(table: Table, width: int) -> list[str]:
    """The lines of a table, without its title and notes."""
    lines: list[str] = []
    for places in _blocks(table, width):
        head = [table.head[place] for place in places]
        lines += _lines(head, [[row[place] for place in places] for row in table.rows], width)
    return lines


def markdown(report: Report) -> str:
    """The report as GitHub's markdown."""
    lines = [f"# {escaped(name(report.run))}", ""]
    if report.command:
        lines += [f"Made by: {escaped(one_line(report.command, 1000))}", ""]
    for each in report.sets:
        lines += [f"## {escaped(name(each.name))}", "", *(f"- {escaped(line)}" for line in heading(each)), ""]
        for table in tables(each):
            lines += _markdown(table)
    lines += [f"- {escaped(rule)}" for rule in report.rules]
    return "\n".join(lines) + "\n"


def escaped(words: str) -> str:
    """Text that markdown, and the HTML within it, shows as it is."""
    plain = "".join(_ENTITIES.get(sign, sign) for sign in words)
    return _SIGNS.sub(lambda match: f"\\{match.group()}", plain)


def comma_separated(report: Report) -> str:
    """One line for each figure: the set, the system, the other one of a pair, the figure's name and its value.

    A figure without a value has an empty cell.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_CSV)
    for row in _rows(report):
        writer.writerow([_cell(value) for value in row])
    return file.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    flat = one_line(value, 10_000)
    return f"'{flat}" if value.startswith(_FORMULA) or flat.startswith(_FORMULA) else flat


def _rows(report: Report) -> Iterator[tuple[Any, ...]]:
    for each in report.sets:
        for found in each.statistics:
            for figure, value, low, high, questions in _statistics(found):
                yield each.name, found.system, "", figure, value, low, high, questions
        for pair in each.pairs:
            where = (each.name, pair.left, pair.right)
            yield *where, f"difference {pair.metric}", *_interval(pair.difference)
            plain = {"p": pair.p, "p_holm": pair.p_holm, "best": pair.best, "gap": pair.gap}
            counts = {"only_left": pair.only_left, "only_right": pair.only_right}
            for figure, found_value in (plain | counts).items():
                yield *where, f"{figure} {pair.metric}", found_value, None, None, each.compared
            for system, value in pair.closed.items():
                yield *where, f"closed {pair.metric} by {system}", value, None, None, each.compared
        for part in each.slices:
            for system, score in part.scores.items():
                yield each.name, system, "", f"{part.kind} {part.name}", score, None, None, part.questions


def _statistics(found: SystemStatistics) -> Iterator[tuple[str, Any, float | None, float | None, int]]:
    for metric, interval in found.metrics.items():
        yield metric, *_interval(interval)
    for figure in ("rows", "failed", "retried", "cut", "parse_failures", "unread"):
        yield figure, getattr(found, figure), None, None, found.questions
    for part in (found.answered, found.ordered, found.attack):
        yield from ((figure, value, None, None, found.questions) for figure, value in _fields(part))
    if found.sources is not None:
        yield "source accuracy", found.sources.accuracy, None, None, found.sources.questions
    for which, cost in (("standalone", found.standalone), ("incremental", found.incremental)):
        yield from ((f"{which} {each}", value, None, None, cost.questions) for each, value in cost.each.items())


def _fields(part: Answered | Ordered | Attack | None) -> Iterator[tuple[str, Any]]:
    """Their numbers, under names that say of which part they are."""
    if isinstance(part, Answered):
        for each in ("right", "wrong", "refused", "due", "accuracy", "coverage", "rejection_rate", "risk"):
            yield each, getattr(part, each)
        yield "reliability", part.reliability
    elif isinstance(part, Ordered):
        for each in ("coverage", "area", "auroc", "calibration_error"):
            yield f"{part.score} {each}", getattr(part, each)
    elif isinstance(part, Attack):
        for each in ("questions", "planted", "only", "rate", "strict_rate"):
            yield f"attack {each}", getattr(part, each)


def _interval(interval: Interval) -> tuple[float | None, float | None, float | None, int]:
    return interval.mean, interval.low, interval.high, interval.questions


def _markdown(table: Table) -> list[str]:
    lines = [f"### {escaped(table.title)}", ""]
    lines.append(_line(table.head))
    lines.append("|" + "|".join([" --- ", *[" ---: "] * (len(table.head) - 1)]) + "|")
    lines += [_line(row) for row in table.rows]
    return [*lines, "", *(f"{escaped(note)}  " for note in table.notes), ""]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(escaped, cells)) + " |"


def _blocks(table: Table, width: int) -> list[list[int]]:
    """Which columns stand side by side: as many as fit behind the first, and one at least."""
    from rich.cells import cell_len

    sizes = [max(map(cell_len, column)) for column in zip(table.head, *table.rows, strict=True)]
    first = min(sizes[0], width // 2)
    blocks: list[list[int]] = []
    used = width
    for place, size in enumerate(sizes[1:], 1):
        if used + _GAP + size > width:
            blocks.append([0])
            used = first
        blocks[-1].append(place)
        used += _GAP + size
    return blocks or [[0]]


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Aligned columns; a first column that is too wide is folded, not cut, so that no two names look alike."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_edge=False)
    for place, title in enumerate(head):
        grid.add_column(Text(title), justify="left" if place == 0 else "right", overflow="fold", no_wrap=place > 0)
    for row in rows:
        grid.add_row(*map(Text, row))
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    with console.capture() as shown:
        console.print(grid)
    return [line.rstrip() for line in shown.get().rstrip("\n").split("\n")]


def _wrapped(words: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(words, width, break_on_hyphens=False)


def about(report: Report) -> list[tuple[str, str]]:
    """What the run and the report say of themselves, flat: a name and a value each."""
    made = [("run", report.run), ("report", report.command)] if report.command else [("run", report.run)]
    sessions = report.about.get("sessions", ())  # the first one's words stand above them
    again = {"sessions": {str(number): each for number, each in enumerate(sessions, 1)}} if len(sessions) > 1 else {}
    return [*made, *_flat({key: value for key, value in report.about.items() if key != "sessions"} | again)]


def _flat(values: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{within}{key} ")
        elif isinstance(value, list):
            yield f"{within}{key}", ", ".join(map(str, value)) or NOTHING
        else:
            yield f"{within}{key}", NOTHING if value in (None, "") else str(value)
