"""The commands from end to end, mostly in this process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import needs
import pytest

from arbitrag import __version__
from arbitrag.errors import BackendError
from arbitrag.lab.model import demo_cases
from arbitrag.methods import METHODS
from arbitrag.replay import load_trace
from arbitrag.testing import ScriptedLLM, ScriptedServer

if TYPE_CHECKING:
    from tests.conftest import Command

LAB = ("--llm", "lab")
RAIN = "# Rain\n\nIt rained in Oslo on Monday. Nobody was surprised.\n"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "rain.md").write_text(RAIN)
    (folder / "sun.txt").write_text("The sun shone in Bergen on Tuesday.")
    return folder


@pytest.fixture
def index(docs: Path, command: Command) -> Path:
    target = docs.parent / "docs.idx"
    assert command("index", docs, "-o", target).status == 0
    return target


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "passages.jsonl"
    path.write_text('{"text": "Oskar Brend directed The Silent Orchard.", "source": "films.md", "line": 4}\n')
    return path


def test_version(command: Command) -> None:
    assert command("--version").out == f"arbitrag {__version__}\n"


def test_without_a_command_help_is_shown(command: Command) -> None:
    bare, asked = command(), command("--help")
    assert bare == asked
    assert bare.status == 0
    assert [line.split()[0] for line in re.findall(r"^  \w+  .*", bare.out.split("Commands:\n")[1], re.MULTILINE)] == [
        "index",
        "search",
        "ask",
        "replay",
        "tune",
        "methods",
        "doctor",
        "demo",
        "bench",
        "data",
        "lab",
    ]


@pytest.mark.parametrize("name", ["index", "search", "ask", "replay", "tune", "methods", "doctor", "demo"])
def test_every_command_has_an_example(name: str, command: Command) -> None:
    ran = command(name, "--help")
    assert ran.status == 0
    assert f"arbitrag {name}" in ran.out.split("Example")[1]


def test_the_entry_point() -> None:
    (script,) = entry_points(group="console_scripts", name="arbitrag")
    assert script.value == "arbitrag.cli:main"


def test_indexing_and_searching(docs: Path, command: Command) -> None:
    (docs / "broken.txt").write_bytes(b"\x00\x01\xff\xfe\x00")
    (docs / "odd\x1b[31m.pdf").write_bytes(b"not a pdf")
    target = docs.parent / "docs.idx"
    ran = command("index", docs, "-o", target)
    assert ran.status == 0
    assert re.fullmatch(
        rf"{re.escape(str(target))}: 2 passages of 2 files \(2 added, 2 skipped\) in \d\.\d s\n", ran.out
    )
    assert re.search(r"^skipped broken\.txt: \S", ran.err, re.MULTILINE)
    assert re.search(r"^skipped odd\\u001b\[31m\.pdf: \S", ran.err, re.MULTILINE)

    found = command("search", target, "Where did it rain?", "-k", "1")
    assert found.status == 0
    assert re.match(r"\[1\] \d+\.\d\d  rain\.md:\d  Rain\n    .*It rained in Oslo on Monday", found.out)

    again = command("index", docs, "-o", target, "--json")
    report = json.loads(again.out)
    assert (report["unchanged"], report["added"], report["passages"]) == (2, 0, 2)
    assert {file["source"] for file in report["skipped"]} == {"broken.txt", "odd\x1b[31m.pdf"}


def test_search_as_json_and_with_no_match(index: Path, command: Command) -> None:
    (passage,) = json.loads(command("search", index, "Bergen", "--json").out)
    assert passage["source"] == "sun.txt"
    nothing = command("search", index, "zyxwv")
    assert (nothing.status, nothing.out, nothing.err) == (0, "", "no passage matches\n")


def test_asking_the_embedded_world(command: Command) -> None:
    case = demo_cases()[0]
    ran = command("ask", case.question, *LAB, "--index", "lab", "--method", "trustmargin")
    assert (ran.status, ran.err) == (0, "")
    assert re.match(r"Answer    .* trusted: \w+\nWhy       ", ran.out)
    assert re.search(r"^Passages  \d+ read   \[1\] \S+\.md", ran.out, re.MULTILINE)
    assert re.search(r"^Cost      2 answers.* prompt tokens.* s$", ran.out, re.MULTILINE)


def test_without_a_question_a_person_is_told_how_to_ask(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arbitrag.cli.ask._is_terminal", lambda: True)
    ran = command("ask")
    assert ran.status == 2
    assert ran.err == 'UsageError: there is no question; type: arbitrag ask "Who ...?", or give --questions FILE\n'


def test_asking_given_passages(rows: Path, command: Command) -> None:
    ran = command(
        "ask", "Who directed The Silent Orchard?", "--llm", "lab", "--passages", rows, "--method", "rag", "--json"
    )
    verdict = json.loads(ran.out)
    assert verdict["method"] == "rag"
    assert verdict["kept"][0]["source"] == "films.md"
    assert "trace" not in verdict


def test_asking_an_index_and_explaining(index: Path, command: Command) -> None:
    ran = command(
        "ask", "Where did it rain?", *LAB, "--method", "trustmargin", "--index", index, "--explain", "--set", "k=1"
    )
    assert "[1] rain.md:" in ran.out
    assert "\nMethod    trustmargin with weight 0.5, threshold -1.5, k 1, candidate rag\n" in ran.out
    assert "\nCall 1    retrieve by retriever" in ran.out
    told = json.loads(
        command(
            "ask", "Where did it rain?", *LAB, "--method", "trustmargin", "--index", index, "--explain", "--json"
        ).out
    )
    assert told["trace"]["calls"][0]["kind"] == "retrieve"


def test_a_trace_is_replayed_with_another_threshold(rows: Path, tmp_path: Path, command: Command) -> None:
    trace = tmp_path / "trace.json"
    first = command(
        "ask",
        "Who directed it?",
        "--llm",
        "lab",
        "--method",
        "trustmargin",
        "--passages",
        rows,
        "--trace",
        trace,
        "--json",
    )
    margin = json.loads(first.out)["scores"]["margin"]
    same = json.loads(command("replay", trace, "--json").out)
    assert same == {**json.loads(first.out), "usage": same["usage"], "notes": same["notes"]}
    at = command("replay", trace, "--set", f"threshold={margin!r}")
    below = command("replay", trace, "--set", f"threshold={margin - 1e-6!r}")
    assert "trusted: memory" in at.out.splitlines()[0]
    assert "trusted: evidence" in below.out.splitlines()[0]
    assert "Cost      no model calls\n" in below.out
    assert "the answer is from the passages alone" in command("replay", trace, "--method", "rag").out
    assert load_trace(trace).question.text == "Who directed it?"


def test_the_trace_of_a_failure_is_kept(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "trace.json"
    monkeypatch.setattr("arbitrag.run.open_llm", lambda _: ScriptedLLM([BackendError("no such luck")]))
    ran = command("ask", "Who?", "--method", "direct", "--llm", "lab", "--trace", trace)
    assert (ran.status, ran.out, ran.err) == (1, "", "BackendError: no such luck\n")
    (call,) = load_trace(trace).calls
    assert call.error == "BackendError: no such luck"
    again = command("replay", trace)
    assert (again.status, again.err) == (1, ran.err)


def test_a_server_is_asked_and_its_price_counted(rows: Path, command: Command) -> None:
    with ScriptedServer(lambda _: "Mira") as server:
        ran = command(
            *("ask", "Who?", "--method", "direct", "--json", "--price", "1000000,0"),
            *("--llm", f"openai:scripted@{server.base_url}"),
        )
    verdict = json.loads(ran.out)
    assert verdict["answer"] == "Mira"
    assert verdict["usage"]["money"] == verdict["usage"]["prompt_tokens"] > 0


def test_a_cache_answers_the_second_time(rows: Path, tmp_path: Path, command: Command) -> None:
    asked = ("ask", "Who directed it?", "--llm", "lab", "--passages", rows, "--cache", tmp_path / "cache", "--json")
    first, second = (json.loads(command(*asked).out) for _ in range(2))
    assert second["answer"] == first["answer"]
    assert first["usage"]["prompt_tokens"] > first["usage"]["cached_tokens"]
    assert second["usage"]["prompt_tokens"] == second["usage"]["cached_tokens"] > 0


def test_methods(command: Command) -> None:
    shown = command("methods").out
    assert "direct       Ask the model without passages.\n             1 answer; needs generate; baseline\n" in shown
    assert [row["name"] for row in json.loads(command("methods", "--json").out)] == list(METHODS)


def test_methods_say_what_runs_with_a_model(command: Command) -> None:
    shown = command("methods", "--llm", "lab").out
    assert shown.count("\n             runs here") == len(METHODS)
    assert "\n             runs here\n" in shown.partition("direct ")[2].partition("rag ")[0]
    with ScriptedServer(lambda _: "x") as server:
        address = f"openai:scripted@{server.base_url}"
        by_name = {row["name"]: row for row in json.loads(command("methods", "--llm", address, "--json").out)}
        scored = json.loads(command("methods", "--llm", address, "--scorer", "lab", "--json").out)
        refused = {
            name: command("ask", "Who?", "--llm", address, "--index", "lab", "--method", name) for name in METHODS
        }
    assert [name for name, row in by_name.items() if not row["runs"]] == ["stack", "trustmargin"]
    assert by_name["trustmargin"]["reason"] == (
        f"trustmargin needs generate and score; {address} offers generate; with a --scorer it would run"
    )
    assert all(row["runs"] for row in scored)
    for name, row in by_name.items():  # what is said is what happens
        assert (refused[name].status == 0) == row["runs"], refused[name].err
    assert "or take a method that runs here: astute, bridge, direct, rag or trustrag\n" in refused["stack"].err
    assert "--scorer is a second model" in command("methods", "--scorer", "lab").err


@pytest.mark.parametrize("columns", ["40", "80", "100"])
def test_methods_fit_the_terminal(columns: str, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert max(map(len, command("methods", "--llm", "lab").out.splitlines())) <= int(columns)


def test_who_names_no_method_has_rag_and_is_told(rows: Path, tmp_path: Path, command: Command) -> None:
    trace = tmp_path / "trace.json"
    ran = command("ask", "Who directed it?", *LAB, "--passages", rows, "--set", "k=1", "--trace", trace)
    assert "Note      method rag, chosen by auto: it runs on every model, and no measurement on a" in ran.out
    assert (load_trace(trace).method, load_trace(trace).settings["k"]) == ("rag", 1)
    assert "auto" not in command("replay", trace).out
    assert "auto is rag" in " ".join(command("ask", "--help").out.split())
    asked = ("ask", "Who directed it?", *LAB, "--passages", rows, "--json")
    same = command(*asked, "--method", "auto k=9", "--set", "k=1")
    assert len(json.loads(same.out)["kept"]) == 1
    named = command(*asked, "--method", "auto")
    assert json.loads(named.out)["method"] == "rag"


def test_doctor(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:secret@example.org:80/v1?key=secret")
    ran = command("doctor")
    assert (ran.status, ran.err) == (0, "")
    assert f"  arbitrag        {__version__}\n" in ran.out
    assert "  lab\n    offers generate, score, inspect and next token; reads 1,024 tokens\n" in ran.out
    assert re.search(r"  manifest        sha256:[0-9a-f]{64}\n", ran.out)
    assert "  OPENAI_API_KEY  set\n  OPENAI_BASE_URL http://example.org:80/v1\n" in ran.out
    assert "secret" not in ran.out
    assert "sk-hidden" not in ran.out


@pytest.mark.parametrize("name", ["doctor", "methods"])
def test_an_address_is_shown_without_its_secrets(command: Command, name: str) -> None:
    with ScriptedServer() as server:
        port = server.base_url.split(":")[2].split("/")[0]
        ran = command(name, "--llm", f"openai:m@http://me:first@127.0.0.1:{port}/v1?key=second")
    assert f"openai:m@http://[hidden]@127.0.0.1:{port}/v1?[hidden]" in ran.out
    assert "first" not in ran.out + ran.err
    assert "second" not in ran.out + ran.err


def test_a_model_that_takes_long_to_look_at_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, int, int, str]] = []

    @contextmanager
    def progress(what: str) -> Iterator[Callable[[int, int, str], None]]:
        yield lambda done, total, note: shown.append((what, done, total, note))

    monkeypatch.setattr("arbitrag.cli.terminal.output.progress", progress)
    command("doctor", "--llm", "lab", "--llm", "onnx:/nowhere")
    command("methods", "--llm", "lab")
    assert shown == [
        ("Examining", 0, 2, "lab"),
        ("Examining", 1, 2, "onnx:/nowhere"),
        ("Examining", 0, 1, "lab"),
    ]


def test_doctor_names_what_is_wrong(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from arbitrag.cli import doctor

    monkeypatch.setattr(doctor, "_version", lambda name: "not installed" if name == "torch" else "1.0")
    ran = command("doctor", "--llm", "onnx:/nowhere", "--llm", "lab")
    assert ran.status == 1
    assert "  onnx:/nowhere\n    DataError: " in ran.out
    assert "  hf              not installed; type: pip install 'arbitrag[hf]' (" in ran.out
    report = json.loads(command("doctor", "--json").out)
    assert report["models"][0]["address"] == "lab"
    assert report["extras"]["pdf"] == {"pypdf": "1.0"}


def test_doctor_finds_a_changed_embedded_model(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from arbitrag.lab import model

    real = model.manifest()
    monkeypatch.setattr(model, "manifest", lambda: replace(real, files={"model.onnx": "0" * 64}))
    ran = command("doctor", "--json")
    assert ran.status == 1
    assert "model.onnx" in json.loads(ran.out)["embedded model"]["error"]


def test_the_demonstration(command: Command) -> None:
    ran = command("demo")
    assert (ran.status, ran.err) == (0, "")
    for number, case in enumerate(demo_cases(), 1):
        assert f"\n{number}. {case.title}\nQuestion  {case.question}\nAnswer    " in ran.out
    assert ran.out.count("\nTruth     ") == ran.out.count("\nLesson    ") == 4
    told = json.loads(command("demo", "--json").out)
    assert [row["truth"] for row in told] == [case.truth for case in demo_cases()]
    right = {case.kind: row["answer"] == row["truth"] for case, row in zip(demo_cases(), told, strict=True)}
    assert right == {"memory": True, "evidence": True, "poison": True, "neither": False}
    assert told[3]["strategy"] == "refuse"


def test_an_interrupted_command_says_so(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("arbitrag.run.attempt", interrupted)
    ran = command("ask", "Who?", "--llm", "lab", "--index", "lab")
    assert (ran.status, ran.out, ran.err) == (130, "", "stopped\n")


def test_a_fault_is_short_unless_asked(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arbitrag.run.attempt", lambda *_, **__: 1 / 0)
    monkeypatch.delenv("ARBITRAG_DEBUG", raising=False)
    ran = command("ask", "Who?", "--llm", "lab", "--index", "lab")
    assert ran.status == 70
    assert ran.err.startswith("Unexpected ZeroDivisionError: division by zero\nThis is a fault in Arbitrag. ")
    assert ran.err.count("\n") == 2
    monkeypatch.setenv("ARBITRAG_DEBUG", "1")
    assert "Traceback (most recent call last)" in command("ask", "Who?", "--llm", "lab", "--index", "lab").err


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    async def warns(*_: object, **__: object) -> Any:
        warnings.warn("the disk is full\x07", RuntimeWarning, stacklevel=1)
        raise KeyboardInterrupt

    monkeypatch.setattr("arbitrag.run.attempt", warns)
    assert command("ask", "Who?", "--llm", "lab", "--index", "lab").err == "Warning: the disk is full\\u0007\nstopped\n"


def process(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "arbitrag", *map(str, arguments)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_as_a_module_in_a_terminal_that_knows_ascii_only(rows: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    with process("ask", "Where is Łódź?", "--llm", "lab", "--passages", rows, env=environment) as running:
        out, err = running.communicate()
    assert (running.returncode, err) == (0, b"")
    assert rb" \xb7 " in out  # the middle dot of the cost


def test_a_reader_that_leaves_is_no_error() -> None:
    with process("methods") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 1


@needs.pipes
def test_ctrl_c_ends_a_process_quietly(tmp_path: Path) -> None:
    waiting = tmp_path / "questions"
    os.mkfifo(waiting)
    # The pipe opens once the command reads it, which then lasts for ever.
    with process("ask", "--llm", "lab", "--questions", waiting) as running, waiting.open("wb"):
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (130, b"", b"stopped\n")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from arbitrag.cli import main; main(['--help'])\n"
        "print([name for name in ('numpy', 'rich', 'openai', 'onnxruntime', 'pydantic', 'torch', 'asyncio', 'tantivy')"
        " if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert found.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("before", "after"), [(None, "error"), ("debug", "debug")])
def test_the_hub_tells_of_its_retries_only_when_asked(
    before: str | None, after: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_VERBOSITY", before or "")  # so that what was there before comes back at the end
    if before is None:
        monkeypatch.delenv("HF_HUB_VERBOSITY")
    assert command("--version").status == 0
    assert os.environ["HF_HUB_VERBOSITY"] == after
