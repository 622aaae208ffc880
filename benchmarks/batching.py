"""Continuous batching: the throughput of concurrent requests, and the engine's own overhead.

64 mixed requests to the embedded model, completions of 32 tokens, all at once against one at a time; a batch of 16
against ``generate`` of transformers on the same padded batch (random weights, 106 million parameters, CPU); and the
time of decode steps outside the model's forward pass. Every round has new prompts, so that none is in the prefix cache.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

from harness.bench import Bench, alternate
from harness.random_llama import LAYERS, NumberCodec, engine_of, lab_codec, random_llama, random_prompt, random_text

from arbitrag.lab.model import FOLDER
from arbitrag.llm.base import LLM, Prompt, Sampling
from arbitrag.llm.engine.engine import Engine
from arbitrag.llm.engine.runtime import ForwardOutput
from arbitrag.llm.onnx.backend import open_runtime

REQUESTS, ROWS, COMPLETION = 64, 16, 32
Ask = Callable[[LLM], Coroutine[Any, Any, object]]


def mixed(draw: random.Random, count: int) -> list[Ask]:
    """Requests of three kinds: of every eight, six short prompts, one with a passage, one scoring of two answers."""

    def one(kind: int) -> Ask:
        passage = f"{random_text(draw, 40)}\n" if kind == 6 else ""
        prompt = Prompt(text=f"{passage}Question: {random_text(draw, draw.randrange(5, 21))}\nAnswer:", lead=" ")
        if kind == 7:
            answers = [random_text(draw, 3), random_text(draw, 5)]
            return lambda llm: llm.score(prompt, answers)
        return lambda llm: llm.generate(prompt, Sampling(max_tokens=COMPLETION))

    return [one(number % 8) for number in range(count)]


def against_one_at_a_time(bench: Bench, runner: asyncio.Runner, draw: random.Random) -> None:
    runtime = open_runtime(FOLDER / "model.onnx", context=1024)
    llm = Engine(runtime, lab_codec(), name="lab")  # no end-of-text token: all completions are of one length

    async def concurrent() -> None:
        await asyncio.gather(*(ask(llm) for ask in mixed(draw, REQUESTS)))

    async def sequential() -> None:
        for ask in mixed(draw, REQUESTS):
            await ask(llm)

    rounds = bench.pick(smoke=1, quick=3, full=11)
    alone, batched = alternate(lambda: runner.run(sequential()), lambda: runner.run(concurrent()), rounds=rounds)
    bench.ratio(f"{REQUESTS} requests, one at a time / all at once", alone, batched, at_least=4)
    runner.run(llm.aclose())


def against_transformers(bench: Bench, runner: asyncio.Runner, draw: random.Random, model: Any) -> None:
    import torch
    from transformers import GenerationConfig

    engine = engine_of(model)
    shortest, tokens = bench.pick(quick=(20, 16), full=(80, COMPLETION))
    settings = GenerationConfig(max_new_tokens=tokens, do_sample=False, pad_token_id=0)  # type: ignore[no-untyped-call]

    def prompts() -> list[Prompt]:
        return [random_prompt(draw, shortest + 3 * row) for row in range(ROWS)]

    async def ours() -> None:
        await asyncio.gather(*(engine.generate(prompt, Sampling(max_tokens=tokens)) for prompt in prompts()))

    def theirs() -> None:
        rows = [[int(word) for word in (prompt.text or "").split()] for prompt in prompts()]
        longest = max(map(len, rows))
        ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        with torch.inference_mode():
            model.generate(ids, attention_mask=mask, generation_config=settings)

    mine, plain = alternate(lambda: runner.run(ours()), theirs, rounds=bench.pick(smoke=1, quick=2, full=9))
    bench.ratio(f"batch of {ROWS}, engine / transformers generate", mine, plain, at_most=1.1)
    runner.run(engine.aclose())


def overhead(bench: Bench, runner: asyncio.Runner, draw: random.Random, model: Any) -> None:
    from arbitrag.llm.hf.cpu import optimise
    from arbitrag.llm.hf.runtime import TorchRuntime

    runtime = optimise(TorchRuntime(model, identity="random"))
    engine = Engine(runtime, NumberCodec(), name="random")
    inside = 0.0
    forward = runtime.forward

    def timed(*given: Any, **options: Any) -> ForwardOutput:
        nonlocal inside
        began = time.perf_counter()
        step = forward(*given, **options)
        inside += time.perf_counter() - began
        return step

    runtime.forward = timed  # type: ignore[method-assign]
    began = time.perf_counter()
    runner.run(engine.generate(random_prompt(draw, 8), Sampling(max_tokens=bench.pick(smoke=8, quick=48, full=256))))
    whole = time.perf_counter() - began
    bench.figure("decode step, time outside the forward pass", 100 * (whole / inside - 1), unit="%", at_most=5)
    runner.run(engine.aclose())


def main() -> None:
    bench = Bench("batching", __doc__, packages=("torch", "transformers", "onnxruntime"))
    draw = random.Random(bench.options.seed)
    with asyncio.Runner() as runner:
        against_one_at_a_time(bench, runner, draw)
        layers = bench.pick(smoke=2, quick=LAYERS, full=LAYERS)
        model = random_llama(bench.options.seed, layers=layers)
        against_transformers(bench, runner, draw, model)
        overhead(bench, runner, draw, model)
    bench.finish(requests=REQUESTS, batch=ROWS, completion_tokens=COMPLETION, layers=layers)


if __name__ == "__main__":
    main()
