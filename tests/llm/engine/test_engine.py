"""The engine's contract: settings, stop rules, refusals, failures that stay with their request, cancelling, closing."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from engine_parts import (
    CONTEXT,
    VOCABULARY,
    Cramped,
    Wrapped,
    ask,
    plain_greedy,
    plain_logits,
    plain_scores,
    tiny_engine,
    tiny_runtime,
    words,
)

from arbitrag.errors import BackendError, ContextError, UsageError
from arbitrag.llm.base import Price, Prompt, Sampling
from arbitrag.llm.engine.batch import BatchLimits, batched
from arbitrag.llm.engine.engine import Engine
from arbitrag.llm.engine.requests import Score
from arbitrag.llm.engine.runtime import ForwardOutput, OutOfMemory
from arbitrag.llm.engine.scoring import _chunks
from arbitrag.types import Need

PROMPT = [5, 6, 7, 8]
LONG = next([n, 9, 10] for n in range(2, 60) if len(plain_greedy([n, 9, 10], 12)) == 12)


async def greedy(engine: Engine, prompt: list[int], limit: int = 4) -> str:
    return (await engine.generate(ask(prompt), Sampling(max_tokens=limit))).text


async def test_capabilities() -> None:
    engine = tiny_engine(prefix_bytes=3 << 20, price=Price(1, 2))
    capabilities = await engine.capabilities()
    assert capabilities.needs == Need.GENERATE | Need.SCORE | Need.INSPECT | Need.NEXT_TOKEN
    assert (capabilities.context_tokens, capabilities.vocabulary) == (CONTEXT, "numbers")
    assert capabilities.evidence[-1] == "prefix cache of 3 MiB"
    assert (engine.identity, engine.name, engine.price) == ("tiny 0 numbers", "tiny", Price(1, 2))
    assert (engine.count_tokens("4 5 6"), engine.count_tokens(ask(PROMPT))) == (3, 4)


async def test_a_completion_ends_before_its_stop_text() -> None:
    written = plain_greedy(LONG, 12)
    engine = tiny_engine()
    stop = f" {written[4]}"
    found = await engine.generate(ask(LONG), Sampling(max_tokens=12, stop=("no such text", stop), logprobs=True))
    text = words(written)
    assert found.text == text[: text.index(stop)]
    assert found.finish == "stop"
    assert found.logprobs == pytest.approx(plain_scores(LONG, written)[: len(found.text.split())], abs=1e-4)
    assert found.tokens.completion_tokens == len(text[: text.index(stop) + len(stop)].split())
    await engine.aclose()


async def test_each_request_keeps_its_own_settings() -> None:
    engine = tiny_engine()
    written = plain_greedy(LONG, 12)
    short, whole, stopped, sampled = await asyncio.gather(
        engine.generate(ask(LONG), Sampling(max_tokens=2)),
        engine.generate(ask(LONG), Sampling(max_tokens=12)),
        engine.generate(ask(LONG), Sampling(max_tokens=12, stop=(str(written[3]),))),
        engine.generate(ask(LONG), Sampling(max_tokens=12, temperature=5.0, seed=1)),
    )
    assert (short.text, short.finish) == (words(written[:2]), "length")
    assert (whole.text, whole.finish) == (words(written), "length")
    assert whole.logprobs is None
    assert stopped.finish == "stop"
    assert sampled.text != whole.text
    await engine.aclose()


async def test_a_seed_gives_the_same_text_in_any_batch() -> None:
    draw = Sampling(max_tokens=6, temperature=1.0, top_p=0.9, seed=11, logprobs=True)
    engine = tiny_engine()
    alone = await engine.generate(ask(PROMPT), draw)
    crowd = await asyncio.gather(
        *(engine.generate(ask([n, 3]), Sampling(max_tokens=6, temperature=2.0, seed=n)) for n in range(5, 10)),
        engine.generate(ask(PROMPT), draw),
    )
    assert crowd[-1].text == alone.text
    assert alone.logprobs == pytest.approx(plain_scores(PROMPT, [int(id) for id in alone.text.split()]), abs=1e-4)
    await engine.aclose()


async def test_samples_follow_the_distribution() -> None:
    engine = tiny_engine()
    draws = [Sampling(max_tokens=1, temperature=1.0, seed=seed) for seed in range(400)]
    found = await asyncio.gather(*(engine.generate(ask(PROMPT), draw) for draw in draws))
    counts = np.bincount([int(each.text or 1) for each in found], minlength=VOCABULARY) / len(found)
    np.testing.assert_allclose(counts, np.exp(plain_logits(tuple(PROMPT))[-1]), atol=0.08)
    await engine.aclose()


async def test_a_completion_ends_where_the_context_does() -> None:
    engine = tiny_engine()
    prompt = (LONG * CONTEXT)[: CONTEXT - 2]
    found = await engine.generate(ask(prompt), Sampling(max_tokens=50))
    assert len(found.text.split()) <= 3
    assert found.text == words(plain_greedy(prompt, 3))
    await engine.aclose()


Call = Callable[[Engine], Coroutine[Any, Any, object]]

BAD: list[tuple[str, Call, type[Exception], str]] = [
    ("prompt too long", lambda e: e.generate(ask([5] * (CONTEXT + 1)), Sampling()), ContextError, "257 tokens"),
    ("continuation too long", lambda e: e.score(ask([5] * 250), ["5 " * 7]), ContextError, r"250 tokens.*\(7\)"),
    ("empty prompt", lambda e: e.generate(Prompt(text=""), Sampling()), UsageError, "prompt is empty"),
    ("empty continuation", lambda e: e.score(ask(PROMPT), ["5", ""]), UsageError, "empty continuation"),
    ("blank continuation", lambda e: e.score(ask(PROMPT), [" "]), UsageError, "empty continuation"),
    ("strange token", lambda e: e.generate(ask([5, 64]), Sampling()), BackendError, "token 64.*0 to 63"),
    ("negative token", lambda e: e.score(ask(PROMPT), ["-1"]), BackendError, "token -1"),
    ("no such layer", lambda e: e.inspect(ask(PROMPT), [0, 3]), UsageError, "no layer 3.*0 to 2"),
    ("nothing to write", lambda e: e.generate(ask(PROMPT), Sampling(max_tokens=0)), UsageError, "max_tokens is 0"),
    ("temperature", lambda e: e.generate(ask(PROMPT), Sampling(temperature=-1)), UsageError, "temperature is -1"),
    ("nan", lambda e: e.generate(ask(PROMPT), Sampling(temperature=float("nan"))), UsageError, "temperature is nan"),
    ("top_p", lambda e: e.generate(ask(PROMPT), Sampling(top_p=0)), UsageError, "top_p is 0"),
    ("stop", lambda e: e.generate(ask(PROMPT), Sampling(stop=("",))), UsageError, "stop text is empty"),
]


@pytest.mark.parametrize(("call", "error", "text"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
async def test_bad_input_is_an_error_of_its_request_alone(call: Call, error: type[Exception], text: str) -> None:
    engine = tiny_engine()
    bad, good = await asyncio.gather(call(engine), greedy(engine, PROMPT), return_exceptions=True)
    assert good == words(plain_greedy(PROMPT, 4))
    assert type(bad) is error
    assert re.search(text, str(bad))
    await engine.aclose()


async def test_an_empty_request_computes_nothing() -> None:
    engine = tiny_engine()
    assert (await engine.score(ask(PROMPT), [])).likelihoods == ()
    assert (await engine.next_token([])).logprobs.shape == (0, VOCABULARY)
    await engine.aclose()


class Poisoned(Wrapped):
    """Rows with the token 63 get logits of NaN (or infinity)."""

    value = float("nan")

    def forward(self, ids: np.ndarray, *rest: Any, **options: Any) -> ForwardOutput:
        step = super().forward(ids, *rest, **options)
        logits = step.logits.clone()
        logits[torch.from_numpy((ids == 63).any(1))] = self.value
        return ForwardOutput(step.cache, logits, step.hidden_states)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
async def test_logits_that_are_not_finite_are_an_error_of_their_request(value: float) -> None:
    runtime = Poisoned()
    runtime.value = value
    engine = tiny_engine(runtime)
    *bad, good = await asyncio.gather(
        greedy(engine, [5, 63]),
        engine.score(ask([5, 63]), ["4 5"]),
        engine.score(ask(PROMPT), ["4", "63 5"]),
        engine.next_token([ask([5, 63])]),
        greedy(engine, PROMPT),
        return_exceptions=True,
    )
    assert good == words(plain_greedy(PROMPT, 4))
    for error in bad:
        assert isinstance(error, BackendError)
        assert "not finite" in str(error)
    await engine.aclose()


class Broken(Wrapped):
    """Fails in every pass with the token 63, and with the token 62 in a decode step."""

    def forward(self, ids: np.ndarray, *rest: Any, **options: Any) -> ForwardOutput:
        if (ids == 63).any():
            raise RuntimeError("a kernel failed")
        return super().forward(ids, *rest, **options)


async def test_a_request_that_fails_fails_alone() -> None:
    engine = tiny_engine(Broken())
    prompts = [[5, 6], [5, 63], [7, 8]]
    first, failed, last = await asyncio.gather(*(greedy(engine, each) for each in prompts), return_exceptions=True)
    assert (first, last) == (words(plain_greedy([5, 6], 4)), words(plain_greedy([7, 8], 4)))
    assert isinstance(failed, BackendError)
    assert str(failed) == "the model failed on this request: RuntimeError: a kernel failed"
    await engine.aclose()


async def test_out_of_memory_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    runtime = Cramped(slots=40)
    engine = tiny_engine(runtime)
    prompts = [[n, 9, 10, 11] for n in range(10, 20)]
    with caplog.at_level(logging.WARNING, "arbitrag.llm"):
        found = await asyncio.gather(*(greedy(engine, prompt, 8) for prompt in prompts))
    assert found == [words(plain_greedy(prompt, 8)) for prompt in prompts]
    assert runtime.failures >= 1
    assert [record.message.split(":")[0] for record in caplog.records] == ["out of memory"]
    await engine.aclose()


async def test_a_request_that_never_fits_gets_the_error() -> None:
    engine = tiny_engine(Cramped(slots=20))
    too_long, grows, fits = await asyncio.gather(
        greedy(engine, [9] * 30),
        greedy(engine, (LONG * 9)[:19], 12),
        greedy(engine, PROMPT),
        return_exceptions=True,
    )
    assert fits == words(plain_greedy(PROMPT, 4))
    assert isinstance(too_long, BackendError)
    assert "out of memory on this request alone" in str(too_long)
    assert isinstance(grows, BackendError) or len(plain_greedy((LONG * 9)[:19], 12)) < 3
    await engine.aclose()


async def test_the_prefix_cache_is_cleared_when_memory_runs_out() -> None:
    class Full(Wrapped):
        """Allocates only while less than 20 tokens are stored."""

        def forward(self, *given: Any, **options: Any) -> ForwardOutput:
            if engine.prefix_cache_bytes > 20 * self.info.token_bytes:
                raise OutOfMemory
            return super().forward(*given, **options)

    engine = tiny_engine(Full())
    await greedy(engine, LONG * 10, 1)
    assert engine.prefix_cache_bytes > 30 * engine.info.token_bytes
    assert await greedy(engine, PROMPT) == words(plain_greedy(PROMPT, 4))
    await engine.aclose()


class Gated(Wrapped):
    """Waits before every pass until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    def forward(self, *given: Any, **options: Any) -> ForwardOutput:
        self.entered.release()
        assert self.gate.acquire(timeout=20)
        return super().forward(*given, **options)

    async def step(self) -> None:
        """Let one pass through, and wait for the next to begin."""
        self.gate.release()
        await asyncio.to_thread(self.entered.acquire)


