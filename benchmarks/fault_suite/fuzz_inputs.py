"""Random inputs for fuzzing, by a grammar of what has broken parsers before: texts, JSON values, files."""

from __future__ import annotations

import json
import math
import random
import re
import tempfile
from pathlib import Path
from typing import Any

from fault_suite.replies import REPLIES

WORDS = (
    "Paris", "answer", "the answer is", "final answer", "group", "drop", "trust", "passage", "memory",
    "sources", "confidence", "reason", "none", "external", "both", "neither", "I don't know", "unknown",
    "contradiction", "kind", "factual", "evidence", "retrieval", "generation", "Question", "option", "A",
    "b", "1", "2", "12", "99", "100", "007", "a", "the", "yes", "no", "http", "https", "openai",
    "localhost", "127.0.0.1", "title", "text", "question", "answers", "id", "html", "body", "script",
    "charset", "utf-8", "NaN", "Infinity", "null", "true", "1e999", "-0", "0x1F", "user", "password", "key",
    "dbname", "host",
)  # fmt: skip
_SIGNS = (
    ":", "：", "꞉", "|", "｜", ",", "，", "、", ";", ".", ")", "(", "[", "]", "{", "}", "<", ">", "</", "/>",
    "＜", "＞", "‹", "/", "\\", "@", "?", "&", "=", "#", "%", "%20", "%zz", "-", "--", "---", "===", "```",
    "~~~", "*", "**", "_", "+", "'", '"', "`", "“", "’", "\u201a", "$", "^", "!", "…", "¿", "://",
    "@http://", "//", "<!--", "-->", "<![CDATA[", "&#0;", "&#x110000;", "&amp",
)  # fmt: skip
SPACES = (
    " ", "  ", "\n", "\n\n", "\t", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\xa0",
    "\u2028", "\u2029", "\u3000", "\u200b", "\u200d", "\u00ad", "\u2060", "\ufeff", "\ufe0f", "\u034f",
    "\u115f", "\u3164", "\u180e", "\U000e0020", "\u17b4",
)  # fmt: skip
_STRANGE = (
    "\0", "\x07", "\x08", "\x1b", "\x1b[2J", "\x1b]0;x\x07", "\x9b", "\x7f", "\u202e", "\u2066", "\ud800",
    "\udfff", "\ufffe", "\uffff", "İ", "ı", "ſ", "ß", "ẞ", "ﬃ", "Ω", "ς", "²", "½", "٣", "Ⅷ", "①", "ǅ", "ﷺ",
    "e\u0301", "\u0301", "한", "日本", "🇫🇷", "👨‍👩‍👧", "𝒫", "\U0010ffff", "\U000e0041", "\U0001d173",
)  # fmt: skip
SHAPES = (
    "answer: Paris", "group: Paris | sources: 1, memory | confidence: 80", "drop: 2 | reason: conflict",
    "trust: external", "passage: It is so.", "1. Who?", "2) What?", "retrieval: 40", "generation: 60",
    "kind: factual", "contradiction: a and b", "evidence: x", "<think>", "</think>", "<reasoning>",
    "</passage>", "<passage 1>", "<memory>", "</ answer >", "<|im_end|>", "[/INST]", "</s>", "<<SYS>>",
    "```json\n", "\n```", "---\n", "title: x\n", "# Title\n", "<title>", "</title>", "<p>", "<td>",
    '<meta charset="', "<script>", "<style>", "<a href='", "{question}", "{form}", "=== user\n",
    '{"question": "', '"}', '{"a":',
)  # fmt: skip
POOL = (*WORDS, *WORDS, *_SIGNS, *_SIGNS, *SPACES, *SPACES, *_STRANGE, *SHAPES, *SHAPES)
_LONG = tuple(REPLIES.values())[:-1]  # all but the text of 5 MB
_LONG_CHARACTERS = 20_000
# What a reader of a terminal or a prompt may not see, or may see as something else.
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class Broken(AssertionError):
    """A property that does not hold."""


def expect(holds: object, what: str) -> None:
    if not holds:
        raise Broken(what)


def text(rng: random.Random, most: int = 24) -> str:
    """A text of pieces; one in 500 is long, because what is not linear shows only then."""
    kind = rng.random()
    if kind < 0.002:
        unit = "".join(rng.choices(POOL, k=rng.randrange(1, 4)))
        return (rng.choice(POOL) + unit * (_LONG_CHARACTERS // max(1, len(unit))) + rng.choice(POOL))[:_LONG_CHARACTERS]
    if kind < 0.004:
        return rng.choice(_LONG)
    return "".join(rng.choices(POOL, k=rng.randrange(most)))


def mutated(rng: random.Random, good: str) -> str:
    """A good input with a few pieces put in, taken out or doubled."""
    for _ in range(rng.randrange(4)):
        start, end = sorted((rng.randrange(len(good) + 1), rng.randrange(len(good) + 1)))
        end = min(end, start + 12)
        way = rng.random()
        if way < 0.5:
            good = good[:start] + rng.choice(POOL) + good[start:]
        elif way < 0.8:
            good = good[:start] + good[end:]
        else:
            good = good[:end] + good[start:end] + good[end:]
    return good


def plain(rng: random.Random, depth: int = 3) -> Any:
    """A JSON value."""
    way = rng.randrange(12 if depth else 8)
    if way < 8:
        simple = (
            None,
            True,
            -1,
            0,
            1.5,
            "x",
            math.nan,
            math.inf,
            10**400,
            -(2**63),
            2**64,
            "\ud800",
            "",
            "Paris",
            1e308,
        )
        return rng.choice(simple) if way < 6 else text(rng, 6)
    if way < 10:
        return [plain(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(WORDS): plain(rng, depth - 1) for _ in range(rng.randrange(4))}


def replaced(rng: random.Random, value: Any) -> Any:
    """A good JSON value with one of its parts replaced, removed or added to."""
    value = json.loads(json.dumps(value))
    holder, steps = value, rng.randrange(1, 7)
    for _ in range(steps):
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            break
        key = rng.choice(keys)
        if isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.7:
            holder = holder[key]
            continue
        way = rng.random()
        if way < 0.7:
            holder[key] = plain(rng)
        elif way < 0.85:
            del holder[key]
        elif isinstance(holder, dict):
            holder[rng.choice(WORDS)] = plain(rng)
        break
    return value


_FOLDER: dict[str, Path] = {}


def written(name: str, content: bytes) -> Path:
    if "folder" not in _FOLDER:
        shared = Path("/dev/shm")
        _FOLDER["folder"] = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    path = _FOLDER["folder"] / name
    path.write_bytes(content)
    return path


def encoded(rng: random.Random, value: str) -> bytes:
    content = value.encode(rng.choice(("utf-8", "utf-8", "utf-8", "utf-16", "latin-1")), "replace")
    if rng.random() < 0.1 and content:
        content = content[: rng.randrange(len(content))] + rng.randbytes(4) + content[rng.randrange(len(content)) :]
    return content
