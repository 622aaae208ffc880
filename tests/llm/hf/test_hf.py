"""``hf:`` models from a folder: loading, the chat template, what the capabilities say, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from arbitrag.errors import BackendError, MissingExtra, UsageError
from arbitrag.llm import open_llm
from arbitrag.llm.base import Prompt, Sampling
from arbitrag.llm.engine.engine import Engine
from arbitrag.llm.hf import backend as hf

WORDS = ["<s>", "</s>", "<unk>", "who", "painted", "it", "Mira", "Oskar", "user", ":"]
TEMPLATE = "<s> {% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}"


def checkpoint(folder: Path, *, seed: int = 0, template: str | None = TEMPLATE) -> Path:
    """A tiny random Llama with a vocabulary of ten words."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=len(WORDS),
        max_position_embeddings=64,
        initializer_range=0.4,
        bos_token_id=0,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=template
    )
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("model"))


def opened(folder: Path, **options: Any) -> Engine:
    model = open_llm(f"hf:{folder}", **options)
    assert isinstance(model, Engine)
    return model


async def test_a_chat_is_answered_as_transformers_answers_it(folder: Path) -> None:
    engine = opened(folder)
    ids = [0, 8, 9, 3, 4, 5]
    plain: Any = LlamaForCausalLM.from_pretrained(folder)
    with torch.inference_mode():
        out = plain.generate(torch.tensor([ids]), max_new_tokens=5, do_sample=False, pad_token_id=1)[0, len(ids) :]
        logits = plain(torch.tensor([[*ids, 6, 7]])).logits[0].log_softmax(-1)
    expected = [WORDS[id] for id in out.tolist() if id > 1]

    prompt = Prompt.user("who painted it")
    found = await engine.generate(prompt, Sampling(max_tokens=5))
    assert found.text.split() == expected
    scored = await engine.score(prompt, ["Mira Oskar"])
    assert scored.likelihoods[0].logprobs == pytest.approx([float(logits[5, 6]), float(logits[6, 7])], abs=1e-4)
    await engine.aclose()


async def test_the_offer_says_what_was_chosen_and_why(folder: Path) -> None:
    engine = opened(folder, device="cpu")
    capabilities = await engine.capabilities()
    assert capabilities.context_tokens == 64
    assert capabilities.evidence[0] == "cpu: as asked"
    assert capabilities.evidence[1] == "float32: exact, and nothing else is faster on every CPU"
    assert capabilities.evidence[2].startswith("attention: sdpa")
    assert engine.name == f"hf:{folder}"
    await engine.aclose()


async def test_the_identity_follows_weights_and_precision(folder: Path, tmp_path: Path) -> None:
    same = opened(checkpoint(tmp_path / "same"))
    other = opened(checkpoint(tmp_path / "other", seed=1))
    half = opened(tmp_path / "same", dtype="bfloat16")
    first = opened(folder)
    hashes = [engine.identity.split("@")[1] for engine in (first, same, other, half)]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
    assert "bfloat16" in half.identity
    assert (await half.generate(Prompt.user("who"), Sampling(max_tokens=3))).finish in ("stop", "length")
    for engine in (first, same, other, half):
        await engine.aclose()


async def test_options_reach_the_engine(folder: Path, tmp_path: Path) -> None:
    engine = opened(folder, deterministic=True, wording=tmp_path, batch_rows=2, batch_tokens=100, prefix_bytes=1 << 20)
    assert (await engine.capabilities()).evidence[-1].startswith("deterministic")
    assert engine.wording == tmp_path
    await engine.aclose()


def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"hf:some/model needs the extra 'hf'; type: pip install 'arbitrag\[hf\]'"):
        open_llm("hf:some/model")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dtype": "float31"}, "unknown precision 'float31'. Did you mean 'float32'?"),
        ({"device": "cpus"}, "unknown device 'cpus'. Did you mean 'cpu'?"),
    ],
)
def test_unknown_options(folder: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        opened(folder, **options)
    assert str(caught.value).startswith(text)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="there is no folder"):
        open_llm(f"hf:{tmp_path / 'nothing'}")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-type"}))
    with pytest.raises(BackendError, match="cannot load hf:"):
        open_llm(f"hf:{tmp_path}")


class Torch:
    """What ``open_hf`` asks torch about the machine."""

    def __init__(self, *, cuda: int = 0, mps: bool = False, bf16: bool = True) -> None:
        self.backends = self
        self.mps, self.cuda = _Answers(available=mps), _Answers(available=cuda > 0, count=cuda, bf16=bf16)


class _Answers:
    def __init__(self, *, available: bool, count: int = 0, bf16: bool = False) -> None:
        self._available, self._count, self._bf16 = available, count, bf16

    def is_available(self) -> bool:
        return self._available

    def device_count(self) -> int:
        return self._count

    def is_bf16_supported(self, including_emulation: bool) -> bool:
        return self._bf16 and not including_emulation

    def mem_get_info(self, device: object) -> tuple[int, int]:
        return 80 << 30, 90 << 30


@pytest.mark.parametrize(
    ("machine", "device", "precision"),
    [
        (Torch(), "cpu", "float32"),
        (Torch(mps=True), "mps", "float16"),
        (Torch(cuda=2), "cuda", "bfloat16"),
        (Torch(cuda=1, bf16=False), "cuda", "float16"),
    ],
)
def test_device_and_precision_suit_the_machine(machine: Torch, device: str, precision: str) -> None:
    assert hf._device(machine, None)[0] == device
    assert hf._precision(machine, device, None)[0] == precision
    assert hf._device(machine, "cpu") == ("cpu", "as asked")


def test_a_second_gpu_can_be_asked_for() -> None:
    assert hf._device(Torch(cuda=2), "cuda:1") == ("cuda:1", "as asked")
