"""What tuning found as one HTML page that needs nothing else: no script, no font, no picture, no request.

The heat maps are tables, so that a cell can be read as well as seen: the figure in it is the accuracy in percent. In a
map with many columns it is shown when the cell is pointed at, so that the map is seen whole. The template escapes
everything, and names from outside are made printable before.
"""

from __future__ import annotations

from dataclasses import dataclass

from arbitrag.evaluate.report.pages import rendered
from arbitrag.evaluate.report.tables import NOTHING, name, percent
from arbitrag.evaluate.tune import HeatMap, Tuned
from arbitrag.evaluate.tune_text import ends, heading, legend, level, outcome, settings_table
from arbitrag.text import one_line

LEVELS = 10
_NARROW = 32  # columns that have room for figures


@dataclass(frozen=True, slots=True)
class Cell:
    """``level`` is from 0 to 9, None where there is no value; ``kinds`` are of best, default and near."""

    words: str
    level: int | None
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A heat map: the first row of ``rows`` is that of the lowest value. A ``wide`` one has no room for figures.

    ``scale`` has the lower end of each colour, and from where to where it goes in words.
    """

    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    legend: str
    wide: bool
    scale: tuple[tuple[str, str], ...]


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
        rules=found.rules,
        about=[("run", name(found.run)), ("command", one_line(found.command, 2000))],
    )


def _drawn(drawn: HeatMap) -> Drawn:
    low, high = ends(drawn)

    def cell(row: int, column: int) -> Cell:
        value = drawn.accuracy[row][column]
        kinds = [("best", drawn.best == (row, column)), ("default", drawn.default == (row, column))]
        kinds.append(("near", drawn.near[row][column]))
        shade = None if value is None else level(value, low, high, LEVELS)
        return Cell(NOTHING if value is None else percent(value), shade, tuple(kind for kind, is_so in kinds if is_so))

    rows = tuple(
        (f"{value:g}", tuple(cell(row, column) for column in range(len(drawn.column_values))))
        for row, value in enumerate(drawn.row_values)
    )
    return Drawn(
        f"{drawn.rows} by {drawn.columns}",
        f"{drawn.rows} ↓ {drawn.columns} →",
        tuple(f"{value:g}" for value in drawn.column_values),
        rows,
        legend(drawn),
        len(drawn.column_values) > _NARROW,
        _scale(low, high),
    )


def _scale(low: float, high: float) -> tuple[tuple[str, str], ...]:
    """The colours from the lowest, which are those of ``level``; where all values are equal, the one that is used."""
    if high - low < 1e-12:
        return (("", ""),) * (LEVELS - 1) + ((percent(low), f"{percent(low)} percent everywhere"),)
    ends = [low + (high - low) * step / LEVELS for step in range(LEVELS + 1)]
    return tuple((percent(ends[step]), f"{percent(ends[step])} to {percent(ends[step + 1])}") for step in range(LEVELS))
