"""Worked examples of ``rag``."""

from __future__ import annotations

from arbitrag.worked_examples.case import EVIDENCE, UNKNOWN, Case, MethodExamples, RefusalCase

EXAMPLES = MethodExamples(
    "Shows the model the passages, and takes what it says, even where they are wrong or planted.",
    Case("rag", {"rag/answer": EVIDENCE}),
    (
        RefusalCase("nothing was found, or nothing fits into the limits", Case("rag", {}, passages=())),
        RefusalCase("the model's reply only says that it does not know", Case("rag", {"rag/answer": UNKNOWN})),
    ),
)
