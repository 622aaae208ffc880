"""A newcomer's path, from an empty folder to a report, by the real console script in processes of its own.

HOME is empty, nothing is set in the environment, and the model is a server in another process. What is printed is
looked at line by line, and at the end what lies on the disk.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_SERVER = """
import sys
from arbitrag.testing import ScriptedServer, prompt_text

def reply(prompt):
    return "Mara Lindqvist" if "run by Mara" in prompt_text(prompt) else "the harbour master"

with ScriptedServer(reply) as server:
    print(server.base_url, flush=True)
    sys.stdin.read()
"""
QUESTION = "Who runs the harbour?"
DOCUMENTS = {
    "harbour.md": "# Harbour\n\nThe harbour is run by Mara Lindqvist since 2019.\n",
    "lighthouse.txt": "The lighthouse was built in 1911.\n",
}
ROWS = (
    {"id": "q1", "question": QUESTION, "answers": ["Mara Lindqvist"]},
    {"id": "q2", "question": "When was the lighthouse built?", "answers": ["1911"]},
)


@dataclass(frozen=True)
class Newcomer:
    """Somebody in an empty folder, with a model at ``llm``."""

    folder: Path
    home: Path
    llm: str

    def types(self, *words: str, status: int = 0, stdin: str = "") -> str:
        """What a command prints, on both streams together."""
        ran = subprocess.run(
            [*_console_script(), *words],
            cwd=self.folder,
            env=_environment(self.home),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert ran.returncode == status, ran.stdout
        assert "Traceback" not in ran.stdout
        assert "--json" in words or max(map(len, ran.stdout.splitlines()), default=0) <= 100
        return ran.stdout


def _console_script() -> list[str]:
    """``arbitrag`` beside this interpreter, where it is installed."""
    script = Path(sys.executable).with_name("arbitrag.exe" if sys.platform == "win32" else "arbitrag")
    return [str(script)] if script.exists() else [sys.executable, "-m", "arbitrag"]


def _environment(home: Path) -> dict[str, str]:
    """As bare as it can be: an empty home, and what Windows and an uninstalled checkout need."""
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "SYSTEMROOT", "PATH") if name in os.environ}
    places = {"HOME": home, "USERPROFILE": home, "LOCALAPPDATA": home / "local", "TEMP": home / "temp"}
    return {**kept, **{name: str(path) for name, path in places.items()}, "PYTHONUTF8": "1", "COLUMNS": "100"}


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    folder, home = tmp_path_factory.mktemp("empty"), tmp_path_factory.mktemp("home")
    server = subprocess.Popen([sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield Newcomer(folder, home, f"openai:scripted@{server.stdout.readline().strip()}")
    finally:
        server.communicate()


def test_the_first_hour(newcomer: Newcomer) -> None:
    """The steps follow each other, so they are one test."""
    types, folder = newcomer.types, newcomer.folder
    assert re.fullmatch(r"arbitrag \d+\.\d+\.\d+\n", types("--version"))
    assert types("search", "docs.idx", QUESTION, status=1).startswith("IndexFileError: there is no index docs.idx")

    _writes_documents(folder / "docs")
    assert re.fullmatch(
        r"docs\.idx: 2 passages of 2 files \(2 added\) in \d+\.\d s\n", types("index", "docs", "-o", "docs.idx")
    )
    found = types("search", "docs.idx", QUESTION).splitlines()
    assert re.fullmatch(r"\[1\] \d+\.\d\d  harbour\.md:1  Harbour", found[0])
    assert found[1] == "    # Harbour The harbour is run by Mara Lindqvist since 2019."

    _asks(newcomer)
    _compares(newcomer)
    _is_told_what_to_type(newcomer)
    _finds_only_what_was_asked_for(newcomer)


def _writes_documents(docs: Path) -> None:
    docs.mkdir()
    for name, text in DOCUMENTS.items():
        (docs / name).write_text(text, encoding="utf-8")


def _asks(newcomer: Newcomer) -> None:
    lines = newcomer.types(
        "ask", QUESTION, "--index", "docs.idx", "--llm", newcomer.llm, "--method", "rag"
    ).splitlines()
    told = {line[:10].strip(): line[10:] for line in lines if line[:1].strip()}
    assert re.fullmatch(r"Mara Lindqvist +trusted: evidence", told["Answer"])
    assert told["Why"] == "the answer is from the passages alone"
    assert told["Evidence"] == "Mara Lindqvist"
    assert told["Passages"] == "2 read   [1] harbour.md:1   [2] lighthouse.txt:1"
    assert re.fullmatch(r"1 answer · \d+ prompt tokens, 2 completion · \d+\.\d\d s", told["Cost"])

    plain = json.loads(
        newcomer.types("ask", QUESTION, "--index", "docs.idx", "--llm", newcomer.llm, "--method", "rag", "--json")
    )
    assert (plain["answer"], plain["strategy"]) == ("Mara Lindqvist", "evidence")


def _compares(newcomer: Newcomer) -> None:
    rows = "".join(json.dumps(row) + "\n" for row in ROWS)
    (newcomer.folder / "questions.jsonl").write_text(rows, encoding="utf-8")
    assert "2 good rows, 0 bad" in newcomer.types("data", "check", "questions.jsonl")

    words = ("--questions", "questions.jsonl", "--index", "docs.idx", "--llm", newcomer.llm)
    ran = newcomer.types("bench", "run", "mine.db", *words, "--method", "direct", "--method", "rag")
    assert "4 rows made, 0 failed" in ran
    assert "0 rows made" in newcomer.types("bench", "run", "mine.db")

    report = newcomer.types("bench", "report", "mine.db")
    shares = {line.split()[0]: line for line in report.splitlines() if line.startswith(("direct ", "rag "))}
    assert set(shares) == {"direct", "rag"}
    newcomer.types("bench", "report", "mine.db", "--html", "mine.html")
    page = (newcomer.folder / "mine.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert "rag" in page
    shown = newcomer.types("bench", "show", "mine.db", "--question", "q1")
    assert "direct: wrong (em 0.00, f1 0.00)" in shown
    assert "rag: right (em 1.00, f1 1.00)" in shown


def _is_told_what_to_type(newcomer: Newcomer) -> None:
    """Each mistake of a first hour ends with what to type."""
    for words, hint in (
        (("ask", QUESTION, "--index", "docs.idx"), "--llm"),
        (("ask", QUESTION, "--index", "nowhere.idx", "--llm", newcomer.llm, "--method", "rag"), "arbitrag index"),
        (("ask", QUESTION, "--index", "docs.idx", "--llm", newcomer.llm, "--method", "rga"), "Did you mean 'rag'?"),
        (("index", "nowhere", "-o", "new.idx"), "does not exist"),
        (("bench", "report", "no.db"), "arbitrag bench run"),
        (("replay", "docs.idx"), "cannot be read"),
    ):
        ran = subprocess.run(
            [*_console_script(), *words],
            cwd=newcomer.folder,
            env=_environment(newcomer.home),
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert (ran.returncode in (1, 2), ran.stdout) == (True, "")
        assert hint in ran.stderr
        assert len(ran.stderr.splitlines()) <= 6


def _finds_only_what_was_asked_for(newcomer: Newcomer) -> None:
    """No file but those that were named lies in the folder, and nothing of others than Arbitrag in the home."""
    made = {path.name for path in newcomer.folder.iterdir() if not path.name.startswith(".")}
    assert made == {"docs", "docs.idx", "questions.jsonl", "mine.db", "mine.html"}
    hidden = {path.name for path in newcomer.folder.iterdir()} - made
    assert hidden <= {".mine.db.lock"}
    strays = [path for path in newcomer.home.rglob("*") if path.is_file() and "arbitrag" not in str(path.parent)]
    assert strays == []
