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
    tiny_runtime,
)

from arbitrag.llm.engine.prefill import Limits
from arbitrag.llm.hf import runtime as torch_runtime
from arbitrag.llm.hf import small_batch_linear


@pytest.mark.parametrize("alike", [0, 64])
async def test_with_everything_kept(alike: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rows of about equal length in bands of their own and matrices in pieces, and with all in one."""
    monkeypatch.setattr(torch_runtime, "ALIKE", alike)
    if not alike:
        monkeypatch.setattr(small_batch_linear, "_PIECE", 1024)
        assert len(tiny_runtime()._few) == 13, "all but the last of either layer's feed-forward"
    await mixtures(tiny_engine, seed=1)


async def test_with_evictions() -> None:
    """The store holds about two prompts, and every continuation has a row of its own."""
    bound = 150 * tiny_runtime().facts.token_bytes
    await mixtures(lambda: tiny_engine(Unpacked(), prefix_bytes=bound), seed=2)


async def test_with_batches_that_run_out_of_memory() -> None:
    """An engine learns what fits, so there is a new one after every fifth mixture."""
    runtime = Cramped(slots=150)
    await mixtures(lambda: tiny_engine(runtime, limits=Limits(slots=1 << 60)), seed=3, engines=25)
    assert runtime.failures >= 10


async def test_one_at_a_time() -> None:
    await mixtures(lambda: tiny_engine(deterministic=True), seed=4)
