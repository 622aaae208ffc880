"""Ask a model for a reply in a stated form, and read it strictly.

A prompt file's section ``=== form`` says what the reply looks like, and a parser (a pure function from the reply to a
value) reads it or raises ``Unreadable`` with the reason. An unreadable reply is shown to the model once more, fenced,
with the reason and the form, to be put into that form; the prompt of that is ``reading/repair``. What cannot be read
then either is a parse failure: it is counted, both replies are in the trace, and the method goes on by a rule that its
verdict states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from arbitrag.kit import Model
from arbitrag.prompts import Field
from arbitrag.text import one_line
from arbitrag.types import Question

T = TypeVar("T")
D = TypeVar("D")
Parser = Callable[[str], T]

REPAIR = "reading/repair"


class Unreadable(ValueError):
    """A reply does not have its form; the text is the reason, such as ``there are two lines 'answer:'``."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """What was read from the reply to the prompt called ``prompt``.

    ``problems`` has the reason of each reply that could not be read: none, one when the second try was read, or two,
    and then there is no value.
    """

    prompt: str
    value: T | None
    problems: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return len(self.problems) == 2

    def value_or(self, default: D) -> T | D:
        """The value, or ``default`` where nothing could be read."""
        return default if self.failed else self.value  # type: ignore[return-value]


async def read_reply(
    model: Model, prompt: str, parse: Parser[T], question: Question, *, max_tokens: int | None = None, **fields: Field
) -> Reading[T]:
    """Ask the prompt called ``prompt`` and read the reply with ``parse``: 1 call, or 2 in a row when it is unreadable.

    ``max_tokens`` is the run's limit for writing unless it is given; ``fields`` are the prompt's, beside its question.
    """
    limit = model.limits.writing_tokens if max_tokens is None else max_tokens
    file = model.book.find(prompt)
    reply = await model.generate(model.prompt(prompt, question=question, **fields), max_tokens=limit)
    try:
        return Reading(prompt, parse(reply.text))
    except Unreadable as error:
        problem = str(error)

    again = model.prompt(REPAIR, question=question, reply=reply.text, problem=problem, form=file.form)
    reply = await model.generate(again, max_tokens=limit)
    try:
        return Reading(prompt, parse(reply.text), (problem,))
    except Unreadable as error:
        return Reading(prompt, None, (problem, str(error)))


def counts(*readings: Reading[Any]) -> dict[str, float]:
    """For the scores of a verdict: how many replies were put into form by a second try, and how many were not."""
    return {
        "repaired": float(sum(len(reading.problems) == 1 for reading in readings)),
        "parse_failures": float(sum(reading.failed for reading in readings)),
    }


def notes(*readings: Reading[Any]) -> tuple[str, ...]:
    """For the notes of a verdict: every reply that could not be read, with the prompt's name and the reasons."""
    return tuple(
        f"the reply to {reading.prompt} could not be read ({one_line(reading.problems[0])}); "
        + (f"asked again, neither ({one_line(reading.problems[1])})" if reading.failed else "it could when asked again")
        for reading in readings
        if reading.problems
    )
