"""Strict reading of replies made of lines: labelled (``kind: factual``), numbered (``1. Who ...?``), or both."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from arbitrag.stages.reading import Unreadable
from arbitrag.text import choose, clean_answer, declines, one_line, without_thoughts

_LABELLED = re.compile(r"\s*(\w+)\s*:(.*)", re.DOTALL)
_NUMBERED = re.compile(r"\s*([0-9]{1,3})[.)]\s+(\S.*)", re.DOTALL)


def lines_of(reply: str) -> list[str]:
    """The lines of a reply that are not blank, without its thoughts; raises Unreadable when there is none."""
    lines = [line for line in without_thoughts(reply).splitlines() if line.strip()]
    if not lines:
        raise Unreadable("the reply is empty")
    return lines


def labelled(lines: Sequence[str], required: Collection[str], optional: Collection[str] = ()) -> dict[str, str]:
    """What stands behind each label; raises Unreadable for a line or a label too many, too few, or without a text."""
    found: dict[str, str] = {}
    for line in lines:
        match = _LABELLED.fullmatch(line)
        label = match[1].lower() if match else ""
        if match is None or label not in {*required, *optional}:
            raise Unreadable(f"'{one_line(line, 40)}' is none of the lines {_listed(required)}")
        if label in found:
            raise Unreadable(f"there are two lines '{label}:'")
        text = match[2].strip()
        if not text:
            raise Unreadable(f"'{label}:' says nothing")
        found[label] = text
    if missing := [label for label in required if label not in found]:
        raise Unreadable(f"there is no line {_listed(missing)}")
    return found


def numbered(lines: Sequence[str], most: int, *, exactly: bool = False) -> tuple[str, ...]:
    """The texts of lines numbered from 1; raises Unreadable for anything else, none, or more than ``most`` of them."""
    found: list[str] = []
    for number, line in enumerate(lines, 1):
        match = _NUMBERED.fullmatch(line)
        if match is None or int(match[1]) != number:
            raise Unreadable(f"'{one_line(line, 40)}' is not line {number} of a numbered list")
        found.append(match[2].rstrip())
    if not found or len(found) > most or (exactly and len(found) < most):
        raise Unreadable(f"there are {len(found)} numbered lines; {'' if exactly else 'at most '}{most} were asked for")
    return tuple(found)


def parse_answer(reply: str, options: Sequence[str] = ()) -> str:
    """The short answer on the one line ``answer:``; raises Unreadable for anything else, or for none of the options."""
    answer = clean_answer(labelled(lines_of(reply), ["answer"])["answer"])
    if not answer:
        raise Unreadable("'answer:' says nothing")
    if options and choose(answer, options) is None and not declines(answer):
        raise Unreadable(f"'answer: {one_line(answer, 40)}' is none of the options")
    return answer


def _listed(labels: Collection[str]) -> str:
    return ", ".join(f"'{label}:'" for label in labels)
