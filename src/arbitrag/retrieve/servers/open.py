"""Open passages on a server by their address: ``postgres:…``, ``elastic:…`` or ``qdrant:…``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from arbitrag.errors import UsageError, unknown
from arbitrag.retrieve.base import Retriever
from arbitrag.security.addresses import OPTIONS, split_options

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder

KINDS = {
    "postgres": "postgres:postgresql://user@host:5432/database?table=passages (full text and pgvector)",
    "elastic": "elastic:https://host:9200/index (BM25 or vectors)",
    "qdrant": "qdrant:http://host:6333/collection?encoder=st:MODEL (vectors)",
}


@dataclass(frozen=True)
class _Asked:
    """An address in its pieces. An encoder that the address names is opened here, and closed with the retriever."""

    kind: str
    place: str
    options: Mapping[str, str]
    encoder: Encoder | None
    closes_encoder: bool

    def refuse(self, *names: str) -> None:
        for name in names:
            if name in self.options:
                raise UsageError(f"{self.kind} has no option '{name}'; an address looks like {KINDS[self.kind]}")

    def split(self) -> tuple[str, str]:
        """The server's address, and the name after its last slash."""
        place, query, _ = self.place.partition("?")
        if query:  # perhaps a key, so it is not repeated
            raise UsageError(
                f"the address has an option that {self.kind} does not have; one looks like {KINDS[self.kind]}\n"
                f"A key goes into {self.kind.upper()}_API_KEY, user and password before the host."
            )
        url, _, name = place.rpartition("/")
        if not name or "@" in name or ":" in name:  # a piece of the server's own address
            raise UsageError(f"the address names no {self.kind} index; one looks like {KINDS[self.kind]}")
        return url, name


def open_server(kind: str, rest: str, encoder: Encoder | None) -> Retriever:
    """The passages at the address ``kind:rest``; raises what ``open_index`` raises."""
    # PostgreSQL's own addresses begin with the same word: postgres://host/database is one already.
    whole = f"{kind}:{rest}" if rest.startswith("//") else rest
    kind = "postgres" if kind == "postgresql" else kind
    if kind not in KINDS:
        from arbitrag import plugins

        plugin = plugins.find("retrievers", kind) if kind.isalnum() else None  # others read as paths, see ``trust``
        if plugin is None:
            known = [*KINDS, *plugins.names("retrievers")]
            raise unknown("kind of index", kind, known, hint=f"An address is a path, or looks like {KINDS['elastic']}.")
        made: Retriever = plugin.made(rest, **({} if encoder is None else {"encoder": encoder}))
        return made
    place, options = _split(whole)
    if not place:
        raise UsageError(f"the address names no server; one looks like {KINDS[kind]}")
    named = options.get("encoder")
    if named and encoder is not None:
        raise UsageError("the address names an encoder, and another one was given; leave one of them out")
    if named:
        from arbitrag.encode import open_encoder

        encoder = open_encoder(named)
    return _OPENERS[kind](_Asked(kind, place, options, encoder, bool(named)))


def _open_postgres(asked: _Asked) -> Retriever:
    from arbitrag.retrieve.servers.postgres import PostgresRetriever

    asked.refuse("text_field")
    return PostgresRetriever.open(
        asked.place,
        table=asked.options.get("table", "passages"),
        mode=asked.options.get("mode"),  # type: ignore[arg-type]  # open() looks at it
        encoder=asked.encoder,
        closes_encoder=asked.closes_encoder,
    )


def _open_elastic(asked: _Asked) -> Retriever:
    from arbitrag.retrieve.servers.elastic import ElasticRetriever

    asked.refuse("table")
    return ElasticRetriever.open(
        *asked.split(),
        mode=asked.options.get("mode"),  # type: ignore[arg-type]  # open() looks at it
        text_field=asked.options.get("text_field", "text"),
        encoder=asked.encoder,
        closes_encoder=asked.closes_encoder,
    )


def _open_qdrant(asked: _Asked) -> Retriever:
    from arbitrag.retrieve.servers.qdrant import QdrantRetriever

    asked.refuse("table", "mode")
    if asked.encoder is None:
        raise UsageError(
            f"qdrant compares vectors; name the encoder that the collection was made with: {KINDS['qdrant']}"
        )
    return QdrantRetriever.open(
        *asked.split(),
        asked.encoder,
        text_field=asked.options.get("text_field", "text"),
        closes_encoder=asked.closes_encoder,
    )


_OPENERS: dict[str, Callable[[_Asked], Retriever]] = {
    "postgres": _open_postgres,
    "elastic": _open_elastic,
    "qdrant": _open_qdrant,
}


def _split(place: str) -> tuple[str, dict[str, str]]:
    """A server's address without our own options, and those; what else stands there is the driver's."""
    if "://" not in place:  # PostgreSQL's key=value form, where a question mark may stand in a password
        before, ours = split_options(place)
        return before, dict(ours)
    before, _, after = place.partition("?")
    pairs = parse_qsl(after, keep_blank_values=True)
    others = [pair for pair in pairs if pair[0] not in OPTIONS]
    rest = f"{before}?{urlencode(others, safe='/')}" if others else before
    return rest, {key: value for key, value in pairs if key in OPTIONS}
