"""Counts in words, and pieces of HTML for a notebook.

Questions, passages and replies are untrusted text. In the HTML every piece of it is escaped, as text and for
attributes, after control and direction characters were made visible; it holds no link, no script and no request.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Protocol

from arbitrag.text import one_line, printable

_EXCERPT = 300  # characters of a text that is folded away


class TokenCounts(Protocol):
    """What has token counts: a usage or a call."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...


def token_counts(used: TokenCounts) -> str:
    """Token counts in words: ``192 prompt tokens (125 cached), 4 completion``."""
    cached = f" ({used.cached_tokens:,} cached)" if used.cached_tokens else ""
    completion = f", {used.completion_tokens:,} completion" if used.completion_tokens else ""
    return f"{counted(used.prompt_tokens, 'prompt token')}{cached}{completion}"


def counted(number: int, noun: str) -> str:
    """``1 answer``, ``2,000 answers``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def table(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names, which are ours, and HTML, in which nothing untrusted is unescaped."""
    lines = "".join(f'<tr><th style="text-align:left">{name}</th><td>{said}</td></tr>' for name, said in rows)
    return f'<table class="arbitrag-verdict">{lines}</table>'


def folded(name: str, text: str) -> str:
    """An item of a list that shows a name, and the beginning of a text when it is opened."""
    return f"<li><details><summary>{escaped(name)}</summary>{escaped(one_line(text, _EXCERPT))}</details></li>"


def escaped(text: str) -> str:
    """Untrusted text as HTML."""
    return escape(printable(text), quote=True)
