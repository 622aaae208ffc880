"""RAG: one answer from the passages, whatever they say."""

from __future__ import annotations

import pytest

import arbitrag
from arbitrag import Kit, Passage, Strategy
from arbitrag.kit import Limits
from arbitrag.methods.rag import Rag
from arbitrag.testing import FixedRetriever, ScriptedLLM, prompt_text

PASSAGES = tuple(Passage(f"Passage text {number}.", id=str(number)) for number in range(1, 4))


@pytest.mark.parametrize(
    ("reply", "answer", "strategy", "why"),
    [
        ("Oskar Brend", "Oskar Brend", Strategy.EVIDENCE, "the answer is from the passages alone"),
        ("Unknown", None, Strategy.REFUSE, "the passages give no answer"),
        ("\n", None, Strategy.REFUSE, "the passages give no answer"),
    ],
)
async def test_the_passages_answer(reply: str, answer: str | None, strategy: Strategy, why: str) -> None:
    llm = ScriptedLLM([reply])
    verdict = await arbitrag.answer("Who?", Rag(k=2), Kit.of(llm, FixedRetriever(PASSAGES)))
    assert (verdict.answer, verdict.strategy, verdict.why) == (answer, strategy, why)
    assert verdict.kept == PASSAGES[:2]
    assert verdict.candidates[0].passages == ("1", "2")
    assert (verdict.usage.calls, verdict.usage.steps) == (1, 1)
    assert "Passage text 2." in prompt_text(llm.prompts[0])
    assert "Passage text 3." not in prompt_text(llm.prompts[0])


async def test_without_passages_it_refuses_and_asks_nothing() -> None:
    verdict = await arbitrag.answer("Who?", "rag", Kit.of(ScriptedLLM(), FixedRetriever([])))
    assert (verdict.strategy, verdict.why, verdict.usage.calls) == (Strategy.REFUSE, "no passages to read", 0)


async def test_what_did_not_fit_is_named() -> None:
    kit = Kit.of(ScriptedLLM(["x"]), FixedRetriever(PASSAGES), limits=Limits(context_tokens=11))
    verdict = await arbitrag.answer("Who?", "rag", kit)  # a passage is 6 words with its fences
    assert [passage.text for passage in verdict.kept] == ["Passage text 1.", "Passage text"]
    assert [(cut.passage_id, cut.tokens_kept, cut.tokens) for cut in verdict.cuts] == [("2", 5, 6)]
    assert [(drop.passage.id, drop.reason) for drop in verdict.dropped] == [("3", "beyond the token limit")]
