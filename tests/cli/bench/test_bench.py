"""``arbitrag bench run`` and ``retry``: from what is typed to a run file, and on from there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import needs
import pytest

from arbitrag.cli.bench.session import noted
from arbitrag.errors import BackendError
from arbitrag.evaluate.run.runner import RunProgress
from arbitrag.evaluate.run.store import Store
from arbitrag.llm.base import Prompt
from arbitrag.security.trust import FromFile
from arbitrag.storage.model_manifest import Manifest
from arbitrag.testing import ScriptedLLM, ScriptedServer, prompt_text
from arbitrag.testing.server import Fault

if TYPE_CHECKING:
    from tests.conftest import Command

ROW = (
    '{{"id": "q{n}", "question": "What is number {n}?", "answers": ["answer {n}"], '
    '"passages": [{{"text": "fact {n}"}}]}}\n'
)


LAB = ("--llm", "lab")


class Script:
    """Replies with the number in the question; questions in ``down`` fail. ``opened`` keeps what models were opened."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.asked: list[str] = []
        self.opened: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, prompt: Prompt) -> str | Exception:
        number = prompt_text(prompt).rpartition("number ")[2].split("?")[0]
        self.asked.append(number)
        return BackendError("the server is down") if number in self.down else f"answer {number}"

    def open(self, address: str, **options: Any) -> ScriptedLLM:
        self.opened.append((address, options))
        return ScriptedLLM(self, lambda prompt, text: -1.0, name=address)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    script = Script()
    monkeypatch.setattr("arbitrag.llm.open_llm", script.open)
    return script


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(ROW.format(n=n) for n in range(1, 6)))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


def answers(path: Path, system: str) -> list[str | None]:
    with Store.open(path) as store:
        return [row.answer for row in store.rows(store.sets[0], system)]


def test_a_run_from_the_beginning(script: Script, questions: Path, path: Path, command: Command) -> None:
    ran = command("bench", "run", path, "--questions", questions, *LAB, "--json")
    assert ran.status == 0
    summary = json.loads(ran.out)
    assert (summary.pop("seconds") > 0, summary.pop("tokens") > 0) == (True, True)
    assert summary == {
        "run": str(path),
        "systems": ["direct", "rag", "trustmargin"],
        "sets": ["questions"],
        "made": 15,
        "finished_before": 0,
        "failed": 0,
        "money": None,
    }
    assert ran.err.startswith("15 rows made, 0 failed; ")
    assert ran.err.endswith(f"Compare the systems: arbitrag bench report {path}\n")
    assert answers(path, "trustmargin") == [f"answer {n}" for n in range(1, 6)]
    assert len(script.asked) == 10  # each question from memory once and from its passages once, for three systems


def test_what_a_run_was_made_under_is_noted(script: Script, questions: Path, path: Path, command: Command) -> None:
    command(
        "bench",
        "run",
        path,
        "--questions",
        questions,
        *LAB,
        "--answer-tokens",
        "16",
        "--method",
        "rag k=3",
        "--limit",
        2,
    )
    with Store.open(path) as store:
        meta, (system,) = store.meta, store.systems
        assert len(store.items("questions")) == 2
    assert (system.name, system.method, system.settings, system.model) == ("rag k=3", "rag", {"k": 3}, "lab")
    assert {key: meta[key] for key in ("passages", "seed", "deterministic", "retries", "scorer", "retriever")} == {
        "passages": "given",
        "seed": None,
        "deterministic": False,
        "retries": 5,
        "scorer": "",
        "retriever": "",
    }
    assert (meta["limits"]["context_tokens"], meta["limits"]["answer_tokens"]) == (2048, 16)
    assert {"arbitrag", "commit", "python", "platform", "packages", "started", "command"} <= meta.keys()
    assert len(meta["prompts"]["lab"]["rag/answer"]) == 64


def test_without_options_a_run_goes_on_as_it_began(
    script: Script, questions: Path, path: Path, command: Command
) -> None:
    begun = ("bench", "run", path, "--questions", questions, *LAB, "--answer-tokens", "16", "--method", "direct")
    script.down = {"2", "4"}
    ran = command(*begun)
    assert ran.status == 1
    assert ran.err.startswith("3 rows made, 2 failed; ")
    assert f"Ask the failed ones again: arbitrag bench retry {path}\n" in ran.err
    script.asked.clear()
    ran = command("bench", "run", path)
    assert (ran.status, script.asked) == (1, [])
    assert ran.err.startswith("0 rows made, 0 failed, 3 finished before, 2 failed before\n")

    script.down = {"4"}
    ran = command("bench", "retry", path)
    assert (ran.status, script.asked) == (1, ["2", "4"])
    assert ran.err.startswith("1 rows made, 1 failed, 3 finished before; ")
    script.down = set()
    assert command("bench", "retry", path).status == 0
    assert answers(path, "direct") == [f"answer {n}" for n in range(1, 6)]
    with Store.open(path) as store:
        assert [row.attempts for row in store.rows("questions", "direct")] == [1, 2, 1, 3, 1]
        assert len(store.meta["sessions"]) == 4
        assert store.meta["limits"]["answer_tokens"] == 16


