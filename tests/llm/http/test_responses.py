"""What a server's answers say, and what they may say without crashing who reads them: fuzzed, and by example."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbitrag.errors import BackendError
from arbitrag.llm.base import Prompt, Sampling, Tokens
from arbitrag.llm.http import responses
from arbitrag.llm.http.openai import OpenAILLM
from arbitrag.testing import Fault, ScriptedServer
from arbitrag.text import agree, as_option, choose, clean_answer, declines, final_answer

HUGE = 10**400
SENT, ASKED = 1000, 32
MOST_READ, MOST_WRITTEN = SENT + responses.OWN_TOKENS, ASKED + responses.OWN_TOKENS


def answer(**more: Any) -> dict[str, Any]:
    return {"choices": [{"finish_reason": "stop", "message": {"content": "x"}}], **more}


@pytest.mark.parametrize(
    ("used", "tokens", "doubt"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 2}, Tokens(7, 0, 2), ""),
        ({"prompt_tokens": None, "completion_tokens": None}, Tokens(), ""),
        ({"prompt_tokens": MOST_READ, "completion_tokens": MOST_WRITTEN}, Tokens(MOST_READ, 0, MOST_WRITTEN), ""),
        ({"prompt_tokens": MOST_READ + 1, "completion_tokens": 2}, Tokens(0, 0, 2), f"prompt_tokens {MOST_READ + 1}"),
        ({"completion_tokens": MOST_WRITTEN + 1}, Tokens(), f"completion_tokens {MOST_WRITTEN + 1}"),
        ({"prompt_tokens": -5, "completion_tokens": 2}, Tokens(0, 0, 2), "prompt_tokens -5"),
        ({"prompt_tokens": True}, Tokens(), "prompt_tokens True"),
        ({"prompt_tokens": "12"}, Tokens(), "prompt_tokens '12'"),
        ({"prompt_tokens": 12.5}, Tokens(), "prompt_tokens 12.5"),
        ({"completion_tokens": HUGE}, Tokens(), "completion_tokens 1" + 28 * "0" + "…"),
        ({"prompt_tokens": [1], "completion_tokens": {}}, Tokens(), "prompt_tokens [1], completion_tokens {}"),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 9}}, Tokens(9, 9, 0), ""),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 10}}, Tokens(9, 0, 0), "cached_tokens 10"),
        ({"prompt_tokens": 9, "prompt_tokens_details": "none"}, Tokens(9, 0, 0), ""),
        ("many", Tokens(), ""),
    ],
)
def test_counts_that_cannot_be_are_said_and_not_counted(used: Any, tokens: Tokens, doubt: str) -> None:
    found, said = responses.usage(answer(usage=used), prompt=SENT, completion=ASKED)
    assert found == tokens
    assert said == (f"the server reports token counts that cannot be, which are not counted: {doubt}" if doubt else "")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (-0.5, -0.5),
        (0, 0.0),
        (responses.ROUNDING, 0.0),
        (-9999.0, -9999.0),
        (responses.LOWEST, responses.LOWEST),
        (-10_001, responses.LOWEST),
        (-1e308, responses.LOWEST),
    ],
)
def test_log_probabilities_in_range(value: float, expected: float) -> None:
    assert responses.checked([value]) == (expected,)


@pytest.mark.parametrize(
    "value",
    [2 * responses.ROUNDING, 1e308, math.nan, math.inf, -math.inf, HUGE, -HUGE, True, False, "-1", None, [-1.0]],
)
def test_what_is_no_log_probability(value: object) -> None:
    with pytest.raises(BackendError, match="stands where a log-probability should be"):
        responses.checked([-1.0, value])


def test_half_a_surrogate_pair_is_no_text() -> None:
    body = json.loads(r'{"choices": [{"finish_reason": "stop", "text": "a\ud800b \ud83d\ude00 \udfff"}]}')
    assert responses.generation(body, max_tokens=8, logprobs=False).text == "a\ufffdb 😀 \ufffd"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([HUGE, -HUGE, 2**63, 0, -1])
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def shaped(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object with some of these fields, each as it should be, or anything."""
    return st.fixed_dictionaries({}, optional={name: JSON | each for name, each in fields.items()})


