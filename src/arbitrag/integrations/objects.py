"""Retrievers and passages that a caller in Python gives: a list, or any object with ``retrieve(query, k)``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from arbitrag.encode.base import Encoder
from arbitrag.errors import UsageError, described
from arbitrag.integrations.adapter import AdaptedRetriever, Where, call
from arbitrag.integrations.haystack import from_haystack
from arbitrag.integrations.langchain import from_langchain
from arbitrag.integrations.llamaindex import from_llamaindex
from arbitrag.retrieve.base import Retriever
from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.types import Passage


def retriever_of(given: Any, argument: str = "index", *, encoder: Encoder | None = None) -> Retriever:
    """What ``index=`` takes beside an address or a path: a retriever of ours or of another framework, an object whose
    ``retrieve(query, k)`` gives passages or texts, or a list of those.

    ``argument`` is what an error calls it; ``encoder`` is for retrievers that take vectors. Raises UsageError for
    anything else.
    """
    if isinstance(given, list | tuple):
        return FixedRetriever(passages_of(given, argument))
    if isinstance(given, type | Mapping):
        raise _strange(given, argument)
    if all(hasattr(given, name) for name in ("name", "identity", "retrieve", "aclose")):
        return cast(Retriever, given)
    if hasattr(given, "aretrieve"):
        return from_llamaindex(given)
    if callable(getattr(given, "retrieve", None)):
        return _around(given)
    if hasattr(given, "ainvoke") or hasattr(given, "invoke"):
        return from_langchain(given)
    if callable(getattr(given, "run", None)):
        return from_haystack(given, encoder=encoder)
    raise _strange(given, argument)


def passages_of(given: Sequence[Passage | str], argument: str = "passages") -> list[Passage]:
    """Passages, and texts as passages; one without an id is called by its number. Raises UsageError for others."""
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise UsageError(f"{argument}= takes a list of passages or texts; got {described(given)}")
    found: list[Passage] = []
    for number, each in enumerate(given, 1):
        if not isinstance(each, Passage | str):
            raise UsageError(f"{argument}= takes passages or texts; its item {number} is {described(each)}")
        passage = Passage(each) if isinstance(each, str) else each
        found.append(passage if passage.id else replace(passage, id=str(number)))
    return found


def _around(wrapped: Any) -> Retriever:
    """A retriever around an object with ``retrieve(query, k)``, or ``retrieve(query, k, where)``, awaited or not."""
    takes = inspect.signature(wrapped.retrieve).parameters
    filters = "where" in takes

    async def fetch(query: str, k: int, where: Where) -> Sequence[Passage]:
        named = {"where": where} if filters else {}
        found = await call(wrapped.retrieve, query, k, **named)
        return passages_of(list(found), f"{type(wrapped).__name__}.retrieve: it")

    hint = "Give its retrieve a third parameter, where, or leave the filter out."
    return AdaptedRetriever("own", wrapped, fetch, filters=filters, hint=hint)


def _strange(given: Any, argument: str) -> UsageError:
    return UsageError(
        f"{argument}= takes an address, a path, a retriever (an object with retrieve(query, k)), or a list of passages "
        f"or texts; got {described(given)}"
    )
