"""Sub-queries: a question asked anew in other words, the most helpful first; and what a reflection makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arbitrag.stages.lines import labelled, lines_of, numbered
from arbitrag.stages.reading import Unreadable
from arbitrag.text import declines, normalize_answer, one_line

KINDS = ("factual", "timeliness", "perspective", "completeness")


@dataclass(frozen=True, slots=True)
class Reflection:
    """The main contradiction between sources, its kind (one of ``KINDS``), and the questions that would settle it."""

    contradiction: str
    kind: str
    queries: tuple[str, ...]


def parse_queries(reply: str, most: int) -> tuple[str, ...]:
    """Numbered questions, one on each line; raises Unreadable for anything else, or for more than ``most``."""
    return numbered(lines_of(reply), most=most)


def parse_reflection(reply: str, most: int) -> Reflection:
    """Lines ``contradiction:`` and ``kind:``, then numbered questions; raises Unreadable for anything else."""
    lines = lines_of(reply)
    found = labelled(lines[:2], ["contradiction", "kind"])
    kind = found["kind"].rstrip(".").lower()
    if kind not in KINDS:
        raise Unreadable(f"'kind: {one_line(found['kind'], 40)}' is not one of {', '.join(KINDS)}")
    return Reflection(found["contradiction"], kind, numbered(lines[2:], most=most))


def parse_evidence(reply: str) -> str:
    """What stands on the one line ``evidence:``, nothing where it declines; raises Unreadable for anything else."""
    text = labelled(lines_of(reply), ["evidence"])["evidence"]
    return "" if declines(text) else text


def parse_answers(reply: str, count: int) -> tuple[str, ...]:
    """Numbered answers to ``count`` questions, nothing where one declines; raises Unreadable for anything else."""
    return tuple("" if declines(each) else each for each in numbered(lines_of(reply), most=count, exactly=True))


def distinct(queries: Sequence[str], question: str) -> tuple[str, ...]:
    """The queries that repeat neither the question nor one before, in their order; the question when none is left."""
    seen, kept = {normalize_answer(question)}, []
    for query in queries:
        words = normalize_answer(query)
        if words not in seen:
            seen.add(words)
            kept.append(query)
    return tuple(kept) or (question,)
