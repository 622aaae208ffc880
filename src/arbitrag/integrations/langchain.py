"""Adapter for LangChain retrievers.

    retriever = from_langchain(store.as_retriever())

A retriever of a vector store is asked for ``k`` passages; any other returns as many as it was made for, and at most
``k`` of them are used. LangChain hands out no embeddings, and a score only where a store writes one into the metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arbitrag.errors import UsageError
from arbitrag.integrations.adapter import AdaptedRetriever, Where, call, passage_of
from arbitrag.types import Passage


def from_langchain(retriever: Any, *, filters: Callable[[Where], Mapping[str, Any]] | None = None) -> AdaptedRetriever:
    """A retriever around a ``BaseRetriever`` or any runnable from a text to documents.

    Each store filters in its own words, so ``filters`` turns a ``where`` into the keyword arguments that this one
    takes, such as ``lambda where: {"filter": dict(where)}``. Without it a ``where`` is refused.
    Raises UsageError for an object that has neither ``ainvoke`` nor ``invoke``.
    """
    invoke = getattr(retriever, "ainvoke", None) or getattr(retriever, "invoke", None)
    if invoke is None:
        raise UsageError(f"{type(retriever).__name__} is no LangChain retriever: it has neither ainvoke nor invoke")

    async def fetch(query: str, k: int, where: Where) -> Sequence[Passage]:
        named: dict[str, Any] = dict(filters(where)) if filters is not None and where else {}
        if hasattr(retriever, "search_kwargs"):
            named["k"] = k
        return [
            passage_of(found.page_content, found.metadata, id=getattr(found, "id", None))
            for found in await call(invoke, query, **named)
        ]

    hint = "Say how it filters: from_langchain(retriever, filters=lambda where: {'filter': dict(where)})"
    return AdaptedRetriever("langchain", retriever, fetch, filters=filters is not None, hint=hint)
