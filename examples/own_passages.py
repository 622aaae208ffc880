"""Passages from your own retriever, several questions at once, in an event loop."""

import asyncio

from arbitrag import Passage, answer, open_kit

PASSAGES = [
    Passage("The chief executive of Bronwot Airlines is Shupeo Cicul.", id="a", source="companies/bronwot.md", line=3),
    Passage("Bronwot Airlines was founded in 1987.", id="b", source="companies/bronwot.md", line=5),
]
QUESTIONS = ["Which person is chief executive of Bronwot Airlines?", "When was Bronwot Airlines founded?"]


async def main() -> None:
    async with open_kit("lab", passages=PASSAGES) as kit:
        verdicts = await asyncio.gather(*(answer(question, "rag", kit) for question in QUESTIONS))
    for verdict in verdicts:
        print(verdict.question.text, "->", verdict.answer)


asyncio.run(main())
