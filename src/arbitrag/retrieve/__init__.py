"""Open an index of passages, on disk or on a server, by its address."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from arbitrag.errors import IndexFileError, UsageError, unknown
from arbitrag.registry import INDEXES
from arbitrag.retrieve.base import Retriever
from arbitrag.retrieve.index.manifest import FILE, VECTORS, VECTORS_FILE, corrupt, read_manifest
from arbitrag.security.trust import FromFile
from arbitrag.text import printable

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder
    from arbitrag.retrieve.index.update import update_index as update_index

Mode = Literal["bm25", "dense", "hybrid"]
LAB = "lab"  # the address of the embedded world's documents
MODES: tuple[Mode, ...] = get_args(Mode)
# Two letters at least: C:\docs.idx is a path.
_KIND = re.compile(r"([A-Za-z][A-Za-z0-9+]+):(.*)", re.DOTALL)


def open_index(address: str | Path, *, encoder: Encoder | None = None, mode: Mode | None = None) -> Retriever:
    """The index at a path, made by ``arbitrag index``, or passages on a server; ``lab`` is the embedded world.

    ``mode`` says how an index at a path is searched: by words ("bm25"), by vectors ("dense"), or by both ("hybrid",
    the default for an index with vectors). Its encoder is the one that it was made with: the
    index names it, and where it is not on this machine it has to be given (see ``trust``).

    A server's address is one of ``arbitrag.registry.INDEXES``, with ``?table=``, ``mode=`` or ``text_field=`` at its
    end where they are wanted; what else stands there goes to the server's driver. ``encoder`` is what the vectors were
    made with, and stays the caller's to close; a path needs none. A path that exists is always a path.

    Raises UsageError for an unknown kind or an encoder that must be given, MissingExtra when its packages are not
    installed, IndexFileError for an index that is missing, corrupt or of another version or encoder, BackendError for
    a server that cannot be reached. No error repeats an address that may hold a password.
    """
    if address == LAB and not os.path.exists(LAB):
        if mode not in (None, "bm25"):
            raise UsageError(f"the lab's world is searched by bm25 only; got mode={mode}")
        world: Retriever = INDEXES[LAB].open()
        return world
    found = _KIND.fullmatch(address) if isinstance(address, str) else None
    if found is None or os.path.exists(address):  # False, not an error, for a text too long to be a path
        return _open_path(Path(address), encoder, mode)
    if mode is not None:
        raise UsageError(f"mode={mode} is for an index on disk; in a server's address it stands at the end: ?mode=...")
    from arbitrag.retrieve.servers.open import open_server

    return open_server(found[1], found[2], encoder)


@asynccontextmanager
async def opened_index(
    address: str | Path, *, encoder: str | Encoder | None = None, mode: str | None = None
) -> AsyncIterator[Retriever]:
    """``open_index`` for the length of a block; what it opens is closed at the end, also an encoder at an address."""
    if mode is not None and mode not in MODES:
        raise unknown("mode", mode, MODES)
    async with AsyncExitStack() as opened:
        if isinstance(encoder, str):
            from arbitrag.encode import open_encoder

            encoder = open_encoder(encoder)
            opened.push_async_callback(encoder.aclose)
        retriever = open_index(address, encoder=encoder, mode=mode)
        opened.push_async_callback(retriever.aclose)
        yield retriever


def __getattr__(name: str) -> Any:
    """``update_index``, from ``index.update``, which imports the readers of documents."""
    if name != "update_index":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from arbitrag.retrieve.index.update import update_index

    return update_index


def _open_path(path: Path, encoder: Encoder | None, mode: Mode | None) -> Retriever:
    from arbitrag.retrieve.index.bm25 import Bm25Index

    if mode not in (None, *MODES):
        raise unknown("mode", str(mode), MODES)
    texts = Bm25Index.open(path)
    index = read_manifest(path)
    if not index.generation:
        if mode in (None, "bm25"):
            return texts
        raise IndexFileError(
            f"the index {printable(str(path))} holds no vectors; leave the mode out, or make one that does: "
            "arbitrag index FOLDER -o OTHER.idx --encoder hash"
        )
    from arbitrag.encode import open_encoder
    from arbitrag.encode.lazy import LazyEncoder
    from arbitrag.retrieve.hybrid import HybridRetriever
    from arbitrag.retrieve.index.dense import DenseIndex, StoredVectors, WithEmbeddings

    vectors = StoredVectors(path)
    manifest = vectors.current()[0].manifest
    if (manifest.generation, manifest.rows) < (index.generation, index.rows):
        raise corrupt(path, f"{VECTORS} holds {manifest.rows:,} vectors, and {FILE} knows of {index.rows:,}")
    source = FromFile(str(path / VECTORS / VECTORS_FILE), "--encoder")
    if mode == "bm25":
        maker = LazyEncoder(manifest.encoder, manifest.identity, manifest.width, source)
        return WithEmbeddings(texts, vectors, maker, closes=True)
    opened = encoder or open_encoder(manifest.encoder, source=source)
    dense = DenseIndex(texts, vectors, opened, path, closes=encoder is None)
    return dense if mode == "dense" else WithEmbeddings(HybridRetriever(texts, dense), vectors, opened)
