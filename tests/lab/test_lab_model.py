import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from arbitrag.errors import DataError
from arbitrag.lab import model as lab
from arbitrag.lab.documents import entity_documents
from arbitrag.lab.world import World
from arbitrag.llm import open_llm
from arbitrag.llm.base import Sampling
from arbitrag.prompts import PromptBook
from arbitrag.run import answer
from arbitrag.storage.model_manifest import hash_files
from arbitrag.types import Need, Passage, Question, Strategy

BOOK = PromptBook.with_wording(lab.FOLDER / "prompts")
QUESTIONS = {
    "When was The Iron Harbor released?": "1928",
    "Where was Gordal Tulnan born?": "Camem",
    "Where is Bodax Motors based?": "Nulbot",
    "Who wrote Shadow of Thethe?": "Guveia Klalvua",
}


def test_the_manifest_names_no_folder_of_the_machine_that_trained() -> None:
    recipe = json.loads((lab.FOLDER / "manifest.json").read_text(encoding="utf-8"))["made"]["trained"]["recipe"]
    assert not Path(recipe["start"]).is_absolute()
    assert not Path(recipe["adopt"]).is_absolute()


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


def test_the_prompts_are_rendered_in_the_embedded_wording() -> None:
    question, passages = Question("Who?"), [Passage("One.", title="T"), Passage("Two.")]
    found = BOOK.render("rag/answer", question=question, passages=passages)
    assert [message.text for message in found.messages] == ["1. One.\n2. Two.\nQuestion: Who?"]


async def test_it_answers_facts_that_it_knows() -> None:
    llm = open_llm("lab")
    assert (llm.name, llm.price) == ("lab", None)
    assert (await llm.capabilities()).needs == Need.GENERATE | Need.SCORE | Need.INSPECT | Need.NEXT_TOKEN
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"demo\.json is not JSON"),
        ('[{"kind": "memory"}]', r"not a list of cases: '\[0\]\.title' is missing"),
        ('[{"strange": 1, "passages": []}]', r"not a list of cases: '\[0\]\.strange' is not known"),
        ("[7]", r"not a list of cases: '\[0\]' is a whole number; expected an object"),
    ],
)
def test_a_demonstration_of_another_form_is_refused(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "demo.json"
    path.write_text(text)
    monkeypatch.setattr(lab, "_verified", lambda name: path)
    with pytest.raises(DataError, match=message):
        lab.demo_cases()


def test_a_demonstration_of_an_unknown_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "demo.json"
    path.write_text('[{"kind": "x", "title": "", "question": "", "passages": [], "truth": "", "lesson": ""}]')
    monkeypatch.setattr(lab, "_verified", lambda name: path)
    with pytest.raises(DataError, match=r"'\[0\].kind' is 'x'; expected one of memory, evidence"):
        lab.demo_cases()


async def test_it_computes_what_transformers_does_with_its_weights() -> None:
    """Log-likelihoods of every token within 1e-3, and the same greedy text, on the demonstration's prompts."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    reference = llama_of(lab.FOLDER / "model.onnx")
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(str(lab.FOLDER))
    llm = lab.open_lab()
    cases = lab.demo_cases()
    prompts = [BOOK.render("rag/answer", question=Question(case.question), passages=case.passages) for case in cases]
    prompts += [BOOK.render("direct/answer", question=Question(case.question)) for case in cases]
    for prompt in prompts:
        messages = [{"role": message.role, "content": message.text} for message in prompt.messages]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        before = tokenizer(text, add_special_tokens=False).input_ids
        with torch.no_grad():
            written = reference.generate(
                torch.tensor([before]), max_new_tokens=16, do_sample=False, eos_token_id=tokenizer.eos_token_id
            )
        *named, end = written[0, len(before) :].tolist()
        assert named
        assert end == tokenizer.eos_token_id  # both stopped by themselves, not at the limit
        greedy = tokenizer.decode(named)
        found = await llm.generate(prompt, Sampling(max_tokens=16))
        assert (found.text, found.finish) == (greedy, "stop")
        for continuation in (greedy.strip(), "Oskar Brend"):
            after = tokenizer(continuation, add_special_tokens=False).input_ids
            with torch.no_grad():
                logits = reference(torch.tensor([before + after])).logits[0, len(before) - 1 : -1]
            expected = logits.log_softmax(-1)[torch.arange(len(after)), torch.tensor(after)].tolist()
            scored = (await llm.score(prompt, [continuation])).likelihoods[0].logprobs
            assert scored == pytest.approx(expected, abs=1e-3)
    await llm.aclose()


def llama_of(path: Path) -> Any:
    """transformers' own model with the weights that stand in an exported file; see ``llm.onnx.graph`` for names."""
    import torch
    from onnx import load, numpy_helper
    from transformers import LlamaConfig, LlamaForCausalLM

    weights = {}
    for each in load(str(path)).graph.initializer:
        value = torch.from_numpy(numpy_helper.to_array(each).copy())
        name = each.name.removesuffix(".fp16")
        if name == "embedding":
            weights["model.embed_tokens.weight"] = value.float()
        elif name.endswith("norm.weight"):
            weights[name] = value.float()
        elif name.startswith("model.layers."):
            parts = name.split("|")
            weights |= {
                f"{part}.weight": block.T.float() for part, block in zip(parts, value.chunk(len(parts), 1), strict=True)
            }
    config = LlamaConfig(
        vocab_size=5120,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=5,
        num_attention_heads=6,
        max_position_embeddings=1024,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).requires_grad_(False).train(False)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    model.tie_weights()
    return model
