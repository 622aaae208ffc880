"""No secret reaches a file, a screen or a log: keys, passwords and tokens of every kind, searched for in all of it.

The server that is asked repeats everything that it is sent: in its answers, in its errors, raw and encoded. Every file
that is written is read, also while a run is under way (write-ahead logs), and so is what is compressed in it.
"""

from __future__ import annotations

import base64
import json
import logging
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.testing.server import Fault, ScriptedServer
from arbitrag.types import Passage

if TYPE_CHECKING:
    from tests.conftest import Command, Ran

# Each is made of words that stand nowhere else, so that a half of it is found as well as the whole.
KEY = "sk-Wenvkey-Wsecondhalf-0123456789"
GIVEN = "sk-Wconstructor-Wgivenkey-0123456789"
PASSWORD = "Wfirst@Wsecond:Wthird/Wfourth%Wfifth"
PLAIN = "Wplain@Wunencoded:Wcolon"  # as a person types it: the last @ ends it
QUERY = "Wqueryone Wquerytwo"
QUOTED = "Wkvone Wkv'two\\Wkvthree"
PG_KEYWORD = "Wkvplain@Wkvhalf"
PG_URL = "Wpgurlone@Wpgurltwo"
ELASTIC = "Welasticone-Welastictwo"
QDRANT = "Wqdrantone-Wqdranttwo"
SECRETS = (KEY, GIVEN, PASSWORD, PLAIN, QUERY, QUOTED, PG_KEYWORD, PG_URL, ELASTIC, QDRANT)
USER = "anna"


def needles() -> list[bytes]:
    """What must be found nowhere: the word W..., and every user and password in base64."""
    basic = [base64.b64encode(f"{user}:{each}".encode()) for each in SECRETS for user in (USER, "")]
    encoded = [base64.b64encode(each.encode()) for each in SECRETS]
    words = {word for each in SECRETS for word in _words(each)}
    return [word.encode() for word in words] + [each[:14] for each in basic + encoded]


def _words(secret: str) -> list[str]:
    for mark in "@:/%-'\\":
        secret = secret.replace(mark, " ")
    return [word for word in secret.split() if word.startswith("W")]


NEEDLES = needles()


def found_in(data: bytes) -> list[str]:
    return [needle.decode() for needle in NEEDLES if needle in data]


def unpacked(file: Path) -> Iterator[bytes]:
    """The bytes of a file, and of an sqlite file also each value, decompressed where it is compressed."""
    data = file.read_bytes()
    yield data
    if not data.startswith(b"SQLite format 3"):
        return
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    yield _decompressed(value) if isinstance(value, bytes) else str(value).encode()


def _decompressed(value: bytes) -> bytes:
    try:
        return zlib.decompress(value)
    except zlib.error:  # a hash, or a row of numbers
        return value


def leaks(folder: Path) -> dict[str, list[str]]:
    """The files under a folder that hold a piece of a secret."""
    found = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            pieces = {piece for data in unpacked(file) for piece in found_in(data)}
            if pieces:
                found[str(file.relative_to(folder))] = sorted(pieces)
    return found


