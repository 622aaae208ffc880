"""What tuning found as one HTML page that needs nothing else: no script, no font, no picture, no request.

The heat maps are tables, so that a cell can be read as well as seen: the number in it is the accuracy in percent. In a
map with many columns it is shown when the cell is pointed at, so that the map is seen whole. The template escapes
everything, and names from outside are made printable before.
"""

from __future__ import annotations

from typing import Any

from arbitrag.evaluate.report.pages import rendered
from arbitrag.evaluate.report.tables import name, percent
from arbitrag.evaluate.tune.result import HeatMap, Tuned, level
from arbitrag.evaluate.tune.text import heading, legend, outcome, settings_table
from arbitrag.text import one_line

LEVELS = 10
_NARROW = 32  # columns that have room for numbers


def page(found: Tuned) -> str:
    """The page, as a text to be written in UTF-8."""
    return rendered(
        "tune",
        title=f"{found.method} tuned on {name(found.set)}",
        heading=heading(found),
        table=settings_table(found),
        told=[one_line(each, 2000) for each in outcome(found)],
        options=one_line(found.options, 2000),
        typed=one_line(found.typed, 2000),
        maps=[_drawn(each) for each in found.maps],
        percent=percent,
        rules=found.rules,
        about=[("run", name(found.run)), ("command", one_line(found.command, 2000))],
    )


def _drawn(drawn: HeatMap) -> dict[str, Any]:
    low, high = drawn.ends
    return {
        "data": drawn,
        "level": lambda accuracy: "" if accuracy is None else f"l{level(accuracy, low, high, LEVELS)}",
        "scale": scale(low, high),
        "legend": legend(drawn),
        "wide": len(drawn.column_values) > _NARROW,
    }


def scale(low: float, high: float) -> tuple[tuple[str, str], ...]:
    """The lower end of each colour, from the lowest level on, and from where to where it goes in words.

    Where all values are equal there is only the highest, which is used for all of them.
    """
    if high - low < 1e-12:
        return (("", ""),) * (LEVELS - 1) + ((percent(low), f"{percent(low)} percent everywhere"),)
    ends = [low + (high - low) * step / LEVELS for step in range(LEVELS + 1)]
    return tuple((percent(ends[step]), f"{percent(ends[step])} to {percent(ends[step + 1])}") for step in range(LEVELS))
