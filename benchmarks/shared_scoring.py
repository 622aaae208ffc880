"""Scoring eight continuations of one long prompt costs little more than scoring one: the prompt is prefilled once.

Random weights, 106 million parameters (57 million with --quick), CPU; every round has a new prompt, so that none is in
the prefix cache.
"""

from __future__ import annotations

import asyncio
import random

from harness.bench import Bench, alternate
from harness.random_llama import LAYERS, QUICK_LAYERS, engine_of, random_llama, random_prompt

CONTINUATION = 8


def main() -> None:
    bench = Bench("shared_scoring", __doc__, packages=("torch", "transformers"))
    draw = random.Random(bench.options.seed)
    prompt_tokens = bench.pick(smoke=200, quick=2000, full=2000)
    layers = bench.pick(smoke=2, quick=QUICK_LAYERS, full=LAYERS)
    engine = engine_of(random_llama(bench.options.seed, layers=layers))
    with asyncio.Runner() as runner:

        def score(count: int) -> None:
            texts = [random_prompt(draw, CONTINUATION).text or "" for _ in range(count)]
            runner.run(engine.score(random_prompt(draw, prompt_tokens), texts))

        rounds = bench.pick(smoke=1, quick=3, full=11)
        eight, one = alternate(lambda: score(8), lambda: score(1), rounds=rounds)
        runner.run(engine.aclose())
    bench.ratio("8 continuations / 1", eight, one, at_most=1.3)
    bench.finish(prompt_tokens=prompt_tokens, continuation_tokens=CONTINUATION, layers=layers)


if __name__ == "__main__":
    main()
