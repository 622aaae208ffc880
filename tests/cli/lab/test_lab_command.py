"""``arbitrag lab`` from end to end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arbitrag.lab import checkpoint, model
from arbitrag.lab.world import World
from arbitrag.llm.base import Generation, Prompt, Sampling
from arbitrag.storage.model_manifest import read_manifest
from arbitrag.testing import ScriptedLLM

if TYPE_CHECKING:
    from tests.conftest import Command

WORLD = World(7)
OLD, NEW = next((old, new) for old, new in WORLD.evolved.items() if old.relation == "ceo")


def test_a_world_is_summed_up(command: Command) -> None:
    shown = command("lab", "world")
    assert shown.status == 0
    assert "\nperson      700       " in shown.out
    assert "World 7, version 1: 3,617 facts told before the cutoff (2020), 287 of them changed since" in shown.out
    summary = json.loads(command("lab", "world", "--seed", "8", "--json").out)
    assert (summary["seed"], summary["known"], summary["entities"]["team"]) == (8, 3630, 240)


def test_a_world_is_written_out(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "world.jsonl"
    assert command("lab", "world", "-o", path).status == 0
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 2700 + 4440
    assert rows[0].keys() == {"entity", "type", "aliases", "newcomer"}
    (row,) = (row for row in rows if (row.get("subject"), row.get("relation")) == (NEW.subject, NEW.relation))
    assert row == {
        "subject": NEW.subject,
        "relation": "ceo",
        "object": NEW.object,
        "since": WORLD.since[NEW],
        "before": OLD.object,
        "rank": WORLD.rank[OLD],
    }


def test_an_unknown_version_is_refused(command: Command) -> None:
    refused = command("lab", "questions", "--world-version", 9)
    assert refused.status == 2
    assert refused.err == ("UsageError: worlds of version 9 are not known here; this version of Arbitrag makes 1\n")


def test_a_corpus_and_its_labels(command: Command, tmp_path: Path) -> None:
    documents, labels = tmp_path / "corpus.jsonl", tmp_path / "labels.jsonl"
    options = ("--size", 6200, "--poisons", 0.01)
    told = command("lab", "corpus", *options, "-o", documents, "--labels", labels)
    assert told.out == (
        f"{documents}: 6,200 documents (4,440 fact, 1,069 alias, 287 outdated, 44 poison, 310 copy, 50 stranger)\n"
    )
    assert told.err == ""
    written = documents.read_text()
    assert command("lab", "corpus", *options).out == written
    assert len(labels.read_text().splitlines()) == len(written.splitlines()) == 6200
    again = command("lab", "corpus", *options, "-o", documents, "--json")
    assert json.loads(again.out)["documents"]["poison"] == 44
    assert "which documents are poisoned is written nowhere" in command("lab", "corpus", *options, "-o", documents).err


def test_questions_and_their_answers(command: Command, tmp_path: Path) -> None:
    asked, gold = tmp_path / "questions.jsonl", tmp_path / "gold.jsonl"
    told = command("lab", "questions", "--count", 5, "--kind", "late", "--kind", "known", "-o", asked, "--gold", gold)
    assert told.out == f"{asked}: 5 questions ({_order(gold)})\n"
    rows = [json.loads(line) for line in asked.read_text().splitlines()]
    answers = [json.loads(line) for line in gold.read_text().splitlines()]
    assert [row["question"] for row in rows] == [row["question"] for row in answers]
    assert all(row.keys() == {"id", "question"} for row in rows)
    printed = command("lab", "questions", "--count", 5, "--kind", "late", "--kind", "known")
    assert printed.out == asked.read_text()
    counted = json.loads(command("lab", "questions", "--count", 4, "-o", asked, "--json").out)
    assert counted["questions"] == {"known": 1, "evolved": 1, "late": 1, "multi-hop": 1}


def _order(gold: Path) -> str:
    kinds = [json.loads(line)["kind"] for line in gold.read_text().splitlines()]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("corpus", "--json"), "need a file for the documents: -o FILE"),
        (("corpus", "--labels", "x"), "need a file for the documents: -o FILE"),
        (("corpus", "--labels", "x", "-o", "x"), "both files are x"),
        (("questions", "--gold", "x", "-o", "./x"), "both files are x"),
        (("questions", "--json"), "--json needs a file for the questions"),
        (("questions", "--kind", "lat"), "Did you mean 'late'"),
        (("show", "x", "--world-only", "--checkpoint", "y"), "--world-only asks no model"),
        ((), "Missing command"),
    ],
)
def test_what_does_not_go_together_is_refused(command: Command, arguments: tuple[str, ...], message: str) -> None:
    refused = command("lab", *arguments)
    assert refused.status == 2
    assert message in refused.err


def test_the_world_alone_is_shown(command: Command) -> None:
    shown = command("lab", "show", NEW.subject.upper(), "--world-only")
    assert shown.out.splitlines()[0].startswith(f"{NEW.subject} (company")
    line = next(line for line in shown.out.splitlines() if line.startswith("ceo"))
    told = f"as {OLD.object}, rank {WORLD.rank[OLD] + 1:,} of 3,617"
    assert line.split(NEW.object)[1].split() == [str(WORLD.since[NEW]), *told.split()]
    late = next(fact for fact in WORLD.late if fact.relation == "birthplace")
    shown = command("lab", "show", late.subject, "--world-only")
    assert shown.out.splitlines()[-1].split() == ["birthplace", late.object, str(WORLD.since[late]), "no"]


def test_an_entity_that_is_not_there(command: Command) -> None:
    refused = command("lab", "show", f"{NEW.subject}x", "--world-only")
    assert refused.status == 2
    assert f"Did you mean '{NEW.subject}'?" in refused.err
    assert len(refused.err) < 300


class Believer(ScriptedLLM):
    """Believes what was told before the cutoff, with a probability of one half a token."""

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        assert sampling.logprobs
        asked = prompt.messages[-1].text
        answer = OLD.object if asked == f"Question: Who is the CEO of {NEW.subject}?" else "Atlantis"
        return Generation(answer, "stop", (-0.693147, -0.693147))


@pytest.fixture
def lab_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose manifest names world 7, and which is opened as the scripted believer."""
    folder = tmp_path / "lab"
    shutil.copytree(model.FOLDER, folder)
    found = read_manifest(folder)
    assert found is not None
    type(found)(**{**vars(found), "world": {"version": 1, "seed": 7}}).write(folder)
    believer = Believer(name="lab")
    believer.wording = model.PROMPTS
    monkeypatch.setattr(checkpoint, "_opened", lambda folder, where: believer)
    return folder


