"""Many questions: rows in order, failures as rows, and a run that is taken up again."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from arbitrag.cli.results import FORMAT
from arbitrag.errors import BackendError
from arbitrag.llm.base import Prompt
from arbitrag.storage.lock import Lock
from arbitrag.testing import ScriptedLLM, ScriptedServer, prompt_text

if TYPE_CHECKING:
    from tests.conftest import Command

RAG = ("--method", "rag", "--llm", "lab")
DIRECT = ("--method", "direct", "--llm", "lab")


class Script:
    """Replies with the number in the question; questions in ``down`` fail."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.asked: list[str] = []

    def __call__(self, prompt: Prompt) -> str | Exception:
        number = prompt_text(prompt).rpartition("number ")[2].split("?")[0]
        self.asked.append(number)
        return BackendError("the server is down") if number in self.down else f"answer {number}"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    script = Script()
    monkeypatch.setattr("arbitrag.run.open_llm", lambda address: ScriptedLLM(script, name=address))
    return script


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(f'{{"question": "What is number {n}?", "id": "q{n}"}}\n' for n in range(1, 6)))
    return path


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def told(row: dict[str, Any]) -> tuple[str, str]:
    return row["id"], row.get("answer") or row["error"]["message"]


def test_rows_come_in_order_on_standard_output(script: Script, questions: Path, command: Command) -> None:
    ran = command("ask", *DIRECT, "--questions", questions, "--concurrency", "2")
    assert ran.status == 0
    assert [told(row) for row in rows(ran.out)] == [(f"q{n}", f"answer {n}") for n in range(1, 6)]
    assert ran.err.startswith("5 answered, 0 failed, ")
    assert ran.err.endswith(" a second\n")


def test_plain_questions_on_standard_input(script: Script, command: Command) -> None:
    for asked in (("ask", *DIRECT), ("ask", *DIRECT, "--questions", "-")):
        ran = command(*asked, stdin=b"Say number 7?\n\nSay number 8?\n")
        assert [told(row) for row in rows(ran.out)] == [("1", "answer 7"), ("3", "answer 8")]


def test_a_row_says_how_it_was_made(script: Script, questions: Path, command: Command) -> None:
    (row, *_) = rows(command("ask", *DIRECT, "--questions", questions).out)
    wording = row["run"].pop("wording")
    assert row["run"] == {
        "format": FORMAT,
        "method": "direct",
        "settings": {},
        "llm": "lab",
        "scorer": "lab",
        "retriever": row["run"]["retriever"],
        "limits": {"context_tokens": 2048, "answer_tokens": 32, "writing_tokens": 256},
    }
    assert len(wording) == 16
    assert row["question"] == {"text": "What is number 1?", "options": [], "id": "q1"}


def test_the_wording_of_prompts_is_part_of_how_a_row_was_made(
    script: Script, questions: Path, tmp_path: Path, command: Command
) -> None:
    out, own = tmp_path / "out.jsonl", tmp_path / "wording" / "direct" / "answer.txt"
    own.parent.mkdir(parents=True)
    own.write_text("source: a test\nwording: 1\n---\n=== user\nIn short: {question}")
    asked = ("ask", *DIRECT, "--questions", questions, "-o", out, "--wording", own.parent.parent)
    assert command(*asked).status == 0
    assert command(*asked).err == "0 answered, 0 failed, 5 finished before\n"
    own.write_text(own.read_text().replace("In short", "Briefly"))
    ran = command(*asked)
    assert ran.status == 2
    assert re.fullmatch(rf"UsageError: {out} line 1 was made with wording \w{{16}} instead of \w{{16}}; .*\n", ran.err)


def test_a_failure_is_a_row_and_the_next_run_retries_it(
    script: Script, questions: Path, tmp_path: Path, command: Command
) -> None:
    out = tmp_path / "out.jsonl"
    asked = ("ask", *DIRECT, "--questions", questions, "-o", out)
    script.down = {"2", "4"}
    first = command(*asked)
    assert (first.status, first.out) == (1, "")
    assert first.err.startswith("3 answered, 2 failed, ")
    assert first.err.endswith(f"; run the same command again to retry those in {out}\n")
    failed = rows(out.read_text())[1]
    assert failed["error"] == {"kind": "BackendError", "message": "the server is down"}
    assert "answer" not in failed

    script.down, script.asked = {"4"}, []
    second = command(*asked)
    assert (second.status, script.asked) == (1, ["2", "4"])
    assert second.err.startswith("1 answered, 1 failed, 3 finished before, ")

    script.down, script.asked = set(), []
    third = command(*asked)
    assert (third.status, script.asked) == (0, ["4"])
    assert [told(row) for row in rows(out.read_text())] == [(f"q{n}", f"answer {n}") for n in range(1, 6)]

    whole = out.read_bytes()
    fourth = command(*asked)
    assert (fourth.status, fourth.err) == (0, "0 answered, 0 failed, 5 finished before\n")
    assert out.read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.jsonl.lock", "out.jsonl", "questions.jsonl"]


