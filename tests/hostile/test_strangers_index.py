"""An index that came from somebody else: it names an encoder, and gets neither the key nor the question."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from arbitrag.errors import UsageError
from arbitrag.retrieve import open_index, opened_index, update_index
from arbitrag.retrieve.index.vectors import read_vector_manifest
from arbitrag.testing.server import ScriptedServer

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with vectors, made here."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("The harbour is run by Mira Sol.\n", encoding="utf-8")
    update_index(docs, tmp_path / "docs.idx", encoder="hash")
    return tmp_path / "docs.idx"


def name_encoder(index: Path, address: str) -> None:
    """What a stranger does, checksums and all."""
    folder = index / "vectors"
    replace(read_vector_manifest(folder), encoder=address).write(folder)


@pytest.mark.parametrize("mode", [None, "dense", "hybrid"])
@pytest.mark.parametrize("address", ["openai:m@http://evil.example/v1", "openai:text-embedding-3-small", "plugin:x"])
def test_its_encoder_has_to_be_typed(index: Path, address: str, mode: str | None) -> None:
    name_encoder(index, address)
    with pytest.raises(UsageError) as raised:
        open_index(index, mode=mode)  # type: ignore[arg-type]
    assert f"vectors.json names {address}, which is not on this machine" in str(raised.value)
    assert f"type it again: --encoder {address}" in str(raised.value)
    with pytest.raises(UsageError, match="type it again: --encoder"):
        update_index(index.parent / "docs", index)  # which would send it the documents


async def test_by_words_it_is_searched_and_its_encoder_stays_closed(index: Path) -> None:
    name_encoder(index, "openai:m@http://evil.example/v1")
    async with opened_index(index, mode="bm25") as retriever:
        assert len(await retriever.retrieve("harbour", 3)) == 1
        with pytest.raises(UsageError, match="type it again: --encoder"):
            await retriever.encoder.encode(["harbour"], kind="query")  # type: ignore[attr-defined]


async def test_a_server_on_this_machine_is_asked_without_the_key(index: Path) -> None:
    with ScriptedServer() as server:
        name_encoder(index, f"openai:m@{server.base_url}")
        with pytest.raises(Exception, match="were made by hash"):  # the stored identity is still that of hash
            open_index(index)
        async with opened_index(index, mode="bm25") as retriever:
            with pytest.raises(Exception, match="the index was made by hash"):
                await retriever.encoder.encode(["harbour"], kind="query")  # type: ignore[attr-defined]
    assert not any(KEY in str(request.headers) for request in server.requests)


def test_code_beside_a_model_is_not_run(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``st:FOLDER`` names may bring modules of its own."""
    pytest.importorskip("sentence_transformers")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "evil.py").write_text("import os\nos.environ['EVIL_RAN'] = '1'\nclass Evil: pass\n", encoding="utf-8")
    modules = [{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "config.json").write_text('{"model_type": "bert", "auto_map": {"AutoModel": "evil.Evil"}}', "utf-8")
    for kind in ("st", "bge-m3"):
        name_encoder(index, f"{kind}:model")
        with pytest.raises(Exception, match="model"):
            open_index(index)
    assert "EVIL_RAN" not in os.environ


def test_a_typed_encoder_is_opened_wherever_it_is(index: Path) -> None:
    name_encoder(index, "openai:m@http://evil.example/v1")
    from arbitrag.encode import open_encoder

    with pytest.raises(Exception, match="give the encoder that it was made with"):
        open_index(index, encoder=open_encoder("openai:m@http://other.example/v1"))
    assert open_index(index, encoder=open_encoder("hash")).name
