"""Help pages, messages and tables at 80 and at 40 columns, and what a shell completes."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from arbitrag import cli
from arbitrag.cli.terminal import layout, output
from arbitrag.cli.terminal.help import shell_lines

if TYPE_CHECKING:
    from tests.conftest import Command


def every_command() -> dict[str, Any]:
    found: dict[str, Any] = {}
    waiting: list[tuple[str, Any]] = [("", cli._command())]
    while waiting:
        name, command = waiting.pop()
        found[name.strip()] = command
        waiting += [(f"{name} {inner}", each) for inner, each in getattr(command, "commands", {}).items()]
    return found


COMMANDS = every_command()


def helped(command: Command, name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    ran = command(*name.split(), "--help")
    assert (ran.status, ran.err) == (0, "")
    return ran.out


def words(text: str) -> set[str]:
    return set(re.sub(r" \\\n", " ", text).split())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_and_breaks_no_word(name: str, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = helped(command, name, 80, monkeypatch)
    narrow = helped(command, name, 40, monkeypatch)
    assert [line for line in wide.splitlines() if len(line) > 80] == []
    long = [line for line in narrow.splitlines() if len(line) > 40]
    assert [line for line in long if len(shlex.split(line.removesuffix("\\"))) > 1] == [], "one word may be longer"
    assert words(narrow) == words(wide)
    assert helped(command, name, 200, monkeypatch) == wide


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("name", [name for name, each in COMMANDS.items() if each.epilog])
def test_examples_stand_on_lines_of_their_own(
    name: str, columns: int, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a shell reads them: what is copied from the page runs, at any width."""
    shown = re.split(r"^Examples?:\n", helped(command, name, columns, monkeypatch), flags=re.MULTILINE)[1]
    typed = [shlex.split(line) for line in shown.replace("\\\n", "").splitlines()]
    assert typed == [shlex.split(line) for line in COMMANDS[name].epilog.splitlines()]


def test_a_command_goes_on_behind_a_backslash_and_an_option_keeps_its_value() -> None:
    assert list(shell_lines('arbitrag ask "Who did it?" --index docs.idx --llm lab', 40)) == [
        '  arbitrag ask "Who did it?" \\',
        "      --index docs.idx --llm lab",
    ]
    assert list(shell_lines("arbitrag ask --llm lab", 24)) == ["  arbitrag ask --llm lab"]
    assert list(shell_lines("arbitrag ask --llm lab", 23)) == ["  arbitrag ask \\", "      --llm lab"]


def test_short_forms(command: Command) -> None:
    assert command("-h") == command("--help")
    assert command("bench", "run", "-h") == command("bench", "run", "--help")
    assert command("-V") == command("--version")
    assert "-h, --help" in command("ask", "-h").out


def test_a_table_is_fitted_to_the_terminal() -> None:
    rows = [["NAME", "WHAT IT DOES"], ["one", "it counts to two"], ["eleven", "nothing"]]
    assert layout.table(rows) == "NAME    WHAT IT DOES\none     it counts to two\neleven  nothing"
    assert layout.table(rows, 24) == layout.table(rows)
    assert layout.table(rows, 18).splitlines() == [
        "NAME    WHAT IT",
        "        DOES",
        "one     it counts",
        "        to two",
        "eleven  nothing",
    ]
    assert layout.table(rows, 13).splitlines() == [
        "NAME          one",
        "WHAT IT DOES  it",
        "              counts",
        "              to",
        "              two",
        "",
        "NAME          eleven",
        "WHAT IT DOES  nothing",
    ]


def test_a_message_is_wrapped_between_words_and_keeps_its_lines() -> None:
    text = "DataError: the file is not there\n  score: /a/very/long/path/that/stays/whole was asked"
    assert layout.lines_of(text, 20).splitlines() == [
        "DataError: the file",
        "is not there",
        "  score:",
        "  /a/very/long/path/that/stays/whole",
        "  was asked",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "typed",
    [
        ("methods",),
        ("methods", "trustmargin"),
        ("lab", "world"),
        ("data", "check", "lab:questions?count=9"),
        ("ask", "Who?", "--llm", "opnai:x"),
        ("ask", "Who?"),
        ("bench", "report", "no.db"),
        ("search", "lab", "Stolen Desert", "-k", "2"),
    ],
    ids=" ".join,
)
def test_a_narrow_terminal_breaks_no_word(typed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    printed: dict[int, str] = {}
    monkeypatch.setattr(output, "PATIENCE_S", 600)  # no bar, whose time is its own
    for columns in (40, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        out, err = Terminal(), Terminal()
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        cli.main(typed)
        printed[columns] = out.getvalue() + err.getvalue()
    assert words(printed[40]) == words(printed[100]), "in lines of other lengths"
    assert "Traceback" not in printed[40]
    long = [line for line in printed[40].splitlines() if len(line) > 40]
    assert [line for line in long if " " in line.strip()] == []


def completed(line: str) -> list[str]:
    """What bash offers for the last word of a line."""
    env = {**os.environ, "_ARBITRAG_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run([sys.executable, "-m", "arbitrag"], env=env, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("arbitrag be", ["bench"]),
        ("arbitrag ask --method tru", ["trustmargin", "trustrag"]),
        ("arbitrag ask --method trustmargin --set th", ["threshold="]),
        ("arbitrag ask --llm o", ["openai:", "onnx:"]),
        ("arbitrag ask --mode ", ["bm25", "dense", "hybrid"]),
        ("arbitrag bench run x.db --method ast", ["astute"]),
        ("arbitrag bench run x.db --encoder h", ["hash"]),
        ("arbitrag ask --answer-t", ["--answer-tokens"]),
    ],
)
def test_a_shell_completes(line: str, offered: list[str]) -> None:
    assert completed(line) == offered


def test_the_completion_can_be_shown_and_installed(command: Command) -> None:
    text = command("--help").out
    assert "--install-completion" in text
    assert "--show-completion" in text


def test_the_question_may_come_from_standard_input(command: Command) -> None:
    question = "By whom was The Stolen Desert directed?"
    typed = command("ask", question, "--llm", "lab", "--method", "direct", "--json")
    read = command("ask", "-", "--llm", "lab", "--method", "direct", "--json", stdin=f"\n{question}\n".encode())
    assert (read.status, read.err) == (0, "")
    assert read.out.split('"usage"')[0] == typed.out.split('"usage"')[0]
    assert f'"text": "{question}"' in read.out


@pytest.mark.parametrize(
    ("stdin", "status", "message"),
    [
        (b"", 2, "UsageError: the question is empty\n"),
        (b"Who\xff?", 1, "DataError: standard input is not UTF-8 at byte 4\n"),
    ],
)
def test_a_question_that_cannot_be_read(stdin: bytes, status: int, message: str, command: Command) -> None:
    ran = command("ask", "-", "--llm", "lab", stdin=stdin)
    assert (ran.status, ran.out, ran.err) == (status, "", message)
