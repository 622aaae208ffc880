"""Open passages on a server by their address: ``postgres:…``, ``elastic:…`` or ``qdrant:…``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from arbitrag.errors import UsageError, unknown
from arbitrag.retrieve.base import Retriever

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder

KINDS = {
    "postgres": "postgres:postgresql://user@host:5432/database?table=passages (full text and pgvector)",
    "elastic": "elastic:https://host:9200/index (BM25 or vectors)",
    "qdrant": "qdrant:http://host:6333/collection (vectors)",
}
_OPTIONS = ("table", "mode", "text_field")  # ours; what else stands after the question mark is the driver's


def open_server(kind: str, rest: str, encoder: Encoder | None) -> Retriever:
    """The passages at the address ``kind:rest``; raises what ``open_index`` raises."""
    # PostgreSQL's own addresses begin with the same word: postgres://host/database is one already.
    whole = f"{kind}:{rest}" if rest.startswith("//") else rest
    kind = "postgres" if kind == "postgresql" else kind
    if kind not in KINDS:
        raise unknown("kind of index", kind, KINDS, hint=f"An address is a path, or looks like {KINDS['elastic']}.")
    place, options = _split(whole)
    if not place:
        raise UsageError(f"the address names no server; one looks like {KINDS[kind]}")
    return _OPENERS[kind](place, options, encoder)


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


_OPENERS: dict[str, Callable[[str, dict[str, str], Encoder | None], Retriever]] = {
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
