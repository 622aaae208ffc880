"""The schema of the PostgreSQL table of passages: create, describe and fill it.

The columns are those of ``Passage``; ``words`` is the full text index's input, made by the server from title and text;
``embedding`` exists where the table was made with an encoder. The table's comment says which language and which encoder
made it, so that a query is never compared with vectors of another model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, LiteralString

from arbitrag.errors import BackendError, IndexFileError, MissingExtra, UsageError, unknown
from arbitrag.retrieve.stored_passage import other_vectors, to_document
from arbitrag.security.redaction import Secrets
from arbitrag.serialization import parse_json
from arbitrag.text import one_line
from arbitrag.types import Passage

try:
    import psycopg
    from psycopg import conninfo, pq, sql
    from psycopg.types.json import Jsonb
except ImportError as error:
    raise MissingExtra("postgres", "a PostgreSQL index") from error

if TYPE_CHECKING:
    import numpy as np

    from arbitrag.encode.base import Encoder

COLUMNS = ("id", "text", "title", "source", "line", "offset", "date", "metadata")
_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")
_OLDEST_PGVECTOR = (0, 8)  # the first whose index goes on searching when a filter left too few passages
_PORTS = re.compile(r"\d{0,5}(?:,\d{0,5})*")
_KEYS = frozenset(["scram_client_key", "scram_server_key"])  # as good as a password, and not marked as one
EXACT_UP_TO = 50_000  # passages whose vectors are compared one by one, which misses nothing; more get an HNSW index
_WIDEST_INDEXED = 2000  # numbers; pgvector's limit for an index over single-precision vectors


@dataclass(frozen=True)
class Place:
    """A table on a server. ``server`` is host, port and database: what may be shown; ``dsn`` may hold a password."""

    dsn: str = field(repr=False)
    server: str
    table: str
    secrets: Secrets = field(repr=False, compare=False)

    @classmethod
    def of(cls, dsn: str, table: str) -> Place:
        """Raises UsageError for a dsn or a table name that cannot be one."""
        try:
            parts: dict[str, Any] = conninfo.conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:  # its text repeats the dsn, password and all
            raise UsageError(
                "this is not a PostgreSQL address; one looks like postgresql://user@host:5432/database"
            ) from None
        names = table.split(".")
        if len(names) > 2 or not all(names) or "\0" in table:
            raise UsageError(f"'{one_line(table)}' is not a table name; give TABLE or SCHEMA.TABLE")
        host, port = parts.get("host") or parts.get("hostaddr") or "localhost", parts.get("port") or 5432
        database = parts.get("dbname") or parts.get("user") or ""
        is_url = dsn.lstrip().startswith(("postgresql://", "postgres://"))
        if "@" in host or (is_url and "@" in database) or not _PORTS.fullmatch(str(port)):
            raise UsageError(
                "this is not a PostgreSQL address: there is an @ behind the host, or a port that is none. In a "
                "password, type %40 for an @ and %2F for a slash, as in postgresql://user:p%40ss@host:5432/database"
            )
        secrets = Secrets(_secret(parts))
        secrets.hide_in_logs()
        return cls(dsn, f"{host}:{port}/{database}", table, secrets)

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(*self.table.split("."))

    def index_name(self, of: str) -> sql.Identifier:
        """The name of an index on the table; PostgreSQL keeps at most 63 bytes of it."""
        return sql.Identifier(f"{self.table.split('.')[-1][:40]}_{of}")

    def reason(self, error: BaseException) -> str:
        """What the server or the driver said, on one line and without the password."""
        return one_line(self.secrets.clean(str(error)), 300) or type(error).__name__

    def connect(self, timeout_s: float) -> psycopg.Connection[tuple[Any, ...]]:
        """Open a new connection. Raises BackendError when the server cannot be reached."""
        with self.secrets.kept():
            return self._connected(timeout_s)

    def _connected(self, timeout_s: float) -> psycopg.Connection[tuple[Any, ...]]:
        try:
            return psycopg.connect(self.dsn, autocommit=True, connect_timeout=max(2, round(timeout_s)))
        except psycopg.Error as error:
            raise BackendError(
                f"cannot reach PostgreSQL at {self.server}: {self.reason(error)}\n"
                "Check that the server runs, and its host, port, database, user and password."
            ) from error


def _secret(parts: Mapping[str, Any]) -> set[str]:
    """The passwords of an address, and those that libpq takes from the environment; libpq says which they are."""
    known = pq.Conninfo.get_defaults()
    names = {option.keyword.decode() for option in known if option.dispchar == b"*"} | _KEYS
    given = {str(value) for name, value in parts.items() if name in names}
    return given | {option.val.decode("utf-8", "replace") for option in known if option.val and option.dispchar == b"*"}


@dataclass(frozen=True)
class Layout:
    """What a table's comment says: the text search configuration, and the encoder's identity and width, if any."""

    language: str
    encoder: str = ""
    width: int | None = None


def read_layout(connection: psycopg.Connection[Any], place: Place) -> Layout | None:
    """How the table was made; None where there is no such table.

    Raises IndexFileError for a table that was not made by ``load``.
    """
    name = place.identifier.as_string(connection)
    row = connection.execute(
        "SELECT to_regclass(%s) IS NOT NULL, obj_description(to_regclass(%s), 'pg_class')", (name, name)
    ).fetchone()
    assert row is not None
    exists, comment = row
    if not exists:
        return None
    try:
        found = parse_json(comment or "")["arbitrag"]
        return Layout(str(found["language"]), str(found["encoder"]), found["width"])
    except (ValueError, KeyError, TypeError):
        raise IndexFileError(
            f"table '{place.table}' at {place.server} was not made by arbitrag, so its columns are unknown.\n"
            "Load the passages into another one: arbitrag.retrieve.servers.postgres.load(dsn, passages, table=NAME)"
        ) from None


def require_pgvector(connection: psycopg.Connection[Any], place: Place, *, create: bool) -> None:
    """Raise BackendError, saying what to type, where pgvector is missing or too old; ``create`` switches it on."""
    row = connection.execute(
        "SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector'),"
        " (SELECT default_version FROM pg_available_extensions WHERE name = 'vector')"
    ).fetchone()
    assert row is not None
    active, available = row
    if active is None and available is None:
        raise BackendError(
            f"PostgreSQL at {place.server} has no pgvector, which vectors need.\n"
            "Install it on the server (Debian: apt install postgresql-NN-pgvector), "
            "or leave out the encoder for text search."
        )
    version = active or available
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_PGVECTOR:
        raise BackendError(
            f"PostgreSQL at {place.server} has pgvector {version}; 0.8 or newer is needed.\n"
            "Install a newer one on the server, then type in psql: ALTER EXTENSION vector UPDATE;"
        )
    if active is None and create:
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.errors.InsufficientPrivilege as error:
            raise BackendError(
                f"PostgreSQL at {place.server} has pgvector, but this user may not switch it on.\n"
                "Type in psql as a superuser, in this database: CREATE EXTENSION vector;"
            ) from error


def check_encoder(place: Place, layout: Layout, encoder: Encoder) -> None:
    """Raise IndexFileError when the table's vectors are not this encoder's."""
    table = f"table '{place.table}' at {place.server}"
    if layout.width is None:
        raise IndexFileError(
            f"{table} holds no vectors; {encoder.name} has nothing to compare with.\n"
            "Leave out the encoder for text search, or load the passages with it into another table."
        )
    if layout.encoder != encoder.identity or (encoder.width or layout.width) != layout.width:
        raise other_vectors(table, layout.encoder, layout.width, encoder)


def create(connection: psycopg.Connection[Any], place: Place, layout: Layout) -> None:
    """Create the table with every index but that of the vectors, which is built faster after loading."""
    languages = {row[0] for row in connection.execute("SELECT cfgname FROM pg_ts_config")}
    if layout.language not in languages:
        raise unknown("text search language", layout.language, languages)
    embedding = sql.SQL(", embedding vector({})").format(layout.width) if layout.width is not None else sql.SQL("")
    about = {"language": layout.language, "encoder": layout.encoder, "width": layout.width}
    statements = (
        """CREATE TABLE {table} (id text PRIMARY KEY, text text NOT NULL, title text NOT NULL, source text NOT NULL,
        line integer, "offset" bigint, date text NOT NULL, metadata jsonb NOT NULL,
        words tsvector GENERATED ALWAYS AS (setweight(to_tsvector({language}::regconfig, title), 'A')
        || setweight(to_tsvector({language}::regconfig, text), 'B')) STORED{embedding})""",
        "COMMENT ON TABLE {table} IS {about}",
        "CREATE INDEX {by_words} ON {table} USING gin (words)",
        "CREATE INDEX {by_metadata} ON {table} USING gin (metadata jsonb_path_ops)",
    )
    parts: dict[str, Any] = {
        "table": place.identifier,
        "language": sql.Literal(layout.language),
        "embedding": embedding,
        "about": sql.Literal(json.dumps({"arbitrag": about})),
        "by_words": place.index_name("words"),
        "by_metadata": place.index_name("metadata"),
    }
    with connection.transaction():
        for statement in statements:
            connection.execute(sql.SQL(statement).format(**parts))


def finish(connection: psycopg.Connection[Any], place: Place, layout: Layout) -> None:
    """Build the vector index, where there are many and the server can, and update the planner's statistics."""
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(place.identifier)).fetchone()
    many = row is not None and row[0] > EXACT_UP_TO
    if many and layout.width is not None and layout.width <= _WIDEST_INDEXED:
        statement = sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} USING hnsw (embedding vector_ip_ops)")
        connection.execute(statement.format(place.index_name("embedding"), place.identifier))
    connection.execute(sql.SQL("ANALYZE {}").format(place.identifier))


