"""Whether a function takes time in proportion to its text: n characters are measured against 2n.

A regular expression that backtracks over its whole text takes four times as long for twice the text, or worse, and a
few kilobytes of a document or a reply can then stop a program for good. Processor time of this thread is measured, the
smallest of several runs, and doubling may cost up to three times as much, so that a busy machine fails nothing.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SHORTEST, LONGEST = 16, 1 << 14  # characters, about
MEASURABLE_S = 0.01  # below this, the clock and the cache decide
SHOWN = 3  # faults that are told; each takes long to measure
LARGEST_RATIO = 3.0  # 2 is linear, 4 quadratic
ROUNDS = 40  # at most; the first whose smallest times are in proportion decides

# What patterns repeat: white space of every kind, what no reader sees, signs of labels, fences, lists, and letters.
UNITS = (
    *" \n\t\v\f\r\x1c\x85\u00a0\u2028\u2029\u3000\u200b\u00ad\ufe0f\u0301",
    *'a1é中:：<>[]|｜`"()/.,;-_*#=%&\\',
    "\r\n",
    " \n",
    "a ",
    "a\n",
    "1 ",
    "1. ",
    "a:",
    "a: ",
    "\n:",
    "< ",
    "</",
    "<|",
    "[ ",
    "``",
    "- ",
    "\n- ",
    ", ",
    "| ",
)


def growth(function: Callable[[str], object], text_of: Callable[[int], str]) -> float:
    """The time for a text of 2n characters over that for n, where n is long enough to be measured; 0 where none is."""
    size = SHORTEST
    while size <= LONGEST and _seconds(function, text_of(size)) < MEASURABLE_S:
        size *= 2
    if size > LONGEST:
        return 0.0
    short = long = ratio = float("inf")
    for _ in range(ROUNDS):
        short = min(short, _seconds(function, text_of(size)))
        long = min(long, _seconds(function, text_of(2 * size)))
        ratio = long / short
        if ratio <= LARGEST_RATIO:
            break
    return ratio


def superlinear(function: Callable[[str], object], *around: tuple[str, str]) -> list[str]:
    """The texts, as ``prefix + unit * n + suffix``, on which a function takes more than linear time."""
    found: list[str] = []
    for prefix, suffix in {("", ""), *around}:
        for unit in UNITS:
            if len(found) == SHOWN:
                break
            ratio = growth(function, lambda size: prefix + unit * (size // len(unit)) + suffix)  # noqa: B023
            if ratio > LARGEST_RATIO:
                found.append(f"{prefix!r} + {unit!r} * n + {suffix!r}: {ratio:.1f} times the time for twice the text")
    return found


def patterns_in(folder: Path) -> Iterator[str]:
    """Where regular expressions are used, as ``file.py:NAME``: the name of the constant, or of the function around."""
    for path in sorted(folder.rglob("*.py")):
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if any(_uses_re(node) for node in ast.walk(statement)):
                yield f"{path.relative_to(folder).as_posix()}:{_name_of(statement)}"


def _uses_re(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr != "escape"
    )


def _name_of(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        return ast.unparse(target)
    return getattr(statement, "name", ast.unparse(statement)[:40])


def _seconds(function: Callable[[str], object], text: str) -> float:
    began = time.thread_time()
    function(text)
    return time.thread_time() - began
