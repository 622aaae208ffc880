"""Many questions side by side: results in order, a failure is a result too."""

import asyncio

from arbitrag import Question, answer_all, open_kit
from arbitrag.methods import load
from arbitrag.run import Failure

QUESTIONS = [
    Question("Where is Bodax Motors based?", id="q1"),
    Question("  ", id="q2"),  # empty, so it fails
    Question("When was Bolli Systems founded?", id="q3"),
]


async def main() -> None:
    async with open_kit("lab") as kit:
        async for result in answer_all(QUESTIONS, load("direct")(), kit, concurrency=8):
            if isinstance(result, Failure):
                print(result.question.id, "failed:", result.error)
            else:
                print(result.question.id, result.answer)


asyncio.run(main())
