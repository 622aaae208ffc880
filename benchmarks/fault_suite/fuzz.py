"""Inputs made at random, by a grammar of what has broken parsers before, for everything that reads foreign text.

Each target makes an input from a seed, calls the code, and looks whether a property holds; an exception that is not
one of those that the code announces, a property that does not hold, or an input that takes longer than ``SLOW_S`` of
processor time is a finding, told with its target and seed. Run as a script, this file is the process that does it, so
that a hang can be ended.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import math
import random
import re
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.processes import environment, python

from fault_suite.endpoint import REPLIES
from fault_suite.runs import Problem, Problems, Show

SLOW_S = 2.0
DEADLINE_S = 120.0  # for a batch, which takes a few seconds
BATCH = 5000

_WORDS = (
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
_SPACES = (
    " ", "  ", "\n", "\n\n", "\t", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\xa0",
    "\u2028", "\u2029", "\u3000", "\u200b", "\u200d", "\u00ad", "\u2060", "\ufeff", "\ufe0f", "\u034f",
    "\u115f", "\u3164", "\u180e", "\U000e0020", "\u17b4",
)  # fmt: skip
_STRANGE = (
    "\0", "\x07", "\x08", "\x1b", "\x1b[2J", "\x1b]0;x\x07", "\x9b", "\x7f", "\u202e", "\u2066", "\ud800",
    "\udfff", "\ufffe", "\uffff", "İ", "ı", "ſ", "ß", "ẞ", "ﬃ", "Ω", "ς", "²", "½", "٣", "Ⅷ", "①", "ǅ", "ﷺ",
    "e\u0301", "\u0301", "한", "日本", "🇫🇷", "👨‍👩‍👧", "𝒫", "\U0010ffff", "\U000e0041", "\U0001d173",
)  # fmt: skip
_SHAPES = (
    "answer: Paris", "group: Paris | sources: 1, memory | confidence: 80", "drop: 2 | reason: conflict",
    "trust: external", "passage: It is so.", "1. Who?", "2) What?", "retrieval: 40", "generation: 60",
    "kind: factual", "contradiction: a and b", "evidence: x", "<think>", "</think>", "<reasoning>",
    "</passage>", "<passage 1>", "<memory>", "</ answer >", "<|im_end|>", "[/INST]", "</s>", "<<SYS>>",
    "```json\n", "\n```", "---\n", "title: x\n", "# Title\n", "<title>", "</title>", "<p>", "<td>",
    '<meta charset="', "<script>", "<style>", "<a href='", "{question}", "{form}", "=== user\n",
    '{"question": "', '"}', '{"a":',
)  # fmt: skip
POOL = (*_WORDS, *_WORDS, *_SIGNS, *_SIGNS, *_SPACES, *_SPACES, *_STRANGE, *_SHAPES, *_SHAPES)
_LONG = tuple(REPLIES.values())[:-1]  # all but the text of 5 MB
_LONG_CHARACTERS = 20_000


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
    return {rng.choice(_WORDS): plain(rng, depth - 1) for _ in range(rng.randrange(4))}


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
            holder[rng.choice(_WORDS)] = plain(rng)
        break
    return value


# What a reader of a terminal or a prompt may not see, or may see as something else.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Unicode's Default_Ignorable_Code_Point, which fonts show as nothing.
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_FENCE = re.compile(r"<[^\w<>‹\n]{0,9}(answer|passage|memory|group|reply)\b", re.IGNORECASE)
_TURN = re.compile(r"<\|\w{1,40}\|>|</?s>|\[/?INST\]|<</?SYS>>", re.IGNORECASE)


def _replies(rng: random.Random) -> None:
    from arbitrag.stages.parsing import forms
    from arbitrag.stages.parsing.grammar import Form, ParseError
    from arbitrag.stages.parsing.values import Known
    from arbitrag.types import Strategy

    good = "\n".join(rng.choices(_SHAPES[:12], k=rng.randrange(1, 5)))
    reply = mutated(rng, good) if rng.random() < 0.7 else text(rng)
    known = Known(rng.randrange(3), rng.randrange(2))
    options = ("Paris", "Rome", "İ") if rng.random() < 0.3 else ()
    possible = frozenset(Strategy) - {Strategy.REFUSE}
    every: tuple[Form[Any], ...] = (
        forms.passages(3),
        forms.consolidation(known),
        forms.groups(known),
        forms.conclusion(known, options),
        forms.assessment(possible, options),
        forms.answer(options),
        forms.BIAS,
        forms.EVIDENCE,
        forms.queries(3),
        forms.reflection(3),
        forms.answers(2),
    )
    for form in rng.sample(every, 3):
        try:
            found = form.parse(reply, good if rng.random() < 0.2 else "").value
        except ParseError as error:
            expect(
                "\n" not in str(error) and not _CONTROLS.search(str(error)), f"the reason is not printable: {error!r}"
            )
            continue
        for group in getattr(found, "groups", ()):
            expect(all(1 <= number <= known.passages for number in group.passages), "a source that is not there")
            expect(group.confidence is None or 0 <= group.confidence <= 100, "a confidence beyond 100")


def _answers(rng: random.Random) -> None:
    from arbitrag import text as rules

    reply = text(rng)
    answer = rules.clean_answer(reply)
    expect("\n" not in answer, f"an answer of two lines: {answer!r}")
    rules.declines(reply)
    options = [text(rng, 3) for _ in range(rng.randrange(4))]
    number = rules.choose(reply, options)
    expect(number is None or 0 <= number < len(options), "an option that is not there")
    settled = rules.settle(answer, options)
    expect(settled is None or settled, "an empty answer that is not None")
    rules.normalize_answer.__wrapped__(reply)
    expect(rules.agree(reply, reply), "a text that does not agree with itself")


def _terminal(rng: random.Random) -> None:
    from arbitrag.text import one_line, printable

    given = text(rng)
    shown = printable(given)
    expect(not _CONTROLS.search(shown), f"not printable: {shown!r}")
    shown.encode("utf-8")
    line = one_line(given, 60)
    expect("\n" not in line and len(line) <= 60, f"not a line: {line!r}")


def _verdicts(rng: random.Random) -> None:
    from arbitrag.cli.verdict import render
    from arbitrag.types import Candidate, Dropped, Passage, Strategy, Usage, Verdict

    passage = Passage(text(rng, 9), text(rng, 4), text(rng, 4), text(rng, 6), rng.choice([None, 3]))
    verdict = Verdict(
        text(rng, 9) or "x",
        Strategy.EVIDENCE,
        text(rng, 12),
        candidates=(Candidate(text(rng, 9), Strategy.MEMORY),),
        kept=(passage,),
        dropped=(Dropped(passage, text(rng, 6)),),
        notes=(text(rng, 9),),
        usage=Usage(generations=1, calls=1, prompt_tokens=2**62),
    )
    shown = render(verdict, rng.choice([40, 60, 100]))
    expect(not _CONTROLS.search(shown), f"not printable: {_CONTROLS.findall(shown)!r}")


def _book() -> Any:
    from arbitrag.prompts import PromptBook

    return PromptBook()


_PROMPTS: dict[str, Any] = {}
_HARMLESS = "Rivers of the north freeze over early."


def _prompts(rng: random.Random) -> None:
    """Untrusted text changes neither the fences of a prompt nor the lines of its form."""
    from arbitrag.testing import prompt_text
    from arbitrag.types import Passage, Question

    book = _PROMPTS.get("book") or _PROMPTS.setdefault("book", _book())
    name = rng.choice(("rag/answer", "trustrag/assess", "astute/consolidate", "bridge/recall", "reading/repair"))
    file = _PROMPTS.get(name) or _PROMPTS.setdefault(name, book.find(name))
    hostile = text(rng)
    if rng.random() < 0.5:
        tag = "".join(
            letter + rng.choice(("", "", "", *_SPACES)) for letter in rng.choice(("passage", "memory", "answer"))
        )
        hostile += rng.choice(("<", "</", "< /", "<\u200b/", "＜")) + tag + ">"

    def filled(value: str) -> str:
        fields: dict[str, Any] = {}
        for field in file.fields:
            if field == "question":
                fields[field] = Question(value)
            elif field in ("passages", "memory", "memories", "groups", "examples"):
                fields[field] = [Passage(value, title=value)] if field == "passages" else []
            else:
                fields[field] = value
        return prompt_text(file.render(**fields))

    found, right = _marks(filled(hostile)), _PROMPTS.get(f"{name} marks")
    if right is None:
        right = _PROMPTS.setdefault(f"{name} marks", _marks(filled(_HARMLESS)))
    expect(found == right, f"{name}: the fences {found} in place of {right}: {hostile!r}"[:500])


def _marks(prompt: str) -> tuple[list[str], list[str]]:
    seen = _IGNORABLE.sub("", prompt)
    return [name.lower() for name in _FENCE.findall(seen)], _TURN.findall(seen)


def _responses(rng: random.Random) -> None:
    """What a server says becomes a generation of sane numbers, or a BackendError."""
    from arbitrag.errors import BackendError
    from arbitrag.llm.http import responses

    good = {
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "Paris"},
                "text": "a b",
                "logprobs": {"content": [{"logprob": -0.5}], "tokens": ["a", " b"], "token_logprobs": [None, -1.0]},
                "prompt_logprobs": [None, {"5": {"logprob": -1.0}}],
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
    }
    answer = replaced(rng, good)
    if not isinstance(answer, dict):
        return
    with suppress(BackendError):
        found = responses.generation(answer, max_tokens=rng.choice([1, 32]), logprobs=rng.random() < 0.5)
        tokens = found.tokens
        for count in (tokens.prompt_tokens, tokens.cached_tokens, tokens.completion_tokens):
            expect(isinstance(count, int) and 0 <= count < 2**53, f"a count of {str(count)[:40]}")
        expect(all(math.isfinite(value) and value <= 0 for value in found.logprobs or ()), "a strange logprob")
    with suppress(BackendError):
        values = responses.prompt_logprobs(answer, [1, 5])
        expect(all(value is None or math.isfinite(value) for value in values), "a strange logprob")
    with suppress(BackendError):
        responses.echoed(answer)


_CANARY = "canary55aa"


def _addresses(rng: random.Random) -> None:
    """No address shows its password, whatever else is wrong with it."""
    from arbitrag.errors import ArbitragError
    from arbitrag.llm import open_llm
    from arbitrag.security.addresses import Url, shown

    host = rng.choice(
        ("localhost", "127.0.0.1:80", "[::1]:9", "h:99999", "", "é.example", "h@h", "x\ny", "%zz", "h\\@g")
    )
    user = rng.choice(("u:", ":", "u%40:", "a:b:", "u@v:", "u?:", "u#:", ""))
    given = f"{rng.choice(('http', 'https', 'HTTP', 'ftp', ''))}://{user}{_CANARY}@{host}/{text(rng, 4)}"
    if rng.random() < 0.4:
        given = mutated(rng, given)
    authority = re.split(r"[/?#\\]", given.partition("://")[2])[0]
    if _CANARY not in authority.rpartition("@")[0]:
        return
    told = shown(f"openai:m@{given}")
    expect(_CANARY not in told, f"a password is shown: {told!r} of {given!r}")
    try:
        told = Url.of(given).shown
    except ArbitragError as error:
        told = str(error)
    expect(_CANARY not in told, f"a password is shown: {told!r} of {given!r}")
    if rng.random() < 0.02:
        try:
            told = open_llm(f"openai:m@{given}").name
        except ArbitragError as error:
            told = str(error)
        expect(_CANARY not in told, f"a password is shown: {told!r} of {given!r}")


def _connections(rng: random.Random) -> None:
    """The same for databases, whose addresses have a grammar of their own."""
    from arbitrag.security.addresses import shown

    password = f"password={rng.choice(('', ' '))}{rng.choice((_CANARY, repr(_CANARY), f'a {_CANARY}', f'?{_CANARY}'))}"
    pairs = ["host=localhost", "dbname=x", "user=u", password, f"{rng.choice(_WORDS)}={text(rng, 2)}"]
    rng.shuffle(pairs)
    kind = rng.choice(("postgres", "postgresql"))
    given = rng.choice((f"{kind}:{' '.join(pairs)}", f"{kind}://u:{_CANARY}@h/db?{'&'.join(pairs)}"))
    told = shown(given)
    expect(_CANARY not in told, f"a password is shown: {told!r} of {given!r}")


_FOLDER: dict[str, Path] = {}


def _path(name: str, content: bytes) -> Path:
    if "folder" not in _FOLDER:
        shared = Path("/dev/shm")
        _FOLDER["folder"] = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    path = _FOLDER["folder"] / name
    path.write_bytes(content)
    return path


def _bytes(rng: random.Random, value: str) -> bytes:
    content = value.encode(rng.choice(("utf-8", "utf-8", "utf-8", "utf-16", "latin-1")), "replace")
    if rng.random() < 0.1 and content:
        content = content[: rng.randrange(len(content))] + rng.randbytes(4) + content[rng.randrange(len(content)) :]
    return content


def _documents(rng: random.Random) -> None:
    from arbitrag.errors import DataError
    from arbitrag.retrieve.documents.ingest import read_document

    suffix = rng.choice((".md", ".txt", ".html", ".jsonl", ""))
    good = {
        ".md": "---\ntitle: A\n---\n# Head\n\nText. More text.\n",
        ".html": "<html><head><title>T</title></head><body><p>One</p><table><tr><td>a<td>b</table></body></html>",
        ".jsonl": '{"text": "One.", "title": "T", "id": "1", "metadata": {"a": "b"}}\n',
    }.get(suffix, "Some text. And more.\n\nA paragraph.")
    value = mutated(rng, good * rng.randrange(1, 3)) if rng.random() < 0.6 else text(rng)
    path = _path(f"document{suffix}", _bytes(rng, value))
    with suppress(DataError):
        for passage in read_document(path, path.name, rng.choice((16, 256))).passages:
            expect(passage.text.strip(), "an empty passage")
            expect(passage.id, "a passage without an id")


def _questions(rng: random.Random) -> None:
    """Questions to ask and given passages are read, or refused by the line."""
    from arbitrag.data.asking import questions_to_ask
    from arbitrag.errors import ArbitragError
    from arbitrag.storage.jsonl import read_passages

    rows = [{"question": text(rng, 5), "id": str(n), "options": [text(rng, 2)]} for n in range(rng.randrange(3))]
    value = "\n".join(json.dumps(replaced(rng, row) if rng.random() < 0.5 else row) for row in rows)
    value = mutated(rng, value) if rng.random() < 0.7 else text(rng)
    path = _path("questions.jsonl", _bytes(rng, value))
    with suppress(ArbitragError):
        if rng.random() < 0.3:
            read: Sequence[Any] = read_passages(path)
        else:
            read = questions_to_ask(path).questions
        expect(all(each.text.strip() and each.id for each in read), f"an empty row of {value[:200]!r}")
        expect(len({each.id for each in read}) == len(read), "two rows of one id")


def _sets(rng: random.Random) -> None:
    from arbitrag.data.reading import open_source
    from arbitrag.errors import ArbitragError

    if rng.random() < 0.5:
        out = io.StringIO()
        writer = csv.writer(out, delimiter=rng.choice(",;\t"))
        writer.writerow(("id", "question", "answers"))
        for number in range(rng.randrange(3)):
            writer.writerow((number, text(rng, 5), text(rng, 3)))
        path = _path("set.csv", _bytes(rng, mutated(rng, out.getvalue())))
    else:
        row = {"id": "1", "question": "Who?", "answers": ["Paris"], "passages": [{"text": "x"}], "scenario": "FA"}
        lines = "\n".join(json.dumps(replaced(rng, row)) for _ in range(rng.randrange(3)))
        path = _path("set.jsonl", _bytes(rng, mutated(rng, lines)))
    with suppress(ArbitragError):
        for _ in open_source(path).rows():
            pass


_TRACES: dict[str, Any] = {}


def _traces(rng: random.Random) -> None:
    """A trace that was changed is refused, or decides."""
    from arbitrag.errors import ArbitragError
    from arbitrag.replay import decide_again, load_trace

    good = _TRACES.get("good") or _TRACES.setdefault("good", _a_trace())
    path = _path("trace.json", json.dumps(replaced(rng, good)).encode())
    with suppress(ArbitragError):
        trace = load_trace(path)
        asyncio.run(decide_again(trace))


def _a_trace() -> Any:
    from arbitrag.run import answer
    from arbitrag.serialization import to_plain

    return to_plain(asyncio.run(answer("Who?", _method("trustmargin"), _kit(lambda _: "Paris"))).trace)


def _kit(reply: Callable[[Any], str]) -> Any:
    from arbitrag.encode.hashed import HashEncoder
    from arbitrag.kit import Kit
    from arbitrag.testing import FixedRetriever, ScriptedLLM
    from arbitrag.types import Passage

    passages = [Passage("The capital is Paris.", id="a"), Passage("The capital is Rome.", id="b", title="T")]
    likelihoods = {"": -1.0}
    model = ScriptedLLM(reply, lambda prompt, given: likelihoods.get(given, -1.0 - len(given) % 7))
    return Kit.of(model, FixedRetriever(passages), encoder=HashEncoder())


def _method(name: str) -> Any:
    from arbitrag.methods import load

    return load(name)()


def _methods(rng: random.Random) -> None:
    """A whole method whose model says anything at all: a verdict, or an error of ours."""
    from arbitrag.errors import ArbitragError
    from arbitrag.run import answer
    from arbitrag.types import Question

    def say(_: object) -> str:
        if rng.random() < 0.5:
            return mutated(rng, "\n".join(rng.choices(_SHAPES[:12], k=rng.randrange(1, 4))))
        return text(rng)

    options = ("Paris", "Rome") if rng.random() < 0.3 else ()
    method = _method(rng.choice(("rag", "direct", "trustmargin", "trustrag", "astute", "bridge", "stack")))
    with suppress(ArbitragError):
        verdict = asyncio.run(answer(Question(text(rng, 6) or "Who?", options), method, _kit(say)))
        json.dumps(verdict.to_dict(), allow_nan=False)


def _json(rng: random.Random) -> None:
    from arbitrag.serialization import from_plain, parse_json
    from arbitrag.types import Passage, Question

    value = rng.choice(("[" * 5000, '{"a":' * 3000, "9" * 5000, "1e999", mutated(rng, '{"text": "x", "line": 3}')))
    if rng.random() < 0.8:
        value = json.dumps(replaced(rng, {"text": "x", "id": "1", "line": 3, "metadata": {"a": "b"}, "options": ["a"]}))
    with suppress(ValueError):
        from_plain(rng.choice((Passage, Question)), parse_json(value))


def _cutting(rng: random.Random) -> None:
    from arbitrag.retrieve.documents.chunking import cut

    given = text(rng, 60)
    pieces = list(cut(given, rng.choice((16, 64))))
    squeezed = "".join("".join(piece.text for piece in pieces).split())
    expect(squeezed == "".join(given.split()) or len(squeezed) <= len(given), "cutting made text")
    for piece in pieces:
        expect(0 <= piece.offset <= len(given), "a piece beyond the text")


_EVENTS = (
    'data: {"choices": [{"delta": {"content": "Paris"}}]}', 'data: {"choices": [{"text": " is"}]}', "data: [DONE]",
    'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}', 'data: {"usage": {"prompt_tokens": 5}}', ": comment",
    'data: {"error": {"message": "x"}}', "event: x", "data:", "data: {", "data: []", "id: 1", "retry: 5", "",
)  # fmt: skip


def _streams(rng: random.Random) -> None:
    """A streamed completion is put together as a whole one is, however it is cut, or is an error."""
    from arbitrag.llm.http.body import BodyError
    from arbitrag.llm.http.streaming import Stream

    content = _bytes(rng, mutated(rng, "\n\n".join(rng.choices(_EVENTS, k=rng.randrange(6)))))
    given: list[str] = []
    stream = Stream(given.append)
    with suppress(BodyError):
        size = rng.choice((1, 7, 1000))
        for start in range(0, len(content), size):
            stream.feed(content[start : start + size])
        answer = stream.answer()
        choice = answer["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        expect(not given or text.startswith(given[-1]), "the text that was shown is not that of the answer")


def _long_answers(rng: random.Random) -> None:
    """Only passages that were read are cited."""
    from arbitrag.stages.long_form import checked

    passages = rng.randrange(4)
    marks = rng.choices(
        ("[1]", "[2]", "[9]", "[1, 2]", "[[9]1]", "[[99]7]", "[", "]", "1", "٣", "[٣]", ". A b.", "x"), k=6
    )
    reply = mutated(rng, "".join(marks)) if rng.random() < 0.7 else text(rng)
    found = checked(reply, passages, whole=rng.random() < 0.5)
    if found is not None:
        cited = [number for sentence in found.sentences for number in sentence.cites]
        expect(all(1 <= number <= passages for number in cited), f"{cited} of {passages} passages: {reply[:200]!r}")
        expect("\n" not in found.text, "a long answer of two lines")


def _notebooks(rng: random.Random) -> None:
    """Nothing of a verdict becomes markup in a notebook."""
    from arbitrag.types import Candidate, Passage, Strategy, Verdict

    hostile = text(rng, 9) + rng.choice(("<script>", "<img onerror=x>", '" onload="', "javascript:", "&lt;", ""))
    passage = Passage(hostile, hostile, hostile, hostile)
    verdict = Verdict(
        hostile, Strategy.BOTH, hostile, candidates=(Candidate(hostile, Strategy.MEMORY),), kept=(passage,)
    )
    shown = re.sub(
        r"</?(?:table|tr|t[dh]|b|p|div|details|summary|strong|em|ol|li)(?: [^<>]*)?>", "", verdict._repr_html_()
    )
    expect("<" not in shown, f"markup: {shown[:200]!r}")


_SETTINGS = (
    'llm = "lab"\nindex = "docs.idx"\nmethod = "rag k=5"\n[limits]\ncontext_tokens = 99\n[settings.rag]\nk = 5\n'
)


def _configurations(rng: random.Random) -> None:
    """A file of settings is read, or refused."""
    from arbitrag.cli.config import load
    from arbitrag.errors import ArbitragError

    value = mutated(rng, _SETTINGS) if rng.random() < 0.8 else text(rng)
    if rng.random() < 0.01:
        value = f"llm = {'[' * 20_000}"
    path = _path("arbitrag.toml", _bytes(rng, value))
    with suppress(ArbitragError):
        load(str(path), {}, path.parent)


def _normal(rng: random.Random) -> None:
    from arbitrag.evaluate.report import measure
    from arbitrag.text import normalize_answer

    one, other = text(rng, 8), unicodedata.normalize("NFKC", text(rng, 4))
    expect(normalize_answer.__wrapped__(one) == normalize_answer.__wrapped__(one), "not the same twice")
    for name in ("exact_match", "f1", "contains"):
        measured = getattr(measure, name, None)
        if measured is not None:
            value = float(measured(one, (other, "Paris")))
            expect(0.0 <= value <= 1.0, f"{name} of {value}")


@dataclass(frozen=True)
class Target:
    """``share`` is how many of a million inputs it gets."""

    run: Callable[[random.Random], None]
    share: int


TARGETS: Mapping[str, Target] = {
    "replies": Target(_replies, 250_000),
    "answers": Target(_answers, 180_000),
    "terminal": Target(_terminal, 100_000),
    "verdicts": Target(_verdicts, 10_000),
    "prompts": Target(_prompts, 150_000),
    "responses": Target(_responses, 140_000),
    "addresses": Target(_addresses, 60_000),
    "connections": Target(_connections, 10_000),
    "documents": Target(_documents, 30_000),
    "questions": Target(_questions, 30_000),
    "question sets": Target(_sets, 12_000),
    "traces": Target(_traces, 5_000),
    "methods": Target(_methods, 8_000),
    "streams": Target(_streams, 15_000),
    "long answers": Target(_long_answers, 25_000),
    "notebooks": Target(_notebooks, 5_000),
    "configurations": Target(_configurations, 10_000),
    "json": Target(_json, 60_000),
    "cutting": Target(_cutting, 30_000),
    "measures": Target(_normal, 30_000),
}


def batch(name: str, seed: int, start: int, count: int) -> list[dict[str, str]]:
    """Run inputs ``start`` to ``start + count`` of a target and give the findings: at most one for each message."""
    target = TARGETS[name]
    found: dict[str, dict[str, str]] = {}
    for number in range(start, start + count):
        rng = random.Random(f"{name} {seed} {number}")
        began = time.thread_time()
        kind, what = "", ""
        try:
            target.run(rng)
        except Broken as error:
            kind, what = "property", str(error)
        except RecursionError as error:
            kind, what = "foreign", f"RecursionError: {error}"
        except Exception as error:  # noqa: BLE001 - what is foreign is what is looked for
            kind, what = "foreign", f"{type(error).__name__}: {error}"
        spent = time.thread_time() - began
        if spent > SLOW_S:
            kind, what = "hang", f"{spent:.1f} s for one input"
        if kind:
            key = f"{kind} {re.sub(r'[0-9]+', 'N', what)[:20]}"
            found.setdefault(key, {"kind": kind, "what": f"input {number}: {ascii(what)[:400]}"})
    return list(found.values())


def fuzz(count: int, seed: int, show: Show, only: Sequence[str] = ()) -> tuple[int, list[Problem]]:
    """``count`` inputs over all targets by their shares; how many were run, and what they broke."""
    total = sum(target.share for target in TARGETS.values())
    done, problems = 0, Problems()
    for name, target in TARGETS.items():
        if only and name not in only:
            continue
        wanted = max(1, -(-count * target.share // total))
        for start in range(0, wanted, BATCH):
            show(done, count, name)
            part = min(BATCH, wanted - start)
            command = python("fault_suite.fuzz", name, seed, start, part)
            try:
                ran = subprocess.run(
                    command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=environment()
                )
            except subprocess.TimeoutExpired:
                problems.append(Problem("hang", name, "fuzz", f"a batch from {start} of {part} did not end"))
                continue
            if ran.returncode:
                problems.append(Problem("foreign", name, "fuzz", f"the process died: {ran.stderr[-300:]}"))
                continue
            done += part
            for each in json.loads(ran.stdout):
                problems.append(Problem(each["kind"], name, "fuzz", each["what"]))
    return done, problems


if __name__ == "__main__":
    _name, *_numbers = sys.argv[1:]
    print(json.dumps(batch(_name, *map(int, _numbers))))
