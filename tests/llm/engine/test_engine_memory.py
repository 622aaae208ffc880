"""Traffic leaves nothing behind: twenty thousand short requests, and the process is as large as after the first."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc
from pathlib import Path

import pytest
from engine_parts import VOCABULARY, ask, tiny_engine, words

from arbitrag.llm.base import Sampling
from arbitrag.llm.engine.engine import Engine

STATUS = Path("/proc/self/status")
AT_ONCE = 100


async def traffic(engine: Engine, requests: int, draw: random.Random) -> None:
    """Short prompts, nearly all new: written, scored and inspected in turn."""

    def one(number: int) -> object:
        ids = [draw.randrange(2, VOCABULARY) for _ in range(draw.randrange(2, 9))]
        if number % 4 == 1:
            return engine.score(ask(ids), [words(ids[:1]), words(ids[-2:])])
        if number % 4 == 2:
            return engine.inspect(ask(ids), [1])
        return engine.generate(ask(ids), Sampling(max_tokens=2))

    for _ in range(requests // AT_ONCE):
        await asyncio.gather(*(one(number) for number in range(AT_ONCE)))  # type: ignore[call-overload]


def resident_mb() -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="the resident memory is read from /proc")
async def test_twenty_thousand_requests_leak_no_memory() -> None:
    engine = tiny_engine(prefix_bytes=200_000, window_s=0.001)
    draw = random.Random(0)
    await traffic(engine, 4_000, draw)  # the store is full, and every cache of the libraries has its size
    tracemalloc.start()
    try:
        await traffic(engine, 1_000, draw)
        gc.collect()
        traced, resident = tracemalloc.get_traced_memory()[0], resident_mb()
        await traffic(engine, 19_000, draw)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - traced < 500_000
        assert resident_mb() - resident < 30
        assert 0 < engine.prefix_cache_bytes <= 200_000
    finally:
        tracemalloc.stop()
        await engine.aclose()
