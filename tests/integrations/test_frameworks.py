"""The adapters on real retrievers of the frameworks, in this process and without a network."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np
import pytest

from arbitrag.integrations import from_haystack, from_langchain, from_llamaindex

TEXTS = {"1": "comet comet", "2": "comet river", "3": "river"}


class Counting:
    """Counts of comet and river, as unit vectors."""

    name = identity = "counting"
    width = 2

    async def encode(self, texts: Any, *, kind: Literal["query", "passage"]) -> np.ndarray:
        return np.array([vector(text) for text in texts], np.float32)

    async def aclose(self) -> None:
        pass


def vector(text: str) -> list[float]:
    counts = np.array([text.count("comet"), text.count("river")], float)
    return [float(count) for count in counts / np.linalg.norm(counts)]


async def test_a_langchain_vector_store() -> None:
    pytest.importorskip("langchain_core")
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import InMemoryVectorStore

    class Vectors(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [vector(text) for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return vector(text)

    store = InMemoryVectorStore(Vectors())
    store.add_documents([Document(text, id=id, metadata={"source": f"{id}.md"}) for id, text in TEXTS.items()])
    retriever = from_langchain(
        store.as_retriever(search_kwargs={"k": 1}),
        filters=lambda where: {"filter": lambda document: where.items() <= document.metadata.items()},
    )
    found = await retriever.retrieve("comet", 3)
    assert [(passage.id, passage.source, passage.score) for passage in found] == [
        ("1", "1.md", 1.0),
        ("2", "2.md", 0.5),
        ("3", "3.md", 1 / 3),
    ]
    assert [passage.id for passage in await retriever.retrieve("comet", 3, {"source": "3.md"})] == ["3"]
    assert retriever.name == "langchain:VectorStoreRetriever"


async def test_a_llamaindex_retriever() -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

    class Nearest(BaseRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            nodes = [
                TextNode(
                    id_=id, text=text, embedding=vector(text), metadata={"file_path": f"{id}.md", "page_label": "2"}
                )
                for id, text in TEXTS.items()
            ]
            asked = vector(query_bundle.query_str)
            scored = [NodeWithScore(node=node, score=float(np.dot(asked, node.embedding or []))) for node in nodes]
            return sorted(scored, key=lambda each: -(each.score or 0))

    found = await from_llamaindex(Nearest()).retrieve("comet", 2)
    assert [(passage.id, passage.text, passage.source) for passage in found] == [
        ("1", "comet comet", "1.md"),
        ("2", "comet river", "2.md"),
    ]
    assert [passage.score for passage in found] == pytest.approx([1.0, 0.5**0.5])
    assert found[0].embedding is not None
    assert found[0].embedding.tolist() == [1.0, 0.0]
    assert found[0].metadata["page"] == "2"


async def test_haystack_retrievers_by_words_and_by_vectors() -> None:
    os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")
    pytest.importorskip("haystack.components.retrievers.in_memory")
    from haystack import Document
    from haystack.components.retrievers.in_memory import InMemoryBM25Retriever, InMemoryEmbeddingRetriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    store = InMemoryDocumentStore(embedding_similarity_function="dot_product")
    store.write_documents(
        [Document(id=id, content=text, embedding=vector(text), meta={"url": id}) for id, text in TEXTS.items()]
    )
    words = await from_haystack(InMemoryBM25Retriever(store)).retrieve("river", 1, {"url": "3"})
    assert [(passage.id, passage.source) for passage in words] == [("3", "3")]
    near = await from_haystack(InMemoryEmbeddingRetriever(store), encoder=Counting()).retrieve("comet", 2)
    assert [passage.id for passage in near] == ["1", "2"]
    assert [passage.score for passage in near] == pytest.approx([1.0, 0.5**0.5])