class Parrot:
    """An OpenAI-compatible server that repeats what it was sent; also an Elasticsearch and a Qdrant that refuse.

    While ``refuses`` is set everything is answered with that status. Files are looked at during every request.
    """

    def __init__(self, folder: Path) -> None:
        self.refuses = 0
        self.heard: list[str] = []
        self.leaks: dict[str, list[str]] = {}
        self._folder = folder
        parrot = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                sent = self.rfile.read(int(self.headers.get("content-length", 0)))
                status, body = parrot.reply(self.path, str(dict(self.headers)), sent)
                self.send_response(status)
                self.send_header("X-Elastic-Product", "Elasticsearch")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                self.do_POST()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reply(self, path: str, headers: str, sent: bytes) -> tuple[int, bytes]:
        self.heard.append(f"{path} {headers}")
        for file in self._folder.glob("**/*-wal"):
            if pieces := found_in(file.read_bytes()):
                self.leaks[file.name] = pieces
        echo = f"Mira Sol. You sent {path} with {headers}, {quote(path)}, {json.dumps(headers)}"
        if self.refuses:
            return self.refuses, json.dumps({"error": {"message": echo}, "detail": headers}).encode()
        if "/embeddings" in path:
            count = len(json.loads(sent)["input"])
            data = [{"index": n, "embedding": [1.0, 0.5], "echo": echo} for n in range(count)]
            return 200, json.dumps({"data": data, "model": echo}).encode()
        message = {"role": "assistant", "content": echo}
        return 200, json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}).encode()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is also the home; with keys in the environment, and everything logged into a file."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("The harbour is run by Mira Sol.\n", "utf-8")
    row = {"id": "1", "question": "Who runs it?", "answers": ["Mira Sol"], "passages": [{"text": "Mira Sol runs it."}]}
    (tmp_path / "q.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    for name, value in (("OPENAI_API_KEY", KEY), ("ELASTIC_API_KEY", ELASTIC), ("QDRANT_API_KEY", QDRANT)):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ARBITRAG_DEBUG", "1")
    monkeypatch.setenv("ARBITRAG_CACHE", str(tmp_path / "kept"))  # what servers were seen to offer
    return tmp_path


@pytest.fixture
def log(home: Path) -> Iterator[Path]:
    """Everything that anybody logs."""
    handler = logging.FileHandler(home / "log.txt", encoding="utf-8")
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield home / "log.txt"
    root.removeHandler(handler)
    root.setLevel(before)
    handler.close()


@pytest.fixture
def parrot(home: Path) -> Iterator[Parrot]:
    parrot = Parrot(home)
    yield parrot
    parrot.close()


class Screen:
    """Runs commands, and keeps what they print in a file beside the others."""

    def __init__(self, command: Command, file: Path) -> None:
        self._command = command
        self._file = file

    def __call__(self, *words: object) -> Ran:
        ran = self._command(*words)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(ran.out + ran.err)
        return ran


@pytest.fixture
def screen(command: Command, home: Path, log: Path) -> Screen:
    return Screen(command, home / "screen.txt")


def addresses(parrot: Parrot) -> dict[str, str]:
    """Where the parrot is, with each kind of secret in the address."""
    host, path = f"127.0.0.1:{parrot.port}", "/v1"
    return {
        "environment": f"http://{host}{path}",
        "encoded": f"http://{USER}:{quote(PASSWORD, safe='')}@{host}{path}",
        "plain": f"http://{USER}:{PLAIN}@{host}{path}",
        "user": f"http://{quote(PASSWORD, safe='')}@{host}{path}",
        "query": f"http://{host}{path}?api_key={quote(QUERY)}&api-version=2024-10-21",
    }


KINDS = ("environment", "encoded", "plain", "user", "query")


