"""Probing a prompt's hidden state before answering it costs nothing: both share one prefill, by the prefix cache.

Random weights, 106 million parameters (57 million with --quick), CPU; every round has a new prompt, so that none is in
the prefix cache.
"""

from __future__ import annotations

import asyncio
import random

from harness.bench import Bench, alternate
from harness.random_llama import LAYERS, QUICK_LAYERS, engine_of, random_llama, random_prompt

from arbitrag.llm.base import Sampling

ANSWER, LAYER = 16, 7


def main() -> None:
    bench = Bench("probe_then_answer", __doc__, packages=("torch", "transformers"))
    draw = random.Random(bench.options.seed)
    prompt_tokens = bench.pick(smoke=200, quick=2000, full=2000)
    layers = bench.pick(smoke=LAYER + 1, quick=QUICK_LAYERS, full=LAYERS)
    engine = engine_of(random_llama(bench.options.seed, layers=layers))

    async def answer(*, probe: bool) -> None:
        prompt = random_prompt(draw, prompt_tokens)
        if probe:
            await engine.inspect(prompt, [LAYER])
        await engine.generate(prompt, Sampling(max_tokens=ANSWER))

    with asyncio.Runner() as runner:
        both, only = alternate(
            lambda: runner.run(answer(probe=True)),
            lambda: runner.run(answer(probe=False)),
            rounds=bench.pick(smoke=1, quick=5, full=15),
        )
        runner.run(engine.aclose())
    bench.ratio("probe then answer / answer", both, only, at_most=1.02)
    bench.finish(prompt_tokens=prompt_tokens, answer_tokens=ANSWER, layers=layers)


if __name__ == "__main__":
    main()