def test_methods_models_and_questions_may_join(
    script: Script, questions: Path, path: Path, command: Command, tmp_path: Path
) -> None:
    command("bench", "run", path, "--questions", questions, *LAB, "--method", "direct")
    assert command("bench", "run", path, "--method", "trustmargin threshold=-1").status == 0
    assert answers(path, "trustmargin threshold=-1.0") == [f"answer {n}" for n in range(1, 6)]
    other = tmp_path / "other.jsonl"
    other.write_text(ROW.format(n=9))
    assert command("bench", "run", path, "--questions", other).err.startswith("2 rows made, 0 failed; ")
    assert command("bench", "run", path, "--llm", "other").err.startswith("12 rows made, 0 failed; ")
    with Store.open(path) as store:
        assert [system.name for system in store.systems] == [
            "direct @ lab",
            "trustmargin threshold=-1.0 @ lab",
            "direct @ other",
            "trustmargin threshold=-1.0 @ other",
        ]
        assert store.sets == ("questions", "other")
        assert all(len(list(store.rows("other", system.name))) == 1 for system in store.systems)
    again = command("bench", "run", path, "--llm", "lab", "--llm", "other")
    assert again.err.startswith("0 rows made, 0 failed, 24 finished before\n")


@pytest.mark.parametrize(
    ("typed", "differs"),
    [
        (("--answer-tokens", "64"), "limits answer_tokens 32, not 64"),
        (("--seed", "4"), "seed None, not 4"),
        (("--deterministic",), "deterministic False, not True"),
        (("--retries", "2"), "retries 5, not 2"),
        (("--where", "language=en"), "where language None, not en"),
        (("--scorer", "other"), "scorer (nothing), not other"),
    ],
)
def test_another_run_into_the_same_file_is_refused(
    script: Script, questions: Path, path: Path, command: Command, typed: tuple[str, ...], differs: str
) -> None:
    command("bench", "run", path, "--questions", questions, *LAB, "--method", "direct")
    script.asked.clear()
    ran = command("bench", "run", path, *typed)
    assert ran.status == 2
    assert f"run.db was run differently: {differs}\nName another file, or give it what it was run with.\n" in ran.err
    assert script.asked == []


def test_other_questions_under_the_same_name_are_refused(
    script: Script, questions: Path, path: Path, command: Command
) -> None:
    command("bench", "run", path, "--questions", questions, *LAB, "--method", "direct")
    questions.write_text(ROW.format(n=1).replace("answer 1", "another gold"))
    ran = command("bench", "run", path, "--questions", questions, *LAB)
    assert (ran.status, "the question set questions has other questions" in ran.err) == (2, True)


def test_deterministic_prices_and_traces_reach_their_places(
    script: Script, questions: Path, path: Path, command: Command
) -> None:
    ran = command(
        *("bench", "run", path, "--questions", questions, "--method", "direct", "--deterministic", "--traces"),
        *("--llm", "lab", "--llm", "openai:x", "--price", "1000000,0", "--price", "2000000,0", "--retries", "0"),
        *("--concurrency", "3", "--json"),
    )
    assert ran.status == 0
    assert script.opened == [
        ("lab", {"own_process": True, "deterministic": True}),
        ("openai:x", {"concurrency": 3, "retries": 0}),
    ]
    with Store.open(path) as store:
        for name, price in (("direct @ lab", 1), ("direct @ openai:x", 2)):
            for row in store.rows("questions", name):
                assert row.incremental is not None
                assert row.incremental.money == price * row.incremental.uncached_tokens
                assert store.trace(name, "questions", row.question) is not None
        paid = sum(
            row.incremental.money or 0
            for each in store.systems
            for row in store.rows("questions", each.name)
            if row.incremental
        )
    assert json.loads(ran.out)["money"] == paid
    script.opened.clear()
    assert command("bench", "retry", path, "--llm", "openai:x").status == 0
    source = FromFile(str(path), "--llm")
    assert script.opened[0] == ("lab", {"own_process": True, "deterministic": True, "source": source})
    assert script.opened[1] == ("openai:x", {"concurrency": 64, "retries": 0})


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("onnx:folder", {"own_process": True}),
        ("onnx:folder?own_process=false", {}),
        ("onnx:folder?own_process=true&threads=2", {}),
        ("hf:folder", {}),
    ],
)
def test_a_model_of_ours_computes_in_a_process_of_its_own_unless_its_address_says(
    model: str, options: dict[str, Any], script: Script, questions: Path, path: Path, command: Command
) -> None:
    assert command("bench", "run", path, "--questions", questions, "--method", "direct", "--llm", model).status == 0
    assert script.opened == [(model, options)]


