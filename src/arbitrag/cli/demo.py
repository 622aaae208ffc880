"""``arbitrag demo``: four questions on which memory and the passages disagree, answered by the embedded model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arbitrag.cli.options import AsJson

if TYPE_CHECKING:
    from arbitrag.lab.model import DemoCase
    from arbitrag.types import Verdict

EXAMPLE = "arbitrag demo"


def demo(as_json: AsJson = False) -> None:
    """Answer four questions with the embedded model.

    One for each case: memory is right, the evidence is right, the evidence is poisoned, neither is right.
    """
    import asyncio

    from arbitrag.cli.terminal.output import say, say_json, waiting

    with waiting("Answering four questions"):
        answered = asyncio.run(_answered())
    if as_json:
        rows = [
            {"title": case.title, "truth": case.truth, "lesson": case.lesson, **verdict.to_dict()}
            for case, verdict in answered
        ]
        say_json(rows)
        return
    say("The embedded model, a small one that was trained on an invented world, answers.\n")
    say("\n\n".join(_told(number, case, verdict) for number, (case, verdict) in enumerate(answered, 1)))
    say('\nAsk it yourself:         arbitrag ask "…" --llm lab --index lab')
    say("Ask your own documents:  arbitrag index ./docs -o docs.idx")


async def _answered() -> list[tuple[DemoCase, Verdict]]:
    from arbitrag.lab.model import demo_cases, demo_kit, open_lab
    from arbitrag.methods import load
    from arbitrag.run import answer

    llm = open_lab()
    try:
        return [
            (case, await answer(case.question, load(case.method)(), demo_kit(llm, case.passages)))
            for case in demo_cases()
        ]
    finally:
        await llm.aclose()


def _told(number: int, case: DemoCase, verdict: Verdict) -> str:
    import textwrap

    from arbitrag.cli.terminal.output import width
    from arbitrag.cli.verdict import render

    columns = width()
    return "\n".join(
        [
            *textwrap.wrap(f"{number}. {case.title}", columns),
            *textwrap.wrap(f"Question  {case.question}", columns, subsequent_indent=" " * 10),
            render(verdict, columns),
            *textwrap.wrap(f"Truth     {case.truth}", columns, subsequent_indent=" " * 10),
            *textwrap.wrap(f"Lesson    {case.lesson}", columns, subsequent_indent=" " * 10),
        ]
    )
