"""What every retriever promises, checked on every one that can be started here.

PostgreSQL is a real server and Qdrant its client's own local mode; Elasticsearch is a scripted server (elastic_parts).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from elastic_parts import FakeElastic
from retriever_parts import PASSAGES, TinyEncoder, overlap, running_postgres

from arbitrag.errors import UsageError
from arbitrag.retrieve.base import Retriever
from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.retrieve.hybrid import HybridRetriever
from arbitrag.retrieve.index.bm25 import Bm25Index
from arbitrag.types import Passage

Open = Callable[[Sequence[Passage]], AbstractAsyncContextManager[Retriever]]


@asynccontextmanager
async def fixed(passages: Sequence[Passage]) -> AsyncIterator[Retriever]:
    scored = [Passage(p.text, p.id, p.title, score=1 / n, metadata=p.metadata) for n, p in enumerate(passages, 1)]
    yield FixedRetriever(scored)


@asynccontextmanager
async def bm25(passages: Sequence[Passage]) -> AsyncIterator[Retriever]:
    yield Bm25Index.in_memory(passages)


def postgres(mode: Any) -> Open:
    @asynccontextmanager
    async def opened(passages: Sequence[Passage]) -> AsyncIterator[Retriever]:
        server = running_postgres()
        from arbitrag.retrieve.servers import postgres_table
        from arbitrag.retrieve.servers.postgres import PostgresRetriever, load

        encoder = None if mode == "text" else TinyEncoder()
        place = postgres_table.Place.of(server.dsn, f"contract_{mode}")
        with place.connect(5) as connection:
            connection.execute(f"DROP TABLE IF EXISTS contract_{mode}")
            if not passages:
                postgres_table.require_pgvector(connection, place, create=True)
                width = encoder.width if encoder else None
                layout = postgres_table.Layout("english", encoder.identity if encoder else "", width)
                postgres_table.create(connection, place, layout)
        await load(server.dsn, passages, table=place.table, encoder=encoder)
        retriever = PostgresRetriever.open(server.dsn, table=place.table, encoder=encoder, mode=mode)
        try:
            yield retriever
        finally:
            await retriever.aclose()

    return opened


@asynccontextmanager
async def qdrant(passages: Sequence[Passage]) -> AsyncIterator[Retriever]:
    client_module = pytest.importorskip("qdrant_client")
    from arbitrag.retrieve.servers.qdrant import QdrantRetriever, load

    client, encoder = client_module.AsyncQdrantClient(":memory:"), TinyEncoder()
    await load(client, "things", [*passages, Passage("to be gone", id="gone")], encoder=encoder)
    gone = [point.id for point in (await client.scroll("things"))[0] if point.payload["id"] == "gone"]
    await client.delete("things", points_selector=gone)
    yield QdrantRetriever(client, "things", encoder)
    await client.close()


def elastic(mode: Any) -> Open:
    @asynccontextmanager
    async def opened(passages: Sequence[Passage]) -> AsyncIterator[Retriever]:
        pytest.importorskip("elasticsearch")
        from arbitrag.retrieve.servers.elastic import ElasticRetriever, load

        encoder = TinyEncoder() if mode == "vector" else None
        with FakeElastic() as server:
            await load(server.url, "things", [*passages, Passage("to be gone", id="gone")], encoder=encoder)
            del server.indices["things"]["documents"]["gone"]
            retriever = ElasticRetriever.open(server.url, "things", encoder=encoder)
            yield retriever
            await retriever.aclose()

    return opened


@asynccontextmanager
async def hybrid(passages: Sequence[Passage]) -> AsyncIterator[Retriever]:
    async with bm25(passages) as first, qdrant(passages) as second:
        yield HybridRetriever(first, second)


@asynccontextmanager
async def langchain(passages: Sequence[Passage]) -> AsyncIterator[Retriever]:
    pytest.importorskip("langchain_core")
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever

    from arbitrag.integrations import from_langchain

    documents = [Document(p.text, id=p.id, metadata={"title": p.title, **p.metadata}) for p in passages]

    class Words(BaseRetriever):
        def _get_relevant_documents(
            self, query: str, *, run_manager: object, where: dict[str, str] | None = None
        ) -> list[Document]:
            kept = [d for d in documents if (where or {}).items() <= d.metadata.items()]
            hits = [d for d in kept if overlap(query, d.page_content)]
            return sorted(hits, key=lambda d: -overlap(query, d.page_content))

        async def _aget_relevant_documents(
            self, query: str, *, run_manager: object, where: dict[str, str] | None = None
        ) -> list[Document]:
            return self._get_relevant_documents(query, run_manager=run_manager, where=where)

    yield from_langchain(Words(), filters=lambda where: {"where": where})


@asynccontextmanager
async def llamaindex(passages: Sequence[Passage]) -> AsyncIterator[Retriever]:
    pytest.importorskip("llama_index.core")
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

    from arbitrag.integrations import from_llamaindex

    nodes = [TextNode(id_=p.id, text=p.text, metadata=dict(p.metadata)) for p in passages]

    class Words(BaseRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            scores = [(float(overlap(query_bundle.query_str, node.text)), node) for node in nodes]
            hits = [NodeWithScore(node=node, score=score) for score, node in scores if score]
            return sorted(hits, key=lambda hit: -(hit.score or 0))

    yield from_llamaindex(Words())


@asynccontextmanager
async def haystack(passages: Sequence[Passage]) -> AsyncIterator[Retriever]:
    os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")
    pytest.importorskip("haystack.components.retrievers.in_memory")
    from haystack import Document
    from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    from arbitrag.integrations import from_haystack

    store = InMemoryDocumentStore(bm25_algorithm="BM25Plus")
    store.write_documents([Document(id=p.id, content=p.text, meta=dict(p.metadata)) for p in passages])
    yield from_haystack(InMemoryBM25Retriever(store))


@dataclass(frozen=True)
class Case:
    open: Open
    searches: bool = True  # looks at the query at all
    filters: bool = True  # takes a where


CASES = {
    "fixed": Case(fixed, searches=False),
    "bm25": Case(bm25),
    "postgres text": Case(postgres("text")),
    "postgres vector": Case(postgres("vector")),
    "postgres hybrid": Case(postgres("hybrid")),
    "qdrant": Case(qdrant),
    "elastic text (scripted)": Case(elastic("text")),
    "elastic vector (scripted)": Case(elastic("vector")),
    "hybrid of bm25 and qdrant": Case(hybrid),
    "langchain": Case(langchain),
    "llamaindex": Case(llamaindex, filters=False),
    "haystack": Case(haystack),
}
every = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
searching = pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.searches], ids=[name for name in CASES if CASES[name].searches]
)
filtering = pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.filters], ids=[name for name in CASES if CASES[name].filters]
)


@every
@pytest.mark.parametrize("k", [1, 2, 20])
async def test_at_most_k_come_best_first_with_scores(case: Case, k: int) -> None:
    async with case.open(PASSAGES) as retriever:
        found = await retriever.retrieve("tulip lighthouse", k)
    assert len(found) <= k
    if k < 3:
        assert len(found) == k
    scores = [passage.score for passage in found]
    assert all(isinstance(score, float) for score in scores)
    assert scores == sorted(scores, key=lambda score: -(score or 0))
    assert len({passage.id for passage in found}) == len(found)


@every
@pytest.mark.parametrize("k", [0, -1])
async def test_fewer_than_one_passage_is_an_error(case: Case, k: int) -> None:
    async with case.open(PASSAGES) as retriever:
        with pytest.raises(UsageError, match=f"^k is {k}; ask for 1 or more"):
            await retriever.retrieve("lighthouse", k)


@searching
async def test_the_best_passage_is_first_and_whole(case: Case) -> None:
    async with case.open(PASSAGES) as retriever:
        found = await retriever.retrieve("lighthouse tulip", 3)
    assert found[0].id == "brae"
    assert found[0].text == "The lighthouse keeper of Brae grows a tulip by the lighthouse."
    assert found[0].metadata["land"] == "south"


@searching
async def test_nonsense_finds_nothing(case: Case) -> None:
    async with case.open(PASSAGES) as retriever:
        assert await retriever.retrieve("xyzzy plugh", 5) == ()


@every
async def test_an_empty_store_has_no_passages(case: Case) -> None:
    async with case.open([]) as retriever:
        assert await retriever.retrieve("lighthouse", 5) == ()


@filtering
async def test_where_keeps_what_has_each_value(case: Case) -> None:
    async with case.open(PASSAGES) as retriever:
        south = await retriever.retrieve("tulip lighthouse", 5, {"land": "south"})
        both = await retriever.retrieve("tulip lighthouse", 5, {"land": "south", "kind": "field notes"})
        none = await retriever.retrieve("tulip lighthouse", 5, {"land": "east"})
        unknown = await retriever.retrieve("tulip lighthouse", 5, {"colour": "south"})
    assert {passage.id for passage in south} == {"brae", "tamm"}
    assert [passage.id for passage in both] == ["tamm"]
    assert (none, unknown) == ((), ())


@every
async def test_concurrent_calls_do_not_meet(case: Case) -> None:
    queries = ["lighthouse", "comet river", "tulip fields", "town"] * 8
    async with case.open(PASSAGES) as retriever:
        alone = [await retriever.retrieve(query, 3) for query in queries[:4]]
        together = await asyncio.gather(*(retriever.retrieve(query, 3) for query in queries))
    assert [[p.id for p in found] for found in together] == [[p.id for p in found] for found in alone] * 8


@pytest.mark.parametrize(
    "query",
    [
        "lighthouse & | ! ( ) <-> :* tulip",
        "lighthouse' OR '1'='1 tulip; DROP TABLE passages; --",
        'lighthouse "tulip',
        "+lighthouse -tulip ~2 title:[a TO z] {x}",
        "lighthouse\ttulip\n\\ /.*/ %s %(k)s {} $1",
        "lighthouse tulip \u202e\u0301 über 灯台 🙂",
        "lighthouse tulip " + "word " * 500,
    ],
)
@searching
async def test_a_query_is_words_and_never_syntax(case: Case, query: str) -> None:
    async with case.open(PASSAGES) as retriever:
        found = await retriever.retrieve(query, 5)
    assert "brae" in {passage.id for passage in found}


@searching
@pytest.mark.parametrize("query", ["", "   ", "?!", "'", "\\", "the of"])
async def test_a_query_without_words_is_no_error(case: Case, query: str) -> None:
    async with case.open(PASSAGES) as retriever:
        assert len(await retriever.retrieve(query, 2)) <= 2


@every
async def test_names_are_for_people_and_closing_twice_is_allowed(case: Case) -> None:
    async with case.open(PASSAGES) as retriever:
        assert retriever.name
        assert retriever.identity
        await retriever.aclose()
        await retriever.aclose()