BAD = [
    (("run", "{run}"), 2, "UsageError: a new run needs questions: --questions FILE"),
    (
        ("run", "{run}", "--questions", "{q}", "--method", "trustmargn"),
        2,
        "UsageError: unknown method 'trustmargn'. Did",
    ),
    (("run", "{run}", "--questions", "{q}", "--method", "rag kk=3"), 2, "UsageError: unknown option of rag 'kk'. Did"),
    (("run", "{run}", "--questions", "{q}", "--method", "rag 3"), 2, "UsageError: behind a name stand settings such"),
    (("run", "{run}", "--questions", "{q}", "--method", 'rag "'), 2, "UsageError: a method is a name and settings"),
    (("run", "{run}", "--questions", "{q}", "--method", ""), 2, "UsageError: unknown method ''."),
    (
        ("run", "{run}", "--questions", "{q}", "--method", "rag", "--method", "rag"),
        2,
        "UsageError: rag on lab is asked",
    ),
    (("run", "{run}", "--questions", "{q}", "--passages", "givn"), 2, "UsageError: unknown choice of passages 'givn'"),
    (("run", "{run}", "--questions", "{q}", "--price", "free"), 2, "UsageError: --price takes PROMPT,COMPLETION"),
    (("run", "{run}", "--questions", "{q}", "--price", "1,1", "--price", "2,2"), 2, "UsageError: --price stands once"),
    (("run", "{run}", "--questions", "{q}", "--where", "english"), 2, "UsageError: --where takes NAME=VALUE"),
    (("run", "{run}", "--questions", "{q}", "--passages", "given"), 0, ""),
    (("run", "{run}", "--questions", "{twins}"), 1, "DataError: {twins}"),
    (("run", "{run}", "--questions", "{bare}", "--passages", "given"), 1, "DataError: rag is to read the passages of"),
    (("run", "{run}", "--questions", "{unanswered}"), 1, "DataError: {unanswered} looks like questions without"),
    (("run", "{q}"), 1, "DataError: {q} is not a run file; it looks like JSON or jsonl, perhaps a question set"),
    (
        ("run", "{run}", "--questions", "{bare}"),
        2,
        "UsageError: rag reads passages, but the questions of bare have none, and no index is named",
    ),
    (
        ("run", "{run}", "--questions", "{q}", "--method", "stack", "--passages", "retrieved"),
        2,
        "UsageError: stack reads passages, but no index is named",
    ),
    (("retry", "{run}"), 1, "DataError: there is no run file {run}; make one: arbitrag bench run {run}"),
    (
        ("run", "{folder}/none/run.db", "--questions", "{q}"),
        1,
        "DataError: cannot write {folder}/none/run.db: the folder",
    ),
    (("run", "{folder}"), 1, "DataError: {folder} cannot be read: Is a directory"),
]


@pytest.mark.parametrize(("typed", "status", "message"), BAD, ids=[" ".join(typed) for typed, _, _ in BAD])
def test_what_is_wrong_is_one_line_and_leaves_no_file(
    script: Script,
    questions: Path,
    path: Path,
    command: Command,
    tmp_path: Path,
    typed: tuple[str, ...],
    status: int,
    message: str,
) -> None:
    files = {
        "twins": ROW.format(n=1) * 2,
        "bare": '{"question": "a", "answers": ["b"]}',
        "unanswered": '{"question": "a"}',
    }
    for name, text in files.items():
        (tmp_path / f"{name}.jsonl").write_text(text)
    places = {name: str(tmp_path / f"{name}.jsonl") for name in files}
    places |= {"run": str(path), "q": str(questions), "folder": str(tmp_path)}
    named = () if "--llm" in typed or typed[0] == "retry" else LAB
    ran = command("bench", *(word.format(**places) for word in typed), *named)
    assert (ran.status, message.format(**places) in ran.err) == (status, True), ran.err
    assert path.exists() == (status == 0)
    assert script.asked == [] or status == 0
    assert not [each for each in tmp_path.iterdir() if each.name.endswith(".part")]


