"""What a retriever is: a name, and passages for a query, best first."""

from __future__ import annotations

from typing import Protocol

from arbitrag.types import Passage


class Retriever(Protocol):
    """Calls are safe to make concurrently from one event loop. ``name`` is for people; ``identity`` for run records."""

    name: str
    identity: str

    async def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """At most ``k`` passages, best first, with ``score`` set. An empty result is an answer, not an error."""
        ...

    async def aclose(self) -> None: ...
