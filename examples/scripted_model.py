"""Test your own code without a model: a scripted one says what it is told, and keeps what it was asked."""

import asyncio

from arbitrag import Kit, Passage, Strategy, answer
from arbitrag.testing import FixedRetriever, ScriptedLLM


async def test_mild_doubt_lets_the_passages_win() -> None:
    llm = ScriptedLLM(
        {"passages below": "Oskar Brend", "Question": "Mira Talven"},  # a piece of the prompt, and the reply to it
        likelihoods={"Oskar Brend": -2.0, "Mira Talven": -1.0},
    )
    kit = Kit.of(llm, FixedRetriever([Passage("Oskar Brend directed it.", id="1")]))

    verdict = await answer("Who directed it?", "trustmargin", kit)

    assert verdict.answer == "Oskar Brend"
    assert verdict.strategy is Strategy.EVIDENCE
    assert verdict.scores["margin"] == -1.0
    assert len(llm.prompts) == 5


asyncio.run(test_mild_doubt_lets_the_passages_win())
print("passed")
