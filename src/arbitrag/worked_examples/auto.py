"""Worked examples of ``auto``, which answers as ``rag`` does here."""

from __future__ import annotations

from arbitrag.worked_examples.case import EVIDENCE, Case, MethodExamples
from arbitrag.worked_examples.rag import EXAMPLES as RAG

EXAMPLES = MethodExamples(
    "The method of those who name none. It stands for another method, and answers as that one does.",
    Case("auto", {"rag/answer": EVIDENCE}),
    RAG.refusals,
)