@pytest.mark.parametrize("kept", [1, 5, 40])
def test_a_row_that_was_cut_off_is_written_again(
    kept: int, script: Script, questions: Path, tmp_path: Path, command: Command
) -> None:
    out = tmp_path / "out.jsonl"
    asked = ("ask", *DIRECT, "--questions", questions, "-o", out)
    command(*asked)
    whole = [{**row, "usage": None, "checksum": None} for row in rows(out.read_text())]
    lines = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:3]) + lines[3][:kept])
    script.asked = []
    assert command(*asked).status == 0
    assert script.asked == ["4", "5"]
    assert [{**row, "usage": None, "checksum": None} for row in rows(out.read_text())] == whole


def test_a_crash_keeps_what_was_answered(
    script: Script, questions: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.jsonl"
    asked = ("ask", *DIRECT, "--questions", questions, "-o", out, "--concurrency", "1")

    def stopped(prompt: Prompt) -> str | Exception:
        if "number 3" in prompt_text(prompt):
            raise KeyboardInterrupt
        return script(prompt)

    with monkeypatch.context() as patch:
        patch.setattr("arbitrag.run.open_llm", lambda address: ScriptedLLM(stopped, name=address))
        assert command(*asked).status == 130
    assert [row["id"] for row in rows(out.read_text())] == ["q1", "q2"]
    script.asked = []
    assert command(*asked).status == 0
    assert script.asked == ["3", "4", "5"]


def test_a_file_has_one_writer(script: Script, questions: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "answers.jsonl"
    with Lock(out):
        ran = command("ask", "--questions", questions, *DIRECT, "-o", out)
    assert (ran.status, out.exists(), script.asked) == (1, False, [])
    assert ran.err == f"DataError: another process is writing {out}; wait until it ends, or name another file\n"
    assert command("ask", "--questions", questions, *DIRECT, "-o", out).status == 0
    assert len(rows(out.read_text())) == 5


def test_rows_that_another_process_adds_before_the_lock_is_had_are_kept(
    script: Script, questions: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "answers.jsonl"
    asked = ("ask", "--questions", questions, *DIRECT, "-o", out)
    assert command(*asked).status == 0
    whole = out.read_text()
    out.write_text("".join(whole.splitlines(keepends=True)[:1]))

    class Late(Lock):
        def __init__(self, path: Path) -> None:
            out.write_text("".join(whole.splitlines(keepends=True)[:4]))
            super().__init__(path)

    monkeypatch.setattr("arbitrag.cli.results.Lock", Late)
    script.asked.clear()
    assert command(*asked).status == 0
    assert script.asked == ["5"]
    assert [told(row) for row in rows(out.read_text())] == [(f"q{n}", f"answer {n}") for n in range(1, 6)]


def test_more_questions_are_added_and_put_in_order(
    script: Script, questions: Path, tmp_path: Path, command: Command
) -> None:
    out = tmp_path / "out.jsonl"
    asked = ("ask", *DIRECT, "--questions", questions, "-o", out)
    command(*asked)
    lines = questions.read_text().splitlines(keepends=True)
    questions.write_text('{"question": "What is number 0?", "id": "q0"}\n' + "".join(lines[2:]))
    script.asked = []
    assert command(*asked).status == 0
    assert script.asked == ["0"]
    # those that are no longer asked stay, first
    assert [row["id"] for row in rows(out.read_text())] == ["q1", "q2", "q0", "q3", "q4", "q5"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--answer-tokens", "9"), "line 1 was made with answer_tokens 32 instead of 9"),
        (("--llm", "other"), "line 1 was made with llm lab instead of other"),
        (("--method", "rag"), "line 1 was made with method direct instead of rag"),
    ],
)
def test_rows_of_another_run_are_not_mixed_in(
    change: tuple[str, str], message: str, script: Script, questions: Path, tmp_path: Path, command: Command
) -> None:
    out, given = tmp_path / "out.jsonl", tmp_path / "passages.jsonl"
    given.write_text('{"text": "A passage."}\n')
    asked = ("ask", *DIRECT, "--questions", questions, "-o", out, "--passages", given)
    command(*asked)
    before = out.read_bytes()
    ran = command(*asked, *change)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == f"UsageError: {out} {message}; give -o another file\n"
    assert out.read_bytes() == before


def test_another_question_under_the_same_id(script: Script, questions: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "out.jsonl"
    asked = ("ask", *DIRECT, "--questions", questions, "-o", out)
    command(*asked)
    questions.write_text('{"question": "What else is number 1?", "id": "q1"}\n')
    ran = command(*asked)
    assert ran.status == 2
    assert ran.err == (
        f"UsageError: {out} line 1: 'q1' is another question there (“What is number 1?”); give -o another file\n"
    )


@pytest.mark.parametrize("content", ["my notes", "my notes\n", '{"a": 1}\n', '[{"id": "q1"}]\n', '{"id": 1}\n'])
def test_a_file_of_something_else_is_left_alone(
    content: str, script: Script, questions: Path, tmp_path: Path, command: Command
) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(content)
    ran = command("ask", *DIRECT, "--questions", questions, "-o", out)
    assert (ran.status, ran.err) == (1, f"DataError: {out} line 1 is not a row of verdicts; give -o another file\n")
    assert out.read_text() == content
    assert script.asked == []


def test_the_first_row_is_there_before_the_last_question_is_asked(
    script: Script, questions: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, seen = tmp_path / "out.jsonl", []

    def watching(prompt: Prompt) -> str | Exception:
        seen.append(len(out.read_text().splitlines()))
        return script(prompt)

    monkeypatch.setattr("arbitrag.run.open_llm", lambda address: ScriptedLLM(watching, name=address))
    command("ask", *DIRECT, "--questions", questions, "-o", out, "--concurrency", "1")
    assert seen == [0, 1, 2, 3, 4]


def test_a_bar_on_a_terminal_only(
    script: Script, questions: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from arbitrag.cli.terminal import output

    class Terminal:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def isatty(self) -> bool:
            return True

        def __getattr__(self, name: str) -> Any:
            return getattr(self.stream, name)

    def bar(until: str) -> str:
        with output.progress("Asking") as show:
            show(1, 2, "[red]3/s[/red]\x1b[31m")
            while until not in terminal.stream.getvalue():
                time.sleep(0.01)
        return str(terminal.stream.getvalue())

    terminal = Terminal(io.StringIO())
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    assert bar(until="") == ""  # done at once
    monkeypatch.setattr(output, "PATIENCE_S", 0)
    drawn = bar(until="Asking")
    assert "1/2" in drawn
    assert "[red]3/s[/red]\\u001b[31m" in drawn


def test_right_answers_in_a_table_are_not_asked(script: Script, tmp_path: Path, command: Command) -> None:
    path = tmp_path / "questions.csv"
    path.write_text('id,question,answers,group\na,"What, is number 1?",gold one,x\nb,What is number 2?,gold two,y\n')
    ran = command("ask", *DIRECT, "--questions", path)
    assert [(row["id"], row["question"]["text"]) for row in rows(ran.out)] == [
        ("a", "What, is number 1?"),
        ("b", "What is number 2?"),
    ]
    assert "gold" not in ran.out
    assert ran.err.splitlines()[0] == f"{path}: not for asking, and ignored: answers, group"
    assert ran.err.count("ignored") == 1


def test_a_table_on_standard_input(script: Script, command: Command) -> None:
    ran = command("ask", *DIRECT, stdin=b"question,answers\nWhat is number 1?,gold\n")
    assert [told(row) for row in rows(ran.out)] == [("2", "answer 1")]
    assert ran.err.startswith("standard input: not for asking, and ignored: answers\n")


@pytest.fixture
def with_passages(tmp_path: Path) -> Path:
    path = tmp_path / "own.jsonl"
    path.write_text(
        '{"id": "a", "question": "What is number 1?", "answers": ["gold"], "passages": ["One is uno."]}\n'
        '{"id": "b", "question": "What is number 2?", "answers": ["gold"], "passages": ["Two is due.", "Nothing."]}\n'
    )
    return path


def kept(ran: Any) -> list[list[str]]:
    return [[passage["text"] for passage in row["kept"]] for row in rows(ran.out)]


def test_the_questions_own_passages_are_read_where_all_have_some(
    script: Script, with_passages: Path, command: Command
) -> None:
    ran = command("ask", *RAG, "--questions", with_passages)
    assert kept(ran) == [["One is uno."], ["Two is due.", "Nothing."]]
    assert {row["run"]["retriever"] for row in rows(ran.out)} == {"given"}
    assert "not for asking, and ignored: answers\n" in ran.err


def test_passages_that_were_typed_go_before_the_questions_own(
    script: Script, with_passages: Path, tmp_path: Path, command: Command
) -> None:
    others = tmp_path / "others.jsonl"
    others.write_text('{"text": "Something else."}\n')
    ran = command("ask", *RAG, "--questions", with_passages, "--passages", others)
    assert kept(ran) == [["Something else."], ["Something else."]]
    assert "ignored: answers, passages (those of --passages are read)\n" in ran.err


def test_passages_of_some_questions_only_are_not_read(script: Script, with_passages: Path, command: Command) -> None:
    with with_passages.open("a") as file:
        file.write('{"id": "c", "question": "What is number 3?"}\n')
    ran = command("ask", *DIRECT, "--questions", with_passages)
    assert "ignored: answers, passages (1 of 3 questions have none)\n" in ran.err


def test_a_row_made_of_other_passages_is_asked_again(
    script: Script, with_passages: Path, tmp_path: Path, command: Command
) -> None:
    asked = ("ask", *RAG, "--questions", with_passages, "-o", tmp_path / "out.jsonl")
    assert command(*asked).status == 0
    with_passages.write_text(with_passages.read_text().replace("Two is due", "Two is deux"))
    script.asked = []
    assert "1 answered, 0 failed, 1 finished before" in command(*asked).err
    assert script.asked == ["2"]
    assert [row["id"] for row in rows((tmp_path / "out.jsonl").read_text())] == ["a", "b"]


def test_questions_stop_before_a_limit_and_go_on(
    script: Script, questions: Path, tmp_path: Path, command: Command
) -> None:
    out = tmp_path / "out.jsonl"
    asked = ("ask", *DIRECT, "--questions", questions, "--concurrency", "1", "-o", out)
    first = command(*asked, "--max-tokens", "100")
    made = rows(out.read_text())
    spent = sum(row["usage"]["prompt_tokens"] + row["usage"]["completion_tokens"] for row in made)
    assert (first.status, 0 < len(made) < 5, spent <= 100) == (3, True, True)
    left = f"{5 - len(made)} of 5 questions are left; run"
    assert f"Stopped before --max-tokens 100: {spent} tokens were spent; {left}" in first.err
    assert command(*asked, "--max-tokens", "100").status == 3  # what the rows there cost counts
    assert len(script.asked) == len(made)
    assert command(*asked, "--max-tokens", "1000").status == 0
    assert [told(row) for row in rows(out.read_text())] == [(f"q{n}", f"answer {n}") for n in range(1, 6)]


def test_a_limit_of_money_needs_a_price(script: Script, questions: Path, command: Command) -> None:
    ran = command("ask", *DIRECT, "--questions", questions, "--max-cost", "1")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("UsageError: a limit of money needs the price of lab")
    assert command("ask", *DIRECT, "--questions", questions, "--max-cost", "1", "--price", "1,2").status == 0
    single = command("ask", "Who?", *DIRECT, "--max-tokens", "5")
    assert single.err.startswith("UsageError: --max-tokens and --max-cost are for many questions")


def test_the_labs_questions_are_for_models_that_know_its_world(script: Script, command: Command) -> None:
    asked = ("ask", "--method", "direct", "--questions", "lab:questions?count=4")
    ran = command(*asked, "--llm", "openai:gpt-4o-mini")
    assert ran.status == 2
    assert ran.err.startswith("UsageError: openai:gpt-4o-mini was not trained on the lab's invented world, which lab:")
    assert not script.asked
    assert command(*asked, "--llm", "openai:gpt-4o-mini", "--foreign").status == 0
    assert command(*asked, "--llm", "lab").status == 0


def test_a_row_that_stands_twice_is_kept_once(tmp_path: Path, command: Command) -> None:
    asked, out = tmp_path / "asked.txt", tmp_path / "rows.jsonl"
    asked.write_text("Who?\nWhat?\n")
    with ScriptedServer() as server:
        words = ("ask", "--questions", asked, "-o", out, "--llm", f"openai:m@{server.base_url}", "--method", "direct")
        assert command(*words).status == 0
        whole = out.read_bytes()
        out.write_bytes(whole + whole)
        assert command(*words).status == 0
        assert len(server.requests) == 2
    assert out.read_bytes() == whole
