"""Adapter for LlamaIndex retrievers.

    retriever = from_llamaindex(index.as_retriever(similarity_top_k=20))

LlamaIndex fixes the number of passages and the filters when a retriever is made: make it with at least the ``k`` that
the method asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arbitrag.errors import UsageError
from arbitrag.integrations.adapter import AdaptedRetriever, Where, call, passage_of
from arbitrag.types import Passage


def from_llamaindex(retriever: Any) -> AdaptedRetriever:
    """A retriever around a ``BaseRetriever``. A ``where`` is refused.

    Raises UsageError for an object that has neither ``aretrieve`` nor ``retrieve``.
    """
    retrieve = getattr(retriever, "aretrieve", None) or getattr(retriever, "retrieve", None)
    if retrieve is None:
        raise UsageError(
            f"{type(retriever).__name__} is no LlamaIndex retriever: it has neither aretrieve nor retrieve"
        )

    async def fetch(query: str, k: int, where: Where) -> Sequence[Passage]:
        return [
            passage_of(
                found.node.get_content(),
                found.node.metadata,
                id=found.node.node_id,
                score=found.score,
                embedding=found.node.embedding,
            )
            for found in await call(retrieve, query)
        ]

    hint = "Make it with its filters: index.as_retriever(filters=MetadataFilters(...))"
    return AdaptedRetriever("llamaindex", retriever, fetch, filters=False, hint=hint)
