"""Worked examples of ``direct``."""

from __future__ import annotations

from arbitrag.worked_examples.case import MEMORY, UNKNOWN, Case, MethodExamples, RefusalCase

_CASE = Case("direct", {"direct/answer": MEMORY}, passages=())

EXAMPLES = MethodExamples(
    "Asks the model without any passages, and takes what it says. What it does not know, it may invent.",
    _CASE,
    (RefusalCase("the model's reply only says that it does not know", _CASE.but(replies={"direct/answer": UNKNOWN})),),
)
