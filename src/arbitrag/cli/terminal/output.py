"""What reaches the terminal: results on standard output, everything else on standard error, and all of it printable."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from arbitrag.cli.terminal import layout
from arbitrag.cli.terminal.layout import lines_of
from arbitrag.text import one_line, printable

PATIENCE_S = 1.0  # before a bar appears: what is done sooner needs none


def say(text: str) -> None:
    """One result for a person, on standard output; in a terminal its lines are wrapped between words."""
    shown = printable(text)
    print(lines_of(shown, _columns(sys.stdout)) if sys.stdout.isatty() else shown)


def say_json(value: Any, *, indent: int | None = None) -> None:
    """One result for a program, on standard output; ``value`` is made of plain JSON values.

    On a terminal everything beyond ASCII is escaped, so that no text in it can act on the terminal.
    """
    plain = sys.stdout.isatty() or (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
    print(json.dumps(value, ensure_ascii=plain, indent=indent))


def complain(text: str) -> None:
    """A message beside the results, on standard error; in a terminal its lines are wrapped between words."""
    shown = printable(text)
    print(lines_of(shown, _columns(sys.stderr)) if sys.stderr.isatty() else shown, file=sys.stderr)


def width() -> int:
    """Columns of the terminal, at most 100, so that lines stay readable."""
    return min(shutil.get_terminal_size((100, 24)).columns, 100)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned columns, two spaces apart, the first row the heading; in a terminal no wider than that is."""
    return layout.table(rows, _columns(sys.stdout) if sys.stdout.isatty() else None)


def _columns(stream: TextIO) -> int:
    """How wide the terminal is that a stream goes to."""
    try:
        asked = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        asked = 0
    return asked if asked > 0 else os.get_terminal_size(stream.fileno()).columns or 80


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


@dataclass
class Wait:
    """What is waited for, and the text that arrives meanwhile."""

    what: str
    text: str = ""
    arrived: Callable[[], None] = lambda: None

    def tell(self, what: str) -> None:
        """Another thing is waited for now."""
        self.what = what

    def stream(self, text: str) -> None:
        """The whole text so far of an answer; it is shown at once."""
        self.text = text
        self.arrived()


@contextmanager
def waiting(what: str) -> Iterator[Wait]:
    """On a terminal a line with what is waited for and for how long, after a second; nothing anywhere else.

    Text that is given to ``stream`` stands below it, as much as there is room for. All of it is taken away at the end,
    where the result is printed or the error said.
    """
    wait = Wait(what)
    if not sys.stderr.isatty():
        yield wait
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    began, spinner = time.monotonic(), Spinner("dots")

    def shown() -> Group:
        columns, lines = shutil.get_terminal_size()
        spinner.update(text=Text(one_line(f"{wait.what} … {time.monotonic() - began:.0f} s", columns - 4)))
        told = layout.lines_of(printable(wait.text), columns - 1).split("\n") if wait.text else []
        return Group(*map(Text, told[-max(lines - 2, 1) :]), spinner)

    live = Live(get_renderable=shown, console=Console(stderr=True), transient=True, refresh_per_second=8)
    starting = threading.Lock()

    def start() -> None:
        with starting:
            if not live.is_started:
                live.start()

    begin = threading.Timer(PATIENCE_S, start)
    wait.arrived = start
    begin.start()
    try:
        yield wait
    finally:
        begin.cancel()
        begin.join()
        if live.is_started:
            live.stop()
