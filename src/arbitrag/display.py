"""A verdict in words that a terminal and a notebook share, and as HTML for a notebook.

Questions, passages and replies are untrusted text. In the HTML every piece of it is escaped, as text and for
attributes, after control and direction characters were made visible; it holds no link, no script and no request.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Protocol

from arbitrag.text import one_line, printable
from arbitrag.types import Passage, Strategy, Usage, Verdict

TRUSTED = {
    Strategy.BOTH: "both",
    Strategy.MEMORY: "memory",
    Strategy.EVIDENCE: "evidence",
    Strategy.REFUSE: "neither",
}
_EXCERPT = 300  # characters of a passage


class TokenCounts(Protocol):
    """What has token counts: a usage or a call."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...


def cost(usage: Usage) -> str:
    """What an answer cost, in words."""
    if not usage.calls:
        return "no model calls"
    calls = [
        _counted(usage.generations, "answer"),
        _counted(usage.scorings, "scoring"),
        _counted(usage.inspections, "inspection"),
    ]
    money = "" if usage.money is None else f"{usage.money:.6f}".rstrip("0").rstrip(".") + " paid"
    parts = [", ".join(filter(None, calls)), token_counts(usage), f"{usage.seconds:.2f} s", money]
    return " · ".join(filter(None, parts))


def token_counts(used: TokenCounts) -> str:
    """Token counts in words: ``192 prompt tokens (125 cached), 4 completion``."""
    cached = f" ({used.cached_tokens:,} cached)" if used.cached_tokens else ""
    completion = f", {used.completion_tokens:,} completion" if used.completion_tokens else ""
    return f"{used.prompt_tokens:,} prompt token{'' if used.prompt_tokens == 1 else 's'}{cached}{completion}"


def html(verdict: Verdict) -> str:
    """The verdict as a small table for a notebook."""
    rows = "".join(f'<tr><th style="text-align:left">{name}</th><td>{said}</td></tr>' for name, said in _rows(verdict))
    return f'<table class="arbitrag-verdict">{rows}</table>'


def _rows(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Names, which are ours, and HTML, in which nothing untrusted is unescaped."""
    if verdict.question.text:
        yield "Question", _text(verdict.question.text)
    yield "Answer", "<em>(none)</em>" if verdict.answer is None else f"<strong>{_text(verdict.answer)}</strong>"
    yield "Trusted", TRUSTED[verdict.strategy] + (f" (method {_text(verdict.method)})" if verdict.method else "")
    yield "Why", _text(verdict.why)
    for candidate in verdict.candidates:
        yield TRUSTED[candidate.origin].capitalize(), _text(candidate.text) or "<em>(no answer)</em>"
    if verdict.kept:
        yield f"Passages ({len(verdict.kept)} read)", f"<ol>{''.join(map(_passage, verdict.kept))}</ol>"
    reasons = dict.fromkeys(each.reason for each in verdict.dropped)
    for reason in reasons:
        count = sum(each.reason == reason for each in verdict.dropped)
        yield "Dropped", f"{count}: {_text(reason)}"
    for note in verdict.notes:
        yield "Note", _text(note)
    yield "Cost", _text(cost(verdict.usage))


def _passage(passage: Passage) -> str:
    place = one_line(passage.place or passage.title or "without a name", 200)
    return f"<li><details><summary>{_text(place)}</summary>{_text(one_line(passage.text, _EXCERPT))}</details></li>"


def _text(text: str) -> str:
    return escape(printable(text), quote=True)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}" if number else ""
