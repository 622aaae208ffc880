"""Hybrid retrieval: two retrievers asked concurrently, joined by reciprocal rank fusion.

Reciprocal rank fusion: a passage's score is

    sum over the retrievers that returned it of 1 / (k0 + rank),   rank counted from 1

with k0 = 60. Only ranks matter, so scores on different scales (BM25 and cosines) need no tuning.
Reference: Cormack, Clarke and Büttcher 2009, "Reciprocal rank fusion outperforms Condorcet and individual rank
learning methods".
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from arbitrag.errors import UsageError
from arbitrag.retrieve.base import Retriever, check_k
from arbitrag.types import Passage


class HybridRetriever:
    """Joins two retrievers over the same passages by reciprocal rank fusion; usually BM25 and vectors.

    ``fetch`` passages are asked of each (at least as many as are wanted in the end). Passages are the same
    when their ``identity`` is. Among equal scores a passage of the first retriever comes first,
    then the better rank.
    """

    def __init__(self, first: Retriever, second: Retriever, *, k0: int = 60, fetch: int = 100) -> None:
        """Raises UsageError for a negative ``k0``, or when nothing would be fetched."""
        if k0 < 0 or fetch < 1:
            raise UsageError(f"k0 is at least 0 and fetch at least 1; got {k0} and {fetch}")
        self._first = first
        self._second = second
        self._k0 = k0
        self._fetch = fetch
        self.name = f"hybrid of {first.name} and {second.name}"
        self.identity = self._named()

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        """The ``k`` passages with the highest fused scores. An error of either retriever is raised."""
        check_k(k)
        fetch = max(self._fetch, k)
        found = await asyncio.gather(
            self._first.retrieve(query, fetch, where), self._second.retrieve(query, fetch, where)
        )
        self.identity = self._named()
        return fuse(found, k0=self._k0)[:k]

    async def aclose(self) -> None:
        await asyncio.gather(self._first.aclose(), self._second.aclose())

    def _named(self) -> str:
        return f"rrf{self._k0}x{self._fetch}({self._first.identity}, {self._second.identity})"


def fuse(rankings: Sequence[Sequence[Passage]], *, k0: int = 60) -> tuple[Passage, ...]:
    """All passages of the rankings, each once, by falling fused score, which becomes their ``score``.

    Where the rankings differ about a passage, the first one's is kept, with the embedding of whichever has one.
    """
    scores: dict[Hashable, float] = {}
    passages: dict[Hashable, Passage] = {}
    for ranking in rankings:
        seen: set[Hashable] = set()
        for rank, passage in enumerate(ranking, start=1):
            same = passage.identity
            if same in seen:  # a retriever that repeats itself does not vote twice
                continue
            seen.add(same)
            scores[same] = scores.get(same, 0.0) + 1 / (k0 + rank)
            known = passages.setdefault(same, passage)
            if known.embedding is None and passage.embedding is not None:
                passages[same] = replace(known, embedding=passage.embedding, embedded_by=passage.embedded_by)
    # The sort is stable, and the dictionary is in the order of the rankings.
    ordered = sorted(scores, key=lambda same: -scores[same])
    return tuple(replace(passages[same], score=scores[same]) for same in ordered)
