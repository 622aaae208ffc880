"""The engine over onnxruntime: random mixtures of requests give what torch's plain computation gives."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
onnx = pytest.importorskip("onnx")

from engine_parts import CONTEXT, tiny_engine, tiny_model  # noqa: E402  (needs what was just looked for)
from test_engine_equals_plain import mixtures  # noqa: E402

from arbitrag.llm.onnx import open_runtime  # noqa: E402
from arbitrag.llm.onnx_in_place import InPlaceRuntime  # noqa: E402
from arbitrag.train.export import _weights_of, shape_of  # noqa: E402
from arbitrag.train.llama_graph import build  # noqa: E402


@pytest.fixture
def runtime(tmp_path: Path) -> InPlaceRuntime:
    model = tiny_model()
    onnx.save(build(shape_of(model.config), _weights_of(model, "fp32"), "fp32"), str(tmp_path / "model.onnx"))
    found = open_runtime(tmp_path / "model.onnx", threads=2)
    assert isinstance(found, InPlaceRuntime)
    assert found.facts.context_tokens == CONTEXT
    return found


async def test_with_everything_kept(runtime: InPlaceRuntime) -> None:
    await mixtures(lambda: tiny_engine(runtime), seed=11)


async def test_with_evictions(runtime: InPlaceRuntime) -> None:
    await mixtures(lambda: tiny_engine(runtime, prefix_bytes=150 * runtime.facts.token_bytes), seed=12)


async def test_one_at_a_time(runtime: InPlaceRuntime) -> None:
    await mixtures(lambda: tiny_engine(runtime, deterministic=True), seed=13)
