"""Adapter for Haystack retriever components.

    retriever = from_haystack(InMemoryBM25Retriever(store))
    retriever = from_haystack(InMemoryEmbeddingRetriever(store), encoder=encoder)

``k`` and ``where`` are passed on as ``top_k`` and ``filters`` where the component's ``run`` takes them.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arbitrag.errors import UsageError
from arbitrag.integrations.adapter import AdaptedRetriever, Where, call, passage_of
from arbitrag.types import Passage

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder


def from_haystack(component: Any, *, encoder: Encoder | None = None) -> AdaptedRetriever:
    """A retriever around a component whose ``run`` takes a ``query``, or a ``query_embedding`` made by ``encoder``.

    ``run_async`` is used where there is one. The encoder stays the caller's to close. Raises UsageError for an object
    that is no such component, and for an embedding retriever without an encoder.
    """
    run = getattr(component, "run_async", None) or getattr(component, "run", None)
    kind = type(component).__name__
    takes = set(inspect.signature(run).parameters) if callable(run) else set()
    if run is None or not takes & {"query", "query_embedding"}:
        raise UsageError(f"{kind} is no Haystack retriever: it has no run(query=...) or run(query_embedding=...)")
    by_vector = "query" not in takes
    if by_vector and encoder is None:
        raise UsageError(
            f"{kind} compares vectors; give the encoder of its documents: from_haystack(component, encoder=…)"
        )

    async def fetch(query: str, k: int, where: Where) -> Sequence[Passage]:
        named: dict[str, Any] = {"query": query}
        if by_vector and encoder is not None:
            named = {"query_embedding": (await encoder.encode([query], kind="query"))[0].tolist()}
        if "top_k" in takes:
            named["top_k"] = k
        if where:
            named["filters"] = _filters(where)
        reply = await call(run, **named)
        return [
            passage_of(found.content, found.meta, id=found.id, score=found.score, embedding=found.embedding)
            for found in reply["documents"]
        ]

    hint = "Its run() has no 'filters'; make the component with the filters it needs."
    return AdaptedRetriever("haystack", component, fetch, filters="filters" in takes, hint=hint)


def _filters(where: Where) -> dict[str, Any]:
    """``where`` in Haystack's filter language."""
    conditions = [{"field": f"meta.{key}", "operator": "==", "value": value} for key, value in where.items()]
    return {"operator": "AND", "conditions": conditions}
