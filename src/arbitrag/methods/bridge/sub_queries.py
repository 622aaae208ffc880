"""Deduplicate sub-queries: paraphrases of a question."""

from __future__ import annotations

from collections.abc import Sequence

from arbitrag.text import normalize_answer


def distinct(queries: Sequence[str], question: str) -> tuple[str, ...]:
    """The queries that repeat neither the question nor one before, in their order; the question when none is left."""
    seen, kept = {normalize_answer(question)}, []
    for query in queries:
        words = normalize_answer(query)
        if words not in seen:
            seen.add(words)
            kept.append(query)
    return tuple(kept) or (question,)
