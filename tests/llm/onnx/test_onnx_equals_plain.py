"""The engine over onnxruntime: random mixtures of requests give what torch's plain computation gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
onnx = pytest.importorskip("onnx")

from engine_mixtures import mixtures  # noqa: E402
from engine_parts import CONTEXT, tiny_engine, tiny_model  # noqa: E402  (needs what was just looked for)

from arbitrag.llm.engine.batch import BatchLimits  # noqa: E402
from arbitrag.llm.onnx.backend import open_runtime  # noqa: E402
from arbitrag.llm.onnx.export import _weights_of, shape_of  # noqa: E402
from arbitrag.llm.onnx.graph import build  # noqa: E402
from arbitrag.llm.onnx.kv_cache import BufferPool  # noqa: E402
from arbitrag.llm.onnx.runtime import InPlaceRuntime  # noqa: E402


@pytest.fixture
def runtime(tmp_path: Path) -> InPlaceRuntime:
    model = tiny_model()
    onnx.save(build(shape_of(model.config), _weights_of(model, "fp32"), "fp32"), str(tmp_path / "model.onnx"))
    found = open_runtime(tmp_path / "model.onnx", threads=2)
    assert isinstance(found, InPlaceRuntime)
    assert found.info.context_tokens == CONTEXT
    return found


async def test_with_the_prefix_cache(runtime: InPlaceRuntime) -> None:
    await mixtures(lambda: tiny_engine(runtime), seed=11)


async def test_with_evictions(runtime: InPlaceRuntime) -> None:
    await mixtures(lambda: tiny_engine(runtime, prefix_bytes=150 * runtime.info.token_bytes), seed=12)


async def test_with_batches_that_run_out_of_memory(runtime: InPlaceRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for one long row with its spare slots, or for a few short ones, wherever a cache is made or grows."""
    failures, take = 0, BufferPool.take

    def cramped(self: BufferPool, shape: tuple[int, ...]) -> np.ndarray:
        nonlocal failures
        if shape[1] > 1 and shape[1] * shape[3] > 400:
            failures += 1
            raise MemoryError
        return take(self, shape)

    monkeypatch.setattr(BufferPool, "take", cramped)
    await mixtures(lambda: tiny_engine(runtime, limits=BatchLimits(slots=1 << 60)), seed=14, engines=25)
    assert failures >= 10


async def test_deterministic(runtime: InPlaceRuntime) -> None:
    await mixtures(lambda: tiny_engine(runtime, deterministic=True), seed=13)
