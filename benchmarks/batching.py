"""Requests that arrive together are served together: what joining them gains, and what the engine itself costs.

64 mixed questions to the embedded model, answers of 32 tokens, all at once against one at a time; then, with random
weights (106 million parameters, CPU), a batch of 16 against ``generate`` of transformers on the same padded batch, and
the share of a writing step that is not the model's forward pass. Every round has new prompts, so that nothing is stored
from before.
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
from arbitrag.llm.engine.runtime import Step
from arbitrag.llm.onnx.backend import open_runtime

QUESTIONS, ROWS, ANSWER = 64, 16, 32
Ask = Callable[[LLM], Coroutine[Any, Any, object]]


def mixed(draw: random.Random, count: int) -> list[Ask]:
    """Of every eight: six questions from memory, of 5 to 20 words, one with a passage, one scoring of two answers."""

    def one(kind: int) -> Ask:
        passage = f"{random_text(draw, 40)}\n" if kind == 6 else ""
        prompt = Prompt(text=f"{passage}Question: {random_text(draw, draw.randrange(5, 21))}\nAnswer:", lead=" ")
        if kind == 7:
            answers = [random_text(draw, 3), random_text(draw, 5)]
            return lambda llm: llm.score(prompt, answers)
        return lambda llm: llm.generate(prompt, Sampling(max_tokens=ANSWER))

    return [one(number % 8) for number in range(count)]


def joined_or_not(bench: Bench, runner: asyncio.Runner, draw: random.Random) -> None:
    runtime = open_runtime(FOLDER / "model.onnx", context=1024)
    llm = Engine(runtime, lab_codec(), name="lab")  # without a token that ends a text: all answers are of equal length

    async def together() -> None:
        await asyncio.gather(*(ask(llm) for ask in mixed(draw, QUESTIONS)))

    async def in_turn() -> None:
        for ask in mixed(draw, QUESTIONS):
            await ask(llm)

    rounds = bench.pick(smoke=1, quick=3, full=11)
    turns, joined = alternate(lambda: runner.run(in_turn()), lambda: runner.run(together()), rounds=rounds)
    bench.ratio(f"{QUESTIONS} questions, one at a time / together", turns, joined, at_least=4)
    runner.run(llm.aclose())


def against_transformers(bench: Bench, runner: asyncio.Runner, draw: random.Random, model: Any) -> None:
    import torch
    from transformers import GenerationConfig

    engine = engine_of(model)
    settings = GenerationConfig(max_new_tokens=ANSWER, do_sample=False, pad_token_id=0)  # type: ignore[no-untyped-call]

    def prompts() -> list[Prompt]:
        return [random_prompt(draw, 80 + 3 * row) for row in range(ROWS)]

    async def ours() -> None:
        await asyncio.gather(*(engine.generate(prompt, Sampling(max_tokens=ANSWER)) for prompt in prompts()))

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


def own_cost(bench: Bench, runner: asyncio.Runner, draw: random.Random, model: Any) -> None:
    from arbitrag.llm.hf.cpu import optimise
    from arbitrag.llm.hf.runtime import TorchRuntime

    runtime = optimise(TorchRuntime(model, identity="random"))
    engine = Engine(runtime, NumberCodec(), name="random")
    inside = 0.0
    forward = runtime.forward

    def timed(*given: Any, **options: Any) -> Step:
        nonlocal inside
        began = time.perf_counter()
        step = forward(*given, **options)
        inside += time.perf_counter() - began
        return step

    runtime.forward = timed  # type: ignore[method-assign]
    began = time.perf_counter()
    runner.run(engine.generate(random_prompt(draw, 8), Sampling(max_tokens=bench.pick(smoke=8, quick=48, full=256))))
    whole = time.perf_counter() - began
    bench.figure("a step beyond the forward pass", 100 * (whole / inside - 1), unit="%", at_most=5)
    runner.run(engine.aclose())


def main() -> None:
    bench = Bench("batching", __doc__, packages=("torch", "transformers", "onnxruntime"))
    draw = random.Random(bench.options.seed)
    with asyncio.Runner() as runner:
        joined_or_not(bench, runner, draw)
        model = random_llama(bench.options.seed, layers=bench.pick(smoke=2, quick=LAYERS, full=LAYERS))
        against_transformers(bench, runner, draw, model)
        own_cost(bench, runner, draw, model)
    bench.finish(questions=QUESTIONS, rows=ROWS, answer_tokens=ANSWER, parameters_million=106)


if __name__ == "__main__":
    main()
