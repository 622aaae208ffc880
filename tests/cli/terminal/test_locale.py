"""Arguments, locales and files that the system will not give: a clear line or the text, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ASCII_ONLY = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
PASSAGES = '{"text": "Zürich liegt an der Limmat.", "id": "1"}\n'

posix = pytest.mark.skipif(os.name != "posix", reason="arguments are bytes on POSIX only")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.jsonl").write_text(PASSAGES, encoding="utf-8")
    return tmp_path


def arbitrag(folder: Path, *arguments: str | bytes, **environment: str) -> tuple[int, bytes, str]:
    done = subprocess.run(
        [sys.executable, "-m", "arbitrag", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.decode("utf-8", "backslashreplace")


def ask(question: str | bytes, *more: str) -> list[str | bytes]:
    return ["ask", question, "--llm", "lab", "--method", "rag", "--passages", "p.jsonl", *more]


@posix
@pytest.mark.parametrize("locale", [ASCII_ONLY, {"PYTHONUTF8": "1"}], ids=["C", "UTF-8"])
def test_a_question_is_utf8_in_every_locale(folder: Path, locale: dict[str, str]) -> None:
    status, out, err = arbitrag(folder, *ask("Wo liegt Zürich?", "--json"), **locale)
    assert (status, err) == (0, "")
    assert json.loads(out)["question"]["text"] == "Wo liegt Zürich?"


@posix
@pytest.mark.parametrize("locale", [ASCII_ONLY, {"PYTHONUTF8": "1"}], ids=["C", "UTF-8"])
@pytest.mark.parametrize("command", ["ask", "search"])
def test_an_argument_that_is_not_utf8_is_named(folder: Path, locale: dict[str, str], command: str) -> None:
    arguments = ask(b"Wo liegt Z\xffrich?") if command == "ask" else ["search", "docs.idx", b"Z\xffrich"]
    status, out, err = arbitrag(folder, *arguments, **locale)
    assert (status, out) == (2, b"")
    assert err.startswith("UsageError: an argument is not UTF-8: ")
    assert "\\udcff" in err
    assert "Traceback" not in err


@posix
@pytest.mark.parametrize("arguments", [["--help"], ["methods"], ["doctor"], ["index", "café", "-o", "ü.idx"], ["demo"]])
def test_no_command_breaks_in_an_ascii_locale(folder: Path, arguments: list[str]) -> None:
    status, out, err = arbitrag(folder, *arguments, **ASCII_ONLY)
    assert status == (1 if arguments[0] == "index" else 0)
    assert "Traceback" not in err
    assert "fault in Arbitrag" not in err
    assert out.isascii()


def test_documents_with_names_beyond_ascii_are_indexed_in_an_ascii_locale(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "Zürich.md").write_text("Zürich lies on the Limmat.", encoding="utf-8")
    assert arbitrag(tmp_path, "index", "docs", "-o", "docs.idx", **ASCII_ONLY)[0] == 0
    status, out, err = arbitrag(tmp_path, "search", "docs.idx", "Zürich", "--json", **ASCII_ONLY)
    assert (status, err) == (0, "")
    assert [passage["text"] for passage in json.loads(out)] == ["Zürich lies on the Limmat."]


@pytest.mark.parametrize("text", ["half \ud800 a pair", "half \udfff"])
def test_half_a_surrogate_pair_in_a_passage_reaches_no_tokenizer(tmp_path: Path, text: str) -> None:
    """In ``ask`` as in ``bench run``, from rows and from a file of passages."""
    (tmp_path / "p.jsonl").write_text(json.dumps({"text": text, "title": text}), encoding="utf-8")
    row = {"question": "Who?", "answers": ["x"], "passages": [{"text": "b", "title": text}]}
    (tmp_path / "q.jsonl").write_text(json.dumps(row), encoding="utf-8")
    status, out, err = arbitrag(tmp_path, *ask("Who?", "--json"))
    assert (status, err) == (0, "")
    assert json.loads(out)["kept"][0]["text"] == text.replace("\ud800", "\ufffd").replace("\udfff", "\ufffd")

    run = ["bench", "run", "r.db", "--questions", "q.jsonl", "--llm", "lab", "--method", "rag", "--json"]
    status, out, err = arbitrag(tmp_path, *run)
    assert status == 0, err
    assert '"failed": 0' in out.decode()


def test_what_the_system_refuses_is_no_fault_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from arbitrag import cli

    def refuse() -> object:
        raise PermissionError(13, "Permission denied", "/etc/shadow.idx")

    monkeypatch.setattr(cli, "_command", refuse)
    assert cli.main(["methods"]) == 1
    assert capsys.readouterr().err == (
        "PermissionError: /etc/shadow.idx: Permission denied\n"
        "This user may not do that there; choose another place, or change who may.\n"
    )


def test_a_full_disk_is_told_as_such(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from arbitrag import cli

    def refuse() -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cli, "_command", refuse)
    assert cli.main(["methods"]) == 1
    assert capsys.readouterr().err == "OSError: the system: No space left on device\n"