@pytest.mark.parametrize("refuses", [0, 401, 400])
@pytest.mark.parametrize("kind", KINDS)
def test_ask_writes_no_secret(kind: str, refuses: int, home: Path, parrot: Parrot, screen: Screen) -> None:
    parrot.refuses = refuses
    llm = f"openai:m@{addresses(parrot)[kind]}"
    parts = ("--llm", llm, "--method", "rag", "--cache", home / "cache", "--passages", home / "p.jsonl")
    (home / "p.jsonl").write_text('{"text": "Mira Sol runs the harbour."}\n', "utf-8")
    screen("ask", "Who runs it?", *parts, "--trace", home / "trace.json", "--explain")
    screen("ask", "Who runs it?", *parts, "--explain", "--json")
    screen("ask", "--questions", home / "q.jsonl", *parts, "-o", home / "answers.jsonl")
    screen("doctor", "--llm", llm)
    screen("doctor", "--llm", llm, "--json")
    screen("methods", "--llm", llm)
    assert found_in("".join(parrot.heard).encode())  # the secret was sent
    assert list((home / "kept").rglob("*.json")) or refuses
    assert leaks(home) == {}
    assert parrot.leaks == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_and_its_reports_hold_no_secret(kind: str, home: Path, parrot: Parrot, screen: Screen) -> None:
    where = addresses(parrot)[kind]
    assert screen("index", home / "docs", "-o", home / "docs.idx", "--encoder", f"openai:e@{where}").status == 0
    screen("search", home / "docs.idx", "harbour", "--encoder", f"openai:e@{where}")
    (home / "q.jsonl").write_text('{"id": "1", "question": "Who?", "answers": ["Mira Sol"]}\n', "utf-8")
    parts = ("--index", home / "docs.idx", "--encoder", f"openai:e@{where}", "--cache", home / "cache")
    words = ("--questions", home / "q.jsonl", "--llm", f"openai:m@{where}", "--scorer", f"openai:s@{where}")
    for refuses in (0, 400):
        parrot.refuses = refuses
        run = home / f"run{refuses}.db"
        screen("bench", "run", run, *words, *parts, "--method", "rag", "--method", "direct", "--traces")
        for form in ("html", "json", "csv", "md"):
            screen("bench", "report", run, "--format", form, "-o", home / f"report{refuses}.{form}")
        screen("bench", "report", run)
        screen("bench", "show", run, "--question", "1")
        screen("bench", "run", run)  # which says what has to be typed again
        screen("bench", "retry", run, "--llm", f"openai:m@{where}", "--encoder", f"openai:e@{where}")
    screen("bench", "diff", home / "run0.db", home / "run400.db")
    screen("tune", home / "run0.db", "--method", "trustmargin")
    assert (home / "report0.html").exists()
    assert leaks(home) == {}
    assert parrot.leaks == {}


@pytest.mark.parametrize("refuses", [0, 403])
async def test_a_key_in_python_reaches_no_file(refuses: int, home: Path, parrot: Parrot, log: Path) -> None:
    from arbitrag.llm.http.openai import OpenAILLM
    from arbitrag.methods import load
    from arbitrag.replay import save_trace
    from arbitrag.run import Failure, attempt, open_kit
    from arbitrag.types import Question

    parrot.refuses = refuses
    llm = OpenAILLM("m", base_url=addresses(parrot)["query"], api_key=GIVEN, retries=0)
    async with open_kit(llm, passages=[Passage("Mira Sol runs it.")], cache=home / "cache") as kit:
        outcome = await attempt(Question("Who?"), load("rag")(), kit)
    save_trace(outcome.trace, home / "trace.json")
    shown = f"{outcome!r} {llm!r} {llm.name} {llm.identity} {kit!r}"
    if isinstance(outcome, Failure):
        shown += "".join(map(repr, chain(outcome.error)))
    (home / "shown.txt").write_text(shown, "utf-8")
    await llm.aclose()
    assert any(found_in(each.encode()) for each in parrot.heard)
    assert leaks(home) == {}


def chain(error: BaseException | None) -> Iterator[Any]:
    """An error with all that it came from, and everything that these hold."""
    while error is not None:
        yield error
        yield error.args
        yield error.__dict__
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("ends", ["whole", "broken", "refused"])
async def test_a_streamed_answer_shows_no_secret(ends: str, home: Path, log: Path) -> None:
    from arbitrag.errors import BackendError
    from arbitrag.llm.base import Prompt, Sampling
    from arbitrag.llm.http.openai import OpenAILLM

    last = {"whole": "data: [DONE]", "broken": f"data: {'x' * 90}{KEY}", "refused": "data: {}"}[ends]
    if ends == "refused":
        last = "data: " + json.dumps({"error": {"message": "x" * 190 + KEY}})
    deltas = [{"choices": [{"delta": {"content": letter}}]} for letter in f"You sent {KEY}."]
    body = "".join(f"data: {json.dumps(each)}\n\n" for each in deltas) + last + "\n\n"
    heard: list[str] = []
    with ScriptedServer(faults=[Fault(200, {"Content-Type": "text/event-stream"}, body)]) as server:
        llm = OpenAILLM("m", base_url=server.base_url, retries=0)
        try:
            heard.append((await llm.stream(Prompt.user("hello"), Sampling(), heard.append)).text)
        except BackendError as error:
            heard.extend(map(repr, chain(error)))
        await llm.aclose()
    (home / "heard.txt").write_text("\n".join(heard), "utf-8")
    assert heard
    assert leaks(home) == {}
    assert not any(KEY[:8] in each for each in heard)


