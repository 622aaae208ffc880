"""What reaches the terminal: results on standard output, everything else on standard error, and all of it printable."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from arbitrag.text import one_line, printable

PATIENCE_S = 1.0  # before a bar appears: what is done sooner needs none


def say(text: str) -> None:
    """One result for a person, on standard output."""
    print(printable(text))


def say_json(value: Any, *, indent: int | None = None) -> None:
    """One result for a program, on standard output; ``value`` is made of plain JSON values.

    On a terminal everything beyond ASCII is escaped, so that no text in it can act on the terminal.
    """
    plain = sys.stdout.isatty() or (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
    print(json.dumps(value, ensure_ascii=plain, indent=indent))


def complain(text: str) -> None:
    """A message beside the results, on standard error."""
    print(printable(text), file=sys.stderr)


def width() -> int:
    """Columns of the terminal, at most 100, so that lines stay readable."""
    return min(shutil.get_terminal_size((100, 24)).columns, 100)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned columns, two spaces apart; the first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows
    )


@contextmanager
def progress(what: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on standard error when that is a terminal, after a second of work, and nothing otherwise.

    Gives a function ``show(done, total, note)`` that moves it.
    """
    if not sys.stderr.isatty():
        yield lambda done, total, note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(what, markup=False),
        BarColumn(),
        DownloadColumn() if in_bytes else MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None, note="")

    def show(done: int, total: int, note: str) -> None:
        bar.update(task, completed=done, total=total, note=one_line(note, 60))

    begin = threading.Timer(PATIENCE_S, bar.start)
    begin.start()
    try:
        yield show
    finally:
        begin.cancel()
        begin.join()  # a bar that is just beginning would not be taken away
        if bar.live.is_started:
            bar.stop()