def test_what_the_model_believes_stands_beside_the_world(command: Command, lab_folder: Path) -> None:
    shown = command("lab", "show", NEW.subject, "--checkpoint", lab_folder)
    line = next(line for line in shown.out.splitlines() if line.startswith("ceo"))
    assert line.endswith(f"{OLD.object}  25%     outdated")
    other = next(line for line in shown.out.splitlines() if line.startswith("founded"))
    assert other.endswith("25%     wrong")
    report = json.loads(command("lab", "show", NEW.subject, "--checkpoint", lab_folder, "--json").out)
    assert report["world"] == {"version": 1, "seed": 7}
    believed = report["facts"][0]["model"]
    assert believed["probability"] == pytest.approx(0.25, abs=1e-4)
    assert (believed["answer"], believed["is"]) == (OLD.object, "outdated")


def test_a_model_of_another_world_is_refused(
    command: Command, lab_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = command("lab", "show", NEW.subject, "--checkpoint", lab_folder, "--seed", 8)
    assert refused.status == 2
    assert "was trained on world 7, not 8" in refused.err
    found = read_manifest(lab_folder)
    assert found is not None
    for world, message in (
        ({"version": 2, "seed": 7}, "does not match: worlds of version 2 are not known here"),
        ({"seed": 7}, "expected version and seed"),
        ({"version": 1, "seed": "7"}, "'world.seed' is a string; expected a whole number"),
        (None, "its manifest names none"),
    ):
        type(found)(**{**vars(found), "world": world}).write(lab_folder)
        assert message in command("lab", "show", NEW.subject, "--checkpoint", lab_folder).err
    (lab_folder / "manifest.json").unlink()
    assert "has no manifest.json" in command("lab", "show", NEW.subject, "--checkpoint", lab_folder).err
    monkeypatch.setattr(model, "FOLDER", lab_folder)
    assert command("lab", "show", NEW.subject).status == 1
