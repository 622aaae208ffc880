"""The torch runtime: choosing tokens by a stated rule, caches that are cut and joined, and what it refuses to run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers
from engine_parts import NumberCodec, ask, for_use, tiny_model, tiny_runtime, words

from arbitrag.errors import BackendError
from arbitrag.llm.base import Sampling
from arbitrag.llm.engine.engine import Engine
from arbitrag.llm.engine.runtime import OutOfMemory
from arbitrag.llm.hf import runtime as torch_runtime
from arbitrag.llm.hf.kv_cache import SPARE
from arbitrag.llm.hf.runtime import TorchRuntime

PROBABILITIES = [0.1, 0.4, 0.2, 0.3]


@pytest.mark.parametrize(
    ("temperature", "top_p", "draw", "token"),
    [
        (0.0, 1.0, 0.99, 1),
        (1.0, 1.0, 0.0, 1),
        (1.0, 1.0, 0.39, 1),
        (1.0, 1.0, 0.41, 3),
        (1.0, 1.0, 0.69, 3),
        (1.0, 1.0, 0.71, 2),
        (1.0, 1.0, 0.91, 0),
        (1.0, 1.0, 0.999999, 0),
        (1.0, 0.1, 0.99, 1),  # the likeliest alone reaches it
        (1.0, 0.41, 0.56, 1),  # two are kept: 0.4 and 0.3 of 0.7
        (1.0, 0.41, 0.58, 3),
        (1.0, 0.75, 0.99, 2),
        (0.5, 1.0, 0.52, 1),  # squared: .16, .09, .04, .01 of .30
        (0.5, 1.0, 0.54, 3),
        (1e-6, 1.0, 0.99, 1),
    ],
)
def test_sampling(temperature: float, top_p: float, draw: float, token: int) -> None:
    logits = torch.tensor(PROBABILITIES).log()[None, None].repeat(2, 1, 1) + 3.0
    settings = [np.array([0.0, value]) for value in (temperature, top_p, draw)]
    settings[1][0] = 1.0
    choice = tiny_runtime().sample(logits, *settings)
    assert choice.ids.tolist() == [1, token]
    assert choice.logprobs == pytest.approx(np.log([0.4, PROBABILITIES[token]]), abs=1e-6)


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    zero = np.zeros(1)
    assert tiny_runtime().sample(torch.tensor([[[1.0, 2.0, 2.0, 2.0]]]), zero, zero + 1, zero).ids.tolist() == [1]


def test_log_probabilities_of_half_precision_are_computed_in_full() -> None:
    logits = torch.tensor([[[0.0, 1.0], [2.0, 0.0]]]).half()
    found = tiny_runtime().logprobs(logits, np.array([[1, 1]]))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [[-np.log1p(np.exp(-1)), -2 - np.log1p(np.exp(-2))]], atol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_has_no_log_probability(bad: float) -> None:
    runtime, zero = tiny_runtime(), np.zeros(2)
    logits = torch.tensor([[[0.0, 1.0, bad]], [[0.0, 0.0, 1.0]]])
    assert np.isnan(runtime.sample(logits, zero, zero + 1, zero).logprobs).tolist() == [True, False]
    assert np.isnan(runtime.logprobs(logits, np.array([[0], [0]]))).tolist() == [[True], [False]]


def test_model_info() -> None:
    info = tiny_runtime().info
    assert (info.layers, info.vocabulary, info.context_tokens) == (2, 64, 256)
    assert info.ragged
    assert info.packs
    assert info.token_bytes == 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, width, float32
    assert info.logits_bytes == 64 * 4
    assert info.hidden_layers == {0, 1, 2}


def test_a_cache_grows_beyond_its_spare_slots() -> None:
    """One token at a time past two reallocations gives the logits of one pass over all."""
    runtime = tiny_runtime()
    ids = np.array([[2 + (5 * at) % 60 for at in range(2 * SPARE + 10)]])
    cache = None
    for at in range(ids.shape[1]):
        step = runtime.forward(
            ids[:, at : at + 1], np.ones((1, at + 1), bool), np.array([[at]]), cache, logits_to_keep=1
        )
        cache = step.cache
    with torch.inference_mode():
        plain = tiny_model()(input_ids=torch.from_numpy(ids)).logits[0, -1]
    torch.testing.assert_close(step.logits[0, -1], plain, atol=1e-4, rtol=1e-4)


def test_a_cut_block_keeps_nothing_else_in_memory() -> None:
    runtime = tiny_runtime()
    step = runtime.forward(np.arange(2, 50)[None], np.ones((1, 48), bool), np.arange(48)[None], None, logits_to_keep=1)
    whole = runtime.block(step.cache, 0, 0, 48)
    part = runtime.cut(whole, 10, 12)
    assert [side.untyped_storage().nbytes() for side in part] == [2 * runtime.info.token_bytes // 2] * 2
    torch.testing.assert_close(part[0], whole[0][:, :, 10:12])


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
        MemoryError(),
    ],
)
def test_failing_to_allocate_is_out_of_memory(error: Exception) -> None:
    def fail() -> None:
        with torch_runtime._translate_oom():
            raise error

    with pytest.raises(OutOfMemory):
        fail()


def test_other_failures_stay_what_they_are() -> None:
    def fail() -> None:
        with torch_runtime._translate_oom():
            raise RuntimeError("a shape is wrong")

    with pytest.raises(RuntimeError, match="a shape is wrong"):
        fail()


async def equal_to_generate(model: Any) -> None:
    """Ragged prompts through the engine against ``generate`` of transformers, one by one."""
    engine = Engine(TorchRuntime(model, identity="other"), NumberCodec(), name="other")
    shared = [3 + (7 * at) % 50 for at in range(25)]
    for prompt in (shared, [*shared[:20], 9, 8], [5, 6, 7], [*shared, 4, 4, 4, 4]):
        with torch.inference_mode():
            ids = torch.tensor([prompt])
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)
        written = out[0, len(prompt) :].tolist()
        expected = written[: written.index(1)] if 1 in written else written
        both = await engine.score(ask(prompt), [words(expected), words([5, 6])]) if expected else None
        assert (await engine.generate(ask(prompt), Sampling(max_tokens=6))).text == words(expected)
        if both is not None:
            assert both.likelihoods[1].logprobs == pytest.approx(plain(model, prompt, [5, 6]), abs=1e-4)
    await engine.aclose()


def plain(model: Any, prompt: list[int], continuation: list[int]) -> list[float]:
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*prompt, *continuation]])).logits[0].log_softmax(-1)
    return [float(logits[len(prompt) - 1 + at, id]) for at, id in enumerate(continuation)]


SMALL: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 128, "initializer_range": 0.3}
ENDS: dict[str, Any] = {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": 2}


async def test_learned_positions() -> None:
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=128, **ENDS)
    config.initializer_range = 0.3
    await equal_to_generate(for_use(transformers.GPT2LMHeadModel(config)))


async def test_a_sliding_window() -> None:
    torch.manual_seed(0)
    model = for_use(transformers.MistralForCausalLM(transformers.MistralConfig(**SMALL, **ENDS, sliding_window=8)))
    assert not TorchRuntime(model, identity="window").info.ragged
    await equal_to_generate(model)


async def test_windows_and_full_attention_in_turn() -> None:
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        **SMALL, **ENDS, use_sliding_window=True, sliding_window=8, layer_types=["sliding_attention", "full_attention"]
    )
    await equal_to_generate(for_use(transformers.Qwen2ForCausalLM(config)))


def test_a_model_without_keys_and_values_is_refused() -> None:
    config = transformers.MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=64, state_size=4)
    with pytest.raises(BackendError, match=r"^MambaForCausalLM (keeps more|has no key/value cache)"):
        TorchRuntime(transformers.MambaForCausalLM(config), identity="mamba")


def test_a_model_that_ignores_its_cache_is_refused() -> None:
    model = tiny_model(seed=5)

    class Forgetful(TorchRuntime):
        def assemble(self, rows, *, single_pass=False):  # type: ignore[no-untyped-def]
            blank = [[(keys * 0, values * 0) for keys, values in blocks] for blocks in rows]
            return super().assemble(blank, single_pass=single_pass)

    with pytest.raises(BackendError, match="answers differently from its own cache"):
        Forgetful(model, identity="forgetful")
