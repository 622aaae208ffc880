import asyncio
import shutil
from pathlib import Path

import pytest

from arbitrag.errors import DataError
from arbitrag.kit import Kit
from arbitrag.lab import model as lab
from arbitrag.llm import open_llm
from arbitrag.llm.base import Prompt, Sampling
from arbitrag.llm.manifest import hash_files
from arbitrag.prompts import PromptBook
from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.run import answer
from arbitrag.types import Need, Passage, Question, Strategy

BOOK = PromptBook.with_wording(lab.FOLDER / "prompts")
QUESTIONS = {
    "What is the home city of the Kasus Pirates?": "Stekluk",
    "What year was the film The Winter Whisper first shown?": "1961",
    "Which city hosts the Surliam Bears?": "Grorkund",
    "Who leads Velklaert Energy?": "Filklat Shabi",
}


def test_the_manifest_lists_every_file_with_its_hash() -> None:
    found = lab.manifest()
    assert found.files == hash_files(lab.FOLDER)
    assert (found.name, found.parameters, found.context_tokens) == ("lab", 2_557_632, 1024)
    assert all({"what", "value", "sample"} <= row.keys() for row in found.measured)


def test_the_folder_is_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in lab.FOLDER.rglob("*") if path.is_file()) <= 6_000_000


def test_the_wording_is_what_the_model_was_trained_on() -> None:
    question, passages = Question("Who?"), [Passage("One.", title="T"), Passage("Two.")]
    head = "Answer the question using the passages.\nPassage 1: One.\nPassage 2: Two.\n"
    assert BOOK.render("direct/answer", question=question).text == "Answer the question.\nQuestion: Who?\nAnswer:"
    assert BOOK.render("rag/answer", question=question, passages=passages).text == f"{head}Question: Who?\nAnswer:"
    alone = BOOK.render("trustmargin/passages_only", passages=passages)
    assert (alone.text, alone.lead) == (f"{head}Answer:", " ")


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
        verdict = await answer(case.question, "trustmargin", Kit.of(llm, FixedRetriever(case.passages)))
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
    assert len(documents) == 2500
    assert len({document.id for document in documents}) == 2500
    assert all(document.title in document.text and document.source.endswith(".md") for document in documents)


async def test_the_world_is_searched_for_what_clearly_matches() -> None:
    world = lab.open_world()
    first = await world.retrieve("Who wrote Anchor and Echo?", 20)
    assert first[0].id == "books/anchor-and-echo"
    assert 1 <= len(first) <= 3
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


async def test_it_computes_what_transformers_does_with_the_checkpoint(shared: Path) -> None:
    """Log-likelihoods of every token within 1e-3, and the same greedy text."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    checkpoint = str(shared / "lab" / "model")
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    reference = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    llm = lab.open_lab()
    cases = lab.demo_cases()
    prompts = [BOOK.render("rag/answer", question=Question(case.question), passages=case.passages) for case in cases]
    prompts += [BOOK.render("direct/answer", question=Question(case.question)) for case in cases]
    for prompt in prompts:
        ids = tokenizer(prompt.text, return_tensors="pt")
        with torch.no_grad():
            written = reference.generate(**ids, max_new_tokens=16, do_sample=False)[0, ids.input_ids.shape[1] :]
        text = tokenizer.decode(written, skip_special_tokens=True)
        assert (await llm.generate(prompt, Sampling(max_tokens=16))).text == text
        for continuation in (text.strip(), "Oskar Brend"):
            found = (await llm.score(prompt, [continuation])).likelihoods[0].logprobs
            assert found == pytest.approx(likelihood(reference, tokenizer, prompt, continuation), abs=1e-3)
    await llm.aclose()


def likelihood(reference: object, tokenizer: object, prompt: Prompt, continuation: str) -> list[float]:
    """Log-probabilities by transformers of the continuation's tokens, tokenised on its own."""
    import torch

    before = tokenizer(prompt.text).input_ids  # type: ignore[operator]
    after = tokenizer(f" {continuation}", add_special_tokens=False).input_ids  # type: ignore[operator]
    with torch.no_grad():
        logits = reference(torch.tensor([before + after])).logits[0, len(before) - 1 : -1]  # type: ignore[operator]
    found: list[float] = logits.log_softmax(-1)[torch.arange(len(after)), torch.tensor(after)].tolist()
    return found
