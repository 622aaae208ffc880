"""Whatever is typed or found in a file: a clear message, the right exit status, no traceback, nothing half-written."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import needs
import pytest

from arbitrag.cli import main
from arbitrag.storage.checksums import seal, unseal
from arbitrag.testing import ScriptedServer

if TYPE_CHECKING:
    from tests.conftest import Command

GOOD_QUESTION = '{"question": "Who?"}\n'
PROMPT = "source: a test\nwording: a test\n---\n=== user\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of everything that can be wrong, and a good one to compare with."""
    root = tmp_path_factory.mktemp("input")
    for name, content in {
        "docs/rain.md": b"It rained in Oslo on Monday.",
        "other/sun.md": b"The sun shone in Bergen.",
        "binary/a.txt": b"\x00\x01\x02\xff\x00",
        "pictures/a.png": b"\x89PNG",
        "notes.txt": b"my notes\n",
        "half.jsonl": b'{"question": "Who',
        "latin.jsonl": b'{"question": "Wer f\xe4hrt?"}\n',
        "types.jsonl": (GOOD_QUESTION + '{"question": ["a"]}').encode(),
        "names.jsonl": b'{"question": "Who?", "option": ["a"]}',
        "twins.jsonl": b'{"question": "a", "id": "x"}\n{"question": "b", "id": "x"}',
        "mixed.txt": b'Who?\n{"question": "Who?"}\n',
        "empty.jsonl": b"",
        "good.jsonl": GOOD_QUESTION.encode(),
        "passages.jsonl": b'{"text": "It rained in Oslo on Monday.", "source": "rain.md"}\n',
        "passage_types.jsonl": b'{"text": "a"}\n{"text": "b", "metadata": "c"}',
        "passage_names.jsonl": b'{"txt": "a"}',
        "passage_texts.jsonl": b"plain words",
        "deep.jsonl": b'{"text": ' + b"[" * 100_000,
        "wording/direct/answer.txt": b"Question: {question}",
        "fields/direct/answer.txt": (PROMPT + "{question} {passages}").encode(),
        "cache/responses.sqlite": b"this is no database, but it is long enough to look like one" * 20,
        "foreign.json": b'{"answer": 42}',
        "number.json": b"1e999",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (root / "vacant").mkdir()
    assert main(["index", str(root / "docs"), "-o", str(root / "good.idx")]) == 0
    _spoil(root, "old.idx", "index.json", lambda text: text.replace('"version": 2', '"version": 0'))
    _spoil(root, "torn.idx", "index.json", lambda text: text[: len(text) // 2])
    for name in ("bm25", "files.sqlite"):
        _overwrite(root, f"rotten-{name}.idx", name)
    trace = root / "trace.json"
    asked = ["ask", "Where?", *LAB, *MARGIN, "--passages", str(root / "passages.jsonl"), "--trace", str(trace)]
    assert main(asked) == 0
    whole = trace.read_text()
    (root / "torn.json").write_text(whole[: len(whole) // 2])
    (root / "newer.json").write_text(json.dumps({**json.loads(whole), "format": 3}))
    plain = unseal(json.loads(whole))
    (root / "foreign_key.json").write_text(json.dumps(seal({**plain, "metod": "x"})))
    (root / "foreign_method.json").write_text(json.dumps(seal({**plain, "method": "trustmargn"})))
    (root / "changed.json").write_text(whole.replace('"method": "trustmargin"', '"method": "rag"'))
    return root


def _spoil(root: Path, name: str, file: str, change: object) -> None:
    shutil.copytree(root / "good.idx", root / name)
    path = root / name / file
    path.write_text(change(path.read_text()))  # type: ignore[operator]


def _overwrite(root: Path, name: str, part: str) -> None:
    shutil.copytree(root / "good.idx", root / name)
    for path in (root / name).rglob("*"):
        if path.is_file() and part in path.relative_to(root / name).as_posix():
            path.write_bytes(b"rotten " * 100)


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    paths = (path for path in root.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


@pytest.fixture(scope="module")
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(lambda prompt: "Mira", context_tokens=64) as server:
        yield server


LAB = ("--llm", "lab")
RAG = ("--method", "rag")
MARGIN = ("--method", "trustmargin")
LONG = "Who " + "really " * 3000 + "did it?"

# The command, the exit status, and a pattern for the whole of standard error. {0} is the folder, {1} a server that
# gives no likelihoods, {2} an address where nothing listens.
ERRORS = [
    # what is typed
    ("aks Who?", 2, r"UsageError: No such command 'aks'.*ask.*\nType: arbitrag --help"),
    ("ask Who? --indx x", 2, r"UsageError: No such option:? '?--indx'?.*--index.*\nType: arbitrag ask --help"),
    ("ask Who? --method trustmargn", 2, r"UsageError: unknown method 'trustmargn'\. Did you mean 'trustmargin'\?.*"),
    ("ask Who? --llm opnai:x", 2, r"UsageError: unknown backend 'opnai'\. Did you mean 'openai'\?.*"),
    ("ask Who? --llm hf:", 2, r"UsageError: 'hf:' names no model; an address looks like hf:.*"),
    ("ask Who? --llm openai:x@not-a-url", 2, r"UsageError: this is not a server's address; one looks like http://.*"),
    (
        "ask Who? --method trustmargin --set treshold=1",
        2,
        r"UsageError: unknown option .* 'treshold'\. Did you mean 'threshold'\?.*",
    ),
    ("ask Who? --set threshold", 2, r"UsageError: --set takes NAME=VALUE, .*; got 'threshold'"),
    ("ask Who? --set =1", 2, r"UsageError: --set takes NAME=VALUE, .*; got '=1'"),
    (
        "ask Who? --set threshold=-1",
        2,
        r"UsageError: unknown option of rag .* setting of trustmargin; .*--method trust.*",
    ),
    (
        "ask Who? --method trustmargin --set threshold=low",
        2,
        r"UsageError: trustmargin: threshold is a number; got 'low'",
    ),
    (
        "ask Who? --method trustmargin --set threshold=nan",
        2,
        r"UsageError: trustmargin: threshold is a finite number; got 'nan'",
    ),
    ("ask Who? --set k=2.5", 2, r"UsageError: rag: k is a whole number; got '2\.5'"),
    ("ask Who? --price cheap", 2, r"UsageError: --price takes PROMPT,COMPLETION .*; got 'cheap'"),
    ("ask Who? --price 1", 2, r"UsageError: --price takes PROMPT,COMPLETION .*; got '1'"),
    ("ask Who? --price -1,2", 2, r"UsageError: --price takes PROMPT,COMPLETION .*; got '-1,2'"),
    ("ask Who? --price inf,2", 2, r"UsageError: --price takes PROMPT,COMPLETION .*; got 'inf,2'"),
    ("ask Who? --context-tokens 0", 2, r"UsageError: .*--context-tokens.*\nType: arbitrag ask --help"),
    ("ask Who? --answer-tokens many", 2, r"UsageError: .*--answer-tokens.*integer.*\nType: arbitrag ask --help"),
    ("ask --questions {0}/good.jsonl --concurrency 0", 2, r"UsageError: .*--concurrency.*\nType: .*"),
    ("ask ''", 2, r"UsageError: the question is empty"),
    ("ask", 1, r"DataError: standard input has no questions; .*"),
    ("ask Who? --questions {0}/good.jsonl", 2, r"UsageError: --questions and -o are for many questions; .*"),
    ("ask Who? -o {0}/out.jsonl", 2, r"UsageError: --questions and -o are for many questions; .*"),
    ("ask --questions {0}/good.jsonl --explain", 2, r"UsageError: --explain and --trace are for one QUESTION; .*"),
    ("ask Who? --index {0}/good.idx --passages {0}/passages.jsonl", 2, r"UsageError: give an index, passages or .*"),
    ("search {0}/good.idx ' '", 2, r"UsageError: the query is empty"),
    ("search {0}/good.idx rain -k 0", 2, r"UsageError: .*-k.*\nType: arbitrag search --help"),
    ("index -o {0}/new.idx", 2, r"UsageError: nothing to index was given; type: arbitrag index FOLDER -o docs.idx"),
    ("methods --llm lba", 2, r"UsageError: unknown backend 'lba'\. Did you mean 'lab'\?.*"),
    # models
    ("ask Who? --llm openai:gpt-4o-mini", 2, r"UsageError: OpenAI needs a key .* export OPENAI_API_KEY=.*"),
    ("ask Who? --llm openai:x@{2} --method direct", 1, r"UnreachableError: .*{2}.*"),
    ("ask Who? --llm onnx:{0}/nowhere", 1, r"DataError: there is no folder {0}/nowhere; .*"),
    ("ask Who? --llm onnx:{0}/vacant", 1, r"DataError: {0}/vacant has neither .*"),
    (
        "ask Who? --method rag --llm openai:x@{1}",
        1,
        r"CapabilityError: rag needs passages, .*\n.*--index.*--pass.*",
    ),
    (
        "ask Who? --method trustmargin --llm openai:scripted@{1} --passages {0}/passages.jsonl",
        1,
        r"CapabilityError: trustmargin needs generate and score; .* offers generate\.\n(?s:.*)--scorer (?s:.*)",
    ),
    ("ask '" + LONG + "' --method direct", 1, r"ContextError: .*"),
    (
        "ask '" + LONG + "' --index lab",
        1,
        r"ContextError: the question takes 9,\d+ tokens .* but lab reads 1,024 in all; .*",
    ),
    # passages and questions
    ("ask Who? --passages {0}/nothing.jsonl", 1, r"DataError: {0}/nothing.jsonl cannot be read: No such file.*"),
    ("ask Who? --passages {0}/docs", 1, r"DataError: {0}/docs cannot be read: Is a directory"),
    ("ask Who? --passages {0}/passage_types.jsonl", 1, r"DataError: \S+ line 2: 'metadata' is a string; .* an object"),
    ("ask Who? --passages {0}/passage_names.jsonl", 1, r"DataError: \S+ line 1: 'txt' is not .* mean 'text'\?"),
    ("ask Who? --passages {0}/passage_texts.jsonl", 1, r"DataError: \S+ line 1: not valid JSON .*"),
    ("ask Who? --passages {0}/deep.jsonl", 1, r"DataError: \S+ line 1: not valid JSON \(nested too deeply\)"),
    ("ask --questions {0}/nothing.jsonl", 1, r"DataError: {0}/nothing.jsonl cannot be read: No such file.*"),
    ("ask --questions {0}/empty.jsonl", 1, r"DataError: {0}/empty.jsonl has no questions; .*"),
    ("ask --questions {0}/half.jsonl", 1, r"DataError: \S+half.jsonl line 1: not valid JSON \(Unterminated .*"),
    ("ask --questions {0}/latin.jsonl", 1, r"DataError: \S+latin.jsonl line 1: not UTF-8 at byte 20"),
    (
        "ask --questions {0}/types.jsonl",
        1,
        r"DataError: \S+types.jsonl line 2: 'question' is a list; .* a string",
    ),
    ("ask --questions {0}/names.jsonl", 1, r"DataError: \S+ line 1: 'option' is not known; did you mean 'options'\?"),
    ("ask --questions {0}/twins.jsonl", 1, r"DataError: \S+ line 2: the id 'x' is that of line 1 already"),
    ("ask --questions {0}/mixed.txt", 1, r"DataError: \S+ line 2: JSON, but the file began with plain questions; .*"),
    # where things go
    ("ask Who? --trace {0}/nowhere/t.json", 1, r"DataError: cannot write \S+: the folder \S+ does not exist; .*"),
    ("ask Who? --trace {0}/vacant", 1, r"DataError: cannot write {0}/vacant: it is a folder; .*"),
    ("ask --questions {0}/good.jsonl -o {0}/nowhere/o.jsonl", 1, r"DataError: cannot write .*does not exist; .*"),
    ("ask --questions {0}/good.jsonl -o {0}/notes.txt", 1, r"DataError: {0}/notes.txt line 1 is not a row of .*"),
    ("ask Who? --cache {0}/notes.txt", 2, r"UsageError: the cache folder {0}/notes.txt cannot be made: .*"),
    ("ask Who? --cache {0}/cache", 1, r"DataError: the response cache {0}/cache/\S+ is not a response cache .*"),
    ("ask Who? --wording {0}/nowhere", 2, r"UsageError: .*folder of prompts .*{0}/nowhere.*"),
    (
        "ask Who? --wording {0}/wording --method direct",
        1,
        r"PromptError: {0}/wording/direct/answer.txt: no line '---' .*",
    ),
    (
        "ask Who? --wording {0}/fields --method direct",
        1,
        r"PromptError: {0}/fields/direct/\S+: fields missing: \['passages'\].*",
    ),
    # indexes
    ("index {0}/nowhere -o {0}/new.idx", 1, r"DataError: {0}/nowhere does not exist; .*"),
    ("index {0}/vacant -o {0}/new.idx", 1, r"DataError: nothing to index in {0}/vacant: .*"),
    ("index {0}/binary -o {0}/new.idx", 1, r"DataError: nothing to index in {0}/binary: .*"),
    ("index {0}/pictures -o {0}/new.idx", 1, r"DataError: nothing to index in {0}/pictures: .*"),
    ("index {0}/docs -o {0}/notes.txt", 1, r"IndexFileError: {0}/notes.txt is a file; an index is a folder\. .*"),
    ("index {0}/docs -o {0}/other", 1, r"IndexFileError: {0}/other is a folder, but not an index.*\n.*"),
    ("index {0}/docs -o {0}/notes.txt/new.idx", 1, r"IndexFileError: .*notes.txt.*"),
    ("index {0}/docs -o {0}/new.idx --passage-tokens 5", 2, r"UsageError: passages of 5 tokens; choose 16 to 8192.*"),
    ("index {0}/docs -o {0}/new.idx --language englsh", 2, r"UsageError: .*'englsh'.*'english'.*"),
    ("index {0}/docs -o {0}/good.idx --passage-tokens 64", 1, r"IndexFileError: .*good.idx was made with .*64.*"),
    (
        "index {0}/other -o {0}/good.idx",
        2,
        r"UsageError: .*good.idx is an index of .*/docs; .*/other is not .*\n.*\n.*",
    ),
    ("index {0}/docs -o {0}/old.idx", 1, r"IndexFileError: \S+old.idx has index format 0; .* reads format 2\.\n.*"),
    ("search {0}/old.idx rain", 1, r"IndexFileError: \S+old.idx has index format 0; .* reads format 2\.\n.*"),
    ("search {0}/torn.idx rain", 1, r"IndexFileError: the index \S+torn.idx is damaged: its index.json .*\n.*"),
    ("search {0}/rotten-bm25.idx rain", 1, r"IndexFileError: the index \S+rotten-bm25.idx is damaged: .*\n.*"),
    ("index {0}/docs -o {0}/rotten-files.sqlite.idx", 1, r"IndexFileError: the index .* is damaged: .*\n.*"),
    ("search {0}/nowhere.idx rain", 1, r"IndexFileError: there is no index {0}/nowhere.idx\. .*"),
    ("search {0}/docs rain", 1, r"IndexFileError: {0}/docs is a folder, but not an index.*\n.*"),
    ("ask Who? --index {0}/nowhere.idx", 1, r"IndexFileError: there is no index {0}/nowhere.idx\. .*"),
    # traces
    ("replay {0}/nothing.json", 1, r"TraceError: {0}/nothing.json cannot be read: No such file or directory"),
    ("replay {0}/torn.json", 1, r"TraceError: {0}/torn.json is not a trace: not valid JSON .*"),
    ("replay {0}/newer.json", 1, r"TraceError: {0}/newer.json has trace format 3; this Arbitrag reads format 2\. .*"),
    ("replay {0}/foreign.json", 1, r"TraceError: {0}/foreign.json is not a trace; .*"),
    ("replay {0}/number.json", 1, r"TraceError: {0}/number.json is not a trace: not valid JSON \(1e999 is not JSON\)"),
    ("replay {0}/foreign_key.json", 1, r"TraceError: .*'metod' is not known; did you mean 'method'\?"),
    ("replay {0}/changed.json", 1, r"TraceError: .* cannot be trusted: it was changed or damaged after .*"),
    ("replay {0}/foreign_method.json", 2, r"UsageError: unknown method 'trustmargn'\. Did you mean .*"),
    ("replay {0}/trace.json --set treshold=1", 2, r"UsageError: unknown option .* Did you mean 'threshold'\?.*"),
    ("replay {0}/trace.json --set k=3", 1, r"TraceError: the trace holds no such retrieve call .* the model again.*"),
    ("replay {0}/trace.json --method nothing", 2, r"UsageError: unknown method 'nothing'\..*"),
]


@pytest.mark.parametrize(("line", "status", "message"), ERRORS, ids=[line[:60] for line, _, _ in ERRORS])
def test_each_is_one_clear_message(
    line: str,
    status: int,
    message: str,
    root: Path,
    server: ScriptedServer,
    closed_port: int,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    places = (str(root), server.base_url, f"http://127.0.0.1:{closed_port}/v1")
    before = snapshot(root)
    words = [_filled(word, places) for word in re.findall(r"'([^']*)'|(\S+)", line)]
    ran = command(*words, *(LAB if words[0] == "ask" and "--llm" not in words else ()))
    assert (ran.status, ran.out) == (status, "")
    assert re.fullmatch(_filled(("", message), tuple(map(re.escape, places))) + "\n", ran.err), ran.err
    assert snapshot(root) == before
    assert not (root / "new.idx").exists()


def _filled(word: tuple[str, str], places: tuple[str, ...]) -> str:
    text = word[0] or word[1]
    for number, place in enumerate(places):
        text = text.replace(f"{{{number}}}", place)
    return text


def test_there_are_enough_of_them() -> None:
    assert len({line for line, _, _ in ERRORS}) >= 40


def test_an_index_in_use_by_another_process(root: Path, tmp_path: Path, command: Command) -> None:
    target = tmp_path / "docs.idx"
    assert command("index", root / "docs", "-o", target).status == 0
    code = (
        "import sys, pathlib; from arbitrag.retrieve.index.ledger import open_ledger\n"
        "with open_ledger(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    line = [sys.executable, "-c", code, str(target)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        ran = command("index", root / "docs", "-o", target)
        assert (ran.status, ran.out) == (1, "")
        assert re.fullmatch(r"IndexFileError: the index \S+ is being written by another process.*; wait .*\n", ran.err)
        assert "rain.md" in command("search", target, "rain").out
        other.communicate()
    assert command("index", root / "docs", "-o", target).status == 0


@needs.links
def test_documents_that_cannot_be_read_are_named_and_the_rest_is_indexed(tmp_path: Path, command: Command) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "good.md").write_text("It rained in Oslo on Monday.")
    (docs / "empty.txt").write_bytes(b"")
    (docs / "binary.txt").write_bytes(b"\x00\x01\x02\xff\x00")
    (docs / "broken.pdf").write_bytes(b"%PDF-1.4\nbroken")
    (docs / "broken.jsonl").write_text('{"text": "good row"}\n{"text": 5}\n')
    (docs / "latin.txt").write_bytes("Die Fähre fährt täglich.".encode("latin-1"))
    (docs / "huge_line.txt").write_text("word " * 400_000)
    (docs / "leads_nowhere.md").symlink_to(tmp_path / "nothing")
    ran = command("index", docs, "-o", tmp_path / "docs.idx")
    assert ran.status == 0
    named = dict(re.findall(r"^(?:skipped|note) (\S+): (.+)$", ran.err, re.MULTILINE))
    assert {"empty.txt", "binary.txt", "broken.pdf", "broken.jsonl", "leads_nowhere.md"} <= named.keys()
    assert "Traceback" not in ran.err
    assert "good.md" in command("search", tmp_path / "docs.idx", "Where did it rain?").out
    assert "huge_line.txt" in command("search", tmp_path / "docs.idx", "word").out


def test_passages_beyond_the_limit_are_cut_and_the_verdict_says_so(tmp_path: Path, command: Command) -> None:
    rows = [{"text": f"Passage {number} " + "goes on and on " * 20, "id": f"p{number}"} for number in range(1, 6)]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ("ask", "Who?", *LAB, *RAG, "--passages", tmp_path / "long.jsonl", "--context-tokens", "150")
    ran = command(*asked)
    assert (ran.status, ran.err) == (0, "")
    assert re.search(r"^Passages  (\d) read   \[1\] p1.*\n +\[\1\] cut to \d+ of \d+ tokens\n", ran.out, re.MULTILINE)
    assert re.search(r"^ +\d dropped: beyond the token limit$", ran.out, re.MULTILINE)


def test_passages_beyond_the_context_of_the_model_are_cut_too(tmp_path: Path, command: Command) -> None:
    (tmp_path / "long.jsonl").write_text(json.dumps({"text": "on and on " * 5000, "id": "p1"}))
    ran = command("ask", "Who?", *LAB, *RAG, "--passages", tmp_path / "long.jsonl", "--context-tokens", "99999")
    assert ran.status == 0
    assert re.search(r"^ +\[1\] cut to [89]\d\d of \d\d,\d\d\d tokens$", ran.out, re.MULTILINE)


def test_no_passages_found_is_a_refusal_or_memory(root: Path, command: Command) -> None:
    rag = command("ask", "zyxwv?", *LAB, "--index", root / "good.idx", "--method", "rag")
    assert (rag.status, rag.err) == (0, "")
    assert "trusted: neither" in rag.out
    assert "Why       no passages to read\n" in rag.out
    assert "Cost      no model calls\n" in rag.out
    margin = command("ask", "zyxwv?", *LAB, *MARGIN, "--index", root / "good.idx")
    assert "there are no passages" in " ".join(margin.out.split())
    assert margin.status == 0
    empty = command("ask", "Who?", *LAB, "--passages", root / "empty.jsonl", "--method", "rag")
    assert "no passages to read" in empty.out
