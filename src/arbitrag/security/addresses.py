"""Addresses of models and passages: taken apart by their grammar, and what of them may be stored or shown.

What is stored is an allow-list: scheme, host, port, path, and the few names in a query that are known to be harmless.
Everything else in an address may be a secret, and an address that cannot be read is hidden as a whole.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from arbitrag.errors import UsageError

HIDDEN = "[hidden]"
# Names in a query, or in PostgreSQL's key=value form, whose values say where or how, and never who.
HARMLESS = frozenset(
    (
        *("api-version", "table", "mode", "text_field", "encoder"),
        *("host", "hostaddr", "port", "dbname", "sslmode", "connect_timeout", "application_name"),
    )
)
OPTIONS = frozenset(["table", "mode", "text_field", "encoder"])  # ours, in the address of an index on a server
# Bounded, so that a search is linear. Behind a scheme that is none, or without one, may stand a password all the same.
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]{0,30})?://")
_PASSWORD = re.compile(r":([^\s/@]{1,200})@")  # where the scheme was forgotten; bounded as above
_POSTGRES = re.compile(r"postgres(?:ql)?:(?!//)")
_PAIR = re.compile(r"\s*([A-Za-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)(?=\s|$)", re.DOTALL)
_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.%]+\]|[^\[\]:@]*)(?::\d{0,5})?"
)  # with or without a port; none is PostgreSQL's own
_STRANGE = re.compile(r"[\x00-\x20\x7f-\x9f\\]")  # clients disagree on what these mean in a URL


@dataclass(frozen=True)
class Url:
    """An http address by the grammar of RFC 3986, with what is secret in it apart from what may be shown.

    User and password are decoded, as a client sends them.
    """

    scheme: str
    host: str
    port: int | None = None
    path: str = ""
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    _raw: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, text: str, example: str = "https://localhost:9200") -> Url:
        """Raises UsageError for all but http://[user:password@]host[:port][/path][?query].

        The error does not repeat the text, which may hold a password.
        """
        try:
            parts = urlsplit("" if _STRANGE.search(text) else text)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            parts, host, port = urlsplit(""), "", None
        if parts.scheme not in ("http", "https") or not host:
            raise UsageError(f"this is not a server's address; one looks like {example}")
        if "@" in parts.path + parts.query + parts.fragment:
            raise UsageError(
                f"this is not a server's address: there is an @ behind the host. In a password, type %2F for a slash, "
                f"%3F for a question mark, %23 for a #, %40 for an @; an address looks like {example}"
            )
        return cls(
            scheme=parts.scheme,
            host=host,
            port=port,
            path=parts.path.rstrip("/"),
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            query=dict(parse_qsl(parts.query, keep_blank_values=True)),
            _raw=(parts.username or "", parts.password or "", parts.query),
        )

    @property
    def base(self) -> str:
        """The address without user, password and query: what may be stored."""
        return f"{self.scheme}://{self._place(self.port)}{self.path}"

    @property
    def plain(self) -> str:
        """As ``base``, with the port even where it is the scheme's own."""
        return f"{self.scheme}://{self._place(self.port or (443 if self.scheme == 'https' else 80))}{self.path}"

    @property
    def shown(self) -> str:
        """Host, port and path, for people."""
        return self.plain.partition("://")[2]

    @property
    def origin(self) -> tuple[str, str]:
        """Whom a request reaches: the scheme, and host and port."""
        return self.scheme, self.plain.partition("://")[2].partition("/")[0]

    @property
    def headers(self) -> dict[str, str]:
        """The header that user and password are sent in, where there are any."""
        return {"Authorization": f"Basic {self._basic}"} if self.user or self.password else {}

    @property
    def secrets(self) -> frozenset[str]:
        """Every text that a server may repeat and nobody may see; a user name only where it stands for a password."""
        user, password, query = self._raw
        found = {password, self.password, *(value for key, value in self.query.items() if key not in HARMLESS)}
        found.add(query if self.query.keys() - HARMLESS else "")
        if self.user or self.password:
            found.add(self._basic)
        if not self.password:
            found |= {user, self.user}
        return frozenset(found - {""})

    @property
    def _basic(self) -> str:
        return base64.b64encode(f"{self.user}:{self.password}".encode()).decode("ascii")

    def _place(self, port: int | None) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if port is None else f"{host}:{port}"


def split_server(text: str) -> tuple[str, str]:
    """Model and base URL of ``MODEL@URL``. A model's own name may begin with an @, and a URL may hold a user's name."""
    model, at, rest = text.partition("@http")
    if at:
        return model, f"http{rest}"
    model, at, rest = text.rpartition("@")
    return (model, rest) if model else (at + rest, "")


def shown(address: str, *, mark: str = "") -> str:
    """An address of a model, an encoder or an index as it may be stored: what is not on the allow-list is left out.

    ``mark`` is put where something was left out. What is no address is given back as it is.
    """
    if options := re.match(r"--[a-z-]+=", address):
        return options.group() + shown(address[options.end() :], mark=mark)
    kind = _POSTGRES.match(address)
    if kind is not None and _URL.match(address, kind.end()) is None:
        return kind.group() + _shown_pairs(address[kind.end() :], mark)
    found = _URL.search(address)
    if found is None:
        kind_of, _, rest = address.partition(":")
        return f"{kind_of}:{HIDDEN}" if _PASSWORD.search(rest) else address
    before, scheme, rest = address[: found.start()], found.group(), address[found.end() :]
    return before + scheme + (_shown_url(rest, mark) or HIDDEN)


