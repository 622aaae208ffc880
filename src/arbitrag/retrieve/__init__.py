"""Open an index of passages by its path."""

from __future__ import annotations

from pathlib import Path

from arbitrag.retrieve.base import Retriever


def open_index(address: str | Path) -> Retriever:
    """The index at a path, made by ``arbitrag index``.

    Raises IndexFileError when it is missing, corrupt or of another version.
    """
    from arbitrag.retrieve.bm25 import Bm25Index

    return Bm25Index.open(Path(address))
