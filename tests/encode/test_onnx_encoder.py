"""ONNX encoders on a network small enough to compute by hand: a table of vectors, looked up token by token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from arbitrag.encode import open_encoder
from arbitrag.encode.onnx import OnnxEncoder
from arbitrag.errors import DataError

WORDS = ["[PAD]", "[CLS]", "[SEP]", "red", "green", "blue", "query", "[UNK]"]
TABLE = np.array(
    [[9, 9, 9], [0, 0, 1], [0, 1, 0], [4, 0, 0], [0, 4, 0], [0, 0, 4], [2, 2, 2], [1, 0, 0]],
    np.float32,
)


def unit(*values: float) -> np.ndarray:
    vector = np.array(values, np.float32)
    return np.asarray(vector / np.linalg.norm(vector))


def write_model(folder: Path, *, output: str = "last_hidden_state") -> None:
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "tokens"])
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["states"])]
    shape: list[int | str] = ["batch", "tokens", 3]
    if output == "sentence_embedding":
        nodes.append(helper.make_node("ReduceMax", ["states"], [output], axes=[1], keepdims=0))
        shape = ["batch", 3]
    else:
        nodes.append(helper.make_node("Identity", ["states"], [output]))
    found = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
    table = helper.make_tensor("table", TensorProto.FLOAT, TABLE.shape, TABLE.flatten())
    graph = helper.make_graph(nodes, "tiny", [ids, mask], [found], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, str(folder / "model.onnx"))


def write_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    tokenizer.save(str(folder / "tokenizer.json"))


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def write_pooling(folder: Path, pooling: Any, extra: tuple[str, ...] = ()) -> None:
    kinds = ["Transformer", "Pooling", *extra]
    steps = [{"path": f"{at}_{kind}", "type": f"sentence_transformers.models.{kind}"} for at, kind in enumerate(kinds)]
    write_json(folder / "modules.json", steps)
    write_json(folder / "1_Pooling" / "config.json", pooling)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path)
    write_tokenizer(tmp_path)
    return tmp_path


async def test_the_mean_is_over_the_tokens_of_a_text_and_not_its_padding(folder: Path) -> None:
    encoder = open_encoder(f"onnx:{folder}")
    vectors = await encoder.encode(["red", "red green blue", ""], kind="passage")
    await encoder.aclose()
    assert encoder.width == 3
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, [unit(4, 1, 1), unit(4, 5, 5), unit(0, 1, 1)], atol=1e-6)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, unit(0, 0, 1)),
        ({"pooling_mode_max_tokens": True}, unit(4, 1, 1)),
        ({"pooling_mode": "mean"}, unit(4, 1, 1)),
        ({"pooling_mode": ["cls"]}, unit(0, 0, 1)),
        ({}, unit(4, 1, 1)),
    ],
)
async def test_pooling_is_what_the_config_says(folder: Path, pooling: Any, expected: np.ndarray) -> None:
    write_pooling(folder, pooling, ("Normalize",))
    vectors = await OnnxEncoder(folder).encode(["red", "red red red"], kind="passage")
    np.testing.assert_allclose(vectors[0], expected, atol=1e-6)


async def test_prompts_for_queries_and_passages(folder: Path) -> None:
    plain = OnnxEncoder(folder)
    write_json(folder / "config_sentence_transformers.json", {"prompts": {"query": "query ", "document": "blue "}})
    encoder = OnnxEncoder(folder)
    (query,) = await encoder.encode(["red"], kind="query")
    (passage,) = await encoder.encode(["red"], kind="passage")
    np.testing.assert_allclose(query, unit(4 + 2, 1 + 2, 1 + 2), atol=1e-6)
    np.testing.assert_allclose(passage, unit(4, 1, 5), atol=1e-6)
    assert encoder.identity != plain.identity


async def test_long_texts_are_cut_at_the_models_limit(folder: Path) -> None:
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 4})
    write_json(folder / "tokenizer_config.json", {"model_max_length": 10**30})
    (vector,) = await OnnxEncoder(folder).encode(["red green " + "blue " * 100], kind="passage")
    np.testing.assert_allclose(vector, unit(4, 5, 1), atol=1e-6)


async def test_a_control_token_in_a_text_is_text(folder: Path) -> None:
    (vector,) = await OnnxEncoder(folder).encode(["[SEP] [CLS]"], kind="passage")
    np.testing.assert_allclose(vector, unit(6, 1, 1), atol=1e-6)  # [ SEP ] [ CLS ], all unknown words


async def test_many_texts_keep_their_order(folder: Path) -> None:
    texts = ["red " * (n % 7) + "green" for n in range(40)]
    vectors = await OnnxEncoder(folder, batch=4).encode(texts, kind="passage")
    expected = [unit(4 * (n % 7), 5, 1) for n in range(40)]
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert (await OnnxEncoder(folder).encode([], kind="query")).shape == (0, 3)


async def test_a_model_that_pools_by_itself(tmp_path: Path) -> None:
    write_model(tmp_path, output="sentence_embedding")
    write_tokenizer(tmp_path)
    (vector,) = await OnnxEncoder(tmp_path).encode(["red green"], kind="query")
    np.testing.assert_allclose(vector, unit(4, 4, 1), atol=1e-6)


def test_folders_that_are_not_encoders(folder: Path) -> None:
    write_pooling(folder, {}, ("Dense",))
    with pytest.raises(DataError, match=r"has a step 'Dense', which the torch-free encoder does not have; use st:"):
        OnnxEncoder(folder)
    write_pooling(folder, {"pooling_mode_lasttoken": True})
    with pytest.raises(DataError, match="asks for the pooling 'pooling_mode_lasttoken'"):
        OnnxEncoder(folder)
    (folder / "modules.json").write_text("[")
    with pytest.raises(DataError, match=r"modules.json is not JSON"):
        OnnxEncoder(folder)
    (folder / "modules.json").unlink()
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer.json is not a tokenizer"):
        OnnxEncoder(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"has no tokenizer.json"):
        OnnxEncoder(folder)
    write_model(folder, output="logits")
    with pytest.raises(DataError, match=r"has the outputs logits; a sentence encoder has one of sentence_embedding"):
        OnnxEncoder(folder)
    (folder / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"is not a model that onnxruntime can read"):
        OnnxEncoder(folder)
