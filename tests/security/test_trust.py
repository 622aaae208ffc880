"""Which addresses a file may name: those by which nothing leaves this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arbitrag.encode import open_encoder
from arbitrag.errors import BackendError, UsageError
from arbitrag.llm import open_llm
from arbitrag.llm.base import Prompt, Sampling
from arbitrag.security.trust import FromFile, is_local, is_local_path
from arbitrag.testing.server import ScriptedServer

KEY = "sk-very-secret-0123456789"
STRANGE = FromFile("mine.db", "--llm")


@pytest.mark.parametrize(
    "address",
    [
        "lab",
        "hash",
        "hf:Qwen/Qwen3-0.6B",
        "hf:/models/mine?dtype=bfloat16",
        "st:BAAI/bge-small-en-v1.5",
        "bge-m3:folder",
        "onnx:folder?threads=2",
        "openai:m@http://localhost:8000/v1",
        "openai:m@http://127.0.0.1/v1",
        "openai:m@http://127.7.7.7:1/v1",
        "openai:@cf/m@http://[::1]:8000/v1",
    ],
)
def test_addresses_that_stay_here(address: str) -> None:
    assert is_local(address)
    STRANGE.check(address)


@pytest.mark.parametrize(
    "address",
    [
        "openai:gpt-4o-mini",
        "openai:m@http://evil/v1",
        "openai:m@http://localhost@evil/v1",
        "openai:m@http://localhost:x@evil/v1",
        "openai:m@http://evil/v1@http://localhost/v1",
        "openai:m@http://evil\\@localhost/v1",
        "openai:m@http://evil#@localhost/v1",
        "openai:m@http://localhost.evil/v1",
        "openai:m@http://127.0.0.1.evil/v1",
        "openai:m@http://0x7f.1/v1",  # what a name comes to is another program's decision
        "openai:m@http://0.0.0.0/v1",
        "openai:m@ftp://localhost/v1",
        "openai:m@localhost:8000",
        "openai:m@http://local\thost/v1",
        "hf:https://evil/model",
        "hf:\\\\evil\\share",
        "onnx://evil/share",
        "st:\\/evil/share",
        "smb:thing",
        "package.module:Class",
        "",
    ],
)
def test_addresses_that_have_to_be_typed_again(address: str) -> None:
    assert not is_local(address)
    with pytest.raises(UsageError, match=r"mine\.db names .* which is not on this machine.*\nIf .*: --llm"):
        STRANGE.check(address)


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("docs.idx", True),
        ("/srv/docs.idx", True),
        ("C:\\docs.idx", True),
        ("lab", True),
        ("postgres:host=evil", False),
        ("postgresql://evil/db", False),
        ("qdrant:http://localhost/c", False),  # it is given QDRANT_API_KEY
        ("\\\\evil\\share", False),
        ("//evil/share", False),
        ("\\/evil/share", False),
    ],
)
def test_paths_of_this_machine(path: str, local: bool) -> None:
    assert is_local_path(path) is local
    if not local:
        with pytest.raises(UsageError, match=r"mine\.db names "):
            STRANGE.check_index(path)


def test_the_error_shows_no_secret_and_nothing_that_acts_on_a_terminal() -> None:
    with pytest.raises(UsageError) as raised:
        STRANGE.check("openai:m@http://u:hunter2@evil/v1?key=hunter2\x1b[31m")
    assert "hunter2" not in str(raised.value)
    assert "\x1b" not in str(raised.value)
    assert "openai:m@http://evil/v1" in str(raised.value)


async def ask(**options: Any) -> str | None:
    """The Authorization header that a server on this machine is sent."""
    with ScriptedServer(["yes"]) as server:
        llm = open_llm(f"openai:scripted@{server.base_url}", retries=0, **options)
        await llm.generate(Prompt.user("hello"), Sampling())
        await llm.aclose()
        encoder = open_encoder(f"openai:scripted@{server.base_url}", retries=0, **options)
        with pytest.raises(BackendError, match="404"):  # this server has no embeddings
            await encoder.encode(["text"], kind="query")
        await encoder.aclose()
        first, second = (request.headers.get("authorization") for request in server.requests)
    assert first == second
    return first


async def test_the_key_goes_to_servers_that_were_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert await ask() == f"Bearer {KEY}"
    assert KEY not in str(await ask(source=STRANGE))
    assert await ask(source=STRANGE, api_key="given") == "Bearer given"


async def test_the_key_goes_to_the_server_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ScriptedServer(["yes", "yes"]) as server:
        for base, sent in ((server.base_url, True), ("http://127.0.0.1:9/v1", False), ("https://evil/v1", False)):
            monkeypatch.setenv("OPENAI_BASE_URL", base)
            llm = open_llm(f"openai:scripted@{server.base_url}", source=STRANGE)
            await llm.generate(Prompt.user("hello"), Sampling())
            await llm.aclose()
            assert (KEY in str(server.requests[-1].headers.get("authorization"))) is sent


@pytest.mark.parametrize("host", ["evilopenai.com", "openai.com.evil", "api.openai.com@evil"])
async def test_a_host_that_looks_like_openai_is_another(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    await open_llm(f"openai:m@https://{host}/v1").aclose()  # OpenAI itself would ask for a key
    with pytest.raises(UsageError, match="OpenAI needs a key"):
        open_llm("openai:m@https://eu.api.openai.com/v1")


def test_a_model_in_this_process_is_taken_from_this_machine_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found: list[dict[str, Any]] = []
    for place in ("llm.hf.backend.open_hf", "encode.transformer.TransformerEncoder", "encode.bge_m3.BgeM3Encoder"):
        monkeypatch.setattr(f"arbitrag.{place}", lambda name, **options: found.append(options))
    for source in (None, STRANGE):
        open_llm("hf:org/model", source=source)
        open_encoder("st:org/model", source=source)
        open_encoder("bge-m3:org/model", source=source)
    assert found == [{}] * 3 + [{"local_files_only": True}] * 3
