"""What changed between two runs, as text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

from arbitrag.evaluate.metrics.answers import METRICS
from arbitrag.evaluate.report.difference import Change, RunDifference, SetDifference, SystemChange
from arbitrag.evaluate.report.formats import plain_table
from arbitrag.evaluate.report.tables import NOTHING, Table, name, p_words, percent, ranged
from arbitrag.text import one_line

_VALUE = 60  # characters of a setting
_HASH = re.compile(r"\b[0-9a-f]{12,64}\b")


def told(found: RunDifference, width: int) -> str:
    """The changes, and for each set how the systems moved, on lines of ``width`` columns where they can be."""
    names = (name(found.before), name(found.after))
    lines = ["What changed", *_changes(found.changes, names, width)]
    for each in found.sets:
        lines += ["", *_set(each, names, width)]
    if not found.sets:
        lines += ["", "No question set is in both runs, so there is nothing to compare."]
    return "\n".join(lines)


def _changes(changes: tuple[Change, ...], names: tuple[str, str], width: int) -> list[str]:
    if not changes:
        return ["nothing: settings, versions, prompts, sets and systems are the same"]
    rows = tuple((name(each.what), *_values(each)) for each in changes)
    lines = plain_table(Table("", ("", *names), rows), width)
    for each in changes:
        if each.lines:
            lines += ["", f"{name(each.what)}:", *(f"  {one_line(line, max(20, width - 2))}" for line in each.lines)]
    return lines


def _values(change: Change) -> tuple[str, str]:
    """Both values for a reader: of hashes only whether they are the same, of which a reader can see nothing else."""
    if change.what == "commit":  # which a reader can look up
        return (change.before or NOTHING)[:10], (change.after or NOTHING)[:10]
    before, after = (None if value is None else _HASH.sub("", value) for value in (change.before, change.after))
    if before is None or after is None:
        was, now = (NOTHING if value is None else _value(value) or "there" for value in (before, after))
        return was, now
    if before == after:  # they differ in their hashes alone
        return _value(before) or "one", f"{_value(before)} (other contents)".strip() if before else "another"
    return _value(before), _value(after)


def _value(value: str) -> str:
    return one_line(value.strip(" :@#-,"), _VALUE)


def _set(each: SetDifference, names: tuple[str, str], width: int) -> Iterator[str]:
    yield name(each.name) + ("" if each.name == each.name_after else f" and {name(each.name_after)}")
    if each.same:
        yield f"the same {each.identical:,} questions in both"
    else:
        yield (
            f"not the same set: {each.before:,} and {each.after:,} questions; only the {each.identical:,} that are "
            "identical in both are compared"
        )
    if not each.systems:
        yield "no system has rows in both"
        return
    rows = tuple(
        (
            name(moved.system),
            METRICS[shift.metric].title,
            f"{moved.questions:,}",
            percent(shift.before),
            percent(shift.after),
            ranged(shift.difference),
            p_words(shift.p_holm),
            "could be noise" if shift.noise else "differs",
        )
        for moved in each.systems
        for shift in moved.shifts
    )
    yield from plain_table(Table("", ("System", "", "Questions", *names, "Difference", "p", ""), rows), width)
    yield f"in percent; intervals of 95%, {each.resamples:,} resamples; p adjusted by Holm over the systems"
    for moved in each.systems:
        yield from _flips(moved, each.judge)


def _flips(moved: SystemChange, judge: str) -> Iterator[str]:
    title = METRICS[judge].title
    for count, what, ids in (
        (moved.gained, "became right", moved.gained_ids),
        (moved.lost, "became wrong", moved.lost_ids),
    ):
        if count:
            more = ", …" if count > len(ids) else ""
            listed = ", ".join(one_line(each, 40) for each in ids) + more
            yield f"{name(moved.system)}: {count:,} {what} by {title}: {listed}"
    if moved.failed_before or moved.failed_after:
        counts = f"{moved.failed_before:,}, then {moved.failed_after:,}"
        yield f"{name(moved.system)}: failed rows, counted as wrong: {counts}"
