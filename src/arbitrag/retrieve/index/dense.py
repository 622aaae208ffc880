"""Search by vectors: the passages of an index whose embeddings are nearest to that of the query, by cosine.

Up to 50,000 passages every product is computed, beyond that those of candidates (see ``codes``). A filter that leaves
at most 50,000 passages is searched exactly over these, however many the index holds.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from arbitrag.encode.base import Encoder
from arbitrag.errors import IndexFileError
from arbitrag.retrieve.base import Retriever, check_k
from arbitrag.retrieve.index.bm25 import Bm25Index
from arbitrag.retrieve.index.codes import CANDIDATES, Codes, open_codes
from arbitrag.retrieve.index.manifest import VECTORS, VECTORS_FILE
from arbitrag.retrieve.index.vectors import EXACT_ROWS, CommittedVectors, VectorManifest, passage_key, settled
from arbitrag.text import printable
from arbitrag.types import Passage


class StoredVectors:
    """The vectors of one index folder, opened again when a later commit is there. Safe for several threads."""

    def __init__(self, index: Path) -> None:
        """Raises IndexFileError when the index holds none, or when they are damaged."""
        self._folder = index / VECTORS
        self._lock = threading.Lock()
        self._opened = self._open()

    def current(self) -> tuple[CommittedVectors, Codes | None]:
        """The last committed rows, and their codes."""
        with self._lock:
            stamp = _stamp(self._folder)
            if stamp and stamp != self._opened.stamp:
                self._opened = self._open()
            return self._opened.vectors, self._opened.codes

    def _open(self) -> _Opened:
        stamp = _stamp(self._folder)  # before anything is read: what changes from here on is seen next time

        def both(manifest: VectorManifest) -> _Opened:
            vectors = CommittedVectors(self._folder, manifest)
            return _Opened(stamp, vectors, open_codes(self._folder, vectors))

        return settled(self._folder, both)

    def attach(self, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        """The passages, each with its stored embedding, (width,) float32; as they are where none is stored."""
        vectors, _ = self.current()
        rows = vectors.rows_of([passage_key(passage) for passage in passages])
        found = iter(vectors.take(rows[rows >= 0]))
        return tuple(
            passage if row < 0 else replace(passage, embedding=next(found), embedded_by=vectors.manifest.identity)
            for passage, row in zip(passages, rows, strict=True)
        )


@dataclass(frozen=True)
class _Opened:
    stamp: tuple[int, ...]
    vectors: CommittedVectors
    codes: Codes | None


class DenseIndex:
    """A retriever over an index with vectors; passages carry their ``embedding``.

    A passage's score is the cosine of its vector and the query's. Equal scores come in the order in which the passages
    were first indexed.
    """

    def __init__(
        self, texts: Bm25Index, vectors: StoredVectors, encoder: Encoder, folder: Path, *, closes: bool = True
    ) -> None:
        """``closes`` says whether the encoder is closed with the index.

        Raises IndexFileError when it is not the encoder that the index was made with.
        """
        vectors.current()[0].manifest.check(encoder, folder / VECTORS)
        self.name = f"dense:{printable(str(folder))}"
        self._texts = texts
        self._vectors = vectors
        self.encoder = encoder
        self._folder = folder
        self._closes = closes
        self.identity = self._named()

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        """The ``k`` nearest passages, nearest first.

        A query that gives no vector (the ``hash`` encoder and a text without words) finds nothing. Raises
        BackendError when the encoder fails, IndexFileError when the index is damaged or the vector has another width.
        """
        check_k(k)
        vector = (await self.encoder.encode([query], kind="query"))[0]
        vectors, _ = self._vectors.current()
        if len(vector) != vectors.manifest.width:
            raise IndexFileError(
                f"the vectors of {printable(str(self._folder))} are {vectors.manifest.width} wide, "
                f"{printable(self.encoder.name)} gave one of {len(vector)}"
            )
        if not vector.any():
            return ()
        found = await asyncio.to_thread(self._search, vector, k, where or {})
        self.identity = self._named()
        return found

    async def aclose(self) -> None:
        if self._closes:
            await self.encoder.aclose()

    def _named(self) -> str:
        _, codes = self._vectors.current()
        how = "exact" if codes is None else f"codes{CANDIDATES}"
        return f"dense:{self._texts.identity}:{self.encoder.identity}:{how}"

    def _search(self, query: np.ndarray, k: int, where: Mapping[str, str]) -> tuple[Passage, ...]:
        vectors, codes = self._vectors.current()
        wanted = k
        while True:
            rows, scores = nearest(vectors, codes, query, wanted, where)
            # A row may belong to a passage that is gone, so some more are looked at when too few were found.
            found = self._passages(vectors, rows, scores)
            if len(found) >= k or len(rows) < wanted:
                return found[:k]
            wanted *= 4

    def _passages(self, vectors: CommittedVectors, rows: np.ndarray, scores: np.ndarray) -> tuple[Passage, ...]:
        keys = [int(key) for key in vectors.keys[rows]]
        known = self._texts.passages_by_key(keys)
        embeddings = vectors.take(rows)
        return tuple(
            replace(
                known[key],
                score=round(float(score), 6),
                embedding=embedding,
                embedded_by=vectors.manifest.identity,
            )
            for key, score, embedding in zip(keys, scores, embeddings, strict=True)
            if key in known
        )


class WithEmbeddings:
    """Another retriever over the same index, whose passages then carry their stored ``embedding``.

    ``encoder`` is the one that made them. It is closed with the retriever, unless ``inner`` does it.
    """

    def __init__(self, inner: Retriever, vectors: StoredVectors, encoder: Encoder, *, closes: bool = False) -> None:
        self.encoder = encoder
        self._inner = inner
        self._vectors = vectors
        self._closes = closes
        self.name = inner.name
        self.identity = inner.identity

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        """As the inner retriever."""
        found = self._vectors.attach(await self._inner.retrieve(query, k, where))
        self.identity = self._inner.identity
        return found

    async def aclose(self) -> None:
        await self._inner.aclose()
        if self._closes:
            await self.encoder.aclose()


def nearest(
    vectors: CommittedVectors, codes: Codes | None, query: np.ndarray, k: int, where: Mapping[str, str]
) -> tuple[np.ndarray, np.ndarray]:
    """The ``k`` rows with the highest products, highest first, and the products.

    ``query`` is (width,) float32. Fewer come when fewer are there or pass ``where``.
    """
    chosen: np.ndarray | range = vectors.rows_where(where) if where else range(len(vectors))
    if codes is not None and len(chosen) > EXACT_ROWS:
        # As many candidates as leave the usual number after the filter; with as many as the filter leaves, all of them.
        count = max(CANDIDATES, 4 * k) * len(vectors) // len(chosen)
        if count < len(chosen):
            chosen = _candidates(vectors, codes, query, count, chosen)
    # The last bits depend on where in a block a row lies; without them equal passages are equal.
    scores = np.round(vectors.similarities(query, chosen), 6)
    rows = np.asarray(chosen)
    if len(rows) > k:
        # Everything that ties with the last place stays for the sort, which then decides by the row.
        edge = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = scores >= edge
        rows, scores = rows[kept], scores[kept]
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]


def _candidates(
    vectors: CommittedVectors, codes: Codes, query: np.ndarray, count: int, allowed: np.ndarray | range
) -> np.ndarray:
    """Rows worth an exact look: those with the nearest codes, and those that have none yet."""
    found = codes.candidates(query, count)
    found = np.concatenate([found[found < len(vectors)], np.arange(min(codes.rows, len(vectors)), len(vectors))])
    found.sort()
    return found if isinstance(allowed, range) else np.intersect1d(found, allowed, assume_unique=True)


def _stamp(folder: Path) -> tuple[int, ...]:
    try:
        found = (folder / VECTORS_FILE).stat()
    except OSError:  # what is wrong is said when it is read
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size
