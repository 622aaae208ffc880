"""Fuzz targets for what servers send and files hold: responses, addresses, documents, questions, traces."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import math
import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fault_suite.fuzz_inputs import (
    SHAPES,
    WORDS,
    encoded,
    expect,
    mutated,
    replaced,
    text,
    written,
)


def responses(rng: random.Random) -> None:
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


_EVENTS = (
    'data: {"choices": [{"delta": {"content": "Paris"}}]}', 'data: {"choices": [{"text": " is"}]}', "data: [DONE]",
    'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}', 'data: {"usage": {"prompt_tokens": 5}}', ": comment",
    'data: {"error": {"message": "x"}}', "event: x", "data:", "data: {", "data: []", "id: 1", "retry: 5", "",
)  # fmt: skip


def streams(rng: random.Random) -> None:
    """A streamed completion is put together as a whole one is, however it is cut, or is an error."""
    from arbitrag.llm.http.body import BodyError
    from arbitrag.llm.http.streaming import Stream

    content = encoded(rng, mutated(rng, "\n\n".join(rng.choices(_EVENTS, k=rng.randrange(6)))))
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


def json_values(rng: random.Random) -> None:
    from arbitrag.serialization import from_plain, parse_json
    from arbitrag.types import Passage, Question

    value = rng.choice(("[" * 5000, '{"a":' * 3000, "9" * 5000, "1e999", mutated(rng, '{"text": "x", "line": 3}')))
    if rng.random() < 0.8:
        value = json.dumps(replaced(rng, {"text": "x", "id": "1", "line": 3, "metadata": {"a": "b"}, "options": ["a"]}))
    with suppress(ValueError):
        from_plain(rng.choice((Passage, Question)), parse_json(value))


_CANARY = "canary55aa"


def addresses(rng: random.Random) -> None:
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


def connections(rng: random.Random) -> None:
    """The same for databases, whose addresses have a grammar of their own."""
    from arbitrag.security.addresses import shown

    password = f"password={rng.choice(('', ' '))}{rng.choice((_CANARY, repr(_CANARY), f'a {_CANARY}', f'?{_CANARY}'))}"
    pairs = ["host=localhost", "dbname=x", "user=u", password, f"{rng.choice(WORDS)}={text(rng, 2)}"]
    rng.shuffle(pairs)
    kind = rng.choice(("postgres", "postgresql"))
    given = rng.choice((f"{kind}:{' '.join(pairs)}", f"{kind}://u:{_CANARY}@h/db?{'&'.join(pairs)}"))
    told = shown(given)
    expect(_CANARY not in told, f"a password is shown: {told!r} of {given!r}")


def documents(rng: random.Random) -> None:
    from arbitrag.errors import DataError
    from arbitrag.retrieve.documents.ingest import read_document

    suffix = rng.choice((".md", ".txt", ".html", ".jsonl", ""))
    good = {
        ".md": "---\ntitle: A\n---\n# Head\n\nText. More text.\n",
        ".html": "<html><head><title>T</title></head><body><p>One</p><table><tr><td>a<td>b</table></body></html>",
        ".jsonl": '{"text": "One.", "title": "T", "id": "1", "metadata": {"a": "b"}}\n',
    }.get(suffix, "Some text. And more.\n\nA paragraph.")
    value = mutated(rng, good * rng.randrange(1, 3)) if rng.random() < 0.6 else text(rng)
    path = written(f"document{suffix}", encoded(rng, value))
    with suppress(DataError):
        for passage in read_document(path, path.name, rng.choice((16, 256))).passages:
            expect(passage.text.strip(), "an empty passage")
            expect(passage.id, "a passage without an id")


def questions(rng: random.Random) -> None:
    """Questions to ask and given passages are read, or refused by the line."""
    from arbitrag.data.asking import questions_to_ask
    from arbitrag.errors import ArbitragError
    from arbitrag.storage.jsonl import read_passages

    rows = [{"question": text(rng, 5), "id": str(n), "options": [text(rng, 2)]} for n in range(rng.randrange(3))]
    value = "\n".join(json.dumps(replaced(rng, row) if rng.random() < 0.5 else row) for row in rows)
    value = mutated(rng, value) if rng.random() < 0.7 else text(rng)
    path = written("questions.jsonl", encoded(rng, value))
    with suppress(ArbitragError):
        if rng.random() < 0.3:
            read: Sequence[Any] = read_passages(path)
        else:
            read = questions_to_ask(path).questions
        expect(all(each.text.strip() and each.id for each in read), f"an empty row of {value[:200]!r}")
        expect(len({each.id for each in read}) == len(read), "two rows of one id")


def question_sets(rng: random.Random) -> None:
    from arbitrag.data.reading import open_source
    from arbitrag.errors import ArbitragError

    if rng.random() < 0.5:
        out = io.StringIO()
        writer = csv.writer(out, delimiter=rng.choice(",;\t"))
        writer.writerow(("id", "question", "answers"))
        for number in range(rng.randrange(3)):
            writer.writerow((number, text(rng, 5), text(rng, 3)))
        path = written("set.csv", encoded(rng, mutated(rng, out.getvalue())))
    else:
        row = {"id": "1", "question": "Who?", "answers": ["Paris"], "passages": [{"text": "x"}], "scenario": "FA"}
        lines = "\n".join(json.dumps(replaced(rng, row)) for _ in range(rng.randrange(3)))
        path = written("set.jsonl", encoded(rng, mutated(rng, lines)))
    with suppress(ArbitragError):
        for _ in open_source(path).rows():
            pass


_SETTINGS = (
    'llm = "lab"\nindex = "docs.idx"\nmethod = "rag k=5"\n[limits]\ncontext_tokens = 99\n[settings.rag]\nk = 5\n'
)


def configurations(rng: random.Random) -> None:
    """A file of settings is read, or refused."""
    from arbitrag.cli.config import load
    from arbitrag.errors import ArbitragError

    value = mutated(rng, _SETTINGS) if rng.random() < 0.8 else text(rng)
    if rng.random() < 0.01:
        value = f"llm = {'[' * 20_000}"
    path = written("arbitrag.toml", encoded(rng, value))
    with suppress(ArbitragError):
        load(str(path), {}, path.parent)


_TRACES: dict[str, Any] = {}


def traces(rng: random.Random) -> None:
    """A trace that was changed is refused, or decides."""
    from arbitrag.errors import ArbitragError
    from arbitrag.replay import decide_again, load_trace

    good = _TRACES.get("good") or _TRACES.setdefault("good", _a_trace())
    path = written("trace.json", json.dumps(replaced(rng, good)).encode())
    with suppress(ArbitragError):
        trace = load_trace(path)
        asyncio.run(decide_again(trace))


def _a_trace() -> Any:
    from arbitrag.run import answer
    from arbitrag.serialization import to_plain

    return to_plain(asyncio.run(answer("Who?", _method("trustmargin"), _kit(lambda _: "Paris"))).trace)


def methods(rng: random.Random) -> None:
    """A whole method whose model says anything at all: a verdict, or an error of ours."""
    from arbitrag.errors import ArbitragError
    from arbitrag.run import answer
    from arbitrag.types import Question

    def say(_: object) -> str:
        if rng.random() < 0.5:
            return mutated(rng, "\n".join(rng.choices(SHAPES[:12], k=rng.randrange(1, 4))))
        return text(rng)

    options = ("Paris", "Rome") if rng.random() < 0.3 else ()
    method = _method(rng.choice(("rag", "direct", "trustmargin", "trustrag", "astute", "bridge", "stack")))
    with suppress(ArbitragError):
        verdict = asyncio.run(answer(Question(text(rng, 6) or "Who?", options), method, _kit(say)))
        json.dumps(verdict.to_dict(), allow_nan=False)


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
