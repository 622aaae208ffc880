"""``arbitrag data build-trd`` from end to end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from arbitrag.data import open_set
from arbitrag.lab import checkpoint, model
from arbitrag.lab.world import World
from arbitrag.llm.base import Prompt
from arbitrag.storage.model_manifest import Manifest
from arbitrag.testing import ScriptedLLM, prompt_text

if TYPE_CHECKING:
    from tests.conftest import Command

WORLD = World(7)
FACTS = {form.format(s=fact.subject): fact for fact in WORLD.current for form in fact.form.questions}
LAB = Manifest("lab", {}, 1, 1024, "fp16", world={"version": 1, "seed": 7})


def believer(prompt: Prompt) -> str:
    """Knows every fact from before the cutoff; with passages it repeats the last word of the one about the subject."""
    text = prompt_text(prompt)
    fact = FACTS[text.split("Question: ")[1].split("\n")[0]]
    for block in text.split("<passage ")[1:]:
        told = block.split("\n", 2)
        if told[1] == fact.subject:
            names = [name for name in (*WORLD.kinds, *map(str, range(1900, 2020))) if name in told[2]]
            named = [n for n in names if n not in fact.subject and WORLD.kinds.get(n, "year") == fact.form.object]
            if named:
                return max(named, key=len)
    return fact.object if fact in WORLD.rank else "Nobody Known"


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedLLM]:
    """A lab model that knows world 7; what is opened is kept in the list."""
    opened: list[ScriptedLLM] = []

    def open_one(folder: Path | None = None, *, seed: int | None = None) -> checkpoint.LabModel:
        opened.append(ScriptedLLM(believer, name="lab"))
        return checkpoint.LabModel(opened[-1], WORLD, folder or Path(), LAB)

    monkeypatch.setattr(checkpoint, "open_checkpoint", open_one)
    monkeypatch.setattr(model, "manifest", lambda: LAB)
    return opened


def test_a_set_of_the_lab_is_built_and_its_examples_are_shown(
    command: Command, tmp_path: Path, lab: list[ScriptedLLM]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- examples -->\n<!-- end of examples -->\n")
    out = tmp_path / "trd"
    given = ("--size", "40", "--llm", "lab", "-o", out, "--examples", "2", "--into", page)
    ran = command("data", "build-trd", "--from", "lab", *given)
    assert ran.status == 0
    parts = r"([\d,]+) from memory \(FA .*, FI .*, FE .*, RA .*\), ([\d,]+) with passages \(FA .*\)"
    every = r"([\d,]+) when every question passes at once"
    said = re.fullmatch(rf"at most ([\d,]+) requests: {parts}; {every}\n", ran.err)
    assert said is not None
    most, memory, read, least = (int(each.replace(",", "")) for each in said.groups())
    assert (most, least) == (memory + read, 40 + 28)
    assert least <= len(lab[0].prompts) <= most
    assert "40 questions about" in ran.out
    assert page.read_text().count("   - corrupted: ") == 4
    assert (out / "examples.md").read_text() in page.read_text()
    items = [item for name in ("train", "validation", "test") for item in open_set(out / f"{name}.jsonl").items]
    assert len(items) == 40
    assert {len(item.passages or ()) for item in items} == {5}
    assert command("data", "check", out / "train.jsonl").status == 0
    asked = len(lab[0].prompts)
    again = command("data", "build-trd", "--from", "lab", *given[:-4], "--json")
    assert again.status == 0
    report = json.loads(again.out)
    assert (asked > 40, len(lab[1].prompts)) == (True, 0), "a finished build is told again without asking"
    assert sum(report["questions"]["FA"].values()) == 4
    assert report["recipe"]["phrasings"] == 4


def one_line(command: Command, *arguments: object) -> str:
    ran = command("data", "build-trd", *arguments)
    assert ran.status in (1, 2)
    assert ran.err.count("\n") == 1
    assert ran.out == ""
    return ran.err


def test_what_cannot_be_built_is_one_line(
    command: Command, tmp_path: Path, lab: list[ScriptedLLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "trd"
    told: Callable[..., str] = lambda *given: one_line(command, "-o", out, *given)  # noqa: E731 - shorter below
    assert "no model to validate with; give one or more: --llm lab" in told()
    assert "worlds of version 9 are not known here" in told("--llm", "lab", "--world-version", "9")
    assert "--cutoff is not for --from lab" in told("--llm", "lab", "--cutoff", "2023")
    assert "--world and --world-version are for --from lab" in told("--from", tmp_path, "--llm", "lab", "--world", "7")
    assert "are for --from wikipedia" in told("--llm", "lab", "--taqa", "x.jsonl")
    assert "--from wikipedia needs --nq-train" in told("--from", "wikipedia", "--llm", "lab")
    assert "there is no folder nowhere to build from" in told("--from", "nowhere", "--llm", "lab")
    assert "has no facts.jsonl and no passages.jsonl and no" in told("--from", tmp_path, "--llm", "lab")
    assert "--into says where examples come" in told("--llm", "lab", "--into", "x.md")
    assert "unknown backend 'labb'" in told("--llm", "labb")
    monkeypatch.setattr(model, "manifest", lambda: replace(LAB, world=None))
    assert "give a lab model that was: --llm hf:MODEL or onnx:FOLDER" in told("--llm", "lab")
    assert not out.exists()


def test_a_checkpoint_of_another_world_is_refused(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    LAB.write(folder)
    err = one_line(command, "-o", tmp_path / "trd", "--llm", f"onnx:{folder}", "--world", "8")
    assert "was trained on world 7, not 8" in err
    replace(LAB, world={"version": 9, "seed": 7}).write(folder)
    err = one_line(command, "-o", tmp_path / "trd", "--llm", f"onnx:{folder}")
    assert "does not match: worlds of version 9 are not known here" in err


def test_a_stopped_build_says_that_it_goes_on(
    command: Command, tmp_path: Path, lab: list[ScriptedLLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    from arbitrag.data.trd import build as trd

    out = tmp_path / "trd"
    (out / "answers").mkdir(parents=True)

    async def stopped(*_: Any, **__: Any) -> trd.Built:
        raise KeyboardInterrupt

    monkeypatch.setattr(trd, "build", stopped)
    ran = command("data", "build-trd", "--llm", "lab", "-o", out)
    assert ran.status == 130
    assert "trd holds the answers of a build that did not finish; they are not asked for again" in ran.err
    assert "every answer so far is kept in" in ran.err


PAID = "openai:gpt-4o-mini"


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """A folder with facts of one's own, enough that a build begins to ask."""
    folder = tmp_path / "facts"
    folder.mkdir()
    rows = [
        {
            "id": f"f{n}",
            "subject": f"Museum {n}",
            "answer": f"Mira {n}",
            "type": "person",
            "questions": [f"Who runs Museum {n}?"],
        }
        for n in range(20)
    ]
    told = [{"fact": f"f{n}", "text": f"Mira {n} runs Museum {n}."} for n in range(20)]
    names = [{"name": f"Jon {n}", "type": "person", "popularity": n} for n in range(20)]
    for name, found in (("facts", rows), ("passages", told), ("entities", names)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    return folder


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> ScriptedLLM:
    backend = ScriptedLLM(lambda prompt: "I don't know", name=PAID)
    monkeypatch.setattr("arbitrag.llm.open_llm", lambda address, **_: backend)
    return backend


def test_a_model_that_may_cost_money_is_not_asked_without_a_word(
    command: Command, tmp_path: Path, facts: Path, paid: ScriptedLLM
) -> None:
    build = ("data", "build-trd", "--from", facts, "--llm", PAID, "-o", tmp_path / "trd")
    ran = command(*build)
    assert ran.status == 2
    assert ran.err.startswith("at most 40 requests: 20 from memory (FA 5, FI 15, FE 0, RA 0), 20 with passages (")
    assert f"UsageError: {PAID} is not on this machine, and may cost money; to ask all the same, type" in ran.err
    assert "again with --yes" in ran.err
    assert not paid.prompts
    assert not (tmp_path / "trd").exists()
    assert "no question of the category FA is left" in command(*build, "--yes").err
    assert paid.prompts


@pytest.mark.parametrize(("answer", "asked"), [("n\n", False), ("y\n", True)])
def test_somebody_at_a_terminal_is_asked(
    answer: str,
    asked: bool,
    command: Command,
    tmp_path: Path,
    facts: Path,
    paid: ScriptedLLM,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("arbitrag.cli.data.build_trd._is_terminal", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda text, err: "cost money. Ask?" in text and answer == "y\n")
    ran = command("data", "build-trd", "--from", facts, "--llm", PAID, "-o", tmp_path / "trd")
    assert ran.status == 1
    assert bool(paid.prompts) == asked
    assert ran.err.endswith("nothing was asked\n") != asked


def test_a_model_on_this_machine_is_not_asked_about(
    command: Command, tmp_path: Path, facts: Path, paid: ScriptedLLM
) -> None:
    local = "openai:m@http://127.0.0.1:9/v1"
    ran = command("data", "build-trd", "--from", facts, "--llm", local, "-o", tmp_path / "trd")
    assert "may cost money" not in ran.err
    assert paid.prompts


def test_a_set_of_the_lab_is_not_validated_by_a_model_that_cannot_know_it(
    command: Command, tmp_path: Path, paid: ScriptedLLM
) -> None:
    build = ("data", "build-trd", "--from", "lab", "--llm", PAID, "-o", tmp_path / "trd")
    ran = command(*build)
    assert ran.status == 2
    assert ran.err.startswith(f"UsageError: {PAID} was not trained on the lab's invented world, which a set from the")
    assert not paid.prompts
    assert "was not trained" not in command(*build, "--foreign", "--yes").err
