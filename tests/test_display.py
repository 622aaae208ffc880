"""How a verdict shows itself in a notebook: everything in it is text, whatever it says."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from arbitrag.types import Candidate, Dropped, Passage, Question, Strategy, Usage, Verdict

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</td></tr></table><iframe src=//evil></iframe>",
    "<!-- --><style>*{display:none}</style>",
    "&lt;script&gt;",
    "javascript:alert(1)",
    "a\x00b\x1b[31mc\x07\x9b",
    "\u202egnp.exe\u2066\u2069\u200f",
    "\ud800 half",
    "line\u2028separator",
]
OURS = {"table", "tr", "th", "td", "ol", "li", "details", "summary", "strong", "em"}


class Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.text: list[str] = []
        self.other: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= set(attrs)

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        self.other.append(data)

    def handle_decl(self, decl: str) -> None:
        self.other.append(decl)


def seen(verdict: Verdict) -> Seen:
    reader = Seen()
    reader.feed(verdict._repr_html_())
    reader.close()
    return reader


def full(text: str) -> Verdict:
    passage = Passage(text, id=text, title=text, source=text, metadata={text: text})
    return Verdict(
        text,
        Strategy.EVIDENCE,
        text,
        question=Question(text),
        method=text,
        candidates=(Candidate(text, Strategy.MEMORY), Candidate("", Strategy.EVIDENCE)),
        kept=(passage, Passage(text, title=text), Passage(text)),
        dropped=(Dropped(passage, text),),
        notes=(text,),
        usage=Usage(generations=2, scorings=6, calls=8, prompt_tokens=1234, seconds=0.5, money=0.25),
    )


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_stays_text(text: str) -> None:
    shown = seen(full(text))
    assert shown.tags <= OURS
    assert shown.attributes == {("class", "arbitrag-verdict"), ("style", "text-align:left")}
    assert shown.other == []
    raw = full(text)._repr_html_()
    assert raw.isprintable()
    raw.encode("utf-8")
    for sign in "\u202e\u2066\u2069\u200f\x1b\x00":
        assert sign not in raw
    if text.isprintable():  # then it reads as it is, in every place
        assert "".join(shown.text).count(text) >= 9


def test_what_it_says() -> None:
    shown = seen(full("Oskar Brend"))
    told = " ".join(shown.text)
    for part in ("Question", "Answer", "Trusted evidence (method Oskar Brend)", "Passages (3 read)", "1: Oskar Brend"):
        assert part in told
    assert "2 answers, 6 scorings · 1,234 prompt tokens · 0.50 s · 0.25 paid" in told
    assert "(no answer)" in told
    refused = Verdict(None, Strategy.REFUSE, "no passages to read")
    assert "Answer (none) Trusted neither Why no passages to read Cost no model calls" in " ".join(seen(refused).text)


def test_a_notebook_finds_it() -> None:
    """IPython asks an object of that name, and a frozen dataclass has it as any other."""
    method: Any = getattr(Verdict("x", Strategy.BOTH, "y"), "_repr_html_", None)
    assert method().startswith("<table")