def write(
    connection: psycopg.Connection[Any], place: Place, passages: Sequence[Passage], vectors: np.ndarray | None
) -> None:
    """Add the passages in one transaction, by COPY; one whose id is there already replaces it.

    ``vectors`` has shape (passages, width).
    """
    names = (*COLUMNS, "embedding") if vectors is not None else COLUMNS
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    updates = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in names[1:])
    parts = {"table": place.identifier, "columns": columns, "updates": updates}

    def run(statement: LiteralString) -> None:
        connection.execute(sql.SQL(statement).format(**parts))

    rows = {row[0]: row for row in _rows(passages, vectors)}  # an id may come twice: the last one stays
    with connection.transaction():
        run("CREATE TEMPORARY TABLE incoming ON COMMIT DROP AS SELECT {columns} FROM {table} WITH NO DATA")
        with (
            connection.cursor() as cursor,
            cursor.copy(sql.SQL("COPY incoming ({columns}) FROM STDIN").format(**parts)) as copy,
        ):
            for row in rows.values():
                copy.write_row(row)
        run("INSERT INTO {table} ({columns}) SELECT {columns} FROM incoming ON CONFLICT (id) DO UPDATE SET {updates}")


def _rows(passages: Sequence[Passage], vectors: np.ndarray | None) -> Iterable[tuple[Any, ...]]:
    for at, passage in enumerate(passages):
        document = to_document(passage)
        metadata = {storable(key): storable(value) for key, value in document.pop("metadata").items()}
        row = [storable(value) if isinstance(value, str) else value for value in document.values()]
        row.append(Jsonb(metadata))
        if vectors is not None:
            row.append(vector_text(vectors[at]))
        yield tuple(row)


def connection_is_lost(error: psycopg.Error) -> bool:
    """Whether the server went away or hung up, and not merely refused: SQLSTATE 08 or 57P, or none at all."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def storable(text: str) -> str:
    """``text`` as PostgreSQL can hold it: U+0000 and lone surrogates, which it cannot, become U+FFFD."""
    return _NOT_STORABLE.sub("\ufffd", text)


def vector_text(vector: np.ndarray) -> str:
    """A vector of shape (width,) in pgvector's notation."""
    return f"[{','.join(map(repr, vector.tolist()))}]"
