"""Help pages: at most 80 columns, no word broken at any width, and every example on lines of its own.

``App`` stands where ``typer.Typer`` would. An epilog is the examples of a command, one a line.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Callable, Iterator
from inspect import cleandoc
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

WIDEST = 80  # columns
NARROW = 60  # columns; below, what an option means stands under it
LEAST = 20  # columns, however narrow the terminal
INDENT = 2
F = TypeVar("F", bound=Callable[..., Any])
_TERMS = 28  # columns of the names on the left
# A word of a command line, in which a space may stand between quotes.
_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_TYPE = re.compile(r" <\w+>$")  # typer's, behind an argument, whose name says it
_RANGE = re.compile(r"x>=(\d+)")


class App(typer.Typer):
    """A ``typer.Typer`` whose pages, and those of its commands, are laid out as here. ``-h`` is ``--help``."""

    def __init__(self, *, add_completion: bool = False, **settings: Any) -> None:
        names = {"help_option_names": ["-h", "--help"]}
        super().__init__(
            cls=Group, context_settings=names, rich_markup_mode=None, add_completion=add_completion, **settings
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        return super().command(name, cls=Command, **settings)


class Command(TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(page(self, ctx))


class Group(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(page(self, ctx))


def page(command: Any, context: Any) -> str:
    """The help of a command or of a group of commands, as wide as the terminal and at most 80 columns."""
    width = max(min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST), LEAST)
    records = [(each.param_type_name, each.get_help_record(context)) for each in command.get_params(context)]
    arguments, options = (
        [record for kind, record in records if record and (kind == "argument") is wanted] for wanted in (True, False)
    )
    inner = getattr(command, "commands", {})
    listed = [(name, each.get_short_help_str(1000)) for name, each in inner.items() if not each.hidden]
    pieces = " ".join(command.collect_usage_pieces(context)).replace("{", "").replace("}", "")
    usage = f"Usage: {context.command_path} {pieces}"
    blocks = [
        "\n".join(wrapped(usage, width, after=" " * 4)),
        *paragraphs(command.help or "", width),
        _section("Arguments", arguments, width),
        _section("Options", options, width),
        _section("Commands", listed, width),
        _examples(command.epilog or "", width),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def wrapped(text: str, width: int, before: str = "", after: str | None = None) -> list[str]:
    """Lines of at most ``width`` columns; a word that is longer, such as an address, stays whole."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=before,
        subsequent_indent=before if after is None else after,
        break_long_words=False,
        break_on_hyphens=False,
    )


def paragraphs(text: str, width: int) -> list[str]:
    """A docstring's paragraphs, each wrapped and indented."""
    found = [" ".join(each.split()) for each in cleandoc(text).split("\n\n")]
    return ["\n".join(wrapped(each, width, " " * INDENT)) for each in found if each]


def _section(name: str, rows: list[tuple[str, str]], width: int) -> str:
    if not rows:
        return ""
    terms = min(max(len(_TYPE.sub("", term)) for term, _ in rows), _TERMS)
    lines = [line for term, about in rows for line in _row(term, about, terms, width)]
    return "\n".join([f"{name}:", *lines])


def _row(term: str, about: str, terms: int, width: int) -> Iterator[str]:
    """What a name means, beside it where there is room and under it where there is not."""
    term, about = _TYPE.sub("", term), _RANGE.sub(r"at least \1", " ".join(about.split()))
    if width < NARROW:
        yield from wrapped(term, width, " " * INDENT, " " * (INDENT + 4))
        yield from wrapped(about, width, " " * (INDENT + 4))
        return
    column = " " * (INDENT + terms + 2)
    lines = wrapped(about, width, column)
    named = " " * INDENT + term
    if len(term) <= terms and lines:
        lines[0] = named.ljust(len(column)) + lines[0][len(column) :]
        yield from lines
    else:
        yield from (named, *lines)


def _examples(epilog: str, width: int) -> str:
    commands = [line.strip() for line in epilog.splitlines() if line.strip()]
    if not commands:
        return ""
    lines = [line for command in commands for line in shell_lines(command, width)]
    return "\n".join([f"Example{'s' if len(commands) > 1 else ''}:", *lines])


def shell_lines(command: str, width: int) -> Iterator[str]:
    r"""A command line that a shell takes as it stands: where it is too long it goes on behind a ``\``."""
    room = width - INDENT - 4 - 2
    whole = _pieces(command)
    pieces = [word for each in whole for word in ([each] if len(each) <= room else _WORD.findall(each))]
    line = " " * INDENT + pieces[0]
    for position, piece in enumerate(pieces[1:], 2):
        rest = 0 if position == len(pieces) else 2  # room for the mark that the command goes on
        if len(line) + 1 + len(piece) + rest > width:
            yield f"{line} \\"
            line = " " * (INDENT + 4) + piece
        else:
            line += f" {piece}"
    yield line


def _pieces(command: str) -> list[str]:
    """The words of a command, an option together with its value."""
    pieces: list[str] = []
    for word in _WORD.findall(command):
        if pieces and re.fullmatch(r"--?[a-z-]+", pieces[-1]) and not word.startswith("-"):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    return pieces
