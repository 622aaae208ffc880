"""``arbitrag data check``: every bad row by its line, and what is in a good set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Command

GOOD = '{"question": "Who?", "answers": ["Ada", "A. L."], "scenario": "FA", "passages": ["One."]}\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "towns.jsonl"


def test_a_good_set(file: Path, command: Command) -> None:
    file.write_text(GOOD + '{"question": "Who?", "answers": "Ada", "wrong_answer": "Bea", "group": "g"}\n')
    ran = command("data", "check", file)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[:-1] == [
        "towns: JSON lines, 2 good rows, 0 bad",
        "  answers    1 to 2 a question, 1.5 on average",
        "  scenarios  BOTH 1, not stated 1",
        "  passages   1 a question in 1 question",
        "  planted    a wrong answer in 1 question",
        "  groups     g 1",
    ]
    assert ran.out.splitlines()[-1].startswith("  tokens     about ")


def test_bad_rows(file: Path, command: Command) -> None:
    file.write_text(GOOD + 'nonsense\n{"question": "Who?", "answers": "The", "id": "1"}\n')
    ran = command("data", "check", file)
    assert (ran.status, ran.err) == (1, "")
    assert ran.out.splitlines()[:4] == [
        f"{file} line 2: not valid JSON (Expecting value: line 1 column 1 (char 0))",
        f"{file} line 3: warning: the answer 'The' is empty when normalised; it must be matched exactly",
        f"{file} line 3: the id '1' is that of line 1 already",
        "towns: JSON lines, 1 good row, 2 bad, 1 warning",
    ]


def test_a_warning_alone_is_no_failure(file: Path, command: Command) -> None:
    file.write_text('{"question": "Who?", "answers": "The"}\n')
    ran = command("data", "check", file)
    assert ran.status == 0
    assert "1 good row, 0 bad, 1 warning" in ran.out


def test_many_bad_rows_are_bounded_on_a_screen_and_all_there_as_json(file: Path, command: Command) -> None:
    file.write_text(GOOD + "nonsense\n" * 50)
    shown = command("data", "check", file)
    assert shown.status == 1
    assert shown.out.count("not valid JSON") == 20
    assert f"{file}: 30 more; all of them: arbitrag data check --json {file}\n" in shown.out
    ran = command("data", "check", "--json", file)
    assert (ran.status, ran.err) == (1, "")
    (report,) = json.loads(ran.out)["sets"]
    assert [problem["line"] for problem in report["problems"]] == list(range(2, 52))
    assert {problem["kind"] for problem in report["problems"]} == {"error"}
    assert (report["rows"], report["bad"], report["errors"], report["warnings"]) == (51, 50, 50, 0)


def test_twenty_bad_rows_are_all_shown(file: Path, command: Command) -> None:
    file.write_text(GOOD + "nonsense\n" * 20)
    ran = command("data", "check", file)
    assert ran.out.count("not valid JSON") == 20
    assert "more" not in ran.out


def test_several_sets_of_which_some_cannot_be_read(file: Path, tmp_path: Path, command: Command) -> None:
    file.write_text(GOOD)
    other = tmp_path / "notes.jsonl"
    other.write_text("my notes\n")
    ran = command("data", "check", other, f"{file}?k=1", tmp_path / "nothing.jsonl", "lab:questions?count=8")
    assert ran.status == 1
    assert ran.err.splitlines() == [
        f"DataError: {other} looks like plain text, or a table without the column 'question'; its first line is "
        "'my notes'; a question set is JSON lines, "
        '{"question": "...", "answers": ["..."]}, or CSV with these columns',
        f"DataError: {tmp_path / 'nothing.jsonl'} cannot be read: No such file or directory",
    ]
    assert "towns?k=1: JSON lines, 1 good row, 0 bad\n" in ran.out
    assert "lab:questions?count=8: questions of the lab, 8 good rows, 0 bad\n" in ran.out
    found = json.loads(command("data", "check", "--json", other, file).out)
    assert found["bad_sets"] == 1
    assert [report["address"] for report in found["sets"]] == [str(other), str(file)]
    assert found["sets"][0]["error"].startswith(f"{other} looks like plain text")


def test_a_wrong_option_is_misuse(file: Path, command: Command) -> None:
    file.write_text(GOOD)
    ran = command("data", "check", f"{file}?kk=1")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"UsageError: unknown option of {file} 'kk'. Did you mean 'k'?")


def test_what_a_file_says_cannot_act_on_the_terminal(file: Path, command: Command) -> None:
    file.write_text(json.dumps({"question": "Who?", "answers": "Ada", "\x1b[31m": 1}) + "\n")
    ran = command("data", "check", file)
    assert "\x1b" not in ran.out
    assert "'\\u001b[31m' is not known" in ran.out
