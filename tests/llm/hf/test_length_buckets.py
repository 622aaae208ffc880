"""Batches whose rows differ much in length: which rows are padded together, and that nothing else changes by it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers
from engine_parts import for_use, tiny_model

from arbitrag.llm.engine.runtime import Block
from arbitrag.llm.hf import runtime as torch_runtime
from arbitrag.llm.hf.kv_cache import Cache
from arbitrag.llm.hf.length_buckets import ALIKE, IMPLEMENTATION, Bands, grouped
from arbitrag.llm.hf.runtime import TorchRuntime

LONG, LIKE_LONG, SHORT = [3 + (7 * at) % 50 for at in range(90)], [4 + (5 * at) % 50 for at in range(70)], [9, 8, 7]
ROWS = [LONG, SHORT, LIKE_LONG]


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> TorchRuntime:
    """One for which rows are alike up to a factor of one and a half alone."""
    monkeypatch.setattr(torch_runtime, "ALIKE", 0)
    return TorchRuntime(copy.deepcopy(tiny_model()), identity="bands")


@pytest.mark.parametrize(
    ("lengths", "alike", "groups"),
    [
        ([5], 0, [[0]]),
        ([100, 150], 0, [[0, 1]]),
        ([100, 151], 0, [[0], [1]]),
        ([100, 151], 1, [[0, 1]]),
        ([2000, 20, 1900, 84, 94, 95], 64, [[1, 3, 4], [5], [0, 2]]),
        ([0, 64, 65], 64, [[0, 1], [2]]),
        ([0, 0], 0, [[0, 1]]),
    ],
)
def test_rows_of_like_length_are_grouped(lengths: list[int], alike: int, groups: list[list[int]]) -> None:
    assert grouped(lengths, alike) == groups


def test_the_masks_of_a_ragged_step_and_of_a_pass() -> None:
    """Three rows of 4, 1 and 3 past slots in two bands: only the padding of the last one is masked in a step."""
    bands = Bands([[0, 2], [1]])
    mask = np.array([[1, 1, 1, 1, 1], [0, 0, 0, 1, 1], [0, 1, 1, 1, 1]], bool)
    bands.see(mask, [4, 1], torch.device("cpu"))
    first, second = bands.masks
    assert first is not None
    assert first[:, 0, 0].tolist() == [[True] * 5, [False] + [True] * 4]
    assert second is None

    bands.see(np.concatenate([mask, np.ones((3, 1), bool)], axis=1), [4, 1], torch.device("cpu"))
    second = bands.masks[1]
    assert second is not None
    assert second[0, 0].tolist() == [[True, True, False], [True, True, True]]


def blocks_of(runtime: TorchRuntime, ids: list[int]) -> Block:
    tokens = np.array([ids])
    step = runtime.forward(tokens, np.ones_like(tokens, bool), np.arange(len(ids))[None], None, keep=1)
    return runtime.block(step.cache, 0, 0, len(ids))


def started(runtime: TorchRuntime, rows: list[list[int]], *, once: bool = False) -> Cache:
    cache = runtime.assemble([[blocks_of(runtime, row)] for row in rows], once=once)
    assert cache is not None
    return cache


def stepped(runtime: TorchRuntime, cache: Cache, rows: list[list[int]], token: int) -> Cache:
    """Add a token to every row, and check its logits against the plain model."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max() + 1) >= (lengths.max() - lengths)[:, None]
    step = runtime.forward(np.full((len(rows), 1), token), mask, lengths[:, None], cache, keep=1)
    for at, row in enumerate(rows):
        row.append(token)
        torch.testing.assert_close(step.logits[at, -1], plain(row), atol=1e-4, rtol=1e-4)
    found: Cache = step.cache
    return found


