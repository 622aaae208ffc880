"""Open passages on a server by their address: ``postgres:…``, ``elastic:…`` or ``qdrant:…``."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from arbitrag.errors import UsageError, unknown
from arbitrag.registry import INDEXES
from arbitrag.retrieve.base import Retriever
from arbitrag.retrieve.servers.address import ServerAddress
from arbitrag.security.addresses import OPTIONS, split_options

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder


def open_server(kind: str, rest: str, encoder: Encoder | None) -> Retriever:
    """The passages at the address ``kind:rest``; raises what ``open_index`` raises."""
    # PostgreSQL's own addresses begin with the same word: postgres://host/database is one already.
    whole = f"{kind}:{rest}" if rest.startswith("//") else rest
    kind = "postgres" if kind == "postgresql" else kind
    row = INDEXES.get(kind)
    if row is None or not row.server:
        from arbitrag import plugins

        plugin = plugins.find("retrievers", kind) if kind.isalnum() else None  # others read as paths, see ``trust``
        if plugin is None:
            known = [*(name for name, each in INDEXES.items() if each.server), *plugins.names("retrievers")]
            hint = f"An address is a path, or looks like {INDEXES['elastic'].example}."
            raise unknown("kind of index", kind, known, hint=hint)
        made: Retriever = plugin.made(rest, **({} if encoder is None else {"encoder": encoder}))
        return made
    place, options = _split(whole)
    if not place:
        raise UsageError(f"the address names no server; one looks like {row.example}")
    named = options.get("encoder")
    if named and encoder is not None:
        raise UsageError("the address names an encoder, and another one was given; leave one of them out")
    if named:
        from arbitrag.encode import open_encoder

        encoder = open_encoder(named)
    opened: Retriever = row.open(ServerAddress(kind, place, row.example, options, encoder, bool(named)))
    return opened


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