def same_address(one: str, other: str) -> bool:
    """Whether two addresses open the same model, encoder or index, whatever user, password and key stand in them."""
    return _whole(one) == _whole(other)


def _whole(address: str) -> str:
    return shown(address).rstrip("/")


def without_secrets(words: Sequence[str]) -> str:
    """A command line for the record, in which every address is as it may be stored."""
    return shlex.join(shown(word, mark=HIDDEN) for word in words)


def secrets_in(words: Iterable[str]) -> set[str]:
    """What is secret in the addresses among these words, and where an address is not clear, each piece that may be."""
    found: set[str] = set()
    for word in words:
        url = _URL.search(word)
        kind = _POSTGRES.match(word)
        if kind is not None and _URL.match(word, kind.end()) is None:
            place, options = split_options(word[kind.end() :])
            pairs = connection_pairs(place)
            named = {"user", *HARMLESS}
            found |= set(re.findall(r"[^\s=']+", place)) if pairs is None else _values(pairs, named)
            found |= secrets_in(value for _, value in options)
        elif url is not None:
            found |= _secrets_of_url(word[url.end() :])
        elif user := _PASSWORD.search(word.partition(":")[2]):
            found.add(user[1])
    return found - {""}


def _secrets_of_url(rest: str) -> set[str]:
    """The secrets in what stands behind ``scheme://``."""
    before, at, _ = rest.partition("?")[0].rpartition("@")
    query = dict(parse_qsl(rest.partition("#")[0].partition("?")[2], keep_blank_values=True))
    found = _values(query, HARMLESS) | secrets_in(value for key, value in query.items() if key in HARMLESS)
    if not _shown_url(rest, ""):
        before, at, _ = rest.rpartition("@")
        found |= set(re.split(r"[@/?#:\s\\]", before or rest))
    user, colon, password = before.partition(":")
    if at:
        found |= {password, unquote(password)} if colon else {user, unquote(user)}
    return found


def _values(pairs: Mapping[str, str], but: Collection[str]) -> set[str]:
    return {value for key, value in pairs.items() if key not in but}


def connection_pairs(text: str) -> dict[str, str] | None:
    """PostgreSQL's ``key=value`` form, read as libpq does (quotes, backslashes); None for what breaks it."""
    found: dict[str, str] = {}
    at, end = 0, len(text.rstrip())
    while at < end:
        pair = _PAIR.match(text, at)
        if pair is None:
            return None
        value = pair[2][1:-1] if pair[2].startswith("'") else pair[2]
        found[pair[1]] = re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
        at = pair.end()
    return found


def _shown_url(rest: str, mark: str) -> str:
    """What stands behind ``scheme://``, as it may be stored; empty where it is not clear what is what."""
    place, _, query = rest.partition("#")[0].partition("?")
    authority, slash, path = place.partition("/")
    user, at, hosts = authority.rpartition("@")
    if "@" in path or _STRANGE.search(hosts) or not all(map(_HOST.fullmatch, hosts.split(","))):
        return ""
    pairs = parse_qsl(query, keep_blank_values=True)
    kept = [(key, shown(value, mark=mark)) for key, value in pairs if key in HARMLESS]
    left_out = [key + value for key, value in pairs if key not in HARMLESS]
    if "@" in "".join(left_out) or ("#" in rest and "@" in rest.partition("#")[2]):
        return ""  # more likely a password that was not encoded than a query
    told = [f"{key}={quote(value, safe='/:@[]', errors='replace')}" for key, value in kept]
    shown_query = "&".join([*told, *([mark] if left_out and mark else [])])
    user = f"{mark}@" if at and mark else ""
    return f"{user}{hosts}{slash}{path}" + (f"?{shown_query}" if shown_query else "")


def _shown_pairs(text: str, mark: str) -> str:
    """PostgreSQL's ``key=value`` form with our options behind it, as it may be stored."""
    place, options = split_options(text)
    pairs = connection_pairs(place)
    if pairs is None:
        return HIDDEN
    # A value with a sign of its own is another address (libpq takes one as dbname), or swallowed the next pair.
    kept = [f"{key}={_quoted(value)}" for key, value in pairs.items() if key in HARMLESS and "=" not in value]
    kept += [mark] if mark and len(kept) < len(pairs) else []
    ours = "&".join(f"{key}={shown(value, mark=mark)}" for key, value in options)
    return " ".join(kept) + (f"?{ours}" if ours else "")


def split_options(text: str) -> tuple[str, list[tuple[str, str]]]:
    """PostgreSQL's ``key=value`` form, and our own options behind its last question mark.

    A question mark in a password is none of ours: what stands behind it is not made of our options.
    """
    before, mark, after = text.rpartition("?")
    pairs = parse_qsl(after, keep_blank_values=True)
    if not mark or not pairs or not {key for key, _ in pairs} <= OPTIONS:
        return text, []
    return before, pairs


def _quoted(value: str) -> str:
    """A value in PostgreSQL's ``key=value`` form."""
    if value and not re.search(r"[\s'\\]", value):
        return value
    escaped = re.sub(r"(['\\])", r"\\\1", value)
    return f"'{escaped}'"
