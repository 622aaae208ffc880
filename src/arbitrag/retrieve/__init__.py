"""Open passages to search by their address: an index on disk, or a server."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from arbitrag.errors import UsageError, unknown
from arbitrag.retrieve.base import Retriever

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder
    from arbitrag.retrieve.update import IndexReport

KINDS = {
    "postgres": "postgres:postgresql://user@host:5432/database?table=passages (full text and pgvector)",
    "elastic": "elastic:https://host:9200/index (BM25 or vectors)",
    "qdrant": "qdrant:http://host:6333/collection (vectors)",
}
_OPTIONS = ("table", "mode", "text_field")
# Two letters at least: C:\docs.idx is a path.
_KIND = re.compile(r"([A-Za-z][A-Za-z0-9+]+):(.*)", re.DOTALL)


def open_index(address: str | Path, *, encoder: Encoder | None = None) -> Retriever:
    """The index at a path, made by ``arbitrag index``, or passages on a server.

    A server's address is one of ``KINDS``, with ``?table=``, ``mode=`` or ``text_field=`` at its end where they are
    wanted; what else stands there goes to the server's driver. ``encoder`` is what a server's vectors were made with,
    and stays the caller's to close. A path that exists is always a path.

    Raises UsageError for an unknown kind, MissingExtra when its packages are not installed, IndexFileError for an index
    that is missing, corrupt or of another version or encoder, BackendError for a server that cannot be reached. No
    error repeats an address that may hold a password.
    """
    found = _KIND.fullmatch(address) if isinstance(address, str) else None
    if found is None or Path(address).exists():
        return _open_path(Path(address))
    kind, rest = found.groups()
    opener = _SERVERS.get("postgres" if kind == "postgresql" else kind)
    if opener is None:
        raise unknown("kind of index", kind, KINDS, hint=f"An address is a path or looks like {KINDS['elastic']}.")
    place, options = _split(f"{kind}:{rest}" if rest.startswith("//") else rest)
    if not place:
        raise UsageError(f"the address names no server; one looks like {KINDS[kind]}")
    return opener(place, options, encoder)


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


def _open_postgres(place: str, options: dict[str, str], encoder: Encoder | None) -> Retriever:
    from arbitrag.retrieve.postgres import PostgresRetriever

    _refuse("postgres", options, "text_field")
    return PostgresRetriever.open(
        place,
        table=options.get("table", "passages"),
        mode=options.get("mode"),  # type: ignore[arg-type]  # open() looks at it
        encoder=encoder,
    )


def _open_elastic(place: str, options: dict[str, str], encoder: Encoder | None) -> Retriever:
    from arbitrag.retrieve.elastic import ElasticRetriever

    _refuse("elastic", options, "table")
    url, _, index = place.rpartition("/")
    return ElasticRetriever.open(
        url,
        _named("elastic", index),
        mode=options.get("mode"),  # type: ignore[arg-type]  # open() looks at it
        text_field=options.get("text_field", "text"),
        encoder=encoder,
    )


def _open_qdrant(place: str, options: dict[str, str], encoder: Encoder | None) -> Retriever:
    from arbitrag.retrieve.qdrant import QdrantRetriever

    _refuse("qdrant", options, "table", "mode")
    url, _, collection = place.rpartition("/")
    if encoder is None:
        raise UsageError("qdrant compares vectors; give the encoder that the collection was made with (encoder=…)")
    return QdrantRetriever.open(
        url, _named("qdrant", collection), encoder, text_field=options.get("text_field", "text")
    )


_SERVERS: dict[str, Callable[[str, dict[str, str], Encoder | None], Retriever]] = {
    "postgres": _open_postgres,
    "elastic": _open_elastic,
    "qdrant": _open_qdrant,
}


def _split(place: str) -> tuple[str, dict[str, str]]:
    """A server's address without our own options, and those."""
    before, mark, after = place.rpartition("?")
    if not mark:
        return place, {}
    pairs = parse_qsl(after, keep_blank_values=True)
    others = [pair for pair in pairs if pair[0] not in _OPTIONS]
    rest = f"{before}?{urlencode(others, safe='/')}" if others else before
    return rest, {key: value for key, value in pairs if key in _OPTIONS}


def _refuse(kind: str, options: dict[str, str], *names: str) -> None:
    for name in names:
        if name in options:
            raise UsageError(f"{kind} has no option '{name}'; an address looks like {KINDS[kind]}")


def _named(kind: str, name: str) -> str:
    """``name``, unless the address ended before it: what stands there is then a piece of the server's own."""
    if not name or "@" in name or ":" in name:
        raise UsageError(f"the address names no {kind} index; one looks like {KINDS[kind]}")
    return name
