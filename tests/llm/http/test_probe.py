"""What the start-up probe believes of each kind of server, and the likelihoods that follow."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from arbitrag.errors import BackendError, UsageError
from arbitrag.llm.base import Capabilities, Prompt, Sampling, Tokens
from arbitrag.llm.http.openai import OpenAILLM
from arbitrag.testing import Fault, ScriptedServer
from arbitrag.testing.server import repeats
from arbitrag.types import Need

BOTH = Need.GENERATE | Need.SCORE
CHAT = Prompt.user("one two one")
PLAIN = Prompt(text="one two one", lead=" ")


async def no_sleep(seconds: float) -> None:
    pass


def client(server: ScriptedServer, **options: Any) -> OpenAILLM:
    return OpenAILLM("scripted", base_url=server.base_url, sleep=no_sleep, **options)


async def capabilities_of(server: ScriptedServer, **options: Any) -> Capabilities:
    llm = client(server, **options)
    try:
        return await llm.capabilities()
    finally:
        await llm.aclose()


def lines(capabilities: Capabilities, start: str) -> list[str]:
    return [line for line in capabilities.evidence if line.startswith(start)]


@pytest.mark.parametrize(
    ("style", "chat", "needs"),
    [
        ("ids", True, BOTH),
        ("ids", False, BOTH),
        ("echo", True, Need.GENERATE),  # plain text alone can be scored, and a chat is what will be asked
        ("echo", False, BOTH),
        ("none", True, Need.GENERATE),
        ("none", False, Need.GENERATE),
    ],
)
async def test_a_server_is_believed_for_what_it_showed(style: Any, chat: bool, needs: Need) -> None:
    with ScriptedServer(style=style, context_tokens=4096) as server:
        capabilities = await capabilities_of(server, chat=chat)
    assert capabilities.needs == needs
    assert capabilities.context_tokens == 4096
    assert [line.split(":")[0] for line in capabilities.evidence[:2]] == ["generate", "logprobs"]
    assert lines(capabilities, "generate: yes")
    assert bool(lines(capabilities, "logprobs: yes")) == (style != "none")
    assert bool(lines(capabilities, "score: yes")) == (Need.SCORE in needs)
    assert lines(capabilities, "context") == ["context: /models says 4,096 tokens"]
    assert bool(lines(capabilities, "tokens are estimated")) == (style != "ids")
    assert bool(lines(capabilities, "tokens: counted by /tokenize")) == (style == "ids")


async def test_the_evidence_of_an_honest_server() -> None:
    with ScriptedServer([" four"] * 9, style="ids") as server:
        capabilities = await capabilities_of(server)
    (line,) = lines(capabilities, "score")
    assert line == (
        "score: yes; asked by /tokenize and prompt_logprobs: ' four' -0.11, ' zebra' -6.91; "
        "' four' written -0.11, scored -0.11; a chat message has 9 tokens by both counts"
    )
    assert capabilities.context_tokens is None


async def test_a_server_that_answers_200_and_ignores_the_question() -> None:
    with ScriptedServer(style="none", logprobs=True) as server:
        capabilities = await capabilities_of(server)
    by_ids, echo_0, echo_1 = lines(capabilities, "score: no")
    assert "asked by /tokenize and prompt_logprobs" in by_ids
    assert "/tokenize answered 404: Not Found" in by_ids
    assert "/v1/tokenize" not in by_ids
    # it reports what it wrote, which is nothing and "yes", and not what it was asked to echo
    assert "max_tokens=0: the server answered 200, but the tokens it echoed do not join to the text" in echo_0
    assert "max_tokens=1: the server answered 200, but the tokens it echoed do not join to the text" in echo_1
    assert echo_1.endswith("sent: 'yes'")
    assert lines(capabilities, "logprobs: yes")


@pytest.mark.parametrize(
    ("likelihood", "doubt"),
    [
        (lambda before, token: -1.0, "should be likelier"),
        (lambda before, token: -float(len(token)) if token == " four" else -0.5, "should be likelier"),
        (lambda before, token: 0.7, "stands where a log-probability should be"),
        (lambda before, token: math.nan, "stands where a log-probability should be"),
        (lambda before, token: -math.inf, "stands where a log-probability should be"),
    ],
)
@pytest.mark.parametrize(("style", "chat"), [("ids", True), ("echo", False)])
async def test_implausible_likelihoods_are_not_believed(likelihood: Any, doubt: str, style: Any, chat: bool) -> None:
    with ScriptedServer(style=style, likelihood=likelihood, logprobs=False) as server:
        capabilities = await capabilities_of(server, chat=chat)
    assert capabilities.needs == Need.GENERATE
    assert any(doubt in line for line in lines(capabilities, "score: no"))


@pytest.mark.parametrize(("gap", "believed"), [(0.19, True), (0.21, False)])
async def test_a_token_must_be_scored_as_it_was_written(gap: float, believed: bool) -> None:
    class Differing(ScriptedServer):
        def _likelihoods(self, before: str, tokens: Sequence[str]) -> list[float]:
            written = bool(before)  # a text that is scored begins with nothing before it
            return [value - gap * written for value in super()._likelihoods(before, tokens)]

    with Differing([" four"] * 9, style="ids") as server:
        capabilities = await capabilities_of(server)
    assert (Need.SCORE in capabilities.needs) == believed
    if not believed:
        assert any("' four' was written with -0.32 and scored with -0.11" in line for line in capabilities.evidence)


async def test_the_count_of_a_chat_must_agree() -> None:
    class Miscounting(ScriptedServer):
        def _encode(self, body: Any) -> list[int]:
            ids = super()._encode(body)
            return ids[1:] if "add_generation_prompt" in body else ids

    with Miscounting(style="ids") as server:
        capabilities = await capabilities_of(server)
    assert capabilities.needs == Need.GENERATE
    assert any("a chat message has 9 tokens, but /tokenize gives 8" in line for line in capabilities.evidence)


@pytest.mark.parametrize("tokens", [None, "12", ["a"], []])
async def test_a_tokenizer_that_gives_no_ids(tokens: object) -> None:
    class Strange(ScriptedServer):
        def _answer(self, request: Any) -> tuple[int, dict[str, Any]]:
            return (200, {"tokens": tokens}) if request.path == "/tokenize" else super()._answer(request)

    with Strange(style="ids") as server:
        capabilities = await capabilities_of(server)
    assert capabilities.needs == Need.GENERATE


async def test_a_server_that_breaks_on_the_question_is_not_asked_twice() -> None:
    class Breaking(ScriptedServer):
        def _answer(self, request: Any) -> tuple[int, dict[str, Any]]:
            strange = request.path != "/v1/chat/completions"
            return (500, {"detail": "boom"}) if strange else super()._answer(request)

    with Breaking() as server:
        capabilities = await capabilities_of(server)
    assert capabilities.needs == Need.GENERATE
    asked = [(request.path, json.dumps(request.body)) for request in server.requests]
    assert len(asked) == len(set(asked))
    assert [path for path, _ in asked].count("/v1/models") == 1
    both = [request.body["max_tokens"] for request in server.requests if request.path == "/v1/completions"]
    assert set(both) == {0, 1}
    assert "context: asked /models; not known" in "\n".join(capabilities.evidence)


@pytest.mark.parametrize(
    ("status", "needs"), [(404, Need(0)), (400, Need(0)), (401, None), (403, None), (500, None), (429, None)]
)
async def test_a_model_that_does_not_answer(status: int, needs: Need | None) -> None:
    class Refusing(ScriptedServer):
        def _answer(self, request: Any) -> tuple[int, dict[str, Any]]:
            chat = request.path == "/v1/chat/completions"
            return (status, {"error": {"message": "no model"}}) if chat else super()._answer(request)

    with Refusing() as server:
        if needs is None:  # nothing was learned about what the server can do
            with pytest.raises(BackendError, match=f"answered {status}"):
                await capabilities_of(server)
        else:
            capabilities = await capabilities_of(server)
            assert capabilities.needs == needs
            assert capabilities.evidence[0].startswith("generate: no; asked chat/completions: http://127.0.0.1:")


async def test_the_server_is_probed_once_by_all_callers() -> None:
    with ScriptedServer(style="ids") as server:
        llm = client(server)
        offers = await asyncio.gather(*(llm.capabilities() for _ in range(8)))
        asked = len(server.requests)
        assert (await llm.capabilities()) == offers[0]
        await llm.aclose()
    assert all(capabilities == offers[0] for capabilities in offers)
    assert len(server.requests) == asked
    assert sum(request.path == "/v1/models" for request in server.requests) == 1


async def test_a_probe_that_failed_is_made_again() -> None:
    with ScriptedServer(faults=[Fault.busy("1")], style="ids") as server:
        llm = client(server, retries=0)
        with pytest.raises(BackendError, match="answered 429"):
            await llm.capabilities()
        assert (await llm.capabilities()).needs == BOTH
        await llm.aclose()


async def test_nobody_there_is_said_soon() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with ScriptedServer() as server:
        pass
    llm = OpenAILLM("scripted", base_url=server.base_url, sleep=sleep)
    with pytest.raises(BackendError, match=r"/v1/models cannot be reached.*\(3 attempts\)"):
        await llm.capabilities()
    await llm.aclose()
    assert len(waits) == 2


async def test_the_probe_learns_the_name_of_the_limit() -> None:
    with ScriptedServer(refuses_max_tokens=True) as server:
        llm = client(server)
        await llm.capabilities()
        server.requests.clear()
        await llm.generate(CHAT, Sampling())
        await llm.aclose()
    (request,) = server.requests
    assert request.body["max_completion_tokens"] == 32


async def test_likelihoods_through_ids() -> None:
    with ScriptedServer(style="ids") as server:
        llm = client(server)
        scores = await llm.score(PLAIN, ["two", "two six", "six"])
        chat = await llm.score(Prompt.user("x [assistant] y"), [" y", " z"])
        await llm.aclose()
    seen, new = math.log(0.9), math.log(0.001)
    assert [likelihood.text for likelihood in scores.likelihoods] == ["two", "two six", "six"]
    assert [likelihood.logprobs for likelihood in scores.likelihoods] == [(seen,), (seen, new), (new,)]
    assert scores.means == (seen, (seen + new) / 2, new)
    assert scores.tokens == Tokens(
        prompt_tokens=5 + 6 + 5
    )  # the mark for the beginning and three words, then each continuation
    assert [likelihood.logprobs for likelihood in chat.likelihoods] == [(seen,), (new,)]


@pytest.mark.parametrize("smallest", [0, 1])
async def test_likelihoods_through_echo(smallest: int) -> None:
    class Writing(ScriptedServer):
        """Refuses to write nothing, and echoes the token that it wrote."""

        def _complete(self, body: Any, *, chat: bool) -> tuple[int, dict[str, Any]]:
            if body["max_tokens"] < smallest:
                return 400, {"error": {"message": "max_tokens is at least 1"}}
            status, answer = super()._complete(body, chat=chat)
            if smallest and body.get("echo"):
                answer["choices"][0]["text"] += " more"
                answer["choices"][0]["logprobs"]["tokens"].append(" more")
                answer["choices"][0]["logprobs"]["token_logprobs"].append(-9.0)
            return status, answer

    with Writing(style="echo") as server:
        llm = client(server, chat=False)
        scores = await llm.score(PLAIN, ["two", "six two"])
        await llm.aclose()
    assert [likelihood.logprobs for likelihood in scores.likelihoods] == [
        (math.log(0.9),),
        (math.log(0.001), math.log(0.001)),
    ]
    assert server.requests[-1].body["max_tokens"] == smallest


async def test_a_token_across_the_boundary_is_an_error() -> None:
    with ScriptedServer(style="echo") as server:
        llm = client(server, chat=False)
        with pytest.raises(BackendError, match="a token crosses the boundary between the prompt and 'Paris'"):
            await llm.score(Prompt(text="the city of"), ["Paris"])
        await llm.aclose()


async def test_ids_have_no_boundary_to_cross() -> None:
    with ScriptedServer(style="ids", likelihood=lambda before, token: -float(len(before))) as server:
        llm = client(server)
        server._likelihood = lambda before, token: repeats(before, token)
        await llm.capabilities()
        server._likelihood = lambda before, token: -float(len(before))
        scores = await llm.score(Prompt(text="the city of"), ["Paris"])
        await llm.aclose()
    assert scores.likelihoods[0].logprobs == (-11.0,)


def echo_of(tokens: list[str], text: str) -> str:
    marked = {"tokens": tokens, "token_logprobs": [None, *[-1.0 - i for i in range(len(tokens) - 1)]]}
    return json.dumps({"choices": [{"text": text, "finish_reason": "length", "logprobs": marked}]})


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["caf", "é", " au", " lait"], (-3.0,)),
        (["caf", "\ufffd", "\ufffd", " au", " lait"], (-4.0,)),  # a character in two pieces, measured from the end
        (["<s>", "café", " au", " lait"], (-3.0,)),
        (["", "café", " au", " lait"], (-3.0,)),
        (["café", " au", " ", "lait"], (-2.0, -3.0)),
    ],
)
async def test_echoed_tokens_are_laid_on_the_text(tokens: list[str], expected: tuple[float, ...]) -> None:
    with ScriptedServer(style="echo") as server:
        llm = client(server, chat=False)
        await llm.capabilities()
        server.faults.append(Fault.says(echo_of(tokens, "café au lait")))
        scores = await llm.score(Prompt(text="café au"), [" lait"])
        await llm.aclose()
    assert scores.likelihoods[0].logprobs == expected


@pytest.mark.parametrize(
    "tokens", [["tea", " au", " lait"], ["caf", "\ufffd", "\ufffd", " au", " milk"], ["<s>", "<s>", "café au", " lait"]]
)
async def test_an_echo_of_something_else_is_an_error(tokens: list[str]) -> None:
    with ScriptedServer(style="echo") as server:
        llm = client(server, chat=False)
        await llm.capabilities()
        server.faults.append(Fault.says(echo_of(tokens, "café au lait")))
        with pytest.raises(BackendError, match="do not join to the text that was sent"):
            await llm.score(Prompt(text="café au"), [" lait"])
        await llm.aclose()


@pytest.mark.parametrize(
    "choice",
    [
        {"text": None, "logprobs": {"tokens": ["a"], "token_logprobs": [None]}},
        {"text": "a", "logprobs": {"tokens": [1], "token_logprobs": [None]}},
        {"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": []}},
        {"text": "a", "logprobs": []},
    ],
)
async def test_an_echo_in_another_form_is_an_error(choice: dict[str, Any]) -> None:
    with ScriptedServer(style="echo") as server:
        llm = client(server, chat=False)
        await llm.capabilities()
        server.faults.append(Fault.says(json.dumps({"choices": [choice]})))
        with pytest.raises(BackendError, match="echo"):
            await llm.score(PLAIN, ["two"])
        await llm.aclose()


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (None, "got none"),
        ([None], "one entry for each of 5 tokens; got 1 entries"),
        ([None, {}, {}, {}, {}], "does not speak of token"),
        ([None, None, None, None, None], "does not speak of token"),
    ],
)
async def test_prompt_logprobs_of_other_tokens_are_an_error(rows: object, says: str) -> None:
    class Changing(ScriptedServer):
        lies = False

        def _score(self, *given: Any) -> dict[str, Any]:
            answer = super()._score(*given)
            if self.lies:
                answer["choices"][0]["prompt_logprobs"] = rows
            return answer

    with Changing(style="ids") as server:
        llm = client(server)
        await llm.capabilities()
        server.lies = True
        with pytest.raises(BackendError, match=says) as caught:
            await llm.score(PLAIN, ["two", "three"])
        await llm.aclose()
    assert str(caught.value).startswith("openai:scripted@http://127.0.0.1:")


async def test_no_likelihoods_no_scores() -> None:
    with ScriptedServer() as server:
        llm = client(server)
        with pytest.raises(BackendError, match="offers no likelihoods\n  score: no; asked by /tokenize"):
            await llm.score(PLAIN, ["two"])
        with pytest.raises(UsageError, match="an empty continuation has no likelihood"):
            await llm.score(PLAIN, ["two", ""])
        await llm.aclose()


async def test_chat_messages_cannot_be_echoed() -> None:
    with ScriptedServer(style="echo") as server:
        llm = client(server, chat=False)
        scores = await llm.score(Prompt.user("one two one"), ["two"])
        await llm.aclose()
    assert server.requests[-1].body["prompt"] == "User: one two one\nAssistant: two"
    assert scores.likelihoods[0].logprobs == (math.log(0.001),)
