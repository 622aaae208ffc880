"""Passages from your own retriever, several questions at once, in an event loop."""

import asyncio

from arbitrag import Passage, answer, open_kit

PASSAGES = [
    Passage("The chief executive of Solvond Labs is Jurjert Drubrourt.", id="a", source="companies/solvond.md", line=3),
    Passage("Solvond Labs was founded in 1987.", id="b", source="companies/solvond.md", line=5),
]
QUESTIONS = ["Which person is chief executive of Solvond Labs?", "When was Solvond Labs founded?"]


async def main() -> None:
    async with open_kit("lab", passages=PASSAGES) as kit:
        verdicts = await asyncio.gather(*(answer(question, "rag", kit) for question in QUESTIONS))
    for verdict in verdicts:
        print(verdict.question.text, "->", verdict.answer)


asyncio.run(main())
