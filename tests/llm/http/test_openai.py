"""The openai backend against the scripted server: requests, retries, errors, secrets."""

from __future__ import annotations

import asyncio
import json
import math
import time
import traceback
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest

from arbitrag.errors import BackendError, CapabilityError, UsageError
from arbitrag.llm import open_llm
from arbitrag.llm.base import Message, Price, Prompt, Sampling, Tokens
from arbitrag.llm.http.endpoint import FIRST_WAIT_S, JITTER, LONGEST_WAIT_S
from arbitrag.llm.http.openai import OpenAILLM
from arbitrag.testing import Fault, ScriptedServer

HELLO = Prompt.user("hello there")
SECRET = "sk-very-secret-0123456789"


class Waits(list[float]):
    """A sleep that only writes down how long it should have been."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


async def ask(server: ScriptedServer, prompt: Prompt = HELLO, sampling: Sampling = Sampling(), **options: Any) -> str:
    llm = OpenAILLM("scripted", base_url=server.base_url, **options)
    try:
        return (await llm.generate(prompt, sampling)).text
    finally:
        await llm.aclose()


async def test_a_chat_prompt_goes_to_chat_completions() -> None:
    with ScriptedServer(["Paris it is"]) as server:
        llm = OpenAILLM("scripted", base_url=server.base_url)
        prompt = Prompt(messages=(Message("system", "Be brief."), Message("user", "Where?")))
        reply = await llm.generate(prompt, Sampling(max_tokens=8))
        await llm.aclose()
    assert (reply.text, reply.finish, reply.logprobs) == ("Paris it is", "stop", None)
    # [system] Be brief. [user] Where? [assistant] are 6 words, and a mark for the beginning
    assert reply.tokens == Tokens(prompt_tokens=7, completion_tokens=3)
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.body == {
        "model": "scripted",
        "temperature": 0.0,
        "max_tokens": 8,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}],
    }


async def test_plain_text_goes_to_completions_with_every_setting() -> None:
    with ScriptedServer(lambda prompt: f"after {prompt.text}") as server:
        llm = OpenAILLM("scripted", base_url=server.base_url)
        sampling = Sampling(max_tokens=2, temperature=0.5, top_p=0.9, stop=("\n", "."), seed=7)
        reply = await llm.generate(Prompt(text="one two"), sampling)
        await llm.aclose()
    assert (reply.text, reply.finish) == ("after one", "length")
    assert server.requests[0].path == "/v1/completions"
    assert server.requests[0].body == {
        "model": "scripted",
        "temperature": 0.5,
        "max_tokens": 2,
        "prompt": "one two",
        "top_p": 0.9,
        "stop": ["\n", "."],
        "seed": 7,
    }


async def test_a_base_model_reads_messages_as_text() -> None:
    with ScriptedServer() as server:
        await ask(server, chat=False)
    assert server.requests[0].path == "/v1/completions"
    assert server.requests[0].body["prompt"] == "User: hello there\nAssistant:"


@pytest.mark.parametrize("prompt", [HELLO, Prompt(text="one two one")])
async def test_log_probabilities_of_written_tokens(prompt: Prompt) -> None:
    with ScriptedServer([" two three"], logprobs=True, likelihood=lambda before, token: -0.5 * len(token)) as server:
        llm = OpenAILLM("scripted", base_url=server.base_url)
        reply = await llm.generate(prompt, Sampling(logprobs=True))
        await llm.aclose()
    assert reply.logprobs == (-2.0, -3.0)


@pytest.mark.parametrize("prompt", [HELLO, Prompt(text="one two one")])
async def test_missing_log_probabilities_are_an_error(server: ScriptedServer, prompt: Prompt) -> None:
    with pytest.raises(BackendError, match="does not return the log-probabilities") as caught:
        await ask(server, prompt, Sampling(logprobs=True))
    assert caught.value.status == 200


async def test_cached_prompt_tokens_count_as_reused() -> None:
    used = {"prompt_tokens": 100, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 96}}
    body = {"choices": [{"message": {"content": "Paris"}, "finish_reason": "stop"}], "usage": used}
    with ScriptedServer(faults=[Fault.says(json.dumps(body))]) as server:
        llm = OpenAILLM("scripted", base_url=server.base_url)
        reply = await llm.generate(HELLO, Sampling())
        await llm.aclose()
    assert reply.tokens == Tokens(prompt_tokens=100, cached_tokens=96, completion_tokens=3)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504])
async def test_what_may_pass_is_tried_again(status: int) -> None:
    waits = Waits()
    with ScriptedServer(faults=[Fault.error(status), Fault.error(status)]) as server:
        assert await ask(server, sleep=waits) == "yes"
    assert len(server.requests) == 3
    assert 0.25 <= waits[0] <= 0.5
    assert 0.5 <= waits[1] <= 1.0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_what_will_not_pass_is_not(status: int) -> None:
    waits = Waits()
    with (
        ScriptedServer(faults=[Fault.error(status, "no such thing")]) as server,
        pytest.raises(BackendError, match=rf"/v1/chat/completions answered {status}: no such thing") as caught,
    ):
        await ask(server, sleep=waits)
    assert caught.value.status == status
    assert (len(server.requests), waits) == (1, [])


async def test_retries_end() -> None:
    waits = Waits()
    with (
        ScriptedServer(faults=[Fault.error(500)] * 3) as server,
        pytest.raises(BackendError, match=r"answered 500: it broke \(3 attempts\)") as caught,
    ):
        await ask(server, retries=2, sleep=waits)
    assert caught.value.status == 500
    assert (len(server.requests), len(waits)) == (3, 2)


async def test_a_quota_that_is_used_up_is_not_waited_for() -> None:
    body = json.dumps({"error": {"message": "quota exceeded", "code": "insufficient_quota"}})
    with (
        ScriptedServer(faults=[Fault(429, {}, body)]) as server,
        pytest.raises(BackendError, match="quota exceeded"),
    ):
        await ask(server)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("7", 7.0, 7.0 * JITTER),
        ("0", FIRST_WAIT_S, FIRST_WAIT_S * JITTER),
        ("0.1", FIRST_WAIT_S, FIRST_WAIT_S * JITTER),
        ("-3", FIRST_WAIT_S, FIRST_WAIT_S * JITTER),
        ("86400", LONGEST_WAIT_S / JITTER, LONGEST_WAIT_S),
        ("nan", 0.25, 0.5),
        ("soon", 0.25, 0.5),
        ("", 0.25, 0.5),
    ],
)
async def test_retry_after_is_respected(header: str, least: float, most: float) -> None:
    waits = Waits()
    with ScriptedServer(faults=[Fault.busy(header)]) as server:
        await ask(server, sleep=waits)
    assert least <= waits[0] <= most


async def test_retry_after_as_a_date() -> None:
    waits = Waits()
    with ScriptedServer(faults=[Fault.busy(formatdate(time.time() + 30, usegmt=True))]) as server:
        await ask(server, sleep=waits)
    assert 25 <= waits[0] <= 30 * JITTER


async def test_a_cut_connection_is_tried_again() -> None:
    with ScriptedServer(faults=[Fault.cut()]) as server:
        assert await ask(server, sleep=Waits()) == "yes"
    assert len(server.requests) == 2


async def test_a_slow_server_is_tried_again_and_named() -> None:
    with (
        ScriptedServer(faults=[Fault.slow(5), Fault.slow(5)]) as server,
        pytest.raises(BackendError, match=r"gave no whole answer within 0\.1 s \(2 attempts\)") as caught,
    ):
        await ask(server, timeout_s=0.1, retries=1, sleep=Waits())
    assert caught.value.status is None


async def test_nobody_listens() -> None:
    with ScriptedServer() as server:
        pass
    with pytest.raises(BackendError, match=r"http://127\.0\.0\.1:\d+/v1/chat/completions cannot be reached") as caught:
        await ask(server, retries=0)
    assert caught.value.status is None


def chat_answer(**choice: Any) -> str:
    return json.dumps({"choices": [{"finish_reason": "stop", "message": {"content": "x"}, **choice}]})


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("<html>welcome</html>", "not a JSON object: '<html>welcome</html>'"),
        ("", r"not a JSON object: '\(nothing\)'"),
        ("[1, 2]", "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
        ('"\udcff"', "not a JSON object"),
        ("{}", "no choice"),
        ('{"choices": []}', "no choice"),
        ('{"choices": ["x"]}', "no choice"),
        ('{"error": "overloaded"}', "overloaded"),
        (chat_answer(message=None), "no text came with it"),
        (chat_answer(message={}), "no text came with it"),
        (chat_answer(message={"content": None}), "no text came with it"),
        (chat_answer(message={"content": 5}), "no text came with it"),
        (chat_answer(message={"content": ""}, finish_reason="length"), "may need more than 32 tokens"),
        (chat_answer(finish_reason="content_filter"), "content filter withheld"),
        (chat_answer(message={"content": "A" * 32_001}), "text of 32,001 characters cannot be the 32 tokens"),
        (chat_answer(finish_reason="tool_calls"), "not known here: tool_calls"),
    ],
)
async def test_an_answer_that_says_nothing_is_an_error(body: str, says: str) -> None:
    with (
        ScriptedServer(faults=[Fault.says(body)]) as server,
        pytest.raises(BackendError, match=says) as caught,
    ):
        await ask(server)
    assert caught.value.status == 200
    assert len(server.requests) == 1


async def test_an_empty_answer_is_an_answer() -> None:
    with ScriptedServer(faults=[Fault.says(chat_answer(message={"content": ""}))]) as server:
        assert await ask(server) == ""


@pytest.mark.parametrize(("written", "finish"), [(31, "stop"), (32, "length")])
async def test_a_missing_finish_reason_is_read_from_the_count(written: int, finish: str) -> None:
    body = json.loads(chat_answer(finish_reason=None)) | {"usage": {"prompt_tokens": 1, "completion_tokens": written}}
    with ScriptedServer(faults=[Fault.says(json.dumps(body))]) as server:
        llm = OpenAILLM("scripted", base_url=server.base_url)
        assert (await llm.generate(HELLO, Sampling())).finish == finish
        await llm.aclose()


@pytest.mark.parametrize("value", [0.5, math.nan, "much", None, True])
async def test_what_is_no_log_probability_is_an_error(value: object) -> None:
    body = chat_answer(logprobs={"content": [{"token": "x", "logprob": value}]})
    with (
        ScriptedServer(faults=[Fault.says(body)]) as server,
        pytest.raises(BackendError, match="stands where a log-probability should be"),
    ):
        await ask(server, sampling=Sampling(logprobs=True))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"detail": "Unexpected fields"}', "Unexpected fields"),
        ('{"detail": [{"msg": "bad"}]}', "bad"),
        ('{"error": "model is loading"}', "model is loading"),
        ("plain\x1b[31m words", r"plain\\u001b\[31m words"),
        ("", r"\(nothing\)"),
    ],
)
async def test_the_servers_own_words_are_shown_printable(body: str, says: str) -> None:
    with (
        ScriptedServer(faults=[Fault(400, {}, body)]) as server,
        pytest.raises(BackendError, match=says),
    ):
        await ask(server)


async def test_a_reasoning_model_takes_its_limit_under_another_name() -> None:
    with ScriptedServer(refuses_max_tokens=True) as server:
        llm = OpenAILLM("scripted", base_url=server.base_url)
        for _ in range(2):
            assert (await llm.generate(HELLO, Sampling())).text == "yes"
        await llm.aclose()
    limits = [{"max_tokens", "max_completion_tokens"} & request.body.keys() for request in server.requests]
    assert limits == [{"max_tokens"}, {"max_completion_tokens"}, {"max_completion_tokens"}]


async def test_no_more_requests_at_a_time_than_allowed() -> None:
    with ScriptedServer(faults=[Fault.slow(0.02)] * 12) as server:
        llm = OpenAILLM("scripted", base_url=server.base_url, concurrency=3)
        await asyncio.gather(*(llm.generate(HELLO, Sampling()) for _ in range(12)))
        await llm.aclose()
    assert len(server.requests) == 12
    assert server.most_at_a_time == 3


async def test_a_cancelled_caller_frees_its_place() -> None:
    with ScriptedServer(faults=[Fault.slow(30)]) as server:
        llm = OpenAILLM("scripted", base_url=server.base_url, concurrency=1)
        waiting = asyncio.create_task(llm.generate(HELLO, Sampling()))
        while not server.requests:  # noqa: ASYNC110  (the server lives in another thread)
            await asyncio.sleep(0.01)
        waiting.cancel()
        assert (await llm.generate(HELLO, Sampling())).text == "yes"
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await llm.aclose()


@pytest.mark.parametrize("base_url", [None, "https://api.openai.com/v1", "https://eu.api.openai.com/v1"])
def test_openai_without_a_key_is_refused_at_once(base_url: str | None) -> None:
    with pytest.raises(UsageError, match="export OPENAI_API_KEY="):
        OpenAILLM("gpt-4o-mini", base_url=base_url)


async def test_the_key_comes_from_the_argument_or_the_environment(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    await ask(server)
    await ask(server, api_key="from-argument")
    seen = [request.headers["authorization"] for request in server.requests]
    assert seen == ["Bearer from-environment", "Bearer from-argument"]


@pytest.mark.parametrize("key", ["sk-a b", "“sk-a”", "sk-a\nsk-b", "sk-\x7f"])
def test_a_key_that_no_header_can_hold(key: str) -> None:
    with pytest.raises(UsageError, match="copy it again") as caught:
        OpenAILLM("m", base_url="http://localhost:1/v1", api_key=key)
    assert "sk-" not in str(caught.value)


async def test_a_key_is_taken_without_the_line_end_it_was_pasted_with(server: ScriptedServer) -> None:
    await ask(server, api_key="  key\n")
    assert server.requests[0].headers["authorization"] == "Bearer key"


async def test_the_address_comes_from_the_environment_too(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    llm = OpenAILLM("scripted")
    assert (await llm.generate(HELLO, Sampling())).text == "yes"
    assert (llm.name, llm.identity) == ("openai:scripted", f"openai:scripted@{server.base_url}")
    await llm.aclose()


@pytest.mark.parametrize("status", [401, 400, 500])
async def test_the_key_never_appears(status: int) -> None:
    said = f"Incorrect API key provided: {SECRET}. Bearer {SECRET}"
    with ScriptedServer(faults=[Fault.error(status, said)]) as server:
        llm = OpenAILLM("scripted", base_url=server.base_url, api_key=SECRET, retries=0)
        with pytest.raises(BackendError) as caught:
            await llm.generate(HELLO, Sampling())
        await llm.aclose()
    shown = "".join(traceback.format_exception(caught.value))
    for text in (str(caught.value), repr(caught.value), shown, repr(llm), str(llm), llm.name, llm.identity):
        assert SECRET not in text
    assert "Incorrect API key provided: [hidden]" in str(caught.value)
    assert ("set OPENAI_API_KEY" in str(caught.value)) == (status == 401)


async def test_a_key_in_an_answer_that_is_no_answer_is_hidden() -> None:
    with (
        ScriptedServer(faults=[Fault.says(json.dumps({"you_sent": SECRET}))]) as server,
        pytest.raises(BackendError, match=r"\[hidden\]") as caught,
    ):
        await ask(server, api_key=SECRET)
    assert SECRET not in str(caught.value)


async def test_a_short_secret_is_hidden_where_it_stands_alone() -> None:
    with ScriptedServer(faults=[Fault.error(400, "user:pw of port and 1 option: tok=1")]) as server:
        address = server.base_url.replace("//", "//user:pw@") + "?v=1"
        llm = OpenAILLM("scripted", base_url=address)
        with pytest.raises(BackendError) as caught:
            await llm.generate(HELLO, Sampling())
        await llm.aclose()
    assert "user:[hidden] of port and [hidden] option: tok=[hidden]" in str(caught.value)
    assert str(caught.value).startswith(f"{server.base_url}/chat/completions answered 400")


async def test_secrets_in_the_address_are_used_but_not_shown(server: ScriptedServer) -> None:
    address = server.base_url.replace("http://", "http://anna:pass-word@") + "?token=tok-en"
    server.faults.append(Fault.error(404, "no /v1/chat/completions?token=tok-en for pass-word"))
    llm = open_llm(f"openai:scripted@{address}", retries=0)
    assert llm.name == f"openai:scripted@{server.base_url}"
    with pytest.raises(BackendError) as caught:
        await llm.generate(HELLO, Sampling())
    await llm.aclose()
    (request,) = server.requests
    assert request.path == "/v1/chat/completions?token=tok-en"
    assert request.headers["authorization"] == "Basic YW5uYTpwYXNzLXdvcmQ="
    for text in (str(caught.value), repr(llm), llm.identity):
        assert not any(secret in text for secret in ("anna", "pass-word", "tok-en"))


@pytest.mark.parametrize("address", ["localhost:8000", "ftp://host/v1", "http://", "http://[::1", "http://host:port"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(UsageError, match="http://localhost:8000/v1"):
        OpenAILLM("m", base_url=address)


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"retries": -1}, {"timeout_s": 0.0}, {"timeout_s": math.nan}])
def test_numbers_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="concurrency is at least 1"):
        OpenAILLM("m", base_url="http://localhost:1/v1", **options)


def test_a_model_without_a_name() -> None:
    with pytest.raises(UsageError, match="names no model"):
        OpenAILLM("", base_url="http://localhost:1/v1")


async def test_insides_are_refused_with_the_way_out(server: ScriptedServer) -> None:
    llm = OpenAILLM("scripted", base_url=server.base_url, price=Price(1.0, 2.0))
    with pytest.raises(CapabilityError, match="--llm hf:MODEL"):
        await llm.inspect(HELLO, [0])
    with pytest.raises(CapabilityError, match="next-token distributions"):
        await llm.next_token([HELLO])
    await llm.aclose()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本", 2), (Prompt(text="abcde"), 2), (Prompt.user("abcde"), 6)],
)
def test_tokens_are_estimated_from_bytes(text: str | Prompt, tokens: int) -> None:
    assert OpenAILLM("m", base_url="http://localhost:1/v1").count_tokens(text) == tokens