def plain(ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = tiny_model()(input_ids=torch.tensor([ids])).logits[0, -1]
    return logits


def test_a_short_row_is_not_padded_to_a_long_one(runtime: TorchRuntime) -> None:
    cache, rows = started(runtime, ROWS), [list(row) for row in ROWS]
    assert cache.bands.rows == [[1], [0, 2]]
    for at in range(66):  # past the spare slots
        cache = stepped(runtime, cache, rows, 2 + at % 60)
    assert cache.past() == [3 + 66, 90 + 66]


def test_rows_that_join_go_to_the_band_of_their_length(runtime: TorchRuntime) -> None:
    rows = [list(row) for row in (*ROWS, LIKE_LONG[:65], SHORT[:2], LONG[:20])]
    cache = runtime.join(started(runtime, rows[:3]), started(runtime, rows[3:]))
    assert cache.bands.rows == [[1, 4], [5], [0, 2, 3]]
    stepped(runtime, cache, rows, 11)


@pytest.mark.parametrize("kept", [[0, 1], [1, 0], [2, 0], [1], [2, 1, 0], [2]])
def test_rows_that_leave(runtime: TorchRuntime, kept: list[int]) -> None:
    cache = started(runtime, ROWS)
    rows = [list(ROWS[at]) for at in kept]
    cache = runtime.select(cache, kept, 90 - max(map(len, rows)))
    assert cache.slots == max(map(len, rows))
    cache = stepped(runtime, stepped(runtime, cache, rows, 11), rows, 12)
    assert cache.slots == max(map(len, rows))


def test_a_row_that_stays_as_it_is_is_not_copied(runtime: TorchRuntime) -> None:
    cache = started(runtime, [LONG, SHORT])
    before = cache.layers[0].strips[1]
    assert runtime.select(cache, [0], 0).layers[0].strips == [before]


def test_a_block_of_a_short_row(runtime: TorchRuntime) -> None:
    cache = started(runtime, ROWS)
    found, expected = runtime.block(cache, 1, 88, 90), blocks_of(runtime, SHORT)
    for side in range(2):
        torch.testing.assert_close(found[side], expected[side][:, :, 1:])


@pytest.mark.parametrize("once", [True, False])
def test_a_pass_over_several_tokens(runtime: TorchRuntime, once: bool) -> None:
    """Two new tokens after each row, but one after the second; then the blocks of what was added."""
    cache = started(runtime, ROWS, once=once)
    lengths, new = [90, 3, 70], [[5, 6], [0, 6], [5, 6]]
    mask = np.arange(92) >= 90 - np.array(lengths)[:, None]
    mask[1, 90] = False
    positions = np.array([[90, 91], [0, 3], [70, 71]])
    step = runtime.forward(np.array(new), mask, positions, cache, keep=1)
    for at, row in enumerate([[*LONG, 5, 6], [*SHORT, 6], [*LIKE_LONG, 5, 6]]):
        torch.testing.assert_close(step.logits[at, -1], plain(row), atol=1e-4, rtol=1e-4)
        found = runtime.block(step.cache, at, 91, 92)[0]
        torch.testing.assert_close(found, blocks_of(runtime, row)[0][:, :, -1:], atol=1e-4, rtol=1e-4)


def test_the_model_stays_what_it_is_for_others() -> None:
    model = copy.deepcopy(tiny_model())
    runtime = TorchRuntime(model, identity="shared")
    assert runtime._alike == ALIKE
    assert model.config._attn_implementation == IMPLEMENTATION
    ids = torch.tensor([[0, 0, *SHORT], [5, 6, *SHORT]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    outs = [
        each.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False) for each in (model, tiny_model())
    ]
    assert outs[0].tolist() == outs[1].tolist()
    assert "attn" not in str(model.config.to_dict())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_where_attention_cannot_go_by_band_rows_are_padded(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a model's own attention, and with one that gets another mask than the model was given."""
    torch.manual_seed(0)
    model = for_use(transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)))
    model.set_attn_implementation(attention)
    if attention == "sdpa":
        copies_its_mask(model, monkeypatch)
    runtime = TorchRuntime(model, identity="padded")
    assert runtime._alike is None
    assert model.config._attn_implementation == attention
    assert started(runtime, [[3], LONG]).bands.rows == [[0, 1]]


SMALL: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 128, "initializer_range": 0.3}


def copies_its_mask(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for layer in model.model.layers:
        inner = layer.self_attn.forward

        def forward(*given: Any, inner: Any = inner, attention_mask: Any = None, **options: Any) -> Any:
            mask = None if attention_mask is None else attention_mask.clone()
            return inner(*given, attention_mask=mask, **options)

        monkeypatch.setattr(layer.self_attn, "forward", forward)
