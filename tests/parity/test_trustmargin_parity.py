"""The same checkpoint and prompts give the same answers, likelihoods and choices as the reference TrustMargin.

``trustmargin.json`` holds what mojixu/TrustMargin@c32b114 gave; ``make_trustmargin_fixture.py`` made it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import arbitrag
from arbitrag import Kit, Passage, Question, Verdict
from arbitrag.llm.base import LLM
from arbitrag.methods.trustmargin import Margins, TrustMargin
from arbitrag.prompts import PromptBook
from arbitrag.testing import FixedRetriever

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
FIXTURE = json.loads((HERE / "trustmargin.json").read_text(encoding="utf-8"))
ROWS: list[dict[str, Any]] = FIXTURE["rows"]
TOLERANCE = 1e-4  # of a mean log-probability; the reference rounds to 6 digits


@dataclass(frozen=True)
class Ours:
    """Our verdict on a row, and the six likelihoods of the reference's answers, also where the answers agree."""

    verdict: Verdict
    likelihoods: dict[str, float]


@pytest.fixture(scope="module")
def checkpoint(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the lab model with the chat template of these tests."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    weights = shared / "lab" / "model" / "model.safetensors"
    if not weights.is_file():
        pytest.skip("there is no lab model in ../shared")
    if hashlib.sha256(weights.read_bytes()).hexdigest() != FIXTURE["checkpoint_sha256"]:
        pytest.skip("the lab model in ../shared is not the one that the fixture was made with")
    copy = shutil.copytree(weights.parent, tmp_path_factory.mktemp("parity") / "model")
    shutil.copy(HERE / "chat_template.jinja", copy)
    return copy


@pytest.fixture(scope="module")
def ours(checkpoint: Path) -> list[Ours]:
    from arbitrag.llm.hf.backend import open_hf

    async def run() -> list[Ours]:
        llm = open_hf(str(checkpoint), device="cpu", dtype="float32")
        try:
            return await asyncio.gather(*(decide(llm, row) for row in ROWS))
        finally:
            await llm.aclose()

    return asyncio.run(run())


async def decide(llm: LLM, row: dict[str, Any]) -> Ours:
    book = PromptBook.with_wording(HERE / "wording")
    passages = tuple(Passage(text, id=str(number)) for number, text in enumerate(row["passages"]))
    kit = Kit.of(llm, FixedRetriever(passages), book=book)
    verdict = await arbitrag.answer(row["question"], "trustmargin", kit)
    asked, answers = Question(row["question"]), (row["memory"], row["evidence"])
    prompts = {
        "q": book.render("direct/answer", question=asked),
        "qp": book.render("rag/answer", question=asked, passages=passages),
        "p": book.render("trustmargin/passages_only", passages=passages),
    }
    means = {view: (await llm.score(prompt, answers)).means for view, prompt in prompts.items()}
    return Ours(verdict, {f"{view}_{name}": means[view][place] for view in prompts for place, name in enumerate("dr")})


def test_the_fixture_is_worth_comparing_with() -> None:
    chosen = Counter(row["choice"] for row in ROWS)
    assert len(ROWS) >= 200
    assert chosen["memory"] >= 50
    assert chosen["evidence"] >= 50
    assert {len(row["passages"]) for row in ROWS} == set(range(1, 9))


def test_the_prompt_without_a_question_is_the_prompt_with_an_empty_one() -> None:
    book = PromptBook.with_wording(HERE / "wording")
    passages = (Passage("x"), Passage("y"))
    alone = book.render("trustmargin/passages_only", passages=passages)
    assert alone == book.render("rag/answer", question=Question(""), passages=passages)


def test_the_same_answers(ours: list[Ours]) -> None:
    for row, mine in zip(ROWS, ours, strict=True):
        assert [candidate.text for candidate in mine.verdict.candidates] == [row["memory"], row["evidence"]]


def test_the_same_six_likelihoods(ours: list[Ours]) -> None:
    for row, mine in zip(ROWS, ours, strict=True):
        assert mine.likelihoods == pytest.approx(row["likelihoods"], abs=TOLERANCE)


def test_the_method_decides_by_these_likelihoods(ours: list[Ours]) -> None:
    scored = [mine for mine in ours if mine.verdict.strategy.value != "both"]
    assert len(scored) >= 150
    for mine in scored:
        inputs = mine.verdict.decisions[0].inputs
        assert {name: inputs[name] for name in mine.likelihoods} == pytest.approx(mine.likelihoods, abs=TOLERANCE)


def test_the_same_margin_and_the_same_choice_each_time(ours: list[Ours]) -> None:
    for row, mine in zip(ROWS, ours, strict=True):
        assert mine.verdict.strategy.value == row["choice"]
        margins = Margins.of(**mine.likelihoods)
        margin = margins.prior + TrustMargin().weight * margins.binding
        assert margin == pytest.approx(row["margin"], abs=4 * TOLERANCE)


def test_a_real_run_costs_what_the_method_says(ours: list[Ours]) -> None:
    """Two answers side by side are one step, and the scorings beside one another a second."""
    for row, mine in zip(ROWS, ours, strict=True):
        usage = mine.verdict.usage
        agree = row["choice"] == "both"
        assert (usage.generations, usage.scorings) == (2, 0 if agree else 6)
        assert (usage.calls, usage.steps) == ((2, 1) if agree else (5, 2))
