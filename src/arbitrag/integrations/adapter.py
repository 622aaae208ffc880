"""The base of the adapters: a retriever around another framework's, and its metadata as a ``Passage``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from arbitrag.errors import ArbitragError, BackendError, CapabilityError
from arbitrag.retrieve.base import check_k
from arbitrag.retrieve.stored_passage import flat, passage_id
from arbitrag.text import one_line
from arbitrag.types import Passage

Where = Mapping[str, str]
Fetch = Callable[[str, int, Where], Awaitable[Sequence[Passage]]]

# Where frameworks and their loaders keep what a passage has a field for; the first name that is there counts.
_TITLE = ("title",)
_SOURCE = ("source", "file_path", "url", "file_name")
_DATE = ("date", "last_modified_date", "creation_date", "published", "timestamp")
_PAGE = ("page_label", "page_number", "page")  # LangChain's page counts from 0, its label is what is printed
_SCORE = ("score", "_score", "relevance_score", "similarity")


class AdaptedRetriever:
    """A retriever of ours around one of another framework; ``from_langchain`` and its like make it.

    Where the framework gives no score, a passage's score is 1 divided by its place. The other retriever stays the
    caller's to close.
    """

    def __init__(self, kind: str, wrapped: object, fetch: Fetch, *, filters: bool, hint: str) -> None:
        """``filters`` says that ``fetch`` passes a ``where`` on; ``hint`` what to do where it does not."""
        self.name = f"{kind}:{type(wrapped).__name__}"
        self.identity = f"{kind}:{type(wrapped).__module__}.{type(wrapped).__qualname__}"
        self._fetch = fetch
        self._filters = filters
        self._hint = hint

    async def retrieve(self, query: str, k: int, where: Where | None = None) -> tuple[Passage, ...]:
        """At most ``k`` passages in the framework's order.

        Raises CapabilityError for a ``where`` that cannot be passed on, and BackendError for whatever the other
        retriever raised.
        """
        if where and not self._filters:
            raise CapabilityError(
                f"{self.name} was asked for {one_line(str(dict(where)))}, but it takes no filter.\n{self._hint}"
            )
        check_k(k)
        if not query.strip():  # some frameworks refuse an empty query
            return ()
        try:
            found = await self._fetch(query, k, where or {})
        except ArbitragError:
            raise
        except Exception as error:  # anything can come out of somebody else's retriever
            said = one_line(str(error), 300)
            raise BackendError(f"{self.name} failed: {type(error).__name__}: {said}") from error
        return tuple(_placed(passage, place) for place, passage in enumerate(found[:k], start=1))

    async def aclose(self) -> None:
        pass


async def call(method: Callable[..., Any], *positional: Any, **named: Any) -> Any:
    """A method of the other framework: awaited where it is async, in a thread where it would block."""
    if inspect.iscoroutinefunction(method):
        return await method(*positional, **named)
    reply = await asyncio.to_thread(method, *positional, **named)
    return await reply if inspect.isawaitable(reply) else reply  # an async method behind a plain decorator


def passage_of(
    text: Any, metadata: Mapping[str, Any] | None, *, id: str | None, score: Any = None, embedding: Any = None
) -> Passage:
    """A passage from a framework's document. Metadata becomes text; a page number is kept under ``page``.

    Raises ValueError for a document without text.
    """
    if not isinstance(text, str):
        raise ValueError(f"it returned a document whose text is of type {type(text).__name__}")
    known = flat(metadata or {})
    if page := _first(known, _PAGE):
        known["page"] = page
    return Passage(
        text=text,
        id=id or known.get("id", ""),
        title=_first(known, _TITLE),
        source=_first(known, _SOURCE),
        score=_number(score if score is not None else _first(known, _SCORE)),
        date=_first(known, _DATE),
        metadata=known,
        embedding=_vector(embedding),
    )


def _placed(passage: Passage, place: int) -> Passage:
    score = 1 / place if passage.score is None else passage.score
    return replace(passage, id=passage_id(passage), score=score)


def _first(known: Mapping[str, str], names: Sequence[str]) -> str:
    return next((known[name] for name in names if known.get(name)), "")


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _vector(embedding: Any) -> Any:
    if embedding is None:
        return None
    import numpy as np

    return np.asarray(embedding, np.float32)
