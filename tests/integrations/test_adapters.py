"""What an adapter does with another framework's objects, by stand-ins of their documented shapes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from arbitrag.errors import BackendError, CapabilityError, UsageError
from arbitrag.integrations import from_haystack, from_langchain, from_llamaindex


@dataclass
class LangChainDocument:
    page_content: Any
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str | None = None


@dataclass
class HaystackDocument:
    content: Any
    meta: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    score: float | None = None
    embedding: list[float] | None = None


class Runnable:
    def __init__(self, documents: list[LangChainDocument]) -> None:
        self.documents = documents
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def ainvoke(self, query: str, config: object = None, **named: Any) -> list[LangChainDocument]:
        self.asked.append((query, named))
        return self.documents


class StoreRetriever(Runnable):
    search_kwargs: dict[str, Any] = {}  # noqa: RUF012 - as LangChain has it


async def test_metadata_is_mapped_to_the_fields_of_a_passage() -> None:
    metadata = {"source": "a.pdf", "page": 3, "title": "T", "score": 0.25, "date": "2024", "tags": ["x"], "none": None}
    (found,) = await from_langchain(Runnable([LangChainDocument("text", metadata, "7")])).retrieve("q", 5)
    assert (found.text, found.id, found.title, found.source, found.score, found.date) == (
        *("text", "7", "T"),
        *("a.pdf", 0.25, "2024"),
    )
    assert dict(found.metadata) == {
        "source": "a.pdf",
        "page": "3",
        "title": "T",
        "score": "0.25",
        "date": "2024",
        "tags": '["x"]',
    }


@pytest.mark.parametrize(
    ("metadata", "source", "date", "page"),
    [
        ({"file_path": "/d/a.md", "file_name": "a.md", "page_label": "iv"}, "/d/a.md", "", "iv"),
        ({"source": "a.pdf", "page": 2, "page_label": "3"}, "a.pdf", "", "3"),  # as LangChain writes both
        ({"url": "https://x", "last_modified_date": "2023-01-02", "page_number": 9}, "https://x", "2023-01-02", "9"),
        ({"file_name": "a.md", "creation_date": "2022"}, "a.md", "2022", ""),
    ],
)
async def test_other_names_for_the_same_thing(metadata: dict[str, Any], source: str, date: str, page: str) -> None:
    (found,) = await from_langchain(Runnable([LangChainDocument("text", metadata)])).retrieve("q", 5)
    assert (found.source, found.date, found.metadata.get("page", "")) == (source, date, page)


async def test_without_a_score_the_place_is_one_and_ids_are_made() -> None:
    documents = [LangChainDocument("a"), LangChainDocument("b", {"score": "high"}), LangChainDocument("c")]
    found = await from_langchain(Runnable(documents)).retrieve("q", 2)
    assert [(passage.text, passage.score) for passage in found] == [("a", 1.0), ("b", 0.5)]
    assert len({passage.id for passage in found}) == 2


async def test_langchain_is_given_k_only_where_a_store_takes_it() -> None:
    plain, store = Runnable([]), StoreRetriever([])
    await from_langchain(plain).retrieve("q", 7)
    await from_langchain(store).retrieve("q", 7)
    assert (plain.asked, store.asked) == ([("q", {})], [("q", {"k": 7})])
    assert await from_langchain(plain).retrieve(" ", 7) == ()
    assert len(plain.asked) == 1


async def test_a_where_is_passed_on_in_the_stores_words_or_refused() -> None:
    store = StoreRetriever([])
    with pytest.raises(CapabilityError, match=r"langchain:StoreRetriever was asked for \{'a': 'b'\}.*\nSay how"):
        await from_langchain(store).retrieve("q", 7, {"a": "b"})
    adapted = from_langchain(store, filters=lambda where: {"filter": {"all": sorted(where)}})
    await adapted.retrieve("q", 7, {"a": "b"})
    await adapted.retrieve("q", 7)
    assert store.asked == [("q", {"filter": {"all": ["a"]}, "k": 7}), ("q", {"k": 7})]


async def test_a_sync_only_retriever_runs_beside_the_event_loop() -> None:
    class Sync:
        def invoke(self, query: str) -> list[LangChainDocument]:
            return [LangChainDocument(f"{query} {threading.current_thread() is threading.main_thread()}")]

    (found,) = await from_langchain(Sync()).retrieve("main", 1)
    assert found.text == "main False"


async def test_an_async_method_behind_a_plain_decorator_is_awaited() -> None:
    class Wrapped(Runnable):
        def ainvoke(self, query: str, config: object = None, **named: Any) -> Any:
            return super().ainvoke(query, config, **named)

    (found,) = await from_langchain(Wrapped([LangChainDocument("a")])).retrieve("q", 1)
    assert found.text == "a"


async def test_what_the_other_retriever_raises_is_carried() -> None:
    class Broken:
        async def aretrieve(self, query: str) -> list[Any]:
            raise RuntimeError("out of \x1b[31m order")

    with pytest.raises(BackendError, match=r"llamaindex:Broken failed: RuntimeError: out of \\u001b\[31m order"):
        await from_llamaindex(Broken()).retrieve("q", 1)
    picture = from_langchain(Runnable([LangChainDocument(None)]))
    with pytest.raises(BackendError, match=r"langchain:Runnable failed: .*text is of type NoneType"):
        await picture.retrieve("q", 1)


async def test_haystack_takes_what_its_run_declares() -> None:
    class Full:
        def run(self, query: str, top_k: int = 10, filters: dict[str, Any] | None = None) -> dict[str, Any]:
            self.asked = (query, top_k, filters)
            return {"documents": [HaystackDocument("a", {"title": "T"}, "1", 0.5, [1.0, 0.0])]}

    class Bare:
        def run(self, query: str) -> dict[str, Any]:
            return {"documents": [HaystackDocument("a", id="1"), HaystackDocument("b", id="2")]}

    full = Full()
    (found,) = await from_haystack(full).retrieve("q", 3, {"land": "south", "x": "y"})
    assert full.asked[:2] == ("q", 3)
    assert full.asked[2] == {
        "operator": "AND",
        "conditions": [
            {"field": "meta.land", "operator": "==", "value": "south"},
            {"field": "meta.x", "operator": "==", "value": "y"},
        ],
    }
    assert (found.title, found.score) == ("T", 0.5)
    assert found.embedding is not None
    assert found.embedding.tolist() == [1.0, 0.0]
    assert [passage.id for passage in await from_haystack(Bare()).retrieve("q", 1)] == ["1"]
    with pytest.raises(CapabilityError, match="it takes no filter"):
        await from_haystack(Bare()).retrieve("q", 1, {"a": "b"})


async def test_llamaindex_refuses_a_where() -> None:
    class Nothing:
        def retrieve(self, query: str) -> list[Any]:
            return []

    assert await from_llamaindex(Nothing()).retrieve("q", 1) == ()
    with pytest.raises(CapabilityError, match="MetadataFilters"):
        await from_llamaindex(Nothing()).retrieve("q", 1, {"a": "b"})


def test_what_is_no_retriever_is_refused_at_once() -> None:
    class ByVector:
        def run(self, query_embedding: list[float]) -> dict[str, Any]:
            return {"documents": []}

    with pytest.raises(UsageError, match="object is no LangChain retriever: it has neither ainvoke nor invoke"):
        from_langchain(object())
    with pytest.raises(UsageError, match="object is no LlamaIndex retriever: it has neither aretrieve nor retrieve"):
        from_llamaindex(object())
    with pytest.raises(UsageError, match="object is no Haystack retriever"):
        from_haystack(object())
    with pytest.raises(UsageError, match="ByVector compares vectors; give the encoder"):
        from_haystack(ByVector())


def test_no_framework_is_imported() -> None:
    import subprocess
    import sys

    code = (
        "import sys, arbitrag.integrations; "
        "print([name for name in ('langchain_core', 'llama_index', 'haystack') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