POSTGRES = {
    "keyword": f"postgres:host=127.0.0.1 port=1 user={USER} password={PG_KEYWORD} dbname=x connect_timeout=2",
    "quoted": "postgres:host=127.0.0.1 port=1 password='{}' dbname=x?table=t".format(
        QUOTED.replace("\\", "\\\\").replace("'", "\\'")
    ),
    "url": f"postgres:postgresql://{USER}:{quote(PG_URL, safe='')}@127.0.0.1:1/x?connect_timeout=2",
    "parameter": f"postgres:postgresql://127.0.0.1:1/x?password={quote(PG_URL)}&sslpassword={quote(PG_URL)}",
    "not encoded": f"postgres:postgresql://{USER}:{PG_URL}@127.0.0.1:1/x",
    "unclear": f"postgres:postgresql://{USER}:Wpgurlone/Wpgurltwo@127.0.0.1:1/x",
    "broken": f"postgres:host=127.0.0.1 password='{PG_KEYWORD}",
    "spaced": "postgres:host=127.0.0.1 password=Wkvone Wkvthree dbname=x",
}


@pytest.mark.parametrize("kind", POSTGRES)
def test_a_postgres_server_that_is_away(kind: str, home: Path, parrot: Parrot, screen: Screen) -> None:
    pytest.importorskip("psycopg_pool")
    llm = f"openai:m@{addresses(parrot)['environment']}"
    assert screen("search", POSTGRES[kind], "harbour").status != 0
    assert screen("ask", "Who?", "--index", POSTGRES[kind], "--llm", llm, "--method", "rag").status != 0
    words = ("--questions", home / "q.jsonl", "--passages", "retrieved", "--llm", llm, "--method", "rag")
    assert screen("bench", "run", home / "run.db", *words, "--index", POSTGRES[kind]).status != 0
    assert leaks(home) == {}