LOGPROBS = shaped(
    content=st.lists(shaped(logprob=st.floats(max_value=0)), max_size=3),
    tokens=st.lists(st.text(max_size=3), max_size=3),
    token_logprobs=st.lists(st.floats(max_value=0) | st.none(), max_size=3),
)
CHOICE = shaped(
    finish_reason=st.sampled_from(["stop", "length", "content_filter", None]),
    text=st.text(max_size=20),
    message=shaped(content=st.text(max_size=20)),
    logprobs=LOGPROBS,
    prompt_logprobs=st.lists(st.none() | st.dictionaries(st.sampled_from(["1", "2"]), shaped(logprob=st.floats()))),
)
ANSWER = shaped(
    choices=st.lists(CHOICE, max_size=2),
    usage=shaped(
        prompt_tokens=st.integers(),
        completion_tokens=st.integers(),
        prompt_tokens_details=shaped(cached_tokens=st.integers()),
    ),
)
READERS: list[Callable[[Any], object]] = [
    lambda body: responses.generation(body, max_tokens=32, logprobs=True, sent=SENT),
    lambda body: responses.generation(body, max_tokens=1, logprobs=False, sent=SENT),
    lambda body: responses.prompt_logprobs(body, [1, 2]),
    responses.echoed,
]


@settings(max_examples=300)
@given(ANSWER)
def test_every_answer_is_read_or_is_an_error_of_the_backend(body: dict[str, Any]) -> None:
    for read in READERS:
        with suppress(BackendError):
            read(body)
    tokens, _ = responses.usage(body, prompt=SENT, completion=ASKED)
    assert 0 <= tokens.prompt_tokens <= MOST_READ
    assert 0 <= tokens.completion_tokens <= MOST_WRITTEN


@settings(max_examples=300)
@given(
    st.text(st.characters(exclude_categories=()), max_size=30)
    | st.sampled_from(["İ", "ſ", "ſ)", "\u212a", "Option ı", "ǆ."]),
    st.lists(st.text(max_size=8), max_size=4),
)
def test_every_reply_is_an_answer_an_option_or_nothing(reply: str, options: list[str]) -> None:
    number = choose(reply, options)
    assert number is None or 0 <= number < len(options)
    as_option(clean_answer(reply), options)
    final_answer(reply, options)
    declines(reply)
    agree(reply, " ".join(options))


@pytest.mark.parametrize("reply", ["İ", "ſ", "ı", "\u212a", "İ)", "Option ſ:", "answer \u212a."])
def test_letters_that_are_alike_only_without_regard_to_case_choose_nothing(reply: str) -> None:
    assert choose(reply, [f"thing {letter}" for letter in "abcdefghijklmnopqrst"]) is None


@pytest.mark.parametrize(("reply", "number"), [("i", 8), ("I)", 8), ("S", 18), ("s.", 18), ("Option K: x", 10)])
def test_letters_of_either_case_choose(reply: str, number: int) -> None:
    assert choose(reply, [f"thing {letter}" for letter in "abcdefghijklmnopqrst"]) == number


async def test_an_error_that_nobody_foresaw_is_one_of_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("no such case")

    monkeypatch.setattr(responses, "generation", breaks)
    with ScriptedServer() as server:
        llm = OpenAILLM("scripted", base_url=server.base_url)
        with pytest.raises(BackendError, match="cannot be read: ZeroDivisionError: no such case") as caught:
            await llm.generate(Prompt.user("hello"), Sampling())
        await llm.aclose()
    assert caught.value.status == 200
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@settings(max_examples=40)
@given(st.binary(max_size=200) | ANSWER.map(lambda body: json.dumps(body).encode()))
def test_bytes_of_every_kind_through_the_client(body: bytes) -> None:
    async def ask(base_url: str) -> None:
        llm = OpenAILLM("scripted", base_url=base_url, retries=0)
        with suppress(BackendError):
            await llm.generate(Prompt.user("hello"), Sampling(logprobs=True))
        await llm.aclose()

    with ScriptedServer(faults=[Fault.says(body)]) as server:
        asyncio.run(ask(server.base_url))
