"""The Qdrant retriever on its client's own local mode, and the errors of a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import numpy as np
import pytest
from retriever_parts import PASSAGES, TinyEncoder

pytest.importorskip("qdrant_client")

from qdrant_client import AsyncQdrantClient, models

from arbitrag.errors import BackendError, IndexFileError, UsageError
from arbitrag.retrieve import open_index
from arbitrag.retrieve.servers.qdrant import QdrantRetriever, load
from arbitrag.testing import Fault, ScriptedServer
from arbitrag.types import Passage


@pytest.fixture
async def client() -> AsyncIterator[AsyncQdrantClient]:
    client = AsyncQdrantClient(":memory:")
    yield client
    await client.close()


async def test_every_field_of_a_passage_comes_back(client: AsyncQdrantClient) -> None:
    encoder = TinyEncoder()
    await load(client, "things", PASSAGES, encoder=encoder)
    (found,) = await QdrantRetriever(client, "things", encoder).retrieve("comet river", 1)
    sel = PASSAGES[1]
    assert (found.text, found.id, found.source, found.line, found.offset, found.date) == (
        *(sel.text, "sel", "sky.md"),
        *(3, 40, "2024-05-01"),
    )
    assert found.score == pytest.approx(1.0, abs=1e-6)
    assert found.embedding is not None
    assert found.embedding.dtype == np.float32
    assert found.embedding.tolist() == pytest.approx(encoder.vector(sel.text), abs=1e-6)


async def test_loading_again_replaces_by_id_and_reports_each_batch(client: AsyncQdrantClient) -> None:
    calls: list[tuple[int, int | None, str]] = []
    encoder = TinyEncoder()
    many = [Passage(f"comet {n}", id=str(n)) for n in range(700)]
    assert await load(client, "things", many, encoder=encoder, progress=lambda *call: calls.append(call)) == 700
    assert calls == [(500, 700, "passages"), (700, 700, "passages")]
    await load(client, "things", [Passage("comet changed", id="7")], encoder=encoder)
    assert (await client.count("things")).count == 700


@pytest.mark.parametrize("key", ["land", "two words", "a.b", "über", "x[0]"])
async def test_a_filter_on_any_key(client: AsyncQdrantClient, key: str) -> None:
    encoder = TinyEncoder()
    passages = [Passage("comet one", id="1", metadata={key: "x"}), Passage("comet two", id="2", metadata={key: "y"})]
    await load(client, "things", passages, encoder=encoder)
    found = await QdrantRetriever(client, "things", encoder).retrieve("comet", 5, {key: "y"})
    assert [passage.id for passage in found] == ["2"]


async def test_a_key_that_cannot_be_written_as_a_path_is_refused(client: AsyncQdrantClient) -> None:
    await load(client, "things", PASSAGES, encoder=TinyEncoder())
    with pytest.raises(UsageError, match="cannot filter on a key with a quotation mark"):
        await QdrantRetriever(client, "things", TinyEncoder()).retrieve("comet", 5, {'a"b': "y"})


async def test_a_collection_that_is_missing_or_of_another_encoder(client: AsyncQdrantClient) -> None:
    with pytest.raises(IndexFileError, match="there is no collection 'things' at local"):
        await QdrantRetriever(client, "things", TinyEncoder()).retrieve("comet", 1)
    await load(client, "things", PASSAGES, encoder=TinyEncoder())
    with pytest.raises(IndexFileError, match=r"holds vectors of .*, 6 wide; this encoder is tiny:1, 9"):
        await QdrantRetriever(client, "things", TinyEncoder(("comet",) * 9)).retrieve("comet", 1)
    with pytest.raises(IndexFileError, match="6 wide; this encoder is tiny:1, 9"):
        await load(client, "things", PASSAGES, encoder=TinyEncoder(("comet",) * 9))
    named = {"words": models.VectorParams(size=6, distance=models.Distance.COSINE)}
    await client.create_collection("named", vectors_config=named)
    with pytest.raises(IndexFileError, match="has named vectors"):
        await QdrantRetriever(client, "named", TinyEncoder()).retrieve("comet", 1)


async def test_documents_of_your_own_need_their_text_named(client: AsyncQdrantClient) -> None:
    encoder = TinyEncoder()
    await client.create_collection("mine", vectors_config=models.VectorParams(size=6, distance=models.Distance.COSINE))
    payload = {"page_content": "A comet.", "metadata": {"page": 3, "none": None}, "line": "not a number"}
    await client.upsert("mine", points=[models.PointStruct(id=7, vector=encoder.vector("comet"), payload=payload)])
    with pytest.raises(IndexFileError, match=r"without a text in 'text'; it has line, metadata, page_content\.\nGive"):
        await QdrantRetriever(client, "mine", encoder).retrieve("comet", 1)
    (found,) = await QdrantRetriever(client, "mine", encoder, text_field="page_content").retrieve("comet", 1)
    assert (found.text, found.id, dict(found.metadata), found.line) == ("A comet.", "7", {"page": "3"}, None)


async def test_a_server_that_refuses_or_is_away() -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"status": {"error": "Forbidden \x1b[31m"}}).encode()
            keys.append(self.headers["api-key"])
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    keys: list[str | None] = []
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    port = server.server_address[1]
    with pytest.warns(UserWarning, match="insecure"):  # the client's own words about a key over plain http
        retriever = open_index(f"qdrant:http://:hunter2@127.0.0.1:{port}/things", encoder=TinyEncoder())
    with pytest.raises(BackendError, match=r"cannot answer \(403\); set QDRANT_API_KEY") as raised:
        await retriever.retrieve("comet", 1)
    server.shutdown()
    server.server_close()
    assert raised.value.status == 403
    assert "\x1b" not in str(raised.value)
    assert keys == ["hunter2"]
    assert retriever.name == f"qdrant:127.0.0.1:{port}/things"
    assert "hunter2" not in str(raised.value) + retriever.identity
    with pytest.raises(BackendError, match=r"cannot reach collection 'things' at 127\.0\.0\.1"):
        await retriever.retrieve("comet", 1)
    await retriever.aclose()


async def test_an_answer_that_drips_ends_at_the_deadline() -> None:
    """Each byte comes long before any pause between two bytes could be called too long."""
    with ScriptedServer(faults=[Fault.drip(0.02)] * 9) as server:
        address = server.base_url.removesuffix("/v1")
        retriever = QdrantRetriever.open(address, "c", TinyEncoder(), timeout_s=0.3)
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
        retriever = QdrantRetriever.open(address, "c", TinyEncoder())
        with pytest.raises(BackendError):
            await retriever.retrieve("x", 2)
        await retriever.aclose()
    assert elsewhere.requests == []
