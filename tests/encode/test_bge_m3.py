"""BGE-M3's three heads, on a tiny checkpoint with random weights that is made here in the official layout."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from arbitrag.encode import open_encoder
from arbitrag.encode.bge_m3 import BgeM3Encoder
from arbitrag.encode.similarity import compare
from arbitrag.errors import BackendError, DataError, MissingExtra

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]
WORDS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "red", "green", "blue", "apple"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("bge")
    torch.manual_seed(3)
    config = transformers.XLMRobertaConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=18,
        initializer_range=0.5,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
    )
    transformers.XLMRobertaModel(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    names = {"bos_token": "<s>", "cls_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "sep_token": "</s>"}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", mask_token="<mask>", **names
    ).save_pretrained(folder)
    torch.save(torch.nn.Linear(8, 1).state_dict(), folder / "sparse_linear.pt")
    torch.save(torch.nn.Linear(8, 8).state_dict(), folder / "colbert_linear.pt")
    return folder


def states(model: Path, text: str) -> tuple[np.ndarray, list[int]]:
    """The last hidden states of one text, (tokens, 8), and its token ids."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    given = AutoTokenizer.from_pretrained(model)(text, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(model).eval()(**given).last_hidden_state[0]
    return hidden.numpy(), given["input_ids"][0].tolist()


def layer(model: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    import torch

    state = torch.load(model / f"{name}.pt", weights_only=True)
    return state["weight"].numpy(), state["bias"].numpy()


async def test_the_heads_are_those_of_the_formulas(model: Path) -> None:
    encoder = open_encoder(f"bge-m3:{model}", device="cpu")
    assert isinstance(encoder, BgeM3Encoder)
    texts = ["red green red", "blue", "apple unknown red blue green"]  # of several lengths, so that two are padded
    found = await encoder.encode_heads(texts, kind="passage")
    sparse_weight, sparse_bias = layer(model, "sparse_linear")
    multi_weight, multi_bias = layer(model, "colbert_linear")
    seen = 0
    for text, heads in zip(texts, found, strict=True):
        hidden, ids = states(model, text)
        np.testing.assert_allclose(heads.dense, hidden[0] / np.linalg.norm(hidden[0]), atol=1e-5)
        lexical: dict[str, float] = {}
        for token, weight in zip(ids, np.maximum(hidden @ sparse_weight[0] + sparse_bias, 0), strict=True):
            if token >= 5 and weight > 0:
                lexical[str(token)] = max(lexical.get(str(token), 0.0), float(weight))
        assert heads.sparse == {token: pytest.approx(weight, abs=1e-5) for token, weight in lexical.items()}
        seen += len(lexical)
        rows = hidden[1:] @ multi_weight.T + multi_bias
        np.testing.assert_allclose(heads.multi, rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=1e-5)
    assert seen >= 2  # else the test of the sparse head would test nothing
    np.testing.assert_allclose(await encoder.encode(texts, kind="query"), [each.dense for each in found], atol=1e-6)
    assert encoder.width == 8


async def test_a_token_that_repeats_has_its_largest_weight(model: Path) -> None:
    encoder = BgeM3Encoder(str(model), device="cpu")
    lexical = encoder._lexical([0, 5, 6, 5, 3, 2], [9.0, 0.2, 0.0, 0.7, 9.0, 9.0])
    assert lexical == {"5": 0.7}


async def test_a_pair_is_compared_by_all_three(model: Path) -> None:
    encoder = BgeM3Encoder(str(model), device="cpu")
    found = (await compare([("red green", "red blue"), ("red", "")], encoder)).heads
    left, right = await encoder.encode_heads(["red green", "red blue"], kind="passage")
    assert found["dense"] == pytest.approx((float(left.dense @ right.dense), 0.0), abs=1e-5)
    shared = left.sparse.get("5", 0.0) * right.sparse.get("5", 0.0)
    assert found["sparse"] == pytest.approx((shared, 0.0), abs=1e-5)
    best = (left.multi @ right.multi.T).max(axis=1).mean()
    assert found["multi"] == pytest.approx((float(best), 0.0), abs=1e-5)


async def test_a_long_text_is_cut_and_nothing_is_an_empty_result(model: Path) -> None:
    encoder = BgeM3Encoder(str(model), device="cpu")
    (heads,) = await encoder.encode_heads(["red " * 100], kind="passage")
    assert heads.multi.shape == (15, 8)  # 18 positions less 2 that are not used, less the first token
    assert (await encoder.encode([], kind="query")).shape == (0, 8)


def copied(model: Path, to: Path, *without: str) -> Path:
    for each in model.iterdir():
        if each.name not in without:
            (to / each.name).write_bytes(each.read_bytes())
    return to


async def test_safetensors_serve_as_well_and_weights_decide_the_identity(model: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    folder = copied(model, tmp_path, "sparse_linear.pt")
    save_file(torch.load(model / "sparse_linear.pt", weights_only=True), folder / "sparse_linear.safetensors")
    first, second = BgeM3Encoder(str(model), device="cpu"), BgeM3Encoder(str(folder), device="cpu")
    ((one,), (two,)) = [await each.encode_heads(["red apple"], kind="query") for each in (first, second)]
    assert one.sparse == two.sparse
    assert first.identity != second.identity
    assert first.identity == BgeM3Encoder(str(model), device="cpu").identity


def test_a_missing_head_says_what_the_folder_can_be(model: Path, tmp_path: Path) -> None:
    folder = copied(model, tmp_path, "colbert_linear.pt")
    with pytest.raises(DataError, match=r"has no colbert_linear.pt; as an encoder with one head it is st:"):
        BgeM3Encoder(str(folder), device="cpu")


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return (open, ("ran.txt", "w"))


def test_code_in_a_file_is_not_run(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    folder = copied(model, tmp_path / "model", "sparse_linear.pt")
    (folder / "sparse_linear.pt").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(DataError, match="is not a linear layer with weight and bias"):
        BgeM3Encoder(str(folder), device="cpu")
    assert not (tmp_path / "ran.txt").exists()


def test_a_head_of_another_shape_is_refused(model: Path, tmp_path: Path) -> None:
    import torch

    folder = copied(model, tmp_path)
    torch.save(torch.nn.Linear(8, 2).state_dict(), folder / "sparse_linear.pt")
    with pytest.raises(DataError, match="goes from 8 to 2 numbers, the model has 8"):
        BgeM3Encoder(str(folder), device="cpu")


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="cannot be loaded"):
        BgeM3Encoder(str(tmp_path))


def test_without_the_library_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"bge-m3:some/model needs the extra 'hf'"):
        open_encoder("bge-m3:some/model")
