"""The optimisations for CPUs: length buckets and blocked linear layers change no result."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers
from engine_parts import for_use, tiny_model
from torch import nn

from arbitrag.llm.engine.runtime import Block
from arbitrag.llm.hf import cpu
from arbitrag.llm.hf.cpu import (
    FEW_TOKENS,
    IMPLEMENTATION,
    BlockedLinear,
    BucketedCache,
    Buckets,
    block_rows,
    grouped,
    optimise,
)
from arbitrag.llm.hf.kv_cache import Cache
from arbitrag.llm.hf.runtime import TorchRuntime

LONG, LIKE_LONG, SHORT = [3 + (7 * at) % 50 for at in range(90)], [4 + (5 * at) % 50 for at in range(70)], [9, 8, 7]
ROWS = [LONG, SHORT, LIKE_LONG]


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> TorchRuntime:
    """One whose buckets have rows whose lengths differ by a factor of 1.5 at most, however short they are."""
    monkeypatch.setattr(cpu, "SLACK", 0)
    return optimise(TorchRuntime(copy.deepcopy(tiny_model()), identity="buckets"))


@pytest.mark.parametrize(
    ("lengths", "slack", "groups"),
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
def test_rows_of_similar_length_share_a_bucket(lengths: list[int], slack: int, groups: list[list[int]]) -> None:
    assert grouped(lengths, slack) == groups


def test_the_masks_of_a_decode_step_and_of_a_prefill() -> None:
    """Three rows of 4, 1 and 3 past slots in two buckets: only the padding of the last one is masked in a step."""
    buckets = Buckets([[0, 2], [1]])
    mask = np.array([[1, 1, 1, 1, 1], [0, 0, 0, 1, 1], [0, 1, 1, 1, 1]], bool)
    buckets.mask(mask, [4, 1], torch.device("cpu"))
    first, second = buckets.masks
    assert first is not None
    assert first[:, 0, 0].tolist() == [[True] * 5, [False] + [True] * 4]
    assert second is None

    buckets.mask(np.concatenate([mask, np.ones((3, 1), bool)], axis=1), [4, 1], torch.device("cpu"))
    second = buckets.masks[1]
    assert second is not None
    assert second[0, 0].tolist() == [[True, True, False], [True, True, True]]


def blocks_of(runtime: TorchRuntime, ids: list[int]) -> Block:
    tokens = np.array([ids])
    step = runtime.forward(tokens, np.ones_like(tokens, bool), np.arange(len(ids))[None], None, logits_to_keep=1)
    return runtime.block(step.cache, 0, 0, len(ids))


def started(runtime: TorchRuntime, rows: list[list[int]], *, single_pass: bool = False) -> BucketedCache:
    return bucketed(runtime.assemble([[blocks_of(runtime, row)] for row in rows], single_pass=single_pass))


def bucketed(cache: Cache | None) -> BucketedCache:
    assert isinstance(cache, BucketedCache)
    return cache


def stepped(runtime: TorchRuntime, cache: Cache, rows: list[list[int]], token: int) -> BucketedCache:
    """Add a token to every row, and check its logits against the plain model."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max() + 1) >= (lengths.max() - lengths)[:, None]
    step = runtime.forward(np.full((len(rows), 1), token), mask, lengths[:, None], cache, logits_to_keep=1)
    for at, row in enumerate(rows):
        row.append(token)
        torch.testing.assert_close(step.logits[at, -1], plain(row), atol=1e-4, rtol=1e-4)
    return bucketed(step.cache)