async def test_requests_join_the_running_batch_and_cancelled_ones_leave_it() -> None:
    runtime = Gated()
    engine = tiny_engine(runtime)
    first = asyncio.ensure_future(greedy(engine, LONG, 12))
    await asyncio.to_thread(runtime.entered.acquire)  # reading the first prompt
    await runtime.step()  # first step of writing
    second = asyncio.ensure_future(greedy(engine, [*LONG[:1], 9, 11, 12], 12))
    await asyncio.sleep(0.01)
    await runtime.step()  # reading the second
    await runtime.step()  # both write
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    for _ in range(40):
        runtime.gate.release()
    assert await second == words(plain_greedy([*LONG[:1], 9, 11, 12], 12))
    assert [shape[0] for shape in runtime.shapes[:4]] == [1, 1, 1, 2]
    assert {shape[0] for shape in runtime.shapes[4:]} == {1}
    await engine.aclose()


async def test_a_cancelled_request_that_waits_is_never_prefilled() -> None:
    runtime = Gated()
    engine = tiny_engine(runtime)
    first = asyncio.ensure_future(greedy(engine, PROMPT, 1))
    await asyncio.to_thread(runtime.entered.acquire)
    second = asyncio.ensure_future(greedy(engine, [50, 51], 1))
    await asyncio.sleep(0.01)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    for _ in range(5):
        runtime.gate.release()
    await first
    await engine.aclose()
    assert runtime.shapes == [(1, 4, 0)]


