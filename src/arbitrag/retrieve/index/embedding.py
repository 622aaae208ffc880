"""Give the passages of an index update their vectors, as they are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from arbitrag.encode import open_encoder
from arbitrag.encode.base import Encoder, encoded_text
from arbitrag.errors import IndexFileError
from arbitrag.retrieve.index.codes import check_codes, update_codes
from arbitrag.retrieve.index.manifest import VECTORS, VECTORS_FILE, has_vectors
from arbitrag.retrieve.index.vectors import (
    VectorLog,
    VectorManifest,
    passage_key,
    read_vector_manifest,
    settled,
    tags_of,
)
from arbitrag.security.trust import FromFile
from arbitrag.storage.files import check_writable
from arbitrag.text import printable
from arbitrag.types import Passage

T = TypeVar("T")

_BATCH = 1024  # passages encoded together
_MOST_DEAD = 0.5  # of the rows, before they are copied without the dead ones
_FEW_ROWS = 1024  # not worth copying

SLOW = "search by vectors reads all of them; faiss is much faster from 50,000 on: pip install 'arbitrag[dense]'"


@contextmanager
def open_embedder(index: Path, encoder: str | Encoder | None, *, new: bool) -> Iterator[Embedder]:
    """An ``Embedder`` with an encoder, the one at an address, or the one that the index was made with.

    An encoder that is opened here is closed here.
    """
    if encoder is None or isinstance(encoder, str):
        if encoder is None:
            source = FromFile(str(index / VECTORS / VECTORS_FILE), "--encoder")
            opened = open_encoder(read_vector_manifest(index / VECTORS).encoder, source=source)
        else:
            opened = open_encoder(encoder)
        with Embedder(index, opened, new=new) as embedder:
            try:
                yield embedder
            finally:
                embedder.close_encoder()
    else:
        with Embedder(index, encoder, new=new) as embedder:
            yield embedder


class Embedder:
    """The vectors of one update; a context manager. Used by whoever holds the index's ledger.

    ``add`` every passage, ``commit`` before the passages are committed, ``finish`` when all are. Leaving without a
    commit adds nothing to the index.
    """

    def __init__(self, index: Path, encoder: Encoder, *, new: bool) -> None:
        """``new`` says that the index holds no passages yet, and so may begin to have vectors.

        The encoder is called in an event loop of its own, in a thread, while the next passages are read. Raises
        IndexFileError when the index has passages but no vectors, or has them from another encoder.
        """
        self._encoder = encoder
        self._waiting: dict[int, Passage] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        self._runner = asyncio.Runner()
        self._under_way: tuple[dict[int, Passage], Future[np.ndarray]] | None = None
        try:
            manifest = self._manifest(index, new)
            settled(index / VECTORS, lambda found: check_codes(index / VECTORS, found))
            self._log = VectorLog(index / VECTORS, manifest)
        except BaseException:
            self._stop()
            raise
        self._known = self._committed_keys()
        self._fresh: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._log.close()
        self._stop()

    def close_encoder(self) -> None:
        self._start(self._encoder.aclose()).result()

    def add(self, passage: Passage) -> int:
        """Note a passage, and give its key. It is encoded only when its row is not there yet."""
        key = passage_key(passage)
        if key not in self._fresh:
            self._waiting[key] = passage
            if len(self._waiting) >= _BATCH:
                self._encode_waiting()
        return key

    def commit(self) -> None:
        """Make the vectors of all passages so far durable. Raises BackendError when the encoder fails."""
        self._encode_waiting()
        self._store()
        if self._fresh:
            self._log.commit()
            self._known = self._committed_keys()
            self._fresh.clear()

    def finish(self, passages: int, is_live: Callable[[Sequence[int]], Sequence[bool]]) -> str:
        """Tidy up after the last commit; gives what a person should know, or nothing.

        ``passages`` are those in the index, ``is_live`` tells of keys whether it has them. Rows of dropped passages are
        removed when they are more than half.
        """
        rows = self._log.manifest.rows
        if rows > _FEW_ROWS and rows - passages > _MOST_DEAD * rows:
            self._log = self._log.compact(is_live)
        return "" if update_codes(self._log) else SLOW

    def extent(self) -> tuple[int, int]:
        """The generation of the committed vectors and how many there are."""
        return self._log.manifest.generation, self._log.manifest.rows

    def _manifest(self, index: Path, new: bool) -> VectorManifest:
        folder, encoder, shown = index / VECTORS, self._encoder, printable(str(index))
        if has_vectors(index):
            manifest = read_vector_manifest(folder)
            manifest.check(encoder, folder)
            return manifest
        if not new:
            raise IndexFileError(
                f"{shown} was made without vectors; leave the encoder out, or make another index (-o OTHER.idx)"
            )
        folder.mkdir(exist_ok=True)
        check_writable(folder / VECTORS_FILE)
        # The width is that of a vector: a server's model says it in no other way.
        width = self._start(encoder.encode(["width"], kind="passage")).result().shape[1]
        manifest = VectorManifest(encoder.name, encoder.identity, int(width))
        manifest.write(folder)
        return manifest

    def _start(self, call: Coroutine[Any, Any, T]) -> Future[T]:
        return self._thread.submit(self._runner.run, call)

    def _stop(self) -> None:
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()

    def _encode_waiting(self) -> None:
        """Begin to encode the passages that wait, when the batch before is done."""
        self._store()
        known = self._known_among(self._waiting)
        fresh = {key: passage for key, passage in self._waiting.items() if key not in known}
        if fresh:
            texts = [encoded_text(passage) for passage in fresh.values()]
            self._under_way = fresh, self._start(self._encoder.encode(texts, kind="passage"))
            self._fresh |= fresh.keys()
        self._waiting.clear()

    def _store(self) -> None:
        """Append the vectors of the batch that is under way."""
        if self._under_way is None:
            return
        fresh, future = self._under_way
        self._under_way = None
        vectors = future.result()
        if vectors.shape != (len(fresh), self._log.manifest.width):
            raise IndexFileError(
                f"the vectors of {printable(str(self._log.folder.parent))} are {self._log.manifest.width} wide; "
                f"{printable(self._encoder.name)} gave {vectors.shape[1]} numbers for a passage"
            )
        self._log.append(list(fresh), [tags_of(passage) for passage in fresh.values()], vectors)

    def _committed_keys(self) -> np.ndarray:
        path = self._log.manifest.path(self._log.folder, "keys.bin")
        return np.sort(np.fromfile(path, "<u8", count=self._log.manifest.rows))

    def _known_among(self, keys: Iterable[int]) -> set[int]:
        """Those of the keys that have a committed row."""
        if not len(self._known):
            return set()
        asked = np.fromiter(keys, np.uint64)
        places = np.minimum(np.searchsorted(self._known, asked), len(self._known) - 1)
        return {int(key) for key in asked[self._known[places] == asked]}
