"""Direct: one answer from memory."""

from __future__ import annotations

import pytest

import arbitrag
from arbitrag import Kit, Passage, Question, Strategy
from arbitrag.testing import FixedRetriever, ScriptedLLM, prompt_text


@pytest.mark.parametrize(
    ("reply", "answer", "strategy", "why"),
    [
        ("Answer: Mira Talven.\n", "Mira Talven", Strategy.MEMORY, "only memory was asked"),
        ("I don't know.", None, Strategy.REFUSE, "memory offers no answer"),
        ("", None, Strategy.REFUSE, "memory offers no answer"),
        ("...", None, Strategy.REFUSE, "memory offers no answer"),
    ],
)
async def test_memory_answers_or_declines(reply: str, answer: str | None, strategy: Strategy, why: str) -> None:
    llm = ScriptedLLM([reply])
    verdict = await arbitrag.answer("Who directed it?", "direct", Kit.of(llm, FixedRetriever([Passage("x")])))
    assert (verdict.answer, verdict.strategy, verdict.why) == (answer, strategy, why)
    assert [candidate.origin for candidate in verdict.candidates] == [Strategy.MEMORY]
    assert (verdict.usage.calls, verdict.usage.steps, verdict.usage.generations) == (1, 1, 1)
    assert prompt_text(llm.prompts[0]).endswith("Question: Who directed it?\nAnswer:")


async def test_an_option_is_chosen_by_its_letter_and_one_that_declines_refuses() -> None:
    question = Question("Which?", ("red", "blue", "I don't know"))
    verdict = await arbitrag.answer(question, "direct", Kit.of(ScriptedLLM(["(B)"])))
    assert (verdict.answer, verdict.strategy) == ("blue", Strategy.MEMORY)
    verdict = await arbitrag.answer(question, "direct", Kit.of(ScriptedLLM(["C"])))
    assert (verdict.answer, verdict.strategy) == (None, Strategy.REFUSE)