async def test_closing_fails_waiting_and_later_requests() -> None:
    runtime = Gated()
    engine = tiny_engine(runtime)
    running = asyncio.ensure_future(greedy(engine, LONG, 12))
    await asyncio.to_thread(runtime.entered.acquire)
    closing = asyncio.ensure_future(engine.aclose())
    await asyncio.sleep(0.01)
    for _ in range(20):
        runtime.gate.release()
    await closing
    with pytest.raises(BackendError, match="was closed"):
        await running
    with pytest.raises(BackendError, match="was closed"):
        await greedy(engine, PROMPT)
    assert engine.prefix_cache_bytes == 0


def test_one_engine_serves_one_event_loop_after_another() -> None:
    engine = tiny_engine()
    found = [asyncio.run(greedy(engine, PROMPT)) for _ in range(2)]
    assert found == [words(plain_greedy(PROMPT, 4))] * 2
    asyncio.run(engine.aclose())


async def test_two_engines_share_nothing() -> None:
    one, other = tiny_engine(), tiny_engine(tiny_runtime(seed=1))
    found = await asyncio.gather(*(greedy(engine, LONG, 12) for engine in (one, other, one, other)))
    assert found[0] == found[2] == words(plain_greedy(LONG, 12))
    assert found[1] == found[3] != found[0]
    await asyncio.gather(one.aclose(), other.aclose())


