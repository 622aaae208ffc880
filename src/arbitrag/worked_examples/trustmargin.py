"""Worked examples of ``trustmargin``."""

from __future__ import annotations

from arbitrag.worked_examples.case import EVIDENCE, MEMORY, UNKNOWN, Case, MethodExamples, RefusalCase

REPLIES = {"direct/answer": MEMORY, "rag/answer": EVIDENCE}
# Mean log-probabilities per token: memory rejects the passages' answer, but the question binds it to them.
LIKELIHOODS = {
    ("direct/answer", MEMORY): -0.5,
    ("direct/answer", EVIDENCE): -2.5,
    ("rag/answer", MEMORY): -4.0,
    ("rag/answer", EVIDENCE): -0.25,
    ("trustmargin/passages_only", MEMORY): -4.5,
    ("trustmargin/passages_only", EVIDENCE): -2.75,
}
_CASE = Case("trustmargin", REPLIES, LIKELIHOODS)

EXAMPLES = MethodExamples(
    "Asks twice, without and with the passages. Where the answers differ, it measures how likely the "
    "model itself finds each one, and takes the passages' answer unless memory finds it too unlikely.",
    _CASE,
    (
        RefusalCase(
            "nothing was found, and memory's reply is empty", _CASE.but(passages=(), replies={"direct/answer": ""})
        ),
        RefusalCase("both replies are empty", _CASE.but(replies={"direct/answer": "", "rag/answer": ""})),
        RefusalCase(
            "the reply that is chosen only says that it does not know",
            Case("trustmargin", {"direct/answer": UNKNOWN, "rag/answer": UNKNOWN}),
        ),
    ),
)
