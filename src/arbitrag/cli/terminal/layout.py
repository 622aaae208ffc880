"""Text in columns: what is too wide is wrapped between words, and only a word longer than its place is broken."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

GAP = 2  # columns between those of a table


def table(rows: Sequence[Sequence[str]], columns: int | None = None) -> str:
    """Rows as aligned columns; the first row is the heading.

    In a terminal that is too narrow for it (``columns``) the widest cells go on in the lines below; where even that
    has no room, every row is a block of lines, each with its heading before it.
    """
    if columns is None:
        return "\n".join(_plain(rows, _widths(rows)))
    widths = _shrunk(rows, columns)
    return _blocks(rows, columns) if widths is None else "\n".join(_plain(rows, widths))


def lines_of(text: str, columns: int) -> str:
    """A message in a narrow terminal: every line of it is wrapped on its own and keeps its indentation."""
    return "\n".join(line for each in text.split("\n") for line in _wrapped(each, columns))


def _wrapped(line: str, columns: int) -> list[str]:
    if len(line) <= columns:
        return [line]
    indent = line[: len(line) - len(line.lstrip(" "))]
    return textwrap.wrap(
        line.strip(),
        columns,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,  # a terminal breaks them anyway, and a copied path or address stays whole
        break_on_hyphens=False,
    ) or [line]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]


def _shrunk(rows: Sequence[Sequence[str]], columns: int) -> list[int] | None:
    """The width of each column in a table of this width; None where the longest words alone take more."""
    widths = _widths(rows)
    least = [max((len(word) for row in rows for word in row[at].split()), default=0) for at in range(len(widths))]
    spare = sum(widths) + GAP * (len(widths) - 1) - columns
    while spare > 0:
        at = max((at for at, width in enumerate(widths) if width > least[at]), key=widths.__getitem__, default=None)
        if at is None:
            return None
        widths[at], spare = widths[at] - 1, spare - 1
    return widths


def _plain(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    for row in rows:
        cells = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        for line in range(max(map(len, cells))):
            parts = (cell[line] if line < len(cell) else "" for cell in cells)
            yield (" " * GAP).join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip()


def _blocks(rows: Sequence[Sequence[str]], columns: int) -> str:
    heading, *body = rows
    label = max(map(len, heading)) + GAP
    blocks = []
    for row in body:
        lines = []
        for name, cell in zip(heading, row, strict=True):
            first, *more = _wrapped(cell, max(columns - label, GAP)) if cell else [""]
            lines += [f"{name:<{label}}{first}".rstrip(), *(" " * label + line for line in more)]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
