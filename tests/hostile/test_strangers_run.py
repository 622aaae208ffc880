"""A run file that came from somebody else: going on with it asks no server, and writes nowhere, that nobody typed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from arbitrag.cli.bench.options import command_again
from arbitrag.evaluate.run.store import Store
from arbitrag.testing.server import Fault, ScriptedServer

if TYPE_CHECKING:
    from tests.conftest import Command

KEY = "sk-very-secret-0123456789"
EVIL = "openai:m@http://evil.example/v1"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ScriptedServer(lambda prompt: "Mira Sol") as server:
        yield server


@pytest.fixture
def run(tmp_path: Path, server: ScriptedServer, command: Command) -> Path:
    """A finished run of one method on a server of this machine, to whose questions another is added."""
    questions = tmp_path / "q.jsonl"
    row = {"id": "1", "question": "Who?", "answers": ["Mira Sol"], "passages": [{"text": "Mira Sol runs it."}]}
    questions.write_text(json.dumps(row) + "\n", "utf-8")
    path = tmp_path / "run.db"
    words = ("--questions", questions, "--llm", f"openai:m@{server.base_url}", "--method", "rag")
    ran = command("bench", "run", path, *words)
    assert ran.status == 0, ran.err
    server.requests.clear()
    return path


def forge(run: Path, *, model: str = "", failed: bool = False, **options: Any) -> None:
    """What a stranger does: the rows are gone (or failed), the file names other parts, and no checksum tells."""
    with closing(sqlite3.connect(run, isolation_level=None)) as file:
        if failed:
            file.execute("UPDATE rows SET answer = NULL, strategy = NULL, error = 'BackendError: no', crc = NULL")
        else:
            file.execute("DELETE FROM rows")
            file.execute("UPDATE counts SET rows = 0")
        if model:
            file.execute("UPDATE systems SET model = ?, identity = ?, crc = NULL", (model, model))
        number, text = file.execute("SELECT number, about FROM sessions ORDER BY number DESC").fetchone()
        about = json.loads(text)
        about["options"] |= options
        file.execute("UPDATE sessions SET about = ?, crc = NULL WHERE number = ?", (json.dumps(about), number))


def test_a_model_elsewhere_has_to_be_typed(run: Path, command: Command) -> None:
    forge(run, model=EVIL)
    for verb in ("run", "retry"):
        ran = command("bench", verb, run)
        assert ran.status == 2
        assert f"{run} names {EVIL}. A run file may be a stranger's" in ran.err
        assert f"type: arbitrag bench {verb} {run} --llm {EVIL}" in ran.err


def test_openai_itself_has_to_be_typed(run: Path, command: Command) -> None:
    forge(run, model="openai:gpt-4o-mini")
    assert "--llm openai:gpt-4o-mini" in command("bench", "run", run).err


@pytest.mark.parametrize("verb", ["run", "retry"])
def test_a_server_on_this_machine_is_asked_without_the_key(
    verb: str, run: Path, server: ScriptedServer, command: Command
) -> None:
    forge(run, failed=verb == "retry")
    ran = command("bench", verb, run)
    assert ran.status == 0, ran.err
    assert server.requests
    assert not any(KEY in str(request.headers) for request in server.requests)


@pytest.mark.parametrize("verb", ["run", "retry"])
def test_what_is_typed_again_is_asked_with_the_key(
    verb: str, run: Path, server: ScriptedServer, command: Command
) -> None:
    forge(run, failed=verb == "retry")
    secret = server.base_url.replace("//", "//anna:first@SECOND@")
    for address in (server.base_url + "/", secret):
        assert command("bench", verb, run, "--llm", f"openai:m@{address}").status == 0
        forge(run, failed=verb == "retry")
    sent = {request.headers["authorization"] for request in server.requests}
    assert sent == {f"Bearer {KEY}", "Basic YW5uYTpmaXJzdEBTRUNPTkQ="}
    with Store.open(run) as store:
        assert len(store.systems) == 1  # it is the same model, whatever user and password stand in its address


def test_retry_takes_only_models_of_the_run(run: Path, server: ScriptedServer, command: Command) -> None:
    forge(run)
    ran = command("bench", "retry", run, "--llm", "openai:other@http://evil.example/v1")
    assert ran.status == 2
    assert "unknown model of this run 'openai:other@http://evil.example/v1'" in ran.err
    assert not server.requests


@pytest.mark.parametrize(
    ("options", "typed"),
    [
        ({"encoder": EVIL}, f"--encoder {EVIL}"),
        ({"scorer": EVIL}, f"--scorer {EVIL}"),
        ({"index": "postgres:host=evil dbname=x"}, "--index 'postgres:host=evil dbname=x'"),
        ({"index": "qdrant:http://localhost:1/c?encoder=hash"}, "--index 'qdrant:http://localhost:1/c?encoder=hash'"),
        ({"index": "\\\\evil\\share"}, "--index '\\\\evil\\share'"),
        ({"wording": "//evil/share"}, "--wording //evil/share"),
        ({"cache": "made-by-a-stranger"}, "--cache made-by-a-stranger"),
        ({"scorer": EVIL, "encoder": EVIL}, f"--scorer {EVIL} --encoder {EVIL}"),
    ],
)
def test_options_of_the_file_that_reach_further_have_to_be_typed(
    options: dict[str, Any],
    typed: str,
    run: Path,
    server: ScriptedServer,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    forge(run, **options)
    for verb in ("run", "retry"):
        ran = command("bench", verb, run)
        assert ran.status == 2
        assert ran.err.rstrip().endswith(f"type: arbitrag bench {verb} {run} {typed}")
    assert not server.requests
    assert sorted(tmp_path.iterdir()) == before


def test_a_cache_goes_on_where_it_is(run: Path, server: ScriptedServer, command: Command, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    forge(run)
    assert command("bench", "run", run, "--cache", cache).status == 0
    forge(run)
    server.requests.clear()
    assert command("bench", "run", run).status == 0
    assert not [request for request in server.requests if "Mira Sol runs it" in str(request.body)]
    (cache / "responses.sqlite").unlink()
    assert f"--cache {cache}" in command("bench", "run", run).err


def test_each_model_goes_on_with_its_own_methods(run: Path, server: ScriptedServer, command: Command) -> None:
    assert command("bench", "run", run, "--llm", "openai:other@" + server.base_url, "--method", "direct").status == 0
    words = [word for model in ("m", "other") for word in ("--llm", f"openai:{model}@{server.base_url}")]
    ran = command("bench", "run", run, *words)
    assert ran.err.startswith("0 rows made, 0 failed, 2 finished before")


def test_what_is_said_to_type_next_can_be_typed(run: Path, server: ScriptedServer, command: Command) -> None:
    secret = server.base_url.replace("//", "//anna:first@SECOND@").replace("127.0.0.1", "localhost")
    questions = ("--questions", run.parent / "q.jsonl")
    server.faults.extend([Fault.error(400)] * 9)
    words = ("--llm", "lab", "--llm", f"openai:m@{secret}", "--method", "direct")
    said = command("bench", "run", run.parent / "other.db", *questions, *words).err
    assert f"Ask the failed ones again: arbitrag bench retry {run.parent / 'other.db'}\n" in said  # it is on loopback
    assert command_again("retry", "a b.db", ["lab", EVIL], {}) == f"arbitrag bench retry 'a b.db' --llm {EVIL}"
    assert command_again("run", "a.db", ["lab", EVIL], {"scorer": "openai:x"}) == (
        f"arbitrag bench run a.db --llm lab --llm {EVIL} --scorer openai:x"
    )
    assert command_again("run", "a.db", ["lab"], {}) == "arbitrag bench run a.db"
