"""Whatever the engine joins, shares, evicts or splits, every result is what the plain computation gives."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from engine_mixtures import mixtures
from engine_parts import (
    Cramped,
    Unpacked,
    tiny_engine,
    tiny_model,
    tiny_runtime,
)

from arbitrag.llm.engine.batch import BatchLimits
from arbitrag.llm.hf import cpu
from arbitrag.llm.hf.cpu import BlockedLinear


@pytest.mark.parametrize("optimised", [False, True])
async def test_with_the_prefix_cache(optimised: bool) -> None:
    """On a CPU with its optimisations and without them."""
    await mixtures(lambda: tiny_engine(tiny_runtime(optimised=optimised)), seed=1)


async def test_with_every_cpu_optimisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of about equal length are in buckets of their own, and small matrices are blocked as well."""
    monkeypatch.setattr(cpu, "SLACK", 0)
    monkeypatch.setattr(cpu, "_BLOCK_BYTES", 1024)
    assert len(BlockedLinear(tiny_model())) == 13, "all but the last of either layer's feed-forward"
    await mixtures(tiny_engine, seed=1)


async def test_with_evictions() -> None:
    """The store holds about two prompts, and every continuation has a row of its own."""
    bound = 150 * tiny_runtime().info.token_bytes
    await mixtures(lambda: tiny_engine(Unpacked(), prefix_bytes=bound), seed=2)


async def test_with_batches_that_run_out_of_memory() -> None:
    """An engine learns what fits, so there is a new one after every fifth mixture."""
    runtime = Cramped(slots=150)
    await mixtures(lambda: tiny_engine(runtime, limits=BatchLimits(slots=1 << 60)), seed=3, engines=25)
    assert runtime.failures >= 10


async def test_deterministic() -> None:
    await mixtures(lambda: tiny_engine(deterministic=True), seed=4)
