"""The record of calls, and what is counted from it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np
import pytest

from arbitrag.llm.base import Distributions, Generation, Inspection, Likelihood, Price, Scores, Tokens
from arbitrag.trace import Call, Kind, Recorder, Result, critical_path, decode, encode, usage_of
from arbitrag.truncation import Fit
from arbitrag.types import Cut, Dropped, Passage


def call(began: int, ended: int, kind: Kind = "generate", **fields: object) -> Call:
    return Call(kind, "llm", "model", {"continuations": ["a", "b"]}, began=began, ended=ended, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spans", "steps"),
    [
        ([], 0),
        ([(1, 2)], 1),
        ([(1, 2), (3, 4), (5, 6)], 3),  # one after another
        ([(1, 4), (2, 5), (3, 6)], 1),  # side by side
        ([(1, 3), (2, 4), (5, 7), (6, 8)], 2),  # two and two
        ([(1, 10), (2, 3), (4, 5), (6, 7)], 3),  # three in a row beside a long one
        ([(1, 10), (2, 3), (11, 12)], 2),
        ([(1, 2), (2, 3)], 1),  # began in the very event that ended the other: not after it
        ([(5, 6), (1, 2), (3, 4)], 3),  # the order of the list does not matter
        ([(1, 4), (3, 6), (5, 8)], 2),  # a staircase: the first and the last
    ],
)
def test_the_critical_path_is_the_longest_chain_of_waiting(spans: list[tuple[int, int]], steps: int) -> None:
    assert critical_path([call(*span) for span in spans]) == steps


def test_usage_sums_what_was_asked_of_models() -> None:
    calls = [
        call(1, 2, "retrieve"),
        call(3, 4, "fit"),
        call(5, 7, prompt_tokens=100, completion_tokens=5, money=0.25),
        call(6, 8, "score", prompt_tokens=100, cached_tokens=60, money=0.5),
        call(9, 10, "inspect", prompt_tokens=7, money=0.0),
        call(11, 12, "next_token", prompt_tokens=8, money=0.0),
    ]
    usage = usage_of(calls, 1.5)
    assert (usage.generations, usage.scorings, usage.inspections) == (1, 2, 2)
    assert (usage.calls, usage.steps) == (4, 3)
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (215, 60, 5)
    assert usage.uncached_tokens == 155
    assert (usage.seconds, usage.money) == (1.5, 0.75)


@pytest.mark.parametrize(
    ("prices", "money"), [([], None), ([0.1, None], None), ([None], None), ([0.0], 0.0), ([1, 2], 3)]
)
def test_money_is_known_only_when_every_price_is(prices: list[float | None], money: float | None) -> None:
    assert usage_of([call(1, 2, money=price) for price in prices], 0).money == money


@dataclass
class Part:
    name: str = "part"
    price: Price | None = None


def later(result: Result | Exception) -> Callable[[], Awaitable[Result]]:
    async def ask() -> Result:
        if isinstance(result, Exception):
            raise result
        return result

    return ask


async def test_a_call_is_kept_with_its_cost() -> None:
    recorder = Recorder()
    tokens = Tokens(prompt_tokens=3000, cached_tokens=2000, completion_tokens=10)
    answer = Generation("Mira", "stop", tokens=tokens, cached=True, computed=Tokens(3000, 0, 10))
    part = Part("m", Price(prompt=2.0, completion=8.0, cached=0.5))
    assert await recorder.call("generate", "llm", part, {"prompt": "p"}, later(answer)) is answer
    (kept,) = recorder.calls
    assert kept.result == {"text": "Mira", "finish": "stop", "logprobs": None}
    assert (kept.model, kept.role, kept.request, kept.error) == ("m", "llm", {"prompt": "p"}, "")
    assert (kept.prompt_tokens, kept.cached_tokens, kept.completion_tokens, kept.cached) == (3000, 2000, 10, True)
    assert kept.computed == Tokens(3000, 0, 10)
    assert kept.money == pytest.approx((1000 * 2 + 2000 * 0.5 + 10 * 8) / 1e6)
    assert (kept.began, kept.ended) == (1, 2)


async def test_without_a_price_no_money_is_named() -> None:
    recorder = Recorder()
    await recorder.call("generate", "llm", Part(), {}, later(Generation("x", "stop", tokens=Tokens(5))))
    assert recorder.calls[0].money is None


async def test_a_failed_call_stays_with_its_error() -> None:
    recorder = Recorder()
    with pytest.raises(ValueError, match="cut off"):
        await recorder.call("score", "scorer", Part(), {"continuations": []}, later(ValueError("cut off")))
    (kept,) = recorder.calls
    assert (kept.error, kept.result, kept.ended) == ("ValueError: cut off", None, 2)


async def test_three_calls_side_by_side_are_one_step_and_two_rows_of_them_two() -> None:
    recorder = Recorder()

    async def ask(tag: str) -> None:
        await recorder.call("generate", tag, Part(), {}, later(Generation(tag, "stop")))

    await asyncio.gather(ask("a"), ask("b"), ask("c"))
    assert critical_path(recorder.calls) == 1
    await asyncio.gather(ask("d"), ask("e"))
    assert critical_path(recorder.calls) == 2
    await ask("f")
    assert usage_of(recorder.calls, 0).steps == 3
    assert usage_of(recorder.calls, 0).calls == 6


PASSAGE = Passage("text", id="1", line=3, metadata={"a": "b"})


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        ("retrieve", (PASSAGE, Passage("other"))),
        ("retrieve", ()),
        ("fit", Fit((PASSAGE,), (Dropped(PASSAGE, "too long"),), (Cut("1", 2, 3),))),
        ("generate", Generation("x", "length", (-0.5, -1.25), cached=True)),
        ("generate", Generation("x", "stop", cached=True)),
        ("score", Scores((Likelihood("a", (-0.1, -2.0)), Likelihood("b", (-3.0,))), cached=True)),
    ],
)
def test_a_result_survives_json(kind: Kind, result: Result) -> None:
    assert decode(kind, json.loads(json.dumps(encode(result)))) == result


def test_arrays_survive_json_bit_for_bit() -> None:
    state = np.array([[1.5, -0.0], [np.float32(0.1), 3e38]], dtype=np.float32)
    inspection = decode("inspect", json.loads(json.dumps(encode(Inspection({2: state[0], 0: state[1]})))))
    assert isinstance(inspection, Inspection)
    assert inspection.states[2].tobytes() == state[0].tobytes()
    assert inspection.states[0].tobytes() == state[1].tobytes()
    table = decode("next_token", json.loads(json.dumps(encode(Distributions(state)))))
    assert isinstance(table, Distributions)
    assert table.logprobs.shape == (2, 2)
    assert table.logprobs.tobytes() == state.tobytes()
