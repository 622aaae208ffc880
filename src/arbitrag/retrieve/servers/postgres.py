"""Passages on a PostgreSQL server: its full text search, pgvector, or both joined by reciprocal rank fusion.

    await load("postgresql://me@host/library", passages, encoder=encoder)
    retriever = PostgresRetriever.open("postgresql://me@host/library", encoder=encoder)

text     a passage that has any word of the query, by ``ts_rank`` over title (weight 1) and text (weight 0.4), divided
         by 1 + log(length). That is not BM25: it does not know which words are rare, so a question in plain words is
         ranked worse than by the embedded index. Stop words and word endings are those of the table's language.
vector   the nearest passages by the inner product of unit vectors (the cosine): exact up to 50,000 passages, through
         pgvector's HNSW index beyond
hybrid   sum over both rankings of 1 / (60 + rank) (Cormack et al. 2009), in one statement, so both see the same table

Every request takes a connection from one pool, which looks at a connection before lending it: after the server was
away, requests go on by themselves as soon as it is back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from arbitrag.encode.base import encoded_text
from arbitrag.errors import BackendError, DataError, IndexFileError, MissingExtra, UsageError
from arbitrag.retrieve.base import check_k
from arbitrag.retrieve.servers.address import ServerAddress
from arbitrag.retrieve.servers.postgres_table import (
    COLUMNS,
    Layout,
    Place,
    check_encoder,
    connection_is_lost,
    create,
    finish,
    read_layout,
    require_pgvector,
    storable,
    vector_text,
    write,
)
from arbitrag.retrieve.stored_passage import Progress, batches, flat
from arbitrag.types import Passage

try:
    import psycopg
    from psycopg import sql
    from psycopg_pool import AsyncConnectionPool
except ImportError as error:
    raise MissingExtra("postgres", "a PostgreSQL index") from error

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder

Mode = Literal["text", "vector", "hybrid"]

_LOADED_AT_ONCE = 1000  # passages
_FUSION = 60  # the constant of reciprocal rank fusion, and the passages that each ranking gives: as HybridRetriever
_FETCHED = 100
_SHALLOWEST_SCAN = 200  # neighbours looked at for few passages too; 40, pgvector's own choice, misses more
_DEEPEST_SCAN = 1000  # pgvector's limit for hnsw.ef_search

# A query's words, each quoted as a term, joined by "or". They come out of to_tsvector, so no operator in the query is
# syntax; a query of stop words only gives NULL, which matches nothing.
_ANY_WORD = sql.SQL(
    r"""(SELECT string_agg('''' || replace(replace(word, '\', '\\'), '''', '''''') || '''', ' | ')::tsquery
    FROM unnest(tsvector_to_array(to_tsvector(%(language)s::regconfig, %(query)s))) AS word)"""
)
_BY_WORDS = sql.SQL(
    """SELECT id, ts_rank(words, asked, 1)::float8 AS score FROM {table}, (SELECT {any_word} AS asked) AS question
    WHERE words @@ asked {where} ORDER BY score DESC, id LIMIT %(depth)s"""
)
_BY_MEANING = sql.SQL(
    """SELECT id, -(embedding <#> %(vector)s::vector) AS score FROM {table} WHERE true {where}
    ORDER BY embedding <#> %(vector)s::vector LIMIT %(depth)s"""
)
_FUSED = sql.SQL(
    """SELECT id, sum(1.0 / ({constant} + place))::float8 AS score FROM (
    SELECT id, row_number() OVER (ORDER BY score DESC, id) AS place FROM ({by_words}) AS by_words
    UNION ALL SELECT id, row_number() OVER (ORDER BY score DESC, id) FROM ({by_meaning}) AS by_meaning
    ) AS places GROUP BY id"""
)
_WHOLE = sql.SQL(
    """SELECT {columns}, {embedding}, found.score FROM ({found}) AS found JOIN {table} AS passage USING (id)
    ORDER BY found.score DESC, id LIMIT %(k)s"""
)


class PostgresRetriever:
    """A retriever over one PostgreSQL table; make it with ``open``."""

    def __init__(
        self,
        place: Place,
        layout: Layout,
        mode: Mode,
        encoder: Encoder | None,
        *,
        connections: int,
        timeout_s: float,
        closes_encoder: bool,
    ) -> None:
        self._place = place
        self._layout = layout
        self._mode: Mode = mode
        self.encoder = encoder
        self._closes_encoder = closes_encoder
        self._timeout_s = timeout_s
        self._statements: dict[tuple[Mode, bool], sql.Composed] = {}
        self._opening = asyncio.Lock()
        self._pool = AsyncConnectionPool(
            place.dsn,
            open=False,
            min_size=1,
            max_size=connections,
            timeout=timeout_s,
            reconnect_timeout=timeout_s,  # a later request tries again; longer pauses would only delay the recovery
            check=AsyncConnectionPool.check_connection,
            # Plain statements, and settings inside transactions only: this also works behind a transaction pooler.
            kwargs={"autocommit": True, "prepare_threshold": None, "connect_timeout": max(2, round(timeout_s))},
        )
        self.name = f"postgres:{place.server}/{place.table} ({mode})"
        vectors = "" if mode == "text" else f":{layout.encoder}"
        self.identity = f"postgres:{place.server}/{place.table}:{mode}:{layout.language}{vectors}"

    @classmethod
    def open(
        cls,
        dsn: str,
        *,
        table: str = "passages",
        encoder: Encoder | None = None,
        mode: Mode | None = None,
        connections: int = 8,
        timeout_s: float = 10.0,
        closes_encoder: bool = False,
    ) -> PostgresRetriever:
        """The passages that ``load`` put into ``table`` (or ``schema.table``) at a libpq address.

        ``mode`` is hybrid with an encoder and text without one, unless given. A request that gets no answer within
        ``timeout_s`` seconds fails. The encoder stays the caller's to close, unless ``closes_encoder``.

        Looks at the table once, so it blocks for a moment. Raises UsageError for an address, a table name or a mode
        that cannot be one, BackendError for a server that cannot be reached or has no pgvector where vectors are
        asked for, IndexFileError for a missing table or vectors of another encoder.
        """
        mode = mode or ("text" if encoder is None else "hybrid")
        if mode not in ("text", "vector", "hybrid"):
            raise UsageError(f"mode is '{mode}'; expected text, vector or hybrid")
        place = Place.of(dsn, table)
        if mode != "text" and encoder is None:
            raise UsageError(f"mode {mode} needs the encoder that {place.table} was loaded with; give encoder=…")
        with place.connect(timeout_s) as connection:
            layout = read_layout(connection, place)
            if layout is None:
                raise IndexFileError(
                    f"there is no table '{place.table}' at {place.server}.\n"
                    "Load the passages first: arbitrag.retrieve.servers.postgres.load(dsn, passages, table=NAME)"
                )
            if mode != "text" and encoder is not None:
                require_pgvector(connection, place, create=False)
                check_encoder(place, layout, encoder)
        return cls(
            place,
            layout,
            mode,
            encoder,
            connections=connections,
            timeout_s=timeout_s,
            closes_encoder=closes_encoder,
        )

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        """At most ``k`` passages, best first. ``score`` is what the mode ranks by (see the module).

        Raises BackendError when the server is away, refuses or does not answer in time; the next call tries anew.
        """
        check_k(k)
        vector = await self._vector(query)
        mode = self._mode
        if vector is None and mode != "text":  # nothing in the query to compare, so nothing is near it
            if mode == "vector":
                return ()
            mode = "text"
        depth = k if mode != "hybrid" else max(k, _FETCHED)
        values = {
            "query": storable(query),
            "language": self._layout.language,
            "vector": vector,
            "where": json.dumps({storable(key): storable(value) for key, value in (where or {}).items()}),
            "depth": depth,
            "k": k,
        }
        rows = await self._rows(self._statement(mode, bool(where)), values, depth if mode != "text" else 0)
        return tuple(_passage(row, self._layout.encoder) for row in rows)

    async def aclose(self) -> None:
        """Give the connections back to the server."""
        await self._pool.close()
        if self._closes_encoder and self.encoder is not None:
            await self.encoder.aclose()

    async def _vector(self, query: str) -> str | None:
        """The query's vector in pgvector's notation; None in text mode, and for a vector of zeros."""
        if self._mode == "text" or self.encoder is None:
            return None
        vectors = await self.encoder.encode([query], kind="query")
        if vectors.shape != (1, self._layout.width):
            raise IndexFileError(
                f"{self.encoder.name} gave a vector of shape {vectors.shape} for one query; table "
                f"'{self._place.table}' at {self._place.server} holds vectors {self._layout.width} wide"
            )
        return vector_text(vectors[0]) if vectors.any() else None

    async def _rows(self, statement: sql.Composed, values: Mapping[str, Any], depth: int) -> list[tuple[Any, ...]]:
        """The rows of a statement; ``depth`` is how many neighbours it asks of the vector index, 0 for none."""
        with self._place.secrets.kept():
            return await self._fetched(statement, values, depth)

    async def _fetched(self, statement: sql.Composed, values: Mapping[str, Any], depth: int) -> list[tuple[Any, ...]]:
        server = f"PostgreSQL at {self._place.server}"
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._open()
                async with self._pool.connection() as connection, connection.transaction():
                    if depth:
                        await connection.execute(
                            "SELECT set_config('hnsw.ef_search', %s, true),"
                            " set_config('hnsw.iterative_scan', 'strict_order', true)",
                            (str(min(max(4 * depth, _SHALLOWEST_SCAN), _DEEPEST_SCAN)),),
                        )
                    async with connection.cursor(binary=True) as cursor:
                        await cursor.execute(statement, values)
                        return await cursor.fetchall()
        except TimeoutError as error:
            raise BackendError(f"{server} did not answer within {self._timeout_s:g} s") from error
        except psycopg.Error as error:
            if connection_is_lost(error):
                raise BackendError(
                    f"lost {server} while searching '{self._place.table}': {self._place.reason(error)}\n"
                    "Check that the server runs; the next question connects anew."
                ) from error
            raise BackendError(f"{server} cannot search '{self._place.table}': {self._place.reason(error)}") from error

    async def _open(self) -> None:
        async with self._opening:
            await self._pool.open()

    def _statement(self, mode: Mode, filtered: bool) -> sql.Composed:
        if (mode, filtered) not in self._statements:
            self._statements[mode, filtered] = self._compose(mode, filtered)
        return self._statements[mode, filtered]

    def _compose(self, mode: Mode, filtered: bool) -> sql.Composed:
        """The statement whose rows are the columns of a passage, its embedding and its score, best first."""
        table = self._place.identifier
        where = sql.SQL("AND metadata @> %(where)s::jsonb" if filtered else "")
        by_words = _BY_WORDS.format(table=table, any_word=_ANY_WORD, where=where)
        by_meaning = _BY_MEANING.format(table=table, where=where)
        found = {
            "text": by_words,
            "vector": by_meaning,
            "hybrid": _FUSED.format(constant=sql.Literal(_FUSION), by_words=by_words, by_meaning=by_meaning),
        }
        return _WHOLE.format(
            columns=sql.SQL(", ").join(map(sql.Identifier, COLUMNS)),
            embedding=sql.SQL("NULL" if self._layout.width is None else "embedding::real[]"),
            found=found[mode],
            table=table,
        )


async def load(
    dsn: str,
    passages: Iterable[Passage],
    *,
    table: str = "passages",
    encoder: Encoder | None = None,
    language: str = "english",
    progress: Progress | None = None,
    timeout_s: float = 10.0,
) -> int:
    """Put passages into a table, making it where it is missing, and return how many were sent.

    A thousand at a time are encoded, copied and committed, so what was reported to ``progress(done, total, what)``
    stays after a crash, and loading the same passages again goes on without doubling any: a passage replaces the one
    with its id (one without an id gets one from its content). ``language`` is one of the server's text search
    configurations. U+0000 and lone surrogates, which PostgreSQL cannot hold, become U+FFFD. Beyond 50,000 passages,
    vectors up to 2,000 wide get an HNSW index, by the call that crosses that line; wider ones are searched one by one.

    Raises what ``PostgresRetriever.open`` raises, and DataError for a passage that the server refuses.
    """
    place = Place.of(dsn, table)
    with place.secrets.kept():
        return await _load(place, passages, encoder, language, progress, timeout_s)


async def _load(
    place: Place,
    passages: Iterable[Passage],
    encoder: Encoder | None,
    language: str,
    progress: Progress | None,
    timeout_s: float,
) -> int:
    total = len(passages) if isinstance(passages, Sequence) else None
    connection = await asyncio.to_thread(place.connect, timeout_s)
    done = 0
    layout: Layout | None = None
    try:
        for batch in batches(passages, _LOADED_AT_ONCE):
            vectors = None
            if encoder is not None:
                vectors = await encoder.encode([encoded_text(passage) for passage in batch], kind="passage")
            width = None if vectors is None else int(vectors.shape[1])
            if layout is None:
                layout = await asyncio.to_thread(_prepared, connection, place, encoder, width, language)
            await asyncio.to_thread(write, connection, place, batch, vectors)
            done += len(batch)
            if progress is not None:
                progress(done, total, "passages")
        if layout is not None:
            await asyncio.to_thread(finish, connection, place, layout)
    except psycopg.Error as error:
        if connection_is_lost(error):
            raise BackendError(
                f"lost PostgreSQL at {place.server} after {done:,} passages: {place.reason(error)}\n"
                "Load again: what is there is kept, and replaced by its id."
            ) from error
        raise DataError(
            f"PostgreSQL at {place.server} refuses a passage after the first {done:,}: {place.reason(error)}"
        ) from error
    finally:
        with suppress(psycopg.Error):
            connection.close()
    return done


def _prepared(
    connection: psycopg.Connection[Any], place: Place, encoder: Encoder | None, width: int | None, language: str
) -> Layout:
    """The layout of the table, which is made where it is missing and must suit the passages where it is there."""
    if encoder is not None:
        require_pgvector(connection, place, create=True)
    layout = read_layout(connection, place)
    if layout is None:
        layout = Layout(language, encoder.identity if encoder else "", width)
        create(connection, place, layout)
        return layout
    if layout.language != language:
        raise IndexFileError(f"table '{place.table}' at {place.server} is in {layout.language}, not {language}")
    if encoder is not None:
        check_encoder(place, layout, encoder)
    elif layout.width is not None:
        raise IndexFileError(
            f"table '{place.table}' at {place.server} holds vectors of {layout.encoder}; load with that encoder"
        )
    return layout


def _passage(row: tuple[Any, ...], encoder: str) -> Passage:
    id, text, title, source, line, offset, date, metadata, embedding, score = row
    return Passage(
        text=text,
        id=id,
        title=title,
        source=source,
        line=line,
        offset=offset,
        score=float(score),
        date=date,
        metadata=flat(metadata),
        embedding=None if embedding is None else np.array(embedding, np.float32),
        embedded_by="" if embedding is None else encoder,
    )


def open_address(asked: ServerAddress) -> PostgresRetriever:
    """The passages at an address; raises what ``open_index`` raises."""
    asked.refuse("text_field")
    return PostgresRetriever.open(
        asked.place,
        table=asked.options.get("table", "passages"),
        mode=asked.options.get("mode"),  # type: ignore[arg-type]  # open() looks at it
        encoder=asked.encoder,
        closes_encoder=asked.closes_encoder,
    )
