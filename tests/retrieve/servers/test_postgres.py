"""The PostgreSQL retriever on a real server: ranking, loading, refusals, and a server that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from retriever_parts import PASSAGES, TinyEncoder, running_postgres

pytest.importorskip("psycopg_pool")

import psycopg

from arbitrag.encode.hashed import HashEncoder
from arbitrag.errors import ArbitragError, BackendError, DataError, IndexFileError, UsageError
from arbitrag.retrieve import open_index
from arbitrag.retrieve.servers import postgres_table
from arbitrag.retrieve.servers.postgres import PostgresRetriever, load
from arbitrag.testing.postgres import PostgresServer
from arbitrag.types import Passage

pytestmark = pytest.mark.peer


@pytest.fixture
def server() -> PostgresServer:
    return running_postgres()


@pytest.fixture
def dsn(server: PostgresServer) -> str:
    """The address of an empty database."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS fresh WITH (FORCE)")
        connection.execute("CREATE DATABASE fresh TEMPLATE template0")
    return server.database("fresh")


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    running_postgres()  # skips where none starts
    with PostgresServer() as server:
        yield server


def execute(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


def ids(passages: tuple[Passage, ...]) -> list[str]:
    return [passage.id for passage in passages]


async def test_every_field_of_a_passage_comes_back(dsn: str) -> None:
    encoder = TinyEncoder()
    await load(dsn, PASSAGES, encoder=encoder)
    retriever = PostgresRetriever.open(dsn, encoder=encoder, mode="vector")
    (found,) = await retriever.retrieve("comet river", 1)
    await retriever.aclose()
    sel = PASSAGES[1]
    assert (found.text, found.id, found.title, found.source) == (sel.text, "sel", "", "sky.md")
    assert (found.line, found.offset, found.date, dict(found.metadata)) == (3, 40, "2024-05-01", {})
    assert found.score == pytest.approx(1.0, abs=1e-6)  # both are (0, 1, 1, 0, 0, 0) / sqrt(2)
    assert found.embedding is not None
    assert found.embedding.dtype == np.float32
    assert found.embedding.tolist() == pytest.approx(encoder.vector(sel.text), abs=1e-7)


async def test_text_search_knows_word_forms_and_weighs_titles(dsn: str) -> None:
    passages = [
        Passage("Running water.", id="text"),
        Passage("Nothing of the kind.", id="title", title="Runs"),
        Passage("Still water.", id="other"),
    ]
    await load(dsn, passages)
    retriever = PostgresRetriever.open(dsn)
    found = await retriever.retrieve("Who ran? Who was running?", 5)
    await retriever.aclose()
    assert ids(found) == ["title", "text"]
    assert all(passage.embedding is None for passage in found)
    assert "(text)" in retriever.name


async def test_the_language_decides_about_stop_words(dsn: str) -> None:
    await load(dsn, [Passage("the of", id="1")], table="plain", language="simple")
    retriever = PostgresRetriever.open(dsn, table="plain")
    assert ids(await retriever.retrieve("the", 5)) == ["1"]
    await retriever.aclose()
    with pytest.raises(UsageError, match="Did you mean 'english'"):
        await load(dsn, PASSAGES, table="other", language="englisch")
    with pytest.raises(IndexFileError, match="is in simple, not english"):
        await load(dsn, PASSAGES, table="plain")


async def test_hybrid_is_the_sum_of_reciprocal_ranks(dsn: str) -> None:
    encoder = TinyEncoder()
    passages = [
        Passage("comet", id="a"),  # first by words and by meaning
        Passage("comet river and many other words besides", id="b"),  # second by both
        Passage("comets abound", id="c"),  # by meaning it is as near as a, and its id comes later
    ]
    await load(dsn, passages, encoder=encoder, language="simple")
    retriever = PostgresRetriever.open(dsn, encoder=encoder)
    found = await retriever.retrieve("comet", 3)
    await retriever.aclose()
    # words: a (shorter), b. meaning: a and c at cosine 1, then b at 1 / sqrt(2).
    assert {passage.id: passage.score for passage in found} == pytest.approx(
        {"a": 2 / 61, "b": 1 / 62 + 1 / 63, "c": 1 / 62}
    )
    assert ids(found) == ["a", "b", "c"]
    assert "(hybrid)" in retriever.name


async def test_a_query_with_nothing_to_encode_is_searched_by_words_alone(dsn: str) -> None:
    encoder = TinyEncoder()
    await load(dsn, PASSAGES, encoder=encoder)
    hybrid = PostgresRetriever.open(dsn, encoder=encoder)
    vector = PostgresRetriever.open(dsn, encoder=encoder, mode="vector")
    assert ids(await hybrid.retrieve("Orrin", 5)) == ["orrin"]
    assert await vector.retrieve("Orrin", 5) == ()
    await hybrid.aclose()
    await vector.aclose()


async def test_many_passages_get_a_vector_index_and_are_still_found(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_table, "EXACT_UP_TO", 100)
    random = np.random.default_rng(0)
    axes = [f"axis{chr(97 + n)}" for n in range(16)]
    passages = [
        Passage(" ".join(random.choice(axes, 5)), id=f"{n:03}", metadata={"tenth": str(n % 10)}) for n in range(400)
    ]
    encoder = TinyEncoder(axes)
    calls: list[tuple[int, int | None, str]] = []
    await load(dsn, passages, encoder=encoder, progress=lambda *call: calls.append(call))
    assert calls == [(400, 400, "passages")]
    assert execute(dsn, "SELECT count(*) FROM pg_indexes WHERE indexdef LIKE '%USING hnsw%'") == [(1,)]
    retriever = PostgresRetriever.open(dsn, encoder=encoder, mode="vector")
    query = "axisa axisb axisc"
    exact = sorted(-float(np.dot(encoder.vector(query), encoder.vector(p.text))) for p in passages)[:20]
    found = await retriever.retrieve(query, 20)
    tenth = await retriever.retrieve(query, 40, {"tenth": "3"})
    await retriever.aclose()
    assert [-(p.score or 0) for p in found] == pytest.approx(exact, abs=1e-6)
    assert {p.metadata["tenth"] for p in tenth} == {"3"}
    assert len(tenth) == 40  # the index goes on until enough of them pass the filter


async def test_loading_again_replaces_by_id_and_reports_each_thousand(dsn: str) -> None:
    calls: list[tuple[int, int | None, str]] = []
    many = (Passage(f"number {n}", id=str(n)) for n in range(2500))
    assert await load(dsn, many, progress=lambda *call: calls.append(call)) == 2500
    assert calls == [(1000, None, "passages"), (2000, None, "passages"), (2500, None, "passages")]
    await load(dsn, [Passage("changed once", id="7"), Passage("changed twice", id="7"), Passage("without id")])
    await load(dsn, [Passage("without id")])
    assert execute(dsn, "SELECT count(*) FROM passages") == [(2501,)]
    assert execute(dsn, "SELECT text FROM passages WHERE id = '7'") == [("changed twice",)]
    assert await load(dsn, []) == 0


async def test_what_postgresql_cannot_hold_is_replaced(dsn: str) -> None:
    await load(dsn, [Passage("nul \0 and \ud800 here", metadata={"a\0": "b\0"})])
    retriever = PostgresRetriever.open(dsn)
    (found,) = await retriever.retrieve("nul\0 \udfff", 1, {"a\0": "b\0"})
    await retriever.aclose()
    assert found.text == "nul \ufffd and \ufffd here"
    assert dict(found.metadata) == {"a\ufffd": "b\ufffd"}
    assert len(found.id) == 24


async def test_a_table_in_a_schema_with_an_odd_name(dsn: str) -> None:
    execute(dsn, 'CREATE SCHEMA "Odd ""one"""')
    table = 'Odd "one".my; table'
    await load(dsn, PASSAGES, table=table, encoder=TinyEncoder())
    retriever = PostgresRetriever.open(dsn, table=table)
    assert ids(await retriever.retrieve("comet", 3)) == ["sel"]
    await retriever.aclose()


async def test_the_address_opens_it_and_keeps_the_password_to_itself(dsn: str) -> None:
    await load(dsn, PASSAGES, table="things")
    with_password = dsn.replace("postgres@", "postgres:hunter2@")
    retriever = open_index(f"postgres:{with_password}&table=things&mode=text")
    assert ids(await retriever.retrieve("comet", 3)) == ["sel"]
    await retriever.aclose()
    await load(dsn, PASSAGES, table="vectors", encoder=HashEncoder())
    hybrid = open_index(f"postgres:{dsn}&table=vectors&encoder=hash")
    assert ids(await hybrid.retrieve("comet over a river", 1)) == ["sel"]
    await hybrid.aclose()
    for shown in (retriever.name, retriever.identity, repr(retriever)):
        assert "hunter2" not in shown
    with pytest.raises(BackendError) as missing:
        open_index(f"postgres:{with_password.replace('/fresh', '/nowhere')}")
    assert "hunter2" not in str(missing.value)
    assert 'database "nowhere" does not exist' in str(missing.value)


@pytest.mark.parametrize("address", ["hunter2", "postgresql://u:hunter2@[host/x", "host=x password"])
def test_what_is_no_address_is_not_repeated(address: str) -> None:
    with pytest.raises(UsageError, match="not a PostgreSQL address") as raised:
        PostgresRetriever.open(address)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("table", ["", "a.b.c", "a.", "a\0b"])
def test_what_is_no_table_name_is_refused(table: str) -> None:
    with pytest.raises(UsageError, match="is not a table name"):
        PostgresRetriever.open("postgresql://host/x", table=table)


def test_modes_are_checked_before_the_server_is_asked() -> None:
    with pytest.raises(UsageError, match="mode is 'words'; expected text, vector or hybrid"):
        open_index("postgres://host/x?mode=words")
    with pytest.raises(UsageError, match="mode vector needs the encoder that passages was loaded with"):
        open_index("postgres://host/x?mode=vector")


async def test_a_table_that_is_missing_or_somebody_elses(dsn: str) -> None:
    with pytest.raises(IndexFileError, match=r"there is no table 'passages' at .*\nLoad the passages first") as raised:
        PostgresRetriever.open(dsn)
    assert str(raised.value).count("\n") == 1
    execute(dsn, "CREATE TABLE passages (id int)")
    with pytest.raises(IndexFileError, match="was not made by arbitrag"):
        PostgresRetriever.open(dsn)
    with pytest.raises(IndexFileError, match="was not made by arbitrag"):
        await load(dsn, PASSAGES)


async def test_vectors_of_another_encoder_are_never_compared(dsn: str) -> None:
    encoder, wider = TinyEncoder(), TinyEncoder(("comet",) * 9)
    await load(dsn, PASSAGES, encoder=encoder)
    await load(dsn, PASSAGES, table="words_only")
    with pytest.raises(IndexFileError, match="holds vectors of tiny:1, 6 wide; this encoder is tiny:1, 9"):
        PostgresRetriever.open(dsn, encoder=wider)
    with pytest.raises(IndexFileError, match="this encoder is tiny:2, 6"):
        PostgresRetriever.open(dsn, encoder=TinyEncoder(identity="tiny:2"))
    with pytest.raises(IndexFileError, match="holds no vectors"):
        PostgresRetriever.open(dsn, table="words_only", encoder=encoder)
    with pytest.raises(IndexFileError, match="holds vectors of tiny:1, 6 wide"):
        await load(dsn, PASSAGES, encoder=TinyEncoder(identity="tiny:2"))
    with pytest.raises(IndexFileError, match="load with that encoder"):
        await load(dsn, PASSAGES)
    retriever = PostgresRetriever.open(dsn, encoder=encoder)
    encoder.axes = ("comet",) * 9  # a server's model that changed its mind
    with pytest.raises(IndexFileError, match=r"gave a vector of shape \(1, 9\)"):
        await retriever.retrieve("comet", 1)
    await retriever.aclose()


async def test_a_server_without_pgvector_says_what_to_install_and_still_searches_words(dsn: str) -> None:
    execute(dsn, "ALTER DATABASE fresh SET extension_control_path = '/nonexistent'")
    with pytest.raises(BackendError, match=r"has no pgvector.*\nInstall it on the server"):
        await load(dsn, PASSAGES, encoder=TinyEncoder())
    await load(dsn, PASSAGES)
    retriever = PostgresRetriever.open(dsn)
    assert ids(await retriever.retrieve("comet", 3)) == ["sel"]
    await retriever.aclose()


async def test_a_user_who_may_not_switch_pgvector_on_is_told_the_command(dsn: str, server: PostgresServer) -> None:
    execute(dsn, "DROP ROLE IF EXISTS reader")
    execute(dsn, "CREATE ROLE reader LOGIN")
    execute(dsn, "GRANT CREATE ON SCHEMA public TO reader")
    with pytest.raises(BackendError, match=r"may not switch it on\.\n.*CREATE EXTENSION vector;"):
        await load(server.database("fresh", "reader"), PASSAGES, encoder=TinyEncoder())


async def test_an_old_pgvector_is_refused(dsn: str) -> None:
    await load(dsn, PASSAGES, encoder=TinyEncoder())
    execute(dsn, "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")
    with pytest.raises(BackendError, match=r"has pgvector 0\.7\.4; 0\.8 or newer is needed"):
        PostgresRetriever.open(dsn, encoder=TinyEncoder())


async def test_a_passage_that_the_server_refuses(dsn: str) -> None:
    words = " ".join(f"w{n:07}" for n in range(200_000))
    with pytest.raises(DataError, match=r"refuses a passage after the first 0: string is too long for tsvector"):
        await load(dsn, [Passage(words, id="1")])


async def test_a_table_that_goes_away_is_an_error_of_that_call_only(dsn: str) -> None:
    await load(dsn, PASSAGES)
    await load(dsn, PASSAGES, table="other")
    gone, other = PostgresRetriever.open(dsn), PostgresRetriever.open(dsn, table="other")
    execute(dsn, "DROP TABLE passages")
    with pytest.raises(BackendError, match="cannot search 'passages': relation \"passages\" does not exist"):
        await gone.retrieve("comet", 1)
    assert ids(await other.retrieve("comet", 1)) == ["sel"]
    await load(dsn, PASSAGES)
    assert ids(await gone.retrieve("comet", 1)) == ["sel"]
    await gone.aclose()
    await other.aclose()


async def test_ended_sessions_fail_alone_and_the_pool_recovers(dsn: str) -> None:
    await load(dsn, PASSAGES)
    retriever = PostgresRetriever.open(dsn, connections=4)
    locker = await psycopg.AsyncConnection.connect(dsn)
    await locker.execute("LOCK TABLE passages")
    waiting = [asyncio.create_task(retriever.retrieve("comet", 1)) for _ in range(3)]
    others = "FROM pg_stat_activity WHERE datname = 'fresh' AND wait_event_type = 'Lock'"
    async with asyncio.timeout(10):
        while execute(dsn, f"SELECT count(*) {others}") != [(3,)]:  # noqa: ASYNC110 - the server rings no bell
            await asyncio.sleep(0.01)
    execute(dsn, f"SELECT pg_terminate_backend(pid) {others}")
    failures = await asyncio.gather(*waiting, return_exceptions=True)
    await locker.close()
    for failure in failures:
        assert isinstance(failure, BackendError)
        assert str(failure).startswith("lost PostgreSQL at ")
        assert str(failure).endswith("the next question connects anew.")
    found = await asyncio.gather(*(retriever.retrieve("comet", 1) for _ in range(10)))
    await retriever.aclose()
    assert [ids(each) for each in found] == [["sel"]] * 10


async def test_a_server_that_goes_away_and_comes_back(own_server: PostgresServer) -> None:
    await load(own_server.dsn, PASSAGES)
    retriever = PostgresRetriever.open(own_server.dsn, timeout_s=0.5)
    assert ids(await retriever.retrieve("comet", 1)) == ["sel"]
    own_server.stop()
    with pytest.raises(BackendError, match=r"PostgreSQL at .*(did not answer within 0\.5 s|while searching)"):
        await retriever.retrieve("comet", 1)
    with pytest.raises(BackendError, match="cannot reach PostgreSQL at"):
        PostgresRetriever.open(own_server.dsn)
    own_server.start()
    for _ in range(20):
        try:
            found = await retriever.retrieve("comet", 1)
            break
        except BackendError:
            continue
    await retriever.aclose()
    assert ids(found) == ["sel"]


async def test_a_server_that_ends_while_passages_are_loaded_keeps_what_was_reported(own_server: PostgresServer) -> None:
    def stop(done: int, total: int | None, what: str) -> None:
        own_server.stop()

    many = [Passage(f"number {n}", id=str(n)) for n in range(1500)]
    with pytest.raises(BackendError, match=r"lost PostgreSQL at .* after 1,000 passages"):
        await load(own_server.dsn, many, progress=stop)
    own_server.start()
    assert execute(own_server.dsn, "SELECT count(*) FROM passages") == [(1000,)]
    assert await load(own_server.dsn, many) == 1500
    assert execute(own_server.dsn, "SELECT count(*) FROM passages") == [(1500,)]


async def test_an_answer_that_does_not_come_in_time(dsn: str) -> None:
    await load(dsn, PASSAGES)
    retriever = PostgresRetriever.open(dsn, timeout_s=0.2)
    async with await psycopg.AsyncConnection.connect(dsn) as locker:
        await locker.execute("LOCK TABLE passages")
        with pytest.raises(BackendError, match=r"did not answer within 0\.2 s"):
            await retriever.retrieve("comet", 1)
    assert ids(await retriever.retrieve("comet", 1)) == ["sel"]
    await retriever.aclose()
    with pytest.raises(BackendError, match="lost PostgreSQL"):
        await retriever.retrieve("comet", 1)


def test_the_test_server_cleans_up_and_says_why_it_does_not_start(own_server: PostgresServer) -> None:
    own_server.stop()
    (own_server.folder / "data" / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(ArbitragError, match="PostgreSQL does not start"):
        own_server.start()
    folder = Path(own_server.folder)
    own_server.__exit__()
    assert not folder.exists()
