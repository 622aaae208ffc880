"""What a retriever is: a name, and passages for a query, best first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from arbitrag.types import Passage


class Retriever(Protocol):
    """Calls are safe to make concurrently from one event loop. ``name`` is for people; ``identity`` for run records."""

    name: str
    identity: str

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        """At most ``k`` passages, best first, with ``score`` set. An empty result is an answer, not an error.

        ``where`` keeps only passages whose metadata has each of these values.
        """
        ...

    async def aclose(self) -> None: ...
