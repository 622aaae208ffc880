"""Worked examples of ``stack``."""

from __future__ import annotations

from arbitrag.worked_examples.case import COPIES, PASSAGES, UNKNOWN, Case, MethodExamples, RefusalCase
from arbitrag.worked_examples.trustmargin import LIKELIHOODS, REPLIES

_CASE = Case("stack", REPLIES, LIKELIHOODS, (*COPIES, *PASSAGES))

EXAMPLES = MethodExamples(
    "Joins parts of the other methods: a gate that may skip the search, a filter, a reranker, any method to "
    "decide, and a rule of refusal.",
    _CASE,
    (
        RefusalCase("its arbiter gives no answer", Case("stack arbiter=rag", {"rag/answer": UNKNOWN})),
        RefusalCase(
            "with refusal=agreement: memory and the passages do not say the same", _CASE.but("refusal=agreement")
        ),
        RefusalCase(
            "with refusal=number: that number of the verdict is below least",
            _CASE.but('refusal="number of=margin least=0"'),
        ),
    ),
)
