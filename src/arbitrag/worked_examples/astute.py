"""Worked examples of ``astute``."""

from __future__ import annotations

from arbitrag.worked_examples.case import UNKNOWN, UNREADABLE, Case, MethodExamples, RefusalCase

_CASE = Case(
    "astute",
    {
        "astute/recall": "passage: I recall that Mira Talven made it.",
        "astute/answer": "group: Oskar Brend | sources: 1, 2 | confidence: 85\n"
        "group: Mira Talven | sources: memory | confidence: 10\nanswer: Oskar Brend",
    },
)

EXAMPLES = MethodExamples(
    "The model writes a passage of its own from memory, sorts it and the passages into groups that say the "
    "same, gives each group a confidence, and answers from the best one.",
    _CASE,
    (
        RefusalCase(
            "nothing was found, and memory wrote no passage",
            _CASE.but(passages=(), replies={"astute/recall": UNKNOWN}),
        ),
        RefusalCase(
            "no group of documents supports an answer",
            _CASE.but(replies={"astute/answer": "group: rivers | sources: 3 | confidence: 5\nanswer: I don't know"}),
        ),
        RefusalCase(
            "the last reply could not be read, nor put into its form",
            _CASE.but(replies={"astute/answer": UNREADABLE, "reading/repair": UNREADABLE}),
        ),
    ),
)
