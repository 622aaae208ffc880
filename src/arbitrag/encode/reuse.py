"""Reuse vectors: of passages that an index has encoded, and of pools of texts that every question is compared with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from arbitrag.encode.base import Encoder, encoded_text
from arbitrag.errors import DataError
from arbitrag.types import Passage

if TYPE_CHECKING:
    import numpy as np


def stored_vectors(passages: Sequence[Passage], encoder: Encoder) -> dict[str, np.ndarray]:
    """The vectors that this encoder made before, (width,) float32, by the text that it read."""
    import numpy as np

    return {
        encoded_text(passage): np.asarray(passage.embedding, np.float32)
        for passage in passages
        if passage.embedding is not None and passage.embedded_by == encoder.identity
    }


async def encode_passages(passages: Sequence[Passage], encoder: Encoder) -> np.ndarray:
    """Vectors (passages, width) float32: those that this encoder made before, and the others in one call."""
    import numpy as np

    if not passages:
        return np.empty((0, encoder.width or 0), np.float32)
    stored = stored_vectors(passages, encoder)
    texts = [encoded_text(passage) for passage in passages]
    fresh = [text for text in texts if text not in stored]
    rows = iter(await encoder.encode(fresh, kind="passage") if fresh else ())
    return np.stack([stored[text] if text in stored else np.asarray(next(rows), np.float32) for text in texts])


class Pool:
    """Texts that are read and encoded at the first question, and kept in memory."""

    def __init__(self, read: Callable[[], Sequence[Passage]], encoder: Encoder) -> None:
        self._read = read
        self._encoder = encoder
        self._lock = asyncio.Lock()
        self._encoded: tuple[Sequence[Passage], np.ndarray] | None = None

    async def nearest(self, query: str, k: int) -> tuple[Passage, ...]:
        """The ``k`` passages with the highest cosine to the query, which is their score; equal ones in their order."""
        import numpy as np

        passages, vectors = await self._ready()
        asked = (await self._encoder.encode([query], kind="query"))[0]
        scores = np.round(vectors @ asked, 6)  # the last bits depend on the machine
        best = np.argsort(-scores, kind="stable")[:k]
        return tuple(replace(passages[row], score=float(scores[row])) for row in best)

    async def _ready(self) -> tuple[Sequence[Passage], np.ndarray]:
        async with self._lock:
            if self._encoded is None:
                passages = self._read()
                if not passages:
                    raise DataError("there are no examples to compare a question with")
                texts = [passage.text for passage in passages]
                self._encoded = passages, await self._encoder.encode(texts, kind="query")
        return self._encoded
