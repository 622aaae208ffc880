"""Open passages to search by their address: an index on disk, or a server."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arbitrag.retrieve.base import Retriever

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder
    from arbitrag.retrieve.update import IndexReport

# Two letters at least: C:\docs.idx is a path.
_KIND = re.compile(r"([A-Za-z][A-Za-z0-9+]+):(.*)", re.DOTALL)


def open_index(address: str | Path, *, encoder: Encoder | None = None) -> Retriever:
    """The index at a path, made by ``arbitrag index``, or passages on a server.

    A server's address is one of ``servers.KINDS``, with ``?table=``, ``mode=`` or ``text_field=`` at its end where they
    are wanted; what else stands there goes to the server's driver. ``encoder`` is what a server's vectors were made
    with, and stays the caller's to close. A path that exists is always a path.

    Raises UsageError for an unknown kind, MissingExtra when its packages are not installed, IndexFileError for an index
    that is missing, corrupt or of another version or encoder, BackendError for a server that cannot be reached. No
    error repeats an address that may hold a password.
    """
    found = _KIND.fullmatch(address) if isinstance(address, str) else None
    if found is None or Path(address).exists():
        return _open_path(Path(address))
    from arbitrag.retrieve.servers import open_server

    return open_server(found[1], found[2], encoder)


def update_index(
    inputs: str | Path | Sequence[str | Path],
    target: str | Path,
    *,
    passage_tokens: int | None = None,
    language: str | None = None,
    replace_all: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> IndexReport:
    """Make ``target`` an index of exactly the documents in ``inputs``; see ``arbitrag.retrieve.update``."""
    from arbitrag.retrieve import update

    return update.update_index(
        inputs,
        target,
        passage_tokens=passage_tokens,
        language=language,
        replace_all=replace_all,
        progress=progress,
    )


def _open_path(path: Path) -> Retriever:
    from arbitrag.retrieve.bm25 import Bm25Index

    return Bm25Index.open(path)
