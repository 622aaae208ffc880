"""What tuning found, as text for a terminal: the settings, what they gain, and the heat maps in shades."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from arbitrag.evaluate.metrics.answers import METRICS
from arbitrag.evaluate.report.formats import plain_table
from arbitrag.evaluate.report.tables import NOTHING, Table, name, percent, ranged
from arbitrag.evaluate.tune.result import HeatMap, Tuned, level
from arbitrag.text import one_line

SHADES = " .:-=+*#%@"
BEST, DEFAULT = "B", "D"
LEFT_OUT = {
    "waiting": "without a row yet",
    "untraced": "without a trace (bench run --traces keeps them)",
    "damaged": "with a damaged trace",
}
_IDS = 5  # that are named of many


def text(found: Tuned, width: int = 100) -> str:
    """Everything on lines of ``width`` columns where they can be."""
    lines = [f"{found.method} on {name(found.set)}", *(f"  {line}" for line in heading(found)), ""]
    table = settings_table(found)
    lines += [*plain_table(table, width), *(line for note in table.notes for line in textwrap.wrap(note, width)), ""]
    lines += [line for told in outcome(found) for line in textwrap.wrap(told, width)]
    for each in found.maps:
        lines += ["", *_map(each, width)]
    lines += ["", "Use the best settings:", f"  arbitrag ask --method {found.method} {found.options}"]
    lines += [f"  arbitrag bench run RUN.db --method {_quoted(found.typed)}", ""]
    lines += [line for rule in found.rules for line in textwrap.wrap(rule, width)]
    return "\n".join(lines)


def heading(found: Tuned) -> tuple[str, ...]:
    """What was tuned on, a sentence each."""
    lines = [f"{found.questions:,} questions" + (f", digest {name(found.digest)}" if found.digest else "")]
    lines.append(f"recorded by {', '.join(map(name, found.systems))}")
    lines.append(f"{found.compared:,} of them count" + (f", {found.failed:,} as failed" if found.failed else ""))
    lines += [f"left out: {len(found.left_out[key]):,} {LEFT_OUT[key]}" for key in LEFT_OUT if key in found.left_out]
    return tuple(lines)


def settings_table(found: Tuned) -> Table:
    """The best settings and the defaults, with what they reach."""
    undecided = bool(found.best.undecided or found.default.undecided)
    rows = []
    for title, point in (("best", found.best), ("default", found.default)):
        more = (f"{len(point.undecided):,}", percent(point.at_most)) if undecided else ()
        rows.append((title, *(f"{point.settings[each]:g}" for each in found.grid), ranged(point.accuracy), *more))
    head = ("", *found.grid, METRICS[found.metric].title, *(("Undecided", "At most") if undecided else ()))
    interval = found.best.accuracy
    note = (
        f"in percent of {found.compared:,} questions; intervals of {100 * interval.level:g}%: paired bootstrap, "
        f"{interval.resamples:,} resamples, seed {interval.seed}"
    )
    return Table("Settings", head, tuple(rows), (note,))


def outcome(found: Tuned) -> Iterator[str]:
    """What the best gains, how flat the optimum is, and what could not be decided, a sentence each."""
    interval = found.difference
    if found.best.settings == found.default.settings:
        yield "Nothing that was tried is better than the defaults: keep them."
    else:
        yield f"The best minus the defaults: {ranged(interval)} percent points, n = {interval.questions:,}" + (
            ", which could be noise." if _noise(found) else "."
        )
    yield (
        f"Of {found.points:,} settings {found.tied:,} {'is' if found.tied == 1 else 'are'} as good as the best, and "
        f"{found.near:,} ({percent(found.near / found.points)}%) lie within the noise."
    )
    if found.decided is not None:
        yield (
            f"Over the {found.decided.questions:,} questions that both decide, the difference is "
            f"{ranged(found.decided)} percent points."
        )
    for title, point in (("The best leaves", found.best), ("The defaults leave", found.default)):
        if point.undecided:
            yield f"{title} undecided: {_listed(point.undecided)}."
    for why, count in found.reasons.items():
        yield f"Somewhere on the grid, {count:,} question{'s' if count > 1 else ''}: {name(why)}."
    if found.reasons:
        more = {"bridge": ' --method "bridge alpha=0 beta=0" --method "bridge alpha=0 beta=9"'}.get(found.method, "")
        yield (
            f"{found.undecided_points:,} settings leave a question undecided. A run with more settings records more: "
            f"arbitrag bench run RUN.db --traces{more}"
        )
    yield from found.notes


def _noise(found: Tuned) -> bool:
    low, high = found.difference.low, found.difference.high
    return low is None or high is None or low <= 0 <= high


def _listed(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _IDS:,} more" if len(ids) > _IDS else ""
    return f"{len(ids):,}: {', '.join(one_line(each, 40) for each in ids[:_IDS])}{more}"


def _quoted(words: str) -> str:
    return '"' + "".join(f"\\{sign}" if sign in '\\"$`' else sign for sign in words) + '"'


def legend(drawn: HeatMap) -> str:
    """What the lightest and the darkest stand for."""
    low, high = drawn.ends
    return f"from {percent(low)} to {percent(high)} percent, all other settings as in the best"


def _map(drawn: HeatMap, width: int) -> Iterator[str]:
    """A line for each row, darker where more is right; columns that would not fit are joined, showing their best."""
    low, high = drawn.ends
    labels = [f"{value:g}" for value in drawn.row_values]
    margin, columns = max(map(len, labels)) + 2, len(drawn.column_values)
    room = max(1, width - margin)
    joined, wide = -(-columns // room), 2 if 2 * columns <= room else 1
    told = (
        f"{drawn.rows} (down) by {drawn.columns} (across): '{SHADES[0]}' to '{SHADES[-1]}' are {legend(drawn)}; "
        f"{BEST} is the best, {DEFAULT} the defaults"
    )
    yield from textwrap.wrap(told + (f"; {joined} columns are joined, showing their best" if joined > 1 else ""), width)
    for row, label in enumerate(labels):
        signs = ""
        for first in range(0, columns, joined):
            places = [(row, column) for column in range(first, min(first + joined, columns))]
            there = [cell for cell in drawn.accuracy[row][first : first + joined] if cell is not None]
            shade = SHADES[level(max(there), low, high, len(SHADES))] if there else NOTHING
            signs += wide * (BEST if drawn.best in places else DEFAULT if drawn.default in places else shade)
        yield f"{label.rjust(margin - 2)} |{signs}|"
    ends = f"{drawn.column_values[0]:g}", f"{drawn.column_values[-1]:g}"
    yield " " * margin + ends[0] + ends[1].rjust(max(1, len(signs) - len(ends[0])))
