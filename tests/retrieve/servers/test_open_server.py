"""Which address opens what, and what is never repeated."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from retriever_parts import TinyEncoder

from arbitrag.errors import ArbitragError, MissingExtra, UsageError
from arbitrag.retrieve import open_index
from arbitrag.retrieve.stored_passage import batches, flat, from_document, passage_id, to_document
from arbitrag.security.addresses import Url
from arbitrag.types import Passage


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("elastik:http://h/i", "unknown kind of index 'elastik'. Did you mean 'elastic'?"),
        ("postgre:host=x", "unknown kind of index 'postgre'. Did you mean 'postgres'?"),
        ("http://u:hunter2@host/i", "unknown kind of index 'http'"),
        ("elastic:", "the address names no server; one looks like elastic:https://host:9200/index"),
        ("postgresql:", "the address names no server; one looks like postgres:"),
        ("elastic:http://u:hunter2@host:9200", "the address names no elastic index"),
        ("elastic:http://host/", "the address names no elastic index"),
        ("elastic:hunter2@host/index", "this is not a server's address"),
        ("elastic:http://host:99999/index", "this is not a server's address"),
        ("elastic:http://host/index?table=x", "elastic has no option 'table'"),
        ("postgres://u:hunter2@host/x?text_field=x", "postgres has no option 'text_field'"),
        ("qdrant:http://u:hunter2@host:6333/things", "qdrant compares vectors; name the encoder"),
    ],
)
def test_addresses_that_open_nothing(address: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        open_index(address)
    assert str(raised.value).startswith(said)
    assert "hunter2" not in str(raised.value)


async def test_an_encoder_in_the_address_is_opened_and_closed_with_the_retriever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("qdrant_client")
    opened: list[TinyEncoder] = []

    def open_encoder(address: str) -> TinyEncoder:
        assert address == "st:some/model"
        opened.append(TinyEncoder())
        return opened[-1]

    monkeypatch.setattr("arbitrag.encode.open_encoder", open_encoder)
    for address in ("qdrant:http://127.0.0.1:1/things", "elastic:http://127.0.0.1:1/things"):
        retriever = open_index(f"{address}?encoder=st:some/model")
        await retriever.aclose()
    assert [encoder.closed for encoder in opened] == [True, True]
    mine = TinyEncoder()
    retriever = open_index("qdrant:http://127.0.0.1:1/things", encoder=mine)
    await retriever.aclose()
    assert not mine.closed
    with pytest.raises(UsageError, match="names an encoder, and another one was given"):
        open_index("qdrant:http://127.0.0.1:1/things?encoder=hash", encoder=mine)


@pytest.mark.parametrize("address", ["docs.idx", "./elastic", "C:\\docs.idx", Path("elastic:thing")])
def test_what_is_no_address_is_a_path(address: str | Path) -> None:
    with pytest.raises(ArbitragError) as raised:
        open_index(address)
    assert not isinstance(raised.value, UsageError)


def test_a_path_that_exists_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("elastic:thing").mkdir()
    with pytest.raises(ArbitragError) as raised:
        open_index("elastic:thing")
    assert not isinstance(raised.value, UsageError)


@pytest.mark.parametrize(
    ("extra", "package", "address"),
    [
        ("postgres", "psycopg", "postgres://host/x"),
        ("postgres", "psycopg_pool", "postgres://host/x"),
        ("elastic", "elasticsearch", "elastic:http://h/i"),
        ("qdrant", "qdrant_client", "qdrant:http://h/i"),
    ],
)
def test_a_missing_extra_is_one_line(extra: str, package: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for module in (f"arbitrag.retrieve.servers.{extra}", "arbitrag.retrieve.servers.postgres_table"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(MissingExtra, match=rf"needs the extra '{extra}'; type: pip install 'arbitrag\[{extra}\]'"):
        open_index(address, encoder=TinyEncoder())


@pytest.mark.parametrize(
    ("text", "plain", "user", "password"),
    [
        ("http://host", "http://host:80", "", ""),
        ("https://host/", "https://host:443", "", ""),
        ("https://me:p%40ss@host:9200/under/", "https://host:9200/under", "me", "p@ss"),
        ("http://[::1]:9200", "http://[::1]:9200", "", ""),
    ],
)
def test_secrets_are_kept_apart_from_the_address(text: str, plain: str, user: str, password: str) -> None:
    url = Url.of(text)
    assert (url.plain, url.user, url.password) == (plain, user, password)
    assert url.shown == plain.partition("://")[2]
    assert "p@ss" not in repr(url)


def test_a_passage_goes_into_a_document_and_comes_back() -> None:
    whole = Passage("text", "id", "title", "a.md", 3, 40, date="2024", metadata={"a": "b"})
    back = from_document(to_document(whole), id="other", score=0.5, text_field="text", store="here")
    assert back == Passage("text", "id", "title", "a.md", 3, 40, score=0.5, date="2024", metadata={"a": "b"})


def test_somebody_elses_document_is_read_with_care() -> None:
    odd = {"text": "t", "id": 7, "title": None, "line": True, "offset": "3", "metadata": ["not", "a", "mapping"]}
    found = from_document(odd, id="other", score=1.0, text_field="text", store="here")
    assert (found.id, found.title, found.line, found.offset, dict(found.metadata)) == ("7", "", None, None, {})


def test_metadata_of_any_shape_becomes_text() -> None:
    assert flat({"a": 1, "b": None, 3: [1, "ü"], "d": {"e": True}}) == {"a": "1", "3": '[1, "ü"]', "d": '{"e": true}'}


def test_a_passage_without_an_id_gets_one_from_its_content() -> None:
    one, same, other = Passage("text", source="a"), Passage("text", source="a", score=1.0), Passage("text", source="b")
    assert passage_id(one) == passage_id(same)
    assert passage_id(one) != passage_id(other)
    assert passage_id(Passage("text", id="mine")) == "mine"


def test_batches_keep_the_order_and_the_rest() -> None:
    assert list(batches(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(batches([], 2)) == []
