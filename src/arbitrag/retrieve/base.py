"""What a retriever is: a name, and passages for a query, best first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from arbitrag.errors import UsageError
from arbitrag.types import Passage


class Retriever(Protocol):
    """A search over passages. Calls are safe to make concurrently from one event loop."""

    name: str
    identity: str

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        """At most ``k`` passages, best first, with ``score`` set. An empty result is an answer, not an error.

        ``where`` keeps only passages whose metadata has each of these values. Raises UsageError for a ``k`` below 1.
        """
        ...

    async def aclose(self) -> None: ...


def check_k(k: int) -> None:
    """Raise UsageError for a number of passages below 1."""
    if k < 1:
        raise UsageError(f"k is {k}; ask for 1 or more passages (the method 'direct' reads none)")
