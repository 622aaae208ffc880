"""What a server may not do to the process that asks it: keep it waiting, fill its memory, redirect it, crash it."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from arbitrag.errors import BackendError, UsageError
from arbitrag.llm.base import Generation, Prompt, Sampling
from arbitrag.llm.http.body import SMALL_BYTES
from arbitrag.llm.http.endpoint import ERROR_BYTES, FIRST_WAIT_S, JITTER, LONGEST_WAIT_S
from arbitrag.llm.http.openai import OpenAILLM
from arbitrag.testing import Fault, ScriptedServer
from arbitrag.testing.server import bomb

HELLO = Prompt.user("hello there")
MB = 2**20


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


class Waits(list[float]):
    """A sleep that only writes down how long it should have been."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


async def ask(server: ScriptedServer, sampling: Sampling = Sampling(), **options: Any) -> Generation:
    llm = OpenAILLM("scripted", base_url=server.base_url, **{"retries": 0, **options})
    try:
        return await llm.generate(HELLO, sampling)
    finally:
        await llm.aclose()


def answer(text: str) -> bytes:
    return json.dumps({"choices": [{"finish_reason": "stop", "message": {"content": text}}]}).encode()


async def test_an_answer_that_drips_ends_at_the_deadline() -> None:
    """Each byte comes long before any pause between two bytes could be called too long."""
    with (
        ScriptedServer(faults=[Fault.drip(0.02)] * 2) as server,
        pytest.raises(BackendError, match=r"gave no whole answer within 0\.3 s \(2 attempts\)") as caught,
    ):
        await asyncio.wait_for(ask(server, timeout_s=0.3, retries=1, sleep=Waits()), 60)
    assert caught.value.status is None


async def test_an_answer_that_drips_fast_enough_arrives() -> None:
    with ScriptedServer(faults=[Fault.drip(0.0001)]) as server:
        assert (await ask(server, timeout_s=60)).text == "yes"


class Peak:
    """The most memory in use at a time in this process, measured as Python allocates it, beyond what there was."""

    def __enter__(self) -> Peak:
        tracemalloc.start()
        self.before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes = tracemalloc.get_traced_memory()[1] - self.before
        tracemalloc.stop()


@pytest.fixture(scope="module", params=["gzip", "deflate"])
def packed(request: pytest.FixtureRequest) -> Fault:
    return Fault.bomb(64 * MB, request.param)


async def test_a_bomb_is_decompressed_only_as_far_as_an_answer_can_go(packed: Fault) -> None:
    with (
        ScriptedServer(faults=[packed]) as server,
        Peak() as peak,
        pytest.raises(
            BackendError, match=r"is larger than 1,1.*bytes, which no answer to this request can be"
        ) as error,
    ):
        await ask(server)
    assert error.value.status == 200
    assert len(server.requests) == 1  # the same request would bring the same
    assert peak.bytes < 8 * MB


async def test_many_bombs_at_a_time_take_little_more_than_one() -> None:
    with ScriptedServer(faults=[Fault.bomb(64 * MB)] * 64) as server, Peak() as peak:
        llm = OpenAILLM("scripted", base_url=server.base_url, concurrency=64, retries=0)
        ended = await asyncio.gather(
            *(llm.generate(HELLO, Sampling(max_tokens=1000)) for _ in range(64)), return_exceptions=True
        )
        await llm.aclose()
    assert [type(each) for each in ended] == [BackendError] * 64
    assert peak.bytes < 64 * (SMALL_BYTES + MB // 4) + 32 * MB


@pytest.mark.parametrize("encoding", ["gzip, gzip", "br", "zstd", "deflate, identity, gzip", "made-up"])
async def test_an_encoding_that_was_not_asked_for_is_not_decoded(encoding: str) -> None:
    body = bomb(MB, "gzip, gzip")
    with (
        ScriptedServer(faults=[Fault(200, {"Content-Encoding": encoding}, body)]) as server,
        pytest.raises(BackendError, match=r"is encoded as '.*', which was not asked for"),
    ):
        await ask(server)
    assert server.requests[0].headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "x-gzip", "identity, gzip"])
async def test_a_compressed_answer_is_read(encoding: str) -> None:
    packed = gzip.compress(answer("Paris"))
    with ScriptedServer(faults=[Fault(200, {"Content-Encoding": encoding}, packed)]) as server:
        assert (await ask(server)).text == "Paris"


async def test_damaged_compression_is_an_error() -> None:
    packed = gzip.compress(answer("Paris"))
    with (
        ScriptedServer(faults=[Fault(200, {"Content-Encoding": "gzip"}, packed[:10] + b"\xff" * 20)]) as server,
        pytest.raises(BackendError, match="cannot be decompressed"),
    ):
        await ask(server)


async def test_an_answer_as_large_as_it_can_be_is_read() -> None:
    """Padding of 1 MB is within what 32 tokens may bring along; 2 MB is not."""
    padded = answer("Paris") + b" " * MB
    with ScriptedServer(faults=[Fault.says(padded), Fault.says(padded + b" " * MB)]) as server:
        assert (await ask(server)).text == "Paris"
        with pytest.raises(BackendError, match="is larger than"):
            await ask(server)


