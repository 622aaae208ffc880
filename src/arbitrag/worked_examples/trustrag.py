"""Worked examples of ``trustrag``."""

from __future__ import annotations

from arbitrag.worked_examples.case import (
    COPIES,
    PASSAGES,
    UNKNOWN,
    UNREADABLE,
    Case,
    MethodExamples,
    RefusalCase,
)

_CASE = Case(
    "trustrag",
    {
        "trustrag/memory": "passage: I recall that Oskar Brend made it.",
        "trustrag/consolidate": "group: Oskar Brend directed it | sources: 1, 2, memory\n"
        "drop: 3 | reason: another topic",
        "trustrag/assess": "trust: both\nanswer: Oskar Brend",
    },
    passages=(*COPIES, *PASSAGES),
)

EXAMPLES = MethodExamples(
    "Drops passages that look planted, by their words and without the model. Then the model writes what it "
    "knows, groups the passages that agree, and says which source it trusts.",
    _CASE,
    (
        RefusalCase(
            "filter and model left none of the passages, and memory holds nothing",
            _CASE.but(passages=(), replies={"trustrag/memory": UNKNOWN}),
        ),
        RefusalCase(
            "the model trusts no answer", _CASE.but(replies={"trustrag/assess": "trust: both\nanswer: I don't know"})
        ),
        RefusalCase(
            "the last reply could not be read, nor put into its form",
            _CASE.but(replies={"trustrag/assess": UNREADABLE, "reading/repair": UNREADABLE}),
        ),
        RefusalCase("with resolve=false: nothing is left to read", _CASE.but("resolve=false", ())),
        RefusalCase(
            "with resolve=false: the reply only says that it does not know",
            _CASE.but("resolve=false", replies={"rag/answer": UNKNOWN}),
        ),
    ),
)
