"""What the Elasticsearch adapter sends, and how it reads replies and failures, against a scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from retriever_parts import AXES, PASSAGES, TinyEncoder

pytest.importorskip("elasticsearch")

from elastic_parts import FakeElastic

from arbitrag.errors import BackendError, DataError, IndexFileError, UsageError
from arbitrag.retrieve import open_index
from arbitrag.retrieve.servers.elastic import ElasticRetriever, load
from arbitrag.testing import Fault, ScriptedServer
from arbitrag.types import Passage


@pytest.fixture
def server() -> Iterator[FakeElastic]:
    with FakeElastic() as server:
        yield server


async def test_every_field_of_a_passage_comes_back(server: FakeElastic) -> None:
    encoder = TinyEncoder()
    await load(server.url, "things", PASSAGES, encoder=encoder)
    retriever = ElasticRetriever.open(server.url, "things", encoder=encoder)
    (found,) = await retriever.retrieve("comet river", 1)
    await retriever.aclose()
    sel = PASSAGES[1]
    assert (found.text, found.id, found.source, found.line, found.offset, found.date) == (
        *(sel.text, "sel", "sky.md"),
        *(3, 40, "2024-05-01"),
    )
    assert found.score == pytest.approx(1.0, abs=1e-6)
    assert found.embedding is not None
    assert found.embedding.dtype == np.float32
    assert found.embedding.tolist() == pytest.approx(encoder.vector(sel.text), abs=1e-6)


async def test_the_index_is_made_with_these_types(server: FakeElastic) -> None:
    calls: list[tuple[int, int | None, str]] = []
    many = [Passage(f"comet {n}", id=str(n)) for n in range(600)]
    sent = await load(server.url, "things", many, encoder=TinyEncoder(), progress=lambda *call: calls.append(call))
    assert (sent, calls) == (600, [(500, 600, "passages"), (600, 600, "passages")])
    mappings = server.indices["things"]["mappings"]
    assert mappings["_meta"] == {"arbitrag": {"encoder": "tiny:1"}}
    assert mappings["properties"]["embedding"] == {
        "type": "dense_vector",
        "dims": len(AXES),
        "index": True,
        "similarity": "cosine",
    }
    assert mappings["properties"]["metadata"] == {"type": "flattened"}
    assert len(server.indices["things"]["documents"]) == 600
    assert server.requests[-1][:2] == ("POST", "/things/_refresh")
    assert await load(server.url, "nothing", []) == 0


async def test_a_row_of_zeros_is_not_sent_as_a_vector(server: FakeElastic) -> None:
    await load(
        server.url, "things", [Passage("nothing known", id="1"), Passage("comet", id="2")], encoder=TinyEncoder()
    )
    documents = server.indices["things"]["documents"]
    assert "embedding" not in documents["1"]
    assert documents["2"]["embedding"] == [0, 1, 0, 0, 0, 0]


async def test_the_search_request_for_words(server: FakeElastic) -> None:
    await load(server.url, "things", PASSAGES)
    retriever = ElasticRetriever.open(server.url, "things")
    await retriever.retrieve('title:x AND "y"', 7, {"land": "south"})
    await retriever.aclose()
    method, path, body = server.requests[-1]
    assert (method, path) == ("POST", "/things/_search")
    assert body == {
        "size": 7,
        "_source": {"excludes": ["embedding"]},
        "fields": ["embedding"],
        "query": {
            "bool": {
                "must": {"multi_match": {"query": 'title:x AND "y"', "fields": ["text", "title"], "lenient": True}},
                "filter": [{"term": {"metadata.land": "south"}}],
            }
        },
    }


async def test_the_search_request_for_vectors(server: FakeElastic) -> None:
    await load(server.url, "things", PASSAGES, encoder=TinyEncoder())
    retriever = ElasticRetriever.open(server.url, "things", encoder=TinyEncoder())
    await retriever.retrieve("comet", 150, {"land": "south"})
    assert await retriever.retrieve("nothing known", 3) == ()
    await retriever.aclose()
    _, _, body = server.requests[-1]
    assert body["knn"] == {
        "field": "embedding",
        "query_vector": [0, 1, 0, 0, 0, 0],
        "k": 150,
        "num_candidates": 300,
        "filter": [{"term": {"metadata.land": "south"}}],
    }
    assert [path for _, path, _ in server.requests].count("/things/_mapping") == 1  # looked at once


async def test_an_index_that_is_missing_or_of_another_encoder(server: FakeElastic) -> None:
    missing = ElasticRetriever.open(server.url, "things")
    with pytest.raises(IndexFileError, match=r"there is no index 'things' at 127.*\nLoad it first"):
        await missing.retrieve("comet", 1)
    await missing.aclose()
    await load(server.url, "things", PASSAGES, encoder=TinyEncoder())
    await load(server.url, "words", PASSAGES)
    for index, encoder, said in [
        ("things", TinyEncoder(("comet",) * 9), "holds vectors of tiny:1, 6 wide; this encoder is tiny:1, 9"),
        ("things", TinyEncoder(identity="tiny:2"), "this encoder is tiny:2, 6"),
        ("words", TinyEncoder(), "holds no vectors in 'embedding'"),
    ]:
        retriever = ElasticRetriever.open(server.url, index, encoder=encoder)
        with pytest.raises(IndexFileError, match=said):
            await retriever.retrieve("comet", 1)
        await retriever.aclose()
        with pytest.raises(IndexFileError, match=said):
            await load(server.url, index, PASSAGES, encoder=encoder)


@pytest.mark.parametrize(
    ("status", "reply", "said"),
    [
        (401, {"error": {"type": "security_exception"}}, r"refuses the request \(401\); set ELASTIC_API_KEY"),
        (403, {"error": {"type": "security_exception"}}, r"refuses the request \(403\)"),
        (400, {"error": {"type": "too_many_clauses"}}, r"cannot answer \(400\): too_many_clauses"),
        (503, {"error": "busy \x1b[31m"}, r"cannot answer \(503\): busy \\u001b"),
    ],
)
async def test_refusals(server: FakeElastic, status: int, reply: dict[str, Any], said: str) -> None:
    server.fault = (status, reply)
    retriever = ElasticRetriever.open(server.url, "things")
    with pytest.raises(BackendError, match=said) as raised:
        await retriever.retrieve("comet", 1)
    await retriever.aclose()
    assert raised.value.status == status


async def test_a_passage_that_the_server_refuses(server: FakeElastic) -> None:
    item = {"index": {"_id": "1", "status": 400, "error": {"type": "document_parsing_exception", "reason": "too big"}}}
    await load(server.url, "things", PASSAGES)
    original = server.reply

    def refuse(method: str, path: str, body: str) -> tuple[int, dict[str, Any]]:
        return (200, {"errors": True, "items": [item]}) if path.endswith("_bulk") else original(method, path, body)

    server.reply = refuse  # type: ignore[method-assign]
    with pytest.raises(DataError, match=r"refuses 1 passages, the first: .*too big"):
        await load(server.url, "things", [Passage("x", id="1")])


async def test_what_is_not_elasticsearch(server: FakeElastic) -> None:
    server.product = "OpenSearch"
    server.fault = (200, {"hits": {"hits": []}})
    retriever = ElasticRetriever.open(server.url, "things")
    with pytest.raises(BackendError, match="what answers there is not Elasticsearch"):
        await retriever.retrieve("comet", 1)
    await retriever.aclose()


async def test_a_server_that_goes_away_fails_that_call_and_is_used_when_it_is_back(server: FakeElastic) -> None:
    await load(server.url, "things", PASSAGES)
    away = ElasticRetriever.open("http://127.0.0.1:1", "things")
    with pytest.raises(BackendError, match=r"cannot reach index 'things' at 127\.0\.0\.1:1: "):
        await away.retrieve("comet", 1)
    await away.aclose()
    retriever = ElasticRetriever.open(server.url, "things")
    server.fault = (502, {})
    with pytest.raises(BackendError, match="502"):
        await retriever.retrieve("comet", 1)
    server.fault = None
    assert [passage.id for passage in await retriever.retrieve("comet", 1)] == ["sel"]
    await retriever.aclose()


async def test_the_address_opens_it_and_keeps_the_password_to_itself(
    server: FakeElastic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_API_KEY", "k3y")
    await load(server.url, "things", PASSAGES)
    assert server.headers[-1]["authorization"] == "ApiKey k3y"
    address = server.url.replace("//", "//me:hunter2@")
    retriever = open_index(f"elastic:{address}/things?mode=text")
    assert [passage.id for passage in await retriever.retrieve("comet", 1)] == ["sel"]
    server.fault = (500, {"error": "broken"})
    with pytest.raises(BackendError) as raised:
        await retriever.retrieve("comet", 1)
    await retriever.aclose()
    assert server.headers[-1]["authorization"].startswith("Basic ")
    assert "hunter2" not in retriever.name + retriever.identity + str(raised.value)


async def test_documents_of_your_own_need_their_text_named(server: FakeElastic) -> None:
    server.indices["mine"] = {"mappings": {}, "documents": {"7": {"body": "a comet", "metadata": {}}}}
    retriever = open_index(f"elastic:{server.url}/mine?text_field=body")
    (found,) = await retriever.retrieve("comet", 1)
    await retriever.aclose()
    assert (found.text, found.id) == ("a comet", "7")


def test_modes_are_checked_when_it_is_opened() -> None:
    with pytest.raises(UsageError, match="mode is 'hybrid'; expected text or vector"):
        open_index("elastic:http://localhost:9200/things?mode=hybrid")
    with pytest.raises(UsageError, match="mode vector needs the encoder that 'things' was loaded with"):
        open_index("elastic:http://localhost:9200/things?mode=vector")


async def test_an_answer_that_drips_ends_at_the_deadline() -> None:
    """Each byte comes long before any pause between two bytes could be called too long."""
    with ScriptedServer(faults=[Fault.drip(0.02)] * 9) as server:
        address = server.base_url.removesuffix("/v1")
        retriever = ElasticRetriever.open(address, "c", timeout_s=0.3)
        with pytest.raises(BackendError, match=r"gave no whole answer within 0\.3 s|cannot reach .*[Tt]imed? ?out"):
            await asyncio.wait_for(retriever.retrieve("x", 2), 60)
        await retriever.aclose()


@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirect_takes_nothing_elsewhere(status: int) -> None:
    with (
        ScriptedServer() as elsewhere,
        ScriptedServer(faults=[Fault.redirect(f"{elsewhere.base_url}/stolen", status)] * 9) as server,
    ):
        address = server.base_url.removesuffix("/v1")
        retriever = ElasticRetriever.open(address, "c")
        with pytest.raises(BackendError):
            await retriever.retrieve("x", 2)
        await retriever.aclose()
    assert elsewhere.requests == []