def plain(ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = tiny_model()(input_ids=torch.tensor([ids])).logits[0, -1]
    return logits


def test_a_short_row_is_not_padded_to_a_long_one(runtime: TorchRuntime) -> None:
    cache, rows = started(runtime, ROWS), [list(row) for row in ROWS]
    assert cache.buckets.rows == [[1], [0, 2]]
    for at in range(66):  # past the spare slots
        cache = stepped(runtime, cache, rows, 2 + at % 60)
    assert cache.past == [3 + 66, 90 + 66]


def test_rows_that_join_go_to_the_bucket_of_their_length(runtime: TorchRuntime) -> None:
    rows = [list(row) for row in (*ROWS, LIKE_LONG[:65], SHORT[:2], LONG[:20])]
    cache = bucketed(runtime.join(started(runtime, rows[:3]), started(runtime, rows[3:])))
    assert cache.buckets.rows == [[1, 4], [5], [0, 2, 3]]
    stepped(runtime, cache, rows, 11)


@pytest.mark.parametrize("kept", [[0, 1], [1, 0], [2, 0], [1], [2, 1, 0], [2]])
def test_rows_that_leave(runtime: TorchRuntime, kept: list[int]) -> None:
    rows = [list(ROWS[at]) for at in kept]
    cache = bucketed(runtime.select(started(runtime, ROWS), kept, 90 - max(map(len, rows))))
    assert cache.slots == max(map(len, rows))
    cache = stepped(runtime, stepped(runtime, cache, rows, 11), rows, 12)
    assert cache.slots == max(map(len, rows))


def test_a_row_that_stays_as_it_is_is_not_copied(runtime: TorchRuntime) -> None:
    cache = started(runtime, [LONG, SHORT])
    before = cache.caches[1]
    assert bucketed(runtime.select(cache, [0], 0)).caches == [before]


def test_a_block_of_a_short_row(runtime: TorchRuntime) -> None:
    cache = started(runtime, ROWS)
    found, expected = runtime.block(cache, 1, 88, 90), blocks_of(runtime, SHORT)
    for side in range(2):
        torch.testing.assert_close(found[side], expected[side][:, :, 1:])


@pytest.mark.parametrize("single_pass", [True, False])
def test_a_pass_over_several_tokens(runtime: TorchRuntime, single_pass: bool) -> None:
    """Two new tokens after each row, but one after the second; then the blocks of what was added."""
    cache = started(runtime, ROWS, single_pass=single_pass)
    lengths, new = [90, 3, 70], [[5, 6], [0, 6], [5, 6]]
    mask = np.arange(92) >= 90 - np.array(lengths)[:, None]
    mask[1, 90] = False
    positions = np.array([[90, 91], [0, 3], [70, 71]])
    step = runtime.forward(np.array(new), mask, positions, cache, logits_to_keep=1)
    for at, row in enumerate([[*LONG, 5, 6], [*SHORT, 6], [*LIKE_LONG, 5, 6]]):
        torch.testing.assert_close(step.logits[at, -1], plain(row), atol=1e-4, rtol=1e-4)
        found = runtime.block(step.cache, at, 91, 92)[0]
        torch.testing.assert_close(found, blocks_of(runtime, row)[0][:, :, -1:], atol=1e-4, rtol=1e-4)


def test_the_model_stays_what_it_is_for_others() -> None:
    model = copy.deepcopy(tiny_model())
    optimise(TorchRuntime(model, identity="shared"))
    assert model.config._attn_implementation == IMPLEMENTATION
    ids = torch.tensor([[0, 0, *SHORT], [5, 6, *SHORT]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    outs = [
        each.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False) for each in (model, tiny_model())
    ]
    assert outs[0].tolist() == outs[1].tolist()
    assert "attn" not in str(model.config.to_dict())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_without_attention_by_bucket_all_rows_are_padded(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a model's own attention, and with one that gets another mask than the model was given."""
    torch.manual_seed(0)
    model = for_use(transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)))
    model.set_attn_implementation(attention)
    if attention == "sdpa":
        copies_its_mask(model, monkeypatch)
    runtime = optimise(TorchRuntime(model, identity="padded"))
    assert model.config._attn_implementation == attention
    cache = runtime.assemble([[blocks_of(runtime, row)] for row in ([3], LONG)])
    assert type(cache) is Cache
    assert (cache.rows, cache.slots) == (2, 90)


SMALL: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 128, "initializer_range": 0.3}


