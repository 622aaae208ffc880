"""The embedded model and its world answer only where they are asked for by name."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import arbitrag
from arbitrag.errors import CapabilityError, UsageError
from arbitrag.evaluate.run.store import Store
from arbitrag.lab.model import World
from arbitrag.retrieve import open_index

if TYPE_CHECKING:
    from tests.conftest import Command

ASKED = "Where is Bodax Motors based?"
OWN = '{"id": "q1", "question": "Who runs the harbour?", "answers": ["Ada"]}\n'
LAB_SET = "lab:questions?count=4&k=0"  # without passages of their own


@pytest.fixture
def passages(tmp_path: Path) -> Path:
    path = tmp_path / "passages.jsonl"
    path.write_text('{"text": "Ada runs the harbour."}\n')
    return path


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "own.jsonl"
    path.write_text(OWN)
    return path


def test_no_model_answers_unasked(passages: Path, questions: Path, tmp_path: Path, command: Command) -> None:
    run = tmp_path / "run.db"
    for typed in (
        ("ask", "Who runs the harbour?"),
        ("ask", "Who runs the harbour?", "--passages", passages),
        ("ask", "--questions", questions, "--passages", passages),
        ("bench", "run", run, "--questions", questions),
        ("bench", "run", run, "--questions", LAB_SET),
    ):
        ran = command(*typed)
        assert (ran.status, ran.out) == (2, "")
        assert ran.err.startswith("UsageError: no model is named, and none answers unasked. Name one:\n")
        for example in ("--llm openai:", "--llm hf:", "--llm lab ", "arbitrag demo\n"):
            assert example in ran.err
        assert max(map(len, ran.err.splitlines())) <= 80
    assert not run.exists()


def test_nothing_is_read_before_a_model_is_named(tmp_path: Path, command: Command) -> None:
    assert "no model is named" in command("ask", "--questions", tmp_path / "nowhere.jsonl").err
    assert "nowhere.jsonl" in command("ask", "--llm", "lab", "--questions", tmp_path / "nowhere.jsonl").err


def test_python_names_no_model_either() -> None:
    with pytest.raises(TypeError, match="llm"):
        arbitrag.ask("Who?")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="llm"):
        arbitrag.open_kit()  # type: ignore[call-arg]
    assert inspect.signature(arbitrag.open_kit).parameters["llm"].default is inspect.Parameter.empty


async def test_the_lab_has_no_passages_unless_its_world_is_named() -> None:
    async with arbitrag.open_kit("lab") as kit:
        assert kit.retriever is None
        with pytest.raises(CapabilityError, match=r"(?s)nothing to retrieve from.*of the lab's world are --index lab"):
            await arbitrag.answer(ASKED, "rag", kit)
        assert (await arbitrag.answer(ASKED, "direct", kit)).answer == "Nulbot"
    async with arbitrag.open_kit("lab", index="lab") as kit:
        assert (await arbitrag.answer(ASKED, "rag", kit)).answer == "Nulbot"


def test_the_lab_world_is_an_index_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    assert isinstance(open_index("lab"), World)
    assert "bodax-motors.md" in command("search", "lab", "Bodax Motors").out
    with pytest.raises(UsageError, match="searched by bm25 only; got mode=dense"):
        open_index("lab", mode="dense")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab").mkdir()  # a path that exists is a path
    with pytest.raises(arbitrag.ArbitragError, match="lab"):
        open_index("lab")


def test_questions_of_the_lab_for_its_model_have_its_world(tmp_path: Path, command: Command) -> None:
    run = tmp_path / "run.db"
    ran = command("bench", "run", run, "--questions", LAB_SET, "--llm", "lab", "--method", "rag")
    assert (ran.status, ran.err.splitlines()[0].split(";")[0]) == (0, "4 rows made, 0 failed")
    with Store.open(run) as store:
        assert store.meta["retriever"] == open_index("lab").identity
        assert store.meta["sessions"][-1]["options"]["index"] == "lab"
    assert command("bench", "run", run, "--method", "rag k=2").err.startswith("4 rows made, 0 failed; ")


def test_no_other_questions_are_looked_up_there(questions: Path, tmp_path: Path, command: Command) -> None:
    run = tmp_path / "run.db"
    for sets in ([questions], [questions, LAB_SET]):
        typed = [word for each in sets for word in ("--questions", each)]
        ran = command("bench", "run", run, *typed, "--llm", "lab", "--method", "direct", "--method", "rag")
        assert ran.status == 2
        assert ran.err.startswith("UsageError: rag reads passages, but the questions of own have none, and no index ")
        assert not run.exists()
    assert command("bench", "run", run, "--questions", questions, "--llm", "lab", "--method", "direct").status == 0

    lab = tmp_path / "lab.db"
    assert command("bench", "run", lab, "--questions", LAB_SET, "--llm", "lab", "--method", "rag").status == 0
    joined = command("bench", "run", lab, "--questions", questions)
    assert (joined.status, "the lab's world, which knows nothing of" in joined.err) == (2, True)
    assert command("bench", "run", lab, "--questions", questions, "--index", "lab").status == 0


def test_a_model_that_is_not_the_lab_has_no_world(tmp_path: Path, command: Command) -> None:
    """The questions of the lab, for another model: what it would read has to be named."""
    run = tmp_path / "run.db"
    ran = command("bench", "run", run, "--questions", LAB_SET, "--llm", "openai:x@http://127.0.0.1:9/v1", "--foreign")
    assert (ran.status, "no index is named" in ran.err, run.exists()) == (2, True, False)
