"""A retriever over a fixed list of passages, which it returns for every question."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from arbitrag.retrieve.base import check_k
from arbitrag.text import encodable
from arbitrag.types import Passage


class FixedRetriever:
    """Returns the first ``k`` of its passages, whatever is asked."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._passages = tuple(passages)
        self.name = f"{len(self._passages)} given passages"
        texts = "\x00".join(f"{passage.title}\x01{passage.text}" for passage in self._passages)
        self.identity = f"fixed:{hashlib.sha256(encodable(texts).encode()).hexdigest()[:16]}"

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        check_k(k)
        wanted = (where or {}).items()
        return tuple(passage for passage in self._passages if wanted <= passage.metadata.items())[:k]

    async def aclose(self) -> None:
        pass
