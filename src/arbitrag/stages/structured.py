"""Ask a model for a structured reply, one in a stated form, and parse it.

A prompt file's section ``=== form`` says what the reply looks like, and a ``Form`` (``arbitrag.stages.parsing``) reads
it or raises ``ParseError`` with the reason. A reply that cannot be parsed is shown to the model once more, fenced, with
the reason and the form, to be put into that form; the prompt of that is ``reading/repair``. What cannot be parsed then
either is a parse failure: it is counted, both replies are in the trace, and the method goes on by a rule that its
verdict states.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from arbitrag.kit import Model
from arbitrag.prompts import Field
from arbitrag.stages.parsing.grammar import Form, Parsed, ParseError
from arbitrag.text import one_line
from arbitrag.types import Question

T = TypeVar("T")

REPAIR = "reading/repair"


async def ask_structured(
    model: Model, prompt: str, form: Form[T], question: Question, *, max_tokens: int | None = None, **fields: Field
) -> Parsed[T]:
    """Ask the prompt called ``prompt`` and parse the reply by ``form``: 1 call, or 2 in a row for a repair.

    ``max_tokens`` is the run's limit for writing unless it is given; ``fields`` are the prompt's, beside its question.
    """
    limit = model.limits.writing_tokens if max_tokens is None else max_tokens
    shown = model.book.find(prompt).form
    reply = await model.generate(model.prompt(prompt, question=question, **fields), max_tokens=limit)
    try:
        return replace(form.parse(reply.text, shown), prompt=prompt)
    except ParseError as error:
        problem = str(error)

    again = model.prompt(REPAIR, question=question, reply=reply.text, problem=problem, form=shown)
    reply = await model.generate(again, max_tokens=limit)
    try:
        return replace(form.parse(reply.text, shown), prompt=prompt, problems=(problem,))
    except ParseError as error:
        return Parsed(None, prompt=prompt, problems=(problem, str(error)))


def counts(*replies: Parsed[Any]) -> dict[str, float]:
    """Scores for a verdict: the number of replies that were repaired, and of those that could not be read."""
    return {
        "repaired": float(sum(len(reply.problems) == 1 for reply in replies)),
        "parse_failures": float(sum(reply.failed for reply in replies)),
    }


def notes(*replies: Parsed[Any]) -> tuple[str, ...]:
    """Notes for a verdict: every reply that could not be read, with the prompt's name and the reasons."""
    return tuple(
        f"the reply to {reply.prompt} could not be read ({one_line(reply.problems[0])}); the second reply could "
        + (f"not be read either ({one_line(reply.problems[1])})" if reply.failed else "be read")
        for reply in replies
        if reply.problems
    )
