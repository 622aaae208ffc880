"""Random mixtures of requests to an engine, whose results are compared with the plain computation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from engine_parts import ask, plain_greedy, plain_logits, plain_scores, tiny_model, words

from arbitrag.llm.base import Sampling
from arbitrag.llm.engine.engine import Engine

MIXTURES = 125  # for each of the four engines below
Job = Callable[[Engine], Coroutine[Any, Any, None]]


def prompts_of(seed: int) -> list[list[int]]:
    """Prompts of 1 to 90 tokens, most of which begin like another one."""
    draw = random.Random(seed)
    prompts = [[draw.randrange(2, 64) for _ in range(draw.choice([1, 2, 5, 20, 60]))] for _ in range(6)]
    while len(prompts) < 24:
        parent = draw.choice(prompts)
        prompts.append(
            parent[: draw.randrange(1, len(parent) + 1)] + [draw.randrange(2, 64) for _ in range(draw.randrange(30))]
        )
    return [prompt[:90] for prompt in prompts]


PROMPTS = prompts_of(1)
CONTINUATIONS = [[5], [9, 33], [5, 6, 7], [60] * 9, [9, 33, 4, 20, 8, 2, 40]]


def some_job(draw: random.Random) -> Job:
    prompt = draw.choice(PROMPTS)
    kind = draw.choice(["generate", "generate", "score", "score", "inspect", "next_token", "cancelled"])
    if kind == "generate":
        return generates(prompt, draw.choice([1, 3, 8]))
    if kind == "score":
        return scores(prompt, draw.sample(CONTINUATIONS, draw.randrange(1, 5)))
    if kind == "inspect":
        return inspects(prompt, draw.sample([0, 1, 2], 2))
    if kind == "next_token":
        return distributes([prompt, draw.choice(PROMPTS)])
    return cancelled(prompt, draw.randrange(6))


def generates(prompt: list[int], limit: int) -> Job:
    async def job(engine: Engine) -> None:
        expected = plain_greedy(prompt, limit)
        found = await engine.generate(ask(prompt), Sampling(max_tokens=limit, logprobs=True))
        assert found.text == words(expected)
        assert found.finish == ("length" if len(expected) == limit else "stop")
        assert found.logprobs == pytest.approx(plain_scores(prompt, expected), abs=1e-4)

    return job


def scores(prompt: list[int], continuations: list[list[int]]) -> Job:
    async def job(engine: Engine) -> None:
        found = await engine.score(ask(prompt), [words(each) for each in continuations])
        for likelihood, continuation in zip(found.likelihoods, continuations, strict=True):
            assert likelihood.logprobs == pytest.approx(plain_scores(prompt, continuation), abs=1e-4)

    return job


def inspects(prompt: list[int], layers: list[int]) -> Job:
    async def job(engine: Engine) -> None:
        found = await engine.inspect(ask(prompt), layers)
        assert list(found.states) == layers
        for layer, state in found.states.items():
            np.testing.assert_allclose(state, plain_states(prompt)[layer], atol=1e-4)

    return job


def plain_states(prompt: list[int]) -> list[np.ndarray]:
    import torch

    with torch.inference_mode():
        states = tiny_model()(input_ids=torch.tensor([prompt]), output_hidden_states=True).hidden_states
    return [state[0, -1].numpy() for state in states]


def distributes(prompts: list[list[int]]) -> Job:
    async def job(engine: Engine) -> None:
        found = await engine.next_token([ask(prompt) for prompt in prompts])
        expected = [plain_logits(tuple(prompt))[-1] for prompt in prompts]
        np.testing.assert_allclose(found.logprobs, expected, atol=1e-4)

    return job


def cancelled(prompt: list[int], after: int) -> Job:
    """A caller who loses patience after so many rounds of the event loop, or a little later."""

    async def job(engine: Engine) -> None:
        task = asyncio.ensure_future(engine.generate(ask(prompt), Sampling(max_tokens=100)))
        for _ in range(after):
            await asyncio.sleep(0 if after < 4 else 0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    return job


async def mixtures(make: Callable[[], Engine], seed: int, *, engines: int = 1) -> None:
    """All mixtures of one seed, on so many engines one after the other."""
    draw = random.Random(seed)
    for _ in range(engines):
        engine = make()
        for _ in range(MIXTURES // engines):
            jobs = [some_job(draw) for _ in range(draw.choice([1, 2, 4, 8]))]
            waves = draw.choice([1, 2])  # a second one joins what the first is still writing
            running = []
            for wave in range(waves):
                running += [asyncio.ensure_future(job(engine)) for job in jobs[wave::waves]]
                await asyncio.sleep(0.002 * (waves - 1))
            await asyncio.gather(*running)
            assert engine.prefix_cache_bytes <= engine._config.prefix_bytes
        await engine.aclose()