async def test_large_answers_side_by_side_all_arrive() -> None:
    padded = answer("Paris") + b" " * (2 * SMALL_BYTES)
    with ScriptedServer(faults=[Fault.says(padded)] * 8) as server:
        llm = OpenAILLM("scripted", base_url=server.base_url)
        replies = await asyncio.gather(*(llm.generate(HELLO, Sampling()) for _ in range(8)))
        await llm.aclose()
    assert [reply.text for reply in replies] == ["Paris"] * 8


async def test_a_long_error_keeps_its_status() -> None:
    with (
        ScriptedServer(faults=[Fault(404, {}, "x" * (ERROR_BYTES + 1))]) as server,
        pytest.raises(BackendError, match="answered 404: the text is larger than") as caught,
    ):
        await ask(server)
    assert caught.value.status == 404


@pytest.mark.parametrize("charset", ["rot13", "hex", "undefined", "utf-16", "latin-1", "idna", "\x00", "no such one"])
async def test_the_charset_of_json_is_utf_8_whatever_a_server_says(charset: str) -> None:
    with ScriptedServer(["Zürich"], faults=[Fault.charset(charset.replace("\x00", "\x01"))]) as server:
        try:
            assert (await ask(server)).text == "Zürich"
        except BackendError:  # a control character in a header ends the connection
            assert charset == "\x00"


async def test_a_byte_order_mark_is_no_part_of_the_answer() -> None:
    with ScriptedServer(faults=[Fault.says(b"\xef\xbb\xbf" + answer("Paris"))]) as server:
        assert (await ask(server)).text == "Paris"


@pytest.fixture
def elsewhere() -> Iterator[ScriptedServer]:
    with ScriptedServer(["stolen"]) as server:
        yield server


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_takes_neither_the_key_nor_the_question_elsewhere(
    elsewhere: ScriptedServer, status: int
) -> None:
    target = f"{elsewhere.base_url}/chat/completions"
    with (
        ScriptedServer(faults=[Fault.redirect(target, status)]) as server,
        pytest.raises(BackendError, match=f"answered {status}: .*, a redirect to {target}; no redirect is followed"),
    ):
        await ask(server, api_key="sk-secret-0123456789")
    assert elsewhere.requests == []


@pytest.mark.parametrize("header", ["0", "-3", "0.0001"])
async def test_a_server_that_asks_to_be_hammered_is_not(header: str) -> None:
    waits = Waits()
    with ScriptedServer(faults=[Fault.busy(header)] * 3) as server:
        await ask(server, retries=3, sleep=waits)
    floors = [FIRST_WAIT_S, 2 * FIRST_WAIT_S, 4 * FIRST_WAIT_S]
    assert all(floor <= wait <= floor * JITTER for floor, wait in zip(floors, waits, strict=True))


@pytest.mark.parametrize(("header", "least", "most"), [("10", 10.0, 12.5), ("86400", 48.0, LONGEST_WAIT_S)])
async def test_callers_who_were_told_the_same_do_not_come_back_together(header: str, least: float, most: float) -> None:
    waits = Waits()
    with ScriptedServer(faults=[Fault.busy(header)] * 16) as server:
        llm = OpenAILLM("scripted", base_url=server.base_url, sleep=waits)
        await asyncio.gather(*(llm.generate(HELLO, Sampling()) for _ in range(16)))
        await llm.aclose()
    assert all(least <= wait <= most for wait in waits)
    assert len({round(wait, 6) for wait in waits}) == 16


async def test_the_account_of_openai_is_told_to_openai_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    with ScriptedServer() as server:
        await ask(server)
    assert "openai-organization" not in server.requests[0].headers
    openai = OpenAILLM("gpt-4o-mini", api_key="sk-x")
    assert openai._endpoint._clients._all[0].headers["openai-organization"] == "org-1"
    await openai.aclose()


def test_nothing_is_left_running() -> None:
    with ScriptedServer(faults=[Fault.drip(0.05)]) as server, pytest.raises(BackendError):
        asyncio.run(ask(server, timeout_s=0.2))
    assert not [thread for thread in threading.enumerate() if thread.name == "scripted-server"]


@pytest.mark.parametrize("date", ["Mon, 01 Jan 0001 00:00:00 -0000", "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 99 Jan"])
async def test_a_date_that_no_clock_has(date: str) -> None:
    waits = Waits()
    with ScriptedServer(faults=[Fault.busy(date)]) as server:
        await ask(server, retries=1, sleep=waits)
    assert 0 < waits[0] <= LONGEST_WAIT_S


async def test_an_error_that_is_nested_without_end() -> None:
    deep = '{"error": ' * 400 + '"x"' + "}" * 400
    with (
        ScriptedServer(faults=[Fault(400, {}, deep)]) as server,
        pytest.raises(BackendError, match="answered 400") as caught,
    ):
        await ask(server)
    assert caught.value.status == 400


async def test_no_cookie_is_kept() -> None:
    with ScriptedServer(faults=[Fault(headers={"Set-Cookie": "session=1; Path=/"})]) as server:
        llm = OpenAILLM("scripted", base_url=server.base_url)
        for _ in range(2):
            await llm.generate(HELLO, Sampling())
        await llm.aclose()
    assert ["cookie" in request.headers for request in server.requests] == [False, False]


@pytest.mark.parametrize("proxy", ["socks9://anna:pass-word@127.0.0.1:1", "nonsense://x"])
def test_a_proxy_that_cannot_be_used(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(UsageError, match="HTTPS_PROXY") as caught:
        OpenAILLM("m", base_url="http://127.0.0.1:1/v1")
    assert "pass-word" not in str(caught.value)