def test_a_second_process_is_refused(script: Script, questions: Path, path: Path, command: Command) -> None:
    command("bench", "run", path, "--questions", questions, *LAB, "--method", "direct")
    with Store.open(path, write=True):
        ran = command("bench", "run", path)
    assert ran.status == 1
    assert ran.err == f"DataError: another process is writing {path}; wait until it ends, or name another file\n"


def wait_for_rows(path: Path, count: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if path.exists():
            with Store.open(path) as store:
                if store.sets and len(store.done("many", "direct")) >= count:
                    return
        time.sleep(0.05)
    raise AssertionError("no rows came")


@needs.signals
@pytest.mark.parametrize("how", ["SIGINT", pytest.param("SIGKILL", marks=pytest.mark.slow)])
def test_a_run_that_is_stopped_keeps_its_rows_and_goes_on(
    tmp_path: Path, path: Path, how: str, command: Command
) -> None:
    questions = tmp_path / "many.jsonl"
    questions.write_text("".join(ROW.format(n=n) for n in range(60)))
    with ScriptedServer(faults=[Fault.slow(0.05)] * 1000) as server:
        words = ["bench", "run", path, "--questions", questions, "--llm", f"openai:x@{server.base_url}"]
        words += ["--method", "direct", "--concurrency", "2"]
        process = subprocess.Popen(
            [sys.executable, "-m", "arbitrag", *map(str, words)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        wait_for_rows(path, 5)
        process.send_signal(signal.Signals[how])
        _, err = process.communicate()
        with Store.open(path) as store:
            kept = len(store.done("many", "direct"))
        assert 5 <= kept < 60
        if how == "SIGINT":
            assert process.returncode == 130
            assert err.decode() == (
                f"{kept} of 60 rows are finished and kept; go on with: arbitrag bench run {path}\nstopped\n"
            )
        server.faults.clear()
        again = command("bench", "run", path)
        assert again.status == 0
        assert again.err.startswith(f"{60 - kept} rows made, 0 failed, {kept} finished before; ")


@pytest.mark.parametrize(
    ("tally", "text"),
    [
        (RunProgress(9, done=5, seconds=2.0, tokens=999), "2.5/s, 999 tokens"),
        (RunProgress(9, done=5, seconds=2.0, tokens=12_345, failed=2), "2.5/s, 2 failed, 12.3k tokens"),
        (RunProgress(9, done=1, seconds=2.0, tokens=2_500_000_000, money=1.23456), "0.5/s, 2.5G tokens, 1.235 paid"),
        (RunProgress(9), "0.0/s, 0 tokens"),
    ],
)
def test_progress_in_a_few_words(tally: RunProgress, text: str) -> None:
    assert noted(tally) == text


def test_the_embedded_model_gives_the_same_numbers_at_any_width(tmp_path: Path, command: Command) -> None:
    found = []
    for width in ("1", "64"):
        path = tmp_path / f"{width}.db"
        words = (*LAB, "--questions", "lab:questions?count=8", "--deterministic", "--concurrency", width)
        assert command("bench", "run", path, *words).status == 0
        with Store.open(path) as store:
            (name,) = store.sets
            rows = [row for system in store.systems for row in store.rows(name, system.name)]
            found.append([(row.question, row.answer, row.strategy, row.why, dict(row.scores)) for row in rows])
            assert len(rows) == 24
    assert found[0] == found[1]


def test_a_run_stops_before_a_limit_of_tokens_and_goes_on(
    script: Script, questions: Path, path: Path, command: Command
) -> None:
    begun = ("bench", "run", path, "--questions", questions, "--llm", "lab", "--method", "direct", "--concurrency", "1")
    ran = command(*begun, "--max-tokens", "100", "--json")
    assert ran.status == 3
    told = json.loads(ran.out)
    assert told["made"] + told["left"] == 5
    assert 0 < told["made"] < 5
    assert told["spent"] == {"tokens": told["tokens"], "money": 0.0}
    assert told["tokens"] <= 100
    assert f"Stopped before --max-tokens 100: {told['tokens']} tokens were spent in all; " in ran.err
    assert f"; {told['left']} of 5 rows are left\n" in ran.err
    assert f"Go on with a higher limit: arbitrag bench run {path} --max-tokens 200\n" in ran.err

    again = command("bench", "run", path, "--max-tokens", "100")  # what was spent before counts
    assert (again.status, len(script.asked)) == (3, told["made"])
    assert command("bench", "run", path, "--max-tokens", "1000").status == 0
    assert answers(path, "direct") == [f"answer {n}" for n in range(1, 6)]
    assert len(script.asked) == 5


def test_a_limit_of_money_needs_a_price_and_counts_all_sessions(
    script: Script, questions: Path, path: Path, command: Command
) -> None:
    begun = ("bench", "run", path, "--questions", questions, "--llm", "lab", "--method", "direct", "--concurrency", "1")
    refused = command(*begun, "--max-cost", "1")
    assert refused.status == 2
    assert refused.err.startswith("UsageError: a limit of money needs the price of lab: --price PROMPT,COMPLETION")
    assert not path.exists()
    ran = command(*begun, "--max-cost", "0.0001", "--price", "1,2", "--json")
    assert ran.status == 3
    told = json.loads(ran.out)
    assert told["made"] > 0
    assert told["money"] <= 0.0001
    assert "Go on with a higher limit: arbitrag bench run" in ran.err
    assert " --max-cost 0.0002\n" in ran.err
    assert command("bench", "run", path, "--max-cost", "inf").err.startswith("UsageError: --max-cost takes an amount")


def test_a_retry_has_a_limit_too(script: Script, questions: Path, path: Path, command: Command) -> None:
    script.down = {"1", "2", "3", "4"}
    assert command("bench", "run", path, "--questions", questions, "--llm", "lab", "--method", "direct").status == 1
    script.down = set()
    ran = command("bench", "retry", path, "--max-tokens", "80", "--concurrency", "1")
    assert ran.status == 3
    assert f"Go on with a higher limit: arbitrag bench retry {path} --max-tokens 160\n" in ran.err
    assert command("bench", "retry", path).status == 0


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        (("--method", "no-such"), "UsageError: unknown method"),
        (("--method", "direct", "--method", "direct"), "UsageError: direct on lab is asked for 2 times"),
        (("--method", "rag kk=1"), "UsageError"),
        (("--method", "direct", "--price", "1"), "UsageError: --price takes"),
        (("--method", "direct", "--passages", "mine"), "UsageError: unknown choice of passages"),
        (("--method", "direct", "--questions", "missing.jsonl"), "DataError: missing.jsonl cannot be read"),
        (("--method", "trustmargin"), "CapabilityError: trustmargin needs generate and score"),
        (("--method", "direct", "--where", "x"), "UsageError: --where takes"),
    ],
)
def test_a_run_that_is_refused_leaves_no_file(
    typed: tuple[str, ...],
    error: str,
    script: Script,
    questions: Path,
    path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("arbitrag.llm.open_llm", lambda address, **_: ScriptedLLM(script, name=address))
    ran = command("bench", "run", path, "--questions", questions, "--llm", "lab", *typed)
    assert ran.status in (1, 2)
    assert ran.err.startswith(error)
    assert [each.name for each in path.parent.iterdir()] == ["questions.jsonl"]


def test_a_refused_method_does_not_join_a_run(
    script: Script, questions: Path, path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arbitrag.llm.open_llm", lambda address, **_: ScriptedLLM(script, name=address))
    command("bench", "run", path, "--questions", questions, "--llm", "lab", "--method", "direct")
    assert command("bench", "run", path, "--method", "trustmargin").status == 1
    with Store.open(path) as store:
        assert [system.name for system in store.systems] == ["direct"]
        assert len(store.meta["sessions"]) == 1


def test_the_labs_questions_are_for_models_that_know_its_world(
    script: Script, path: Path, tmp_path: Path, command: Command
) -> None:
    asked = ("--questions", "lab:questions?count=4", "--method", "rag")
    foreign = ("--llm", "openai:m@http://127.0.0.1:9/v1")
    ran = command("bench", "run", path, *asked, *foreign)
    assert ran.status == 2
    assert ran.err.startswith("UsageError: openai:m@http://127.0.0.1:9/v1 was not trained on the lab's invented world")
    assert "insist: --foreign" in ran.err
    assert (path.exists(), script.asked) == (False, [])
    assert command("bench", "run", path, *asked, *foreign, "--foreign").status == 0
    assert command("bench", "run", path, *asked, "--llm", "lab").status == 0
    assert command("bench", "run", path, "--llm", "openai:other@http://127.0.0.1:9/v1").status == 2
    folder = tmp_path / "model"
    folder.mkdir()
    named = ("--llm", f"onnx:{folder}")
    assert "was not trained" in command("bench", "run", path, *named).err
    Manifest("mine", {}, 1, 9, "fp32", world={"version": 1, "seed": 7}).write(folder)
    assert command("bench", "run", path, *named).status == 0
