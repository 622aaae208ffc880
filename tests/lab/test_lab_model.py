import asyncio
import shutil
from pathlib import Path

import pytest

from arbitrag.errors import DataError
from arbitrag.lab import model as lab
from arbitrag.lab.documents import entity_documents
from arbitrag.lab.world import World
from arbitrag.llm import open_llm
from arbitrag.llm.base import Sampling
from arbitrag.llm.manifest import hash_files
from arbitrag.prompts import PromptBook
from arbitrag.run import answer
from arbitrag.types import Need, Passage, Question, Strategy

BOOK = PromptBook.with_wording(lab.FOLDER / "prompts")
QUESTIONS = {
    "When was The Iron Harbor released?": "1928",
    "Where was Gordal Tulnan born?": "Camem",
    "Where is Bodax Motors based?": "Nulbot",
    "Who wrote Shadow of Thethe?": "Guveia Klalvua",
}


def test_the_manifest_lists_every_file_with_its_hash() -> None:
    found = lab.manifest()
    assert found.files == hash_files(lab.FOLDER)
    assert (found.name, found.parameters, found.context_tokens) == ("lab", 3_196_992, 1024)
    assert found.world == {"version": 1, "seed": 7}
    assert {row["what"] for row in found.measured} >= {
        "closed book, all known facts",
        "mixed contexts, trustmargin",
    }


def test_the_folder_is_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in lab.FOLDER.rglob("*") if path.is_file()) <= 7_200_000


def test_the_wording_is_what_models_are_trained_on_now() -> None:
    own, trained = (
        {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (lab.FOLDER / "prompts", lab.WORDING)
    )
    assert own == trained
    question, passages = Question("Who?"), [Passage("One.", title="T"), Passage("Two.")]
    found = BOOK.render("rag/answer", question=question, passages=passages)
    assert [message.text for message in found.messages] == ["1. One.\n2. Two.\nQuestion: Who?"]


async def test_it_answers_facts_that_it_knows() -> None:
    llm = open_llm("lab")
    assert (llm.name, llm.price) == ("lab", None)
    assert (await llm.offer()).needs == Need.GENERATE | Need.SCORE | Need.INSPECT | Need.NEXT_TOKEN
    prompts = [BOOK.render("direct/answer", question=Question(text)) for text in QUESTIONS]
    replies = await asyncio.gather(*(llm.generate(prompt, Sampling()) for prompt in prompts))
    assert [reply.text.strip() for reply in replies] == list(QUESTIONS.values())
    assert {reply.finish for reply in replies} == {"stop"}
    await llm.aclose()


async def test_the_demonstration_goes_as_its_lessons_say() -> None:
    llm = lab.open_lab()
    cases = lab.demo_cases()
    found = {}
    for case in cases:
        verdict = await answer(case.question, case.method, lab.demo_kit(llm, case.passages))
        found[case.kind] = (verdict.strategy, verdict.answer == case.truth)
        told = [case.truth in passage.text for passage in case.passages]
        assert any(told) == (case.kind == "evidence")
    await llm.aclose()
    assert found == {
        "memory": (Strategy.MEMORY, True),
        "evidence": (Strategy.EVIDENCE, True),
        "poison": (Strategy.MEMORY, True),
        "neither": (Strategy.REFUSE, False),
    }


def test_the_world_has_a_document_for_each_thing_in_it() -> None:
    documents = lab.world_documents()
    assert documents == tuple(entity_documents(World(7)))
    assert len({document.id for document in documents}) == len(documents) == 2700


async def test_the_world_is_searched_for_what_clearly_matches() -> None:
    world = lab.open_world()
    first = await world.retrieve("By whom was Bridge of Dicu written?", 20)
    assert first[0].id == "books/bridge-of-dicu"
    assert 1 <= len(first) <= 5
    assert first[0].score is not None
    assert all(passage.score is not None and passage.score >= 0.75 * first[0].score for passage in first)
    assert len(await world.retrieve("Who is the mayor?", 1)) == 1
    assert await world.retrieve("xyzzy", 5) == ()
    assert world.identity == lab.open_world().identity
    await world.aclose()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("demo.json", "[]", "another SHA-256"),
        ("manifest.json", None, "has no manifest"),
        ("documents.jsonl.gz", None, "is missing"),
    ],
)
def test_a_damaged_folder_is_noticed(
    name: str, text: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "embedded"
    shutil.copytree(lab.FOLDER, folder)
    monkeypatch.setattr(lab, "FOLDER", folder)
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text)
    with pytest.raises(DataError, match=message):
        lab.demo_cases(), lab.world_documents()


@pytest.mark.parametrize("text", ["{", '[{"kind": "memory"}]', '[{"strange": 1, "passages": []}]', "[7]"])
def test_a_demonstration_of_another_form_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "demo.json"
    path.write_text(text)
    monkeypatch.setattr(lab, "_verified", lambda name: path)
    with pytest.raises(DataError, match="not a list of cases"):
        lab.demo_cases()


def test_a_demonstration_of_an_unknown_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "demo.json"
    path.write_text('[{"kind": "x", "title": "", "question": "", "passages": [], "truth": "", "lesson": ""}]')
    monkeypatch.setattr(lab, "_verified", lambda name: path)
    with pytest.raises(DataError, match="unknown kind 'x'"):
        lab.demo_cases()
