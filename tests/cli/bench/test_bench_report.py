"""``arbitrag bench report``, ``show`` and ``diff`` as they are typed, on a small run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arbitrag.evaluate.questions import Item, QuestionSet
from arbitrag.evaluate.run.store import Row, RunPlan, Store, System
from arbitrag.types import Candidate, Question, Strategy, Usage, Verdict

if TYPE_CHECKING:
    from tests.conftest import Command

ITEMS = (
    Item(Question("Who built the mill?", id="q1"), ("Mira",), scenario=Strategy.MEMORY, planted=("Oskar",)),
    Item(Question("Who owns the moon?", id="q2"), ()),
)
USAGE = Usage(1, 0, 0, 1, 1, 20, 0, 2, 0.5)


def a_run(path: Path, answer: str, *, why: str = "memory is sure") -> Path:
    systems = [System("direct", "direct", {}, "made up"), System("rag", "rag", {"k": 5}, "made up")]
    verdict = Verdict(
        answer, Strategy.MEMORY, why, ITEMS[0].question, "direct", (Candidate(answer, Strategy.MEMORY),), usage=USAGE
    )
    with Store.create(path, RunPlan(systems, [QuestionSet("mine", ITEMS)], {"seed": 1})) as store:
        row = Row(
            "direct",
            "mine",
            "q1",
            answer,
            Strategy.MEMORY,
            why,
            scores={"margin": -1.5},
            standalone=USAGE,
            incremental=Usage(),
        )
        store.record(row, verdict.to_dict())
        store.record(Row("rag", "mine", "q1", error="BackendError: HTTP 500 \x1b[31m", attempts=4))
        store.record(
            Row("direct", "mine", "q2", None, Strategy.REFUSE, "nothing is known", standalone=USAGE, incremental=USAGE)
        )
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return a_run(tmp_path / "run.db", "Mira")


def test_the_report_is_printed(command: Command, run: Path) -> None:
    done = command("bench", "report", run)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("mine\n  2 questions, digest ")
    assert "compared over the 1 questions for which every system here has a row; 1 are left out" in done.out
    assert "direct  100.0  100.0          1       0" in done.out
    assert "rag       0.0    0.0          1       1" in done.out


def test_every_format_is_written_whole(command: Command, run: Path, tmp_path: Path) -> None:
    for name, begins in (("text", "mine\n"), ("md", "# run.db\n"), ("csv", "set,system,"), ("html", "<!doctype html>")):
        out = tmp_path / f"report.{name}"
        done = command("bench", "report", run, "--format", name, "-o", out)
        assert (done.status, done.out) == (0, "")
        assert out.read_text("utf-8").startswith(begins)
        assert out.read_text("utf-8").endswith("\n")
    out = tmp_path / "report.json"
    assert command("bench", "report", run, "--format", "json", "-o", out).status == 0
    written = json.loads(out.read_text("utf-8"))
    assert written == json.loads(command("bench", "report", run, "--json").out)
    assert written["sets"][0]["statistics"][0]["metrics"]["em"]["mean"] == 1
    assert written["command"] == f"arbitrag bench report {run}"


def test_html_is_the_page_in_a_file(command: Command, run: Path, tmp_path: Path) -> None:
    assert command("bench", "report", run, "--format", "html", "-o", tmp_path / "a.html").status == 0
    assert command("bench", "report", run, "--html", tmp_path / "b.html").status == 0
    assert (tmp_path / "b.html").read_bytes() == (tmp_path / "a.html").read_bytes()
    for other in (("-o", "x"), ("--json",), ("--format", "md")):
        done = command("bench", "report", run, "--html", tmp_path / "c.html", *other)
        assert (done.status, done.err[:44]) == (2, "UsageError: --html FILE is --format html -o ")
    assert not (tmp_path / "c.html").exists()


def test_the_report_may_be_of_a_part(command: Command, run: Path) -> None:
    arguments = ("--metric", "contains,f1", "--metric", "em", "--system", "direct", "--set", "mine", "--seed", "3")
    found = json.loads(command("bench", "report", run, "--json", "--resamples", "100", *arguments).out)
    (each,) = found["sets"]
    assert each["metrics"] == ["contains", "f1", "em"]
    assert [one["system"] for one in each["statistics"]] == ["direct"]
    assert (each["compared"], each["resamples"], each["seed"], each["judge"]) == (2, 100, 3, "contains")
    assert found["command"] == (
        f"arbitrag bench report {run} --metric contains,f1 --metric em --set mine --system direct "
        "--resamples 100 --seed 3"
    )


def test_what_is_wrong_is_said_in_a_line(command: Command, run: Path, tmp_path: Path) -> None:
    for arguments, words in (
        (("report", run, "--metric", "emm"), "UsageError: unknown metric 'emm'. Did you mean 'em'?"),
        (("report", run, "--system", "rat"), "UsageError: unknown system 'rat'. Did you mean 'rag'?"),
        (("report", run, "--format", "html", "--json"), "UsageError: --json and --format html exclude each other"),
        (("report", tmp_path / "no.db"), "DataError: there is no run file"),
        (("report", run, "-o", tmp_path / "no" / "x.html"), "DataError: cannot write"),
        (("report", run, "--format", "pdf"), "UsageError:"),
        (("show", run, "--question", "q3"), "UsageError: there is no question 'q3'"),
        (("diff", run, tmp_path / "no.db"), "DataError: there is no run file"),
    ):
        done = command("bench", *arguments)
        assert done.status in (1, 2)
        assert done.out == ""
        assert done.err.startswith(words)
        assert "Traceback" not in done.err


def test_a_question_is_shown_with_every_verdict(command: Command, run: Path) -> None:
    done = command("bench", "show", run, "--question", "q1")
    assert done.out.split("\n") == [
        "mine  q1",
        "Who built the mill?",
        "Gold      Mira",
        "Scenario  memory",
        "Planted   Oskar",
        "",
        "direct: right (em 1.00, f1 1.00)",
        f"Answer    {'Mira':<75}trusted: memory",
        "Why       memory is sure",
        "Memory    Mira",
        "Cost      1 answer · 20 prompt tokens, 2 completion · 0.50 s",
        "          incremental: no model calls",
        "Scores    margin -1.500",
        "",
        "rag: failed after 4 attempts, which counts as wrong",
        "Error     BackendError: HTTP 500 \\u001b[31m",
        "",
    ]


def test_a_question_without_an_answer_and_a_row_that_is_missing(command: Command, run: Path) -> None:
    lines = command("bench", "show", run, "--question", "q2").out.split("\n")
    assert lines[2:] == [
        "Gold      (none; refusing is right)",
        "",
        "direct: right (em 1.00, f1 1.00)",
        "Answer    (none)",
        "Why       nothing is known",
        "",
        "rag: no row yet",
        "",
    ]


def test_a_question_as_json(command: Command, run: Path) -> None:
    (found,) = json.loads(command("bench", "show", run, "--question", "q1", "--system", "rag", "--json").out)
    assert found["gold"]["answers"] == ["Mira"]
    (rag,) = found["answers"]
    assert (rag["system"], rag["right"], rag["scores"], rag["verdict"]) == ("rag", False, {"em": 0, "f1": 0}, None)
    assert rag["row"]["error"].startswith("BackendError")


def test_two_runs_beside_each_other(command: Command, run: Path, tmp_path: Path) -> None:
    other = a_run(tmp_path / "other.db", "Oskar", why="\x1b[2J")
    done = command("bench", "diff", run, other)
    assert done.status == 0
    assert "nothing: settings, versions, prompts, sets and systems are the same" in done.out
    assert "the same 2 questions in both" in done.out
    assert "direct: 1 became wrong by EM: q1" in done.out
    assert "rag: failed rows, counted as wrong: 1, then 1" in done.out
    assert "could be noise" in done.out
    found = json.loads(command("bench", "diff", run, other, "--metric", "em", "--json").out)
    direct = found["sets"][0]["systems"][0]
    assert direct["shifts"][0]["difference"]["mean"] == -0.5
    assert direct["lost_ids"] == ["q1"]


def test_the_commands_have_help_with_an_example(command: Command) -> None:
    for verb in ("report", "show", "diff"):
        shown = command("bench", verb, "--help").out
        assert f"arbitrag bench {verb} " in shown
        assert "--json" in shown
