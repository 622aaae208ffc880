"""``arbitrag data``: look at question sets before anything is spent on them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbitrag.cli.data import build_trd
from arbitrag.cli.options import AsJson
from arbitrag.cli.terminal.help import App

if TYPE_CHECKING:
    from arbitrag.data.check import Summary
    from arbitrag.data.rows import Problem

_SHOWN = 20  # bad rows of a file; --json names all of them

group = App(help="Check question sets, and build one.")


group.command("build-trd", epilog=build_trd.EXAMPLE)(build_trd.build_trd)


@group.command(epilog="arbitrag data check towns.jsonl 'lab:questions?count=500'")
def check(
    sets: Annotated[
        list[str],
        typer.Argument(metavar="SETS...", help="Files, with options if need be (FILE?poisoned=1&k=5), or lab:"),
    ],
    as_json: AsJson = False,
) -> None:
    """List every invalid row of a question set by its line, and summarise the valid ones.

    Reads JSON lines, CSV, and the data sets that docs/benchmarks.md lists. The exit status is 1 when a row is bad.
    """
    from arbitrag.cli.terminal.output import say_json

    reports = [_checked(address, as_json) for address in sets]
    failed = sum(report["errors"] > 0 for report in reports)
    if as_json:
        say_json({"sets": reports, "bad_sets": failed})
    raise typer.Exit(int(failed > 0))


def _checked(address: str, as_json: bool) -> dict[str, Any]:
    """One set, told to a person at once or given as JSON values."""
    from arbitrag.cli.terminal.output import complain, progress, say
    from arbitrag.data.check import check
    from arbitrag.data.reading import open_source
    from arbitrag.errors import DataError

    problems: list[Problem] = []

    def found(problem: Problem) -> None:
        if as_json:
            problems.append(problem)
        elif len(problems) < _SHOWN:
            problems.append(problem)
            say(f"{address} line {problem.line}: {'warning: ' if problem.warning else ''}{problem.text}")

    try:
        with progress("Checking", in_bytes=True) as show:
            summary = check(open_source(address), found, show)
    except DataError as error:
        if not as_json:
            complain(f"DataError: {error}")
        return {"address": address, "error": str(error), "errors": 1}
    if as_json:
        return {**summary.plain(), "problems": [_plain(problem) for problem in problems]}
    if (more := summary.errors + summary.warnings - len(problems)) > 0:
        say(f"{address}: {more:,} more; all of them: {shlex.join(['arbitrag', 'data', 'check', '--json', address])}")
    say(_told(summary))
    return summary.plain()


def _plain(problem: Problem) -> dict[str, Any]:
    return {"line": problem.line, "kind": "warning" if problem.warning else "error", "text": problem.text}


def _told(summary: Summary) -> str:
    good = summary.rows - summary.bad
    lines = [f"{summary.name}: {summary.format}, {_counted(good, 'good row')}, {summary.bad:,} bad"]
    if summary.warnings:
        lines[0] += f", {_counted(summary.warnings, 'warning')}"
    if good:
        lines += [f"  {name:<10} {text}" for name, text in _contents(summary) if text]
    return "\n".join([*lines, *(f"  note       {note}" for note in summary.notes)])


def _contents(summary: Summary) -> list[tuple[str, str]]:
    good = summary.rows - summary.bad
    return [
        ("answers", _spread(summary.answers, "a question")),
        ("options", _spread(summary.options, "a question") if summary.options.total else ""),
        ("scenarios", "" if set(summary.scenarios) == {"not stated"} else _list(summary.scenarios)),
        (
            "passages",
            f"{_spread(summary.passages, 'a question')} in {_counted(summary.passages.count, 'question')}"
            if summary.passages.count
            else "none; they are to be retrieved",
        ),
        ("poisoned", _spread(summary.poisoned, "a question") if summary.poisoned.total else ""),
        ("planted", f"a wrong answer in {_counted(summary.planted, 'question')}" if summary.planted else ""),
        ("groups", _list(summary.groups, 8)),
        ("tokens", f"about {summary.tokens:,.0f} in questions and passages, {summary.tokens / good:,.0f} a question"),
    ]


def _spread(spread: Any, per: str) -> str:
    if spread.least == spread.most:
        return f"{spread.most:,} {per}"
    return f"{spread.least:,} to {spread.most:,} {per}, {spread.mean:,.1f} on average"


def _list(counts: Any, most: int = 0) -> str:
    shown = counts.most_common(most or None)
    rest = len(counts) - len(shown)
    return ", ".join(f"{name} {count:,}" for name, count in shown) + (f" and {rest:,} more" if rest else "")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