def copies_its_mask(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for layer in model.model.layers:
        inner = layer.self_attn.forward

        def forward(*given: Any, inner: Any = inner, attention_mask: Any = None, **options: Any) -> Any:
            mask = None if attention_mask is None else attention_mask.clone()
            return inner(*given, attention_mask=mask, **options)

        monkeypatch.setattr(layer.self_attn, "forward", forward)


@pytest.mark.parametrize(
    ("out", "inner", "size"),
    [
        (2048, 768, 128),  # 170 rows are 512 KiB
        (8192, 2048, 64),  # exactly
        (2048, 8192, 16),
        (4096, 100_000, 0),  # a row is too wide for blocks of eight
        (768 * 3, 768, 128),
        (50_257, 768, 0),  # odd
        (50_264, 768, 8),
        (50_260, 768, 0),  # only blocks of four
        (64, 32, 0),  # fits as it is
        (8192, 16, 0),
        (16_384, 16, 8192),
    ],
)
def test_the_size_of_a_block(out: int, inner: int, size: int) -> None:
    assert block_rows(torch.empty(out, inner)) == size


def test_matrices_that_stay_whole() -> None:
    weight = torch.empty(2048, 768)
    assert block_rows(weight) > 0
    assert block_rows(weight.bfloat16()) == 0
    assert block_rows(weight.to("meta")) == 0
    assert block_rows(torch.empty(768, 2048).t()) == 0, "not contiguous"


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> nn.Sequential:
    """Two layers of four blocks and of two, one with a bias."""
    monkeypatch.setattr(cpu, "_BLOCK_BYTES", 8 * 32 * 4)
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 32), nn.Linear(32, 16, bias=False)).requires_grad_(False)


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (3, 5), (64, 1), (1, 64), (2, 3, 4)])
def test_blocks_give_what_the_whole_matrix_gives(layers: nn.Sequential, shape: tuple[int, ...]) -> None:
    given = torch.randn(*shape, 24)
    expected, blocked = layers(given), BlockedLinear(layers)
    with blocked.during_pass(1):
        assert "forward" in vars(layers[0])
        found = layers(given)
    assert found.shape == (*shape, 16)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_blocked_layers_take_input_that_is_not_contiguous(layers: nn.Sequential) -> None:
    given = torch.randn(24, 6).t()
    expected, blocked = layers(given), BlockedLinear(layers)
    with blocked.during_pass(6):
        torch.testing.assert_close(layers(given), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("tokens", "blocked"), [(FEW_TOKENS, True), (FEW_TOKENS + 1, False)])
def test_a_pass_of_many_tokens_is_not_blocked(layers: nn.Sequential, tokens: int, blocked: bool) -> None:
    with BlockedLinear(layers).during_pass(tokens):
        assert ("forward" in vars(layers[0])) == blocked
    assert "forward" not in vars(layers[0])


def test_after_a_pass_that_raised_the_model_is_as_it_was(layers: nn.Sequential) -> None:
    blocked = BlockedLinear(layers)
    with pytest.raises(RuntimeError, match="in the middle"), blocked.during_pass(1):
        raise RuntimeError("in the middle")
    assert all("forward" not in vars(layer) for layer in layers)


def test_a_weight_that_changes_is_seen(layers: nn.Sequential) -> None:
    blocked, given = BlockedLinear(layers), torch.randn(2, 24)
    layers[1].weight = nn.Parameter(torch.randn(16, 32), requires_grad=False)
    expected = layers(given)
    with blocked.during_pass(2):
        torch.testing.assert_close(layers(given), expected, atol=1e-6, rtol=1e-5)


def test_layers_of_another_kind_are_left_alone(layers: nn.Sequential) -> None:
    """One that computes in its own way, and one whose forward someone replaced already."""

    class Own(nn.Linear):
        pass

    assert len(BlockedLinear(nn.Sequential(*layers, Own(24, 32)))) == 2
    vars(layers[0])["forward"] = layers[0].forward
    assert len(BlockedLinear(layers)) == 1


def test_on_a_gpu_nothing_is_optimised() -> None:
    runtime: Any = SimpleNamespace(model=SimpleNamespace(device=torch.device("meta")))
    assert optimise(runtime) is runtime
    assert vars(runtime).keys() == {"model"}