@pytest.mark.parametrize("kind", ["keyword", "quoted", "url", "parameter"])
def test_a_run_over_postgres_holds_no_password(
    kind: str, home: Path, parrot: Parrot, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    from arbitrag.retrieve.servers import postgres
    from arbitrag.retrieve.servers import postgres_table as table

    class Found(FixedRetriever):
        def __init__(self, asked: Any) -> None:
            super().__init__([Passage("Mira Sol runs it.", id="1")])
            place = table.Place.of(asked.place, "t")
            self.name = self.identity = f"postgres:{place.server}/{place.table}"
            self.kept = place, repr(place)

    monkeypatch.setattr(postgres, "open_address", Found)
    llm = f"openai:m@{addresses(parrot)['environment']}"
    words = ("--questions", home / "q.jsonl", "--passages", "retrieved", "--llm", llm, "--method", "rag")
    assert screen("bench", "run", home / "run.db", *words, "--index", POSTGRES[kind], "--traces").status == 0
    screen("bench", "report", home / "run.db", "--format", "html", "-o", home / "report.html")
    again = screen("bench", "run", home / "run.db", "--llm", llm)  # the index has to be typed again
    assert again.status == 2
    assert "--index " in again.err
    assert screen("bench", "run", home / "run.db", "--llm", llm, "--index", POSTGRES[kind]).status == 0
    assert leaks(home) == {}


@pytest.mark.filterwarnings("ignore:.*insecure connection")
@pytest.mark.parametrize("user", ["", f"{USER}:{quote(PASSWORD, safe='')}@", f":{quote(QDRANT, safe='')}@"])
@pytest.mark.parametrize(("kind", "package"), [("elastic", "elasticsearch"), ("qdrant", "qdrant_client")])
@pytest.mark.parametrize("refuses", [401, 400, 500])
def test_a_server_of_passages_that_refuses(
    kind: str, package: str, user: str, refuses: int, home: Path, parrot: Parrot, screen: Screen
) -> None:
    pytest.importorskip(package)
    parrot.refuses = refuses
    index = f"{kind}:http://{user}127.0.0.1:{parrot.port}/things?encoder=hash"
    assert screen("search", index, "harbour").status != 0
    words = ("--questions", home / "q.jsonl", "--passages", "retrieved", "--llm", "lab", "--method", "rag")
    screen("bench", "run", home / "run.db", *words, "--index", index, "--traces")
    screen("bench", "report", home / "run.db")
    assert parrot.heard
    assert leaks(home) == {}
    unknown = f"{kind}:http://{user}127.0.0.1:{parrot.port}/things?api_key={quote(QUERY)}"
    assert screen("search", unknown, "harbour").status != 0
    assert leaks(home) == {}


MISTYPED: dict[str, Callable[[str], list[str]]] = {
    "a slash": lambda port: ["ask", "Who?", "--llm", f"openai:m@http://{USER}:Wfirst/Wsecond@127.0.0.1:{port}/v1"],
    "a number": lambda port: ["ask", "Who?", "--llm", f"openai:m@http://{USER}:12/Wsecond@127.0.0.1:{port}/v1"],
    "a hash": lambda port: ["ask", "Who?", "--llm", f"openai:m@http://{USER}:1#Wsecond@127.0.0.1:{port}/v1"],
    "no kind": lambda port: ["ask", "Who?", "--llm", f"http://{USER}:Wsecond@127.0.0.1:{port}/v1"],
    "no such kind": lambda port: ["search", f"elastik:http://{USER}:Wsecond@127.0.0.1:{port}/i", "harbour"],
    "an extra word": lambda port: ["search", "docs.idx", "harbour", f"http://{USER}:Wsecond@127.0.0.1:{port}"],
    "no such command": lambda port: [f"http://{USER}:Wsecond@127.0.0.1:{port}"],
    "no number": lambda port: ["search", "docs.idx", "x", "-k", f"http://{USER}:Wsecond@127.0.0.1:{port}"],
    "an option's value": lambda port: ["ask", "Who?", f"--llm=openai:m@http://{USER}:Wsecond@[127.0.0.1:{port}/v1"],
    "hash with more": lambda port: ["search", "docs.idx", "x", "--encoder", f"hash:http://{USER}:Wsecond@h"],
}


@pytest.mark.parametrize("how", MISTYPED)
def test_a_mistyped_address_is_not_repeated(how: str, home: Path, parrot: Parrot, screen: Screen) -> None:
    assert screen(*MISTYPED[how](str(parrot.port))).status != 0
    assert leaks(home) == {}


def test_the_search_finds_what_it_looks_for(home: Path) -> None:
    """In text, in a compressed value of an sqlite file, and in base64."""
    (home / "a.txt").write_text(f"... {PASSWORD[5:14]} ...", "utf-8")
    (home / "b.txt").write_text(base64.b64encode(f"{USER}:{PLAIN}".encode()).decode(), "utf-8")
    with closing(sqlite3.connect(home / "c.db")) as file:
        file.execute("CREATE TABLE t (x)")
        file.execute("INSERT INTO t VALUES (?)", (zlib.compress(KEY.encode()),))
        file.commit()
    assert sorted(leaks(home)) == ["a.txt", "b.txt", "c.db"]
