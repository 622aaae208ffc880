"""TrustRAG's first stage by the name of its rule: embed the passages of a question, and keep those that look honest."""

from __future__ import annotations

from collections.abc import Sequence

from arbitrag.errors import unknown
from arbitrag.kit import Kit
from arbitrag.stages.filters.reference import reference
from arbitrag.stages.filters.robust import Filtered, keep_all, robust, similar_for
from arbitrag.types import Passage, Question

FILTERS = ("robust", "reference", "none")


def check_filter(rule: str) -> None:
    """Raises UsageError for a name that is not a filter."""
    if rule not in FILTERS:
        raise unknown("filter", rule, FILTERS)


async def clean(
    question: Question, passages: Sequence[Passage], rule: str, kit: Kit, *, similar: float = 0.0
) -> Filtered:
    """What the rule keeps; embeddings come from the index where it has them.

    ``similar`` is the cosine of the rule robust; 0 stands for the one that belongs to the encoder.
    """
    check_filter(rule)
    if rule == "none" or not passages:
        return keep_all(passages)
    vectors = await kit.embed(passages)
    if rule == "reference":
        return reference(passages, vectors)
    encoder = kit.encoder.name if kit.encoder else ""
    return robust(question, passages, vectors, similar or similar_for(encoder))
