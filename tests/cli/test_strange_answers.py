"""A server's strange answers, in ask and in bench: each fails its own row at most, and the run goes on to its end."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from arbitrag.testing import Fault, ScriptedServer
from arbitrag.testing.server import Request

if TYPE_CHECKING:
    from tests.conftest import Command

OPTIONS = ["Paris", "Rome", "Oslo"]
HUGE = 10**400


def saying(text: object, **more: Any) -> Fault:
    return Fault.says(json.dumps({"choices": [{"finish_reason": "stop", "message": {"content": text}}], **more}))


def counted(**usage: object) -> Fault:
    return saying("Rome", usage=usage)


READ = [
    saying("İ"),
    saying("ſ"),
    saying("\ud800 Rome"),
    Fault.charset("rot13"),
    Fault.charset("hex"),
    Fault.charset("undefined"),
    counted(prompt_tokens=HUGE, completion_tokens=3),
    counted(prompt_tokens=2**63, completion_tokens=-1),
    counted(prompt_tokens="12", completion_tokens=True),
]
FAILED = [
    saying(None),
    Fault.says(b"\xff\xfe"),
    Fault.says('{"choices": ' + "[" * 50_000),
    Fault.says("1" * 5000),
    Fault(200, {"Content-Encoding": "br"}, "x"),
    Fault.redirect("http://127.0.0.1:9/v1"),
]
FAULTS = [*READ, *FAILED]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    rows = [
        {"id": f"q{n}", "question": f"Which of them is number {n}?", "options": OPTIONS, "answers": ["Rome"]}
        for n in range(len(FAULTS) + 1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Faulty(ScriptedServer):
    """Answers the question with number n with fault n, the first time."""

    def __init__(self) -> None:
        super().__init__(lambda prompt: "Rome")
        self.left = dict(enumerate(FAULTS))

    def _reply_to(self, request: Request, fault: Fault | None) -> bytes:
        number = re.search(r"is number (\d+)", json.dumps(request.body))
        return super()._reply_to(request, self.left.pop(int(number[1]), None) if number else None)


def test_ask(command: Command, tmp_path: Path, questions: Path) -> None:
    out = tmp_path / "rows.jsonl"
    with Faulty() as server:
        llm = f"openai:scripted@{server.base_url}"
        asked = ("--questions", questions, "-o", out)
        ran = command("ask", *asked, "--llm", llm, "--method", "direct", "--price", "1,2")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert ran.status == 1
    assert f"{len(READ) + 1} answered, {len(FAILED)} failed" in ran.err
    assert [row["error"]["kind"] for row in rows if "error" in row] == ["BackendError"] * len(FAILED)
    assert [row["id"] for row in rows if "error" in row] == [f"q{n}" for n in range(len(READ), len(FAULTS))]
    assert rows[0]["answer"] == "İ"
    assert rows[2]["answer"] == "Rome"
    notes = [note for row in rows if "error" not in row for note in row["notes"] if "token counts" in note]
    assert [note.partition("not counted: ")[2][:30] for note in notes] == [
        "prompt_tokens 1" + "0" * 15,
        "prompt_tokens 9223372036854775",
        "prompt_tokens '12', completion",
    ]


def test_bench(command: Command, tmp_path: Path, questions: Path) -> None:
    path = tmp_path / "run.db"
    with Faulty() as server:
        llm = f"openai:scripted@{server.base_url}"
        ran = command("bench", "run", path, "--questions", questions, "--llm", llm, "--method", "direct")
        assert "Unexpected" not in ran.err
        assert f"{len(FAILED)} failed" in ran.err + ran.out
        again = command("bench", "retry", path)
    assert again.status == 0, again.err