async def test_the_decode_batch_has_no_more_rows_than_the_limit() -> None:
    runtime = Wrapped()
    engine = tiny_engine(runtime, limits=BatchLimits(rows=3))
    prompts = [[n, 9, 10, 11] for n in range(10, 20)]
    found = await asyncio.gather(*(greedy(engine, prompt, 8) for prompt in prompts))
    assert found == [words(plain_greedy(prompt, 8)) for prompt in prompts]
    assert max(rows for rows, _, _ in runtime.shapes) <= 3
    await engine.aclose()


def test_rows_of_a_batch_are_of_similar_length() -> None:
    info = tiny_runtime().info
    lengths = [(0, 2000), (0, 60), (0, 2100), (0, 70), (0, 20), (0, 4000)]
    assert list(batched(lengths, BatchLimits(tokens=5000), info)) == [[4], [1, 3], [0, 2], [5]]
    assert list(batched([(0, 100)] * 5, BatchLimits(rows=2), info)) == [[0, 1], [2, 3], [4]]
    assert list(batched([(900, 10)] * 4, BatchLimits(slots=2000), info)) == [[0, 1], [2, 3]]
    assert list(batched([], BatchLimits(), info)) == []


async def test_first_tokens_are_scored_in_chunks_of_continuations() -> None:
    requests = [Score([1], continuations=[[2]] * count) for count in (2, 2, 1, 5, 1)]
    together = [[len(each.continuations) for each in some] for some in _chunks(requests, 4)]
    assert together == [[2, 2], [1], [5], [1]]
    assert [each for some in _chunks(requests, 4) for each in some] == requests
    assert list(_chunks([], 4)) == []
