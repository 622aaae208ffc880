"""A file of another version is refused by one line that names its version and says what to type (docs/upgrading.md)."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from arbitrag.cli import results
from arbitrag.evaluate.run import runfile
from arbitrag.llm import cache
from arbitrag.llm.base import Tokens
from arbitrag.replay import load_trace
from arbitrag.retrieve.index import manifest, vectors
from arbitrag.storage.checksums import KEY
from arbitrag.testing import ScriptedServer
from arbitrag.trace import FORMAT

if TYPE_CHECKING:
    from tests.conftest import Command, Ran

LATER = 99


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "rain.md").write_text("It rained in Oslo on Monday.")
    return folder


def _write(path: Path, changes: dict[str, Any]) -> None:
    """Change a JSON file as another version would have written it: it has no checksum of ours."""
    plain = {key: value for key, value in json.loads(path.read_text()).items() if key not in (KEY, "crc")}
    path.write_text(json.dumps({**plain, **changes}))


def _numbered(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


def _is_refused(ran: Ran, version: int, *hints: str) -> None:
    assert ran.status == 1
    assert ran.out == ""
    assert str(version) in ran.err
    assert "fault in Arbitrag" not in ran.err
    for hint in hints:
        assert hint in ran.err
    assert len(ran.err.splitlines()) <= 3


@pytest.mark.parametrize("version", [0, LATER])
def test_an_index(docs: Path, tmp_path: Path, command: Command, version: int) -> None:
    index = tmp_path / "docs.idx"
    assert command("index", docs, "-o", index).status == 0
    _write(index / manifest.FILE, {"version": version})
    hint = f"reads format {manifest.VERSION}"
    _is_refused(command("search", index, "Oslo"), version, hint, "arbitrag index FOLDER -o OTHER.idx")
    _is_refused(command("index", docs, "-o", index), version, hint, "arbitrag index FOLDER -o OTHER.idx")
    _is_refused(command("ask", "Who?", "--index", index, "--llm", "lab", "--method", "rag"), version, hint)


def test_the_vectors_of_an_index(docs: Path, tmp_path: Path, command: Command) -> None:
    index = tmp_path / "docs.idx"
    assert command("index", docs, "-o", index, "--encoder", "hash").status == 0
    _write(index / manifest.VECTORS / manifest.VECTORS_FILE, {"version": LATER})
    _is_refused(command("search", index, "Oslo"), LATER, f"reads format {vectors._VERSION}", "-o OTHER.idx")


def test_a_run_file(tmp_path: Path, command: Command) -> None:
    run = tmp_path / "run.db"
    words = ("--questions", "lab:questions?count=2", "--llm", "lab", "--method", "direct")
    assert command("bench", "run", run, *words).status == 0
    _numbered(run, LATER)
    for verb in (("report", run), ("run", run), ("show", run, "--question", "x"), ("diff", run, run)):
        _is_refused(command("bench", *verb), LATER, "version", "install a newer one")
    assert str(runfile.VERSION) in command("bench", "report", run).err


def test_a_response_cache(tmp_path: Path, command: Command) -> None:
    with ScriptedServer() as server:
        words = ("ask", "Who?", "--llm", f"openai:m@{server.base_url}", "--method", "direct", "--cache", tmp_path)
        assert command(*words).status == 0
        _numbered(tmp_path / cache.FILE, LATER)
        _is_refused(command(*words), LATER, f"version {cache.VERSION}", "type another folder, or delete the file")


def test_a_trace(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "trace.json"
    with ScriptedServer() as server:
        words = ("ask", "Who?", "--llm", f"openai:m@{server.base_url}", "--method", "direct", "--trace", path)
        assert command(*words).status == 0
    _write(path, {"format": LATER})
    _is_refused(command("replay", path), LATER, f"reads format {FORMAT}", "--trace")


def test_a_trace_of_format_1_is_read(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "trace.json"
    with ScriptedServer() as server:
        words = ("ask", "Who?", "--llm", f"openai:m@{server.base_url}", "--method", "direct", "--trace", path)
        assert command(*words).status == 0
    (call,) = json.loads(path.read_text())["calls"]
    counts = {name: call.pop(name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    assert counts["prompt_tokens"] > 2
    old = {"read": counts["prompt_tokens"] - 2, "reused": 2, "written": counts["completion_tokens"]}
    _write(path, {"format": 1, "calls": [{**call, **old, "computed": {"read": 7, "reused": 4, "written": 1}}]})
    (found,) = load_trace(path).calls
    assert (found.prompt_tokens, found.cached_tokens) == (counts["prompt_tokens"], 2)
    assert found.completion_tokens == counts["completion_tokens"]
    assert found.computed == Tokens(prompt_tokens=11, cached_tokens=4, completion_tokens=1)
    assert json.loads(command("replay", path, "--json").out)["answer"] == "yes"


def test_a_response_cache_of_version_1_is_read_and_becomes_version_2(tmp_path: Path, command: Command) -> None:
    with ScriptedServer() as server:
        words = ("ask", "Who?", "--llm", f"openai:m@{server.base_url}", "--method", "direct", "--cache", tmp_path)
        prompt = json.loads(command(*words, "--json").out)["usage"]["prompt_tokens"]
        with closing(sqlite3.connect(tmp_path / cache.FILE, isolation_level=None)) as connection:
            ((text,),) = connection.execute("SELECT answer FROM responses").fetchall()
            kept = {"answer": json.loads(text)["answer"], "tokens": {"read": prompt - 2, "reused": 2, "written": 1}}
            connection.execute("UPDATE responses SET answer = ?", (json.dumps(kept),))
        _numbered(tmp_path / cache.FILE, 1)
        usage = json.loads(command(*words, "--json").out)["usage"]
    assert (usage["prompt_tokens"], usage["cached_tokens"], usage["completion_tokens"]) == (prompt, prompt, 0)
    with closing(sqlite3.connect(tmp_path / cache.FILE)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


@pytest.mark.parametrize("number", [None, LATER])
def test_rows_of_verdicts(tmp_path: Path, command: Command, number: int | None) -> None:
    asked, out = tmp_path / "asked.txt", tmp_path / "rows.jsonl"
    asked.write_text("Who?\n")
    words = ("ask", "--questions", asked, "-o", out, "--llm", "lab", "--method", "direct")
    assert command(*words).status == 0
    row = json.loads(out.read_text())
    assert row["run"].pop("format") == results.FORMAT
    row = {key: value for key, value in row.items() if key != KEY}
    out.write_text(json.dumps({**row, "run": {**row["run"], **({} if number is None else {"format": number})}}) + "\n")
    before = out.read_text()
    ran = command(*words)
    assert (ran.status, ran.out) == (2, "")
    assert f"line 1 is a row of format {number or 1}; this Arbitrag goes on with format {results.FORMAT}" in ran.err
    assert "Give -o another file" in ran.err
    assert out.read_text() == before


def test_a_model_folder(tmp_path: Path, command: Command) -> None:
    from arbitrag.lab import model
    from arbitrag.storage.model_manifest import FORMAT as MODEL
    from arbitrag.storage.model_manifest import NAME

    folder = tmp_path / "model"
    folder.mkdir()
    for file in model.FOLDER.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    _write(folder / NAME, {"format": LATER})
    ran = command("ask", "Who?", "--llm", f"onnx:{folder}", "--method", "direct")
    _is_refused(ran, LATER, f"reads {MODEL}", "Export the model again")


def test_what_an_earlier_version_wrote_without_checksums_is_read(tmp_path: Path, command: Command) -> None:
    path, out = tmp_path / "trace.json", tmp_path / "rows.jsonl"
    asked = tmp_path / "asked.txt"
    asked.write_text("Who?\n")
    with ScriptedServer() as server:
        llm = ("--llm", f"openai:m@{server.base_url}", "--method", "direct")
        assert command("ask", "Who?", *llm, "--trace", path).status == 0
        assert command("ask", "--questions", asked, "-o", out, *llm).status == 0
        for file in (path, out):
            plain = json.loads(file.read_text())
            del plain[KEY]
            file.write_text(json.dumps(plain) + "\n")
        assert json.loads(command("replay", path, "--json").out)["answer"] == "yes"
        ran = command("ask", "--questions", asked, "-o", out, *llm)
        assert "1 finished before" in ran.err


def test_the_page_names_every_format_and_its_number(repository: Path) -> None:
    page = (repository / "docs" / "upgrading.md").read_text(encoding="utf-8")
    for name, number in (
        ("index", manifest.VERSION),
        ("vectors of an index", vectors._VERSION),
        ("run file", runfile.VERSION),
        ("response cache", cache.VERSION),
        ("trace", FORMAT),
        ("rows of `ask -o`", results.FORMAT),
    ):
        assert f"| {name} | {number} |" in page


@pytest.mark.parametrize("name", ["manifest.json", "tokenizer_config.json"])
def test_a_model_folder_whose_json_is_too_deep(tmp_path: Path, command: Command, name: str) -> None:
    from arbitrag.lab import model

    folder = tmp_path / "model"
    shutil.copytree(model.FOLDER, folder)
    if name != "manifest.json":
        (folder / "manifest.json").unlink()
    (folder / name).write_text("[" * 100_000 + "]" * 100_000)
    ran = command("ask", "Who?", "--llm", f"onnx:{folder}", "--method", "direct")
    assert (ran.status, ran.out) == (1, "")
    assert "nested too deeply" in ran.err
