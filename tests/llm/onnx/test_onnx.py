"""The onnxruntime backend on tiny graphs, built here with random weights and no torch."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optimum_graph
import pytest
from onnx_parts import SHAPE, TEXTS, WORDS, alone, random_weights

from arbitrag.errors import BackendError, DataError
from arbitrag.llm.base import Prompt, Sampling
from arbitrag.llm.engine.runtime import ForwardOutput, OutOfMemory
from arbitrag.llm.onnx.backend import open_onnx, open_runtime
from arbitrag.llm.onnx.graph import build
from arbitrag.llm.onnx.optimum import OptimumRuntime
from arbitrag.storage.model_manifest import Manifest, hash_files
from arbitrag.types import Need

onnx = pytest.importorskip("onnx")


def graph(without: Sequence[str] = ()) -> Any:
    """Optimum's layout, less some inputs (constants take their place) and outputs."""
    model = optimum_graph.build(SHAPE, random_weights)
    kept = [value for value in model.graph.output if value.name not in without and value.name[:13] not in without]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    if "num_logits_to_keep" in without:
        drop_input(model, "num_logits_to_keep")
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "num_logits_to_keep"))
    if "position_ids" in without:
        drop_input(model, "position_ids")
        make = onnx.helper.make_node
        counted = [
            make("Shape", ["attention_mask"], ["mask_shape"]),
            make("Gather", ["mask_shape", "one"], ["slots"], axis=0),
            make("Shape", ["past_key_values.0.key"], ["past_shape"]),
            make("Gather", ["past_shape", "two"], ["past"], axis=0),
            make("Range", ["past", "slots", "one"], ["position_row"]),
            make("Unsqueeze", ["position_row", "first"], ["position_ids"]),
        ]
        constants = {"one": np.array(1), "two": np.array(2), "first": np.array([0])}
        model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in constants.items())
        nodes = [*counted, *model.graph.node]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
    return model


def with_half_cache(model: Any) -> Any:
    """The same graph with keys and values that travel as float16, and logits too."""
    make, half = onnx.helper.make_node, onnx.TensorProto.FLOAT16
    before, after = [], []
    for value in [*model.graph.input, *model.graph.output]:
        cached = value.name.startswith(("past_key_values", "present"))
        if not cached and value.name != "logits":
            continue
        full, value.type.tensor_type.elem_type = f"{value.name}.full", half
        for node in model.graph.node:
            node.input[:] = [full if name == value.name else name for name in node.input]
            node.output[:] = [full if name == value.name else name for name in node.output]
        if value.name.startswith("past"):
            before.append(make("Cast", [value.name], [full], to=onnx.TensorProto.FLOAT))
        else:
            after.append(make("Cast", [full], [value.name], to=half))
    nodes = [*before, *model.graph.node, *after]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def drop_input(model: Any, name: str) -> None:
    kept = [value for value in model.graph.input if value.name != name]
    del model.graph.input[:]
    model.graph.input.extend(kept)


def runtime(folder: Path, model: Any = None, name: str = "model.onnx") -> OptimumRuntime:
    onnx.save(model or graph(), str(folder / name))
    found = open_runtime(folder / name, threads=1)
    assert isinstance(found, OptimumRuntime)
    return found


FOREIGN = {
    "as exported": (),
    "no hidden states": ("hidden_states",),
    "all logits": ("num_logits_to_keep",),
    "no positions": ("position_ids",),
    "the least": ("hidden_states", "num_logits_to_keep", "position_ids"),
}


def padded(
    subject: OptimumRuntime,
    cache: Any,
    past: Sequence[int],
    new: Sequence[Sequence[int]],
    logits_to_keep: int,
    layers: Sequence[int] = (),
) -> ForwardOutput:
    """A batch whose rows have ``past`` slots in the cache and ``new`` tokens, both left-padded."""
    slots = 0 if cache is None else cache[0].shape[2]
    width = max(map(len, new))
    ids = np.zeros((len(new), width), np.int64)
    positions, mask = np.zeros_like(ids), np.zeros((len(new), slots + width), bool)
    for row, tokens in enumerate(new):
        ids[row, width - len(tokens) :] = tokens
        positions[row, width - len(tokens) :] = past[row] + np.arange(len(tokens))
        mask[row, slots - past[row] : slots] = True
        mask[row, slots + width - len(tokens) :] = True
    return subject.forward(ids, mask, positions, cache, logits_to_keep=logits_to_keep, layers=layers)


@pytest.mark.parametrize("without", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_padded_batch_in_two_steps_equals_each_text_alone(without: tuple[str, ...], tmp_path: Path) -> None:
    """Padding stands left of the past and again left of the new tokens."""
    subject = runtime(tmp_path, graph(without))
    first = padded(subject, None, [0, 0], [TEXTS[0][:4], TEXTS[1][:1]], logits_to_keep=1)
    second = padded(subject, first.cache, [4, 1], [TEXTS[0][4:], TEXTS[1][1:]], logits_to_keep=2)
    third = padded(subject, second.cache, [6, 3], [[1], [2, 3]], logits_to_keep=1)
    for row, text in enumerate(TEXTS):
        whole = alone(subject, text, 2)
        assert np.allclose(second.logits[row], whole.logits[0], atol=1e-4)
        longer = alone(subject, [*text, *([1], [2, 3])[row]], 1)
        assert np.allclose(third.logits[row, -1], longer.logits[0, -1], atol=1e-4)


def test_keys_and_values_in_half_precision(tmp_path: Path) -> None:
    full, half = runtime(tmp_path), runtime(tmp_path, with_half_cache(graph()), "half.onnx")
    assert half.info.token_bytes == full.info.token_bytes // 2
    first = padded(half, None, [0, 0], [TEXTS[0][:4], TEXTS[1][:1]], logits_to_keep=1)
    second = padded(half, first.cache, [4, 1], [TEXTS[0][4:], TEXTS[1][1:]], logits_to_keep=1)
    targets = np.array([[5], [5]])
    expected = [full.logprobs(alone(full, text, 1).logits, targets[:1])[0] for text in TEXTS]
    assert np.allclose(half.logprobs(second.logits, targets), expected, atol=0.02)


def test_a_row_of_one_token_still_gives_as_many_logits_as_the_batch(tmp_path: Path) -> None:
    """Where a row is shorter than what is asked for, its last places count."""
    subject = runtime(tmp_path, graph(("position_ids",)))
    step = padded(subject, None, [0, 0], [[3, 4, 5], [9]], logits_to_keep=3, layers=[1])
    assert step.logits.shape == (2, 3, WORDS)
    single = alone(subject, [9], 1, layers=[1])
    assert np.allclose(step.logits[1, -1], single.logits[0, -1], atol=1e-4)
    assert np.allclose(step.hidden_states[1][1], single.hidden_states[1][0], atol=1e-4)


def test_the_cache_can_be_cut_into_blocks_and_assembled_again(tmp_path: Path) -> None:
    subject = runtime(tmp_path)
    step = alone(subject, TEXTS[0], 1)
    start, end = subject.block(step.cache, 0, 0, 4), subject.block(step.cache, 0, 4, 6)
    other = alone(subject, TEXTS[1], 1)
    cache = subject.assemble([[start, subject.cut(end, 0, 1)], [subject.block(other.cache, 0, 0, 3)]])
    assert cache is not None
    joined = subject.join(cache, step.cache)
    chosen = subject.select(joined, [1, 2, 0], 0)
    found = padded(subject, chosen, [3, 6, 5], [[12], [12], [TEXTS[0][5], 12]], logits_to_keep=1)
    expected = [alone(subject, [*text, 12], 1).logits[0, -1] for text in (TEXTS[1], TEXTS[0], TEXTS[0])]
    assert np.allclose(found.logits[:, -1], expected, atol=1e-4)
    assert subject.assemble([[], []]) is None


def test_states_are_those_of_the_last_position(tmp_path: Path) -> None:
    subject = runtime(tmp_path)
    found = alone(subject, [3, 4], 1, layers=[0, 2])
    embedding, final, head = (random_weights(name) for name in ("embed_tokens.weight", "model.norm", "lm_head.weight"))
    assert embedding is not None
    assert head is not None
    assert np.allclose(found.hidden_states[0][0], embedding[4], atol=1e-6)
    assert np.allclose(found.hidden_states[2][0] @ head.T, found.logits[0, -1], atol=1e-4)
    assert final is not None
    assert subject.info.hidden_layers == {0, 1, 2}


def test_states_that_a_file_lacks_are_an_error(tmp_path: Path) -> None:
    subject = runtime(tmp_path, graph(("hidden_states",)))
    assert subject.info.hidden_layers == frozenset()
    with pytest.raises(BackendError, match="no hidden states of layer 1"):
        alone(subject, [3], 1, layers=[1])


def test_model_info(tmp_path: Path) -> None:
    info = runtime(tmp_path).info
    assert (info.layers, info.vocabulary) == (2, WORDS)
    assert info.token_bytes == 2 * 2 * 2 * 8 * 4
    assert info.logits_bytes == WORDS * 4
    changed = optimum_graph.build(replace(SHAPE, norm_eps=1e-2), random_weights)
    assert runtime(tmp_path, changed, "other.onnx").info.identity != info.identity


def test_samples_and_likelihoods_come_from_the_right_positions(tmp_path: Path) -> None:
    subject = runtime(tmp_path)
    logits = np.log(np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.75, 0.25]]], np.float32))
    zeros, ones = np.zeros(2), np.ones(2)
    assert subject.sample(logits, zeros, ones, zeros).ids.tolist() == [1, 0]
    found = subject.logprobs(logits, np.array([[1, 0], [0, 1]]))
    assert np.allclose(found, np.log([[0.1, 0.2], [0.5, 0.25]]), atol=1e-6)
    assert np.allclose(np.exp(subject.distribution(logits)), [[0.2, 0.8], [0.75, 0.25]], atol=1e-6)
    stacked = subject.stack([subject.row(logits, 1), subject.row(logits, 0)])
    assert np.array_equal(stacked[:, 0], logits[[1, 0], -1])


def test_out_of_memory_is_told_from_other_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = runtime(tmp_path)
    with pytest.raises(BackendError, match="onnxruntime failed"):
        alone(subject, [WORDS + 5], 1)

    def full(*_: object) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(np, "zeros", full)
    block = [np.ones((2, 1, 8), np.float32)] * 4
    with pytest.raises(OutOfMemory, match="no more"):
        subject.assemble([[block]])


def without_cache() -> Any:
    """A decoder without a KV cache."""
    from onnx import TensorProto, helper

    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "new"])
    out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "new", WORDS])
    embedding = onnx.numpy_helper.from_array(np.eye(WORDS, dtype=np.float32), "table")
    node = helper.make_node("Gather", ["table", "input_ids"], ["logits"])
    model = helper.make_graph([node], "bare", [ids], [out], [embedding])
    return helper.make_model(model, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def renamed() -> Any:
    model = graph()
    next(value for value in model.graph.input if value.name == "position_ids").name = "pixel_values"
    for node in model.graph.node:
        node.input[:] = ["pixel_values" if name == "position_ids" else name for name in node.input]
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (without_cache, "no key/value inputs"),
        (renamed, "unknown inputs: pixel_values"),
        (lambda: graph(("present.0.key",)), r"missing: present\.0\.key"),
    ],
)
def test_a_graph_in_another_layout_is_refused(make: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=message):
        runtime(tmp_path, make())


def write_folder(folder: Path, model: Any = None, *, manifest: bool = True) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model or graph(), str(folder / "model.onnx"))
    words = {"</s>": 0, **{f"w{id}": id for id in range(1, WORDS)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    if manifest:
        Manifest("tiny", hash_files(folder), 1, 48, "fp32").write(folder)
    return folder


async def test_a_folder_opens_as_a_model(tmp_path: Path) -> None:
    llm = open_onnx(write_folder(tmp_path), threads=1)
    assert llm.name == f"onnx:{tmp_path}"
    capabilities = await llm.capabilities()
    assert capabilities.needs == Need.GENERATE | Need.SCORE | Need.INSPECT | Need.NEXT_TOKEN
    assert capabilities.context_tokens == 48
    prompt = Prompt(text="w3 w4 w5", lead=" ")
    written = await llm.generate(prompt, Sampling(max_tokens=3, logprobs=True))
    scored = await llm.score(prompt, [written.text])
    assert written.logprobs is not None
    assert scored.likelihoods[0].logprobs == pytest.approx(written.logprobs, abs=1e-4)
    await llm.aclose()


async def test_a_file_without_hidden_states_is_not_capable_of_them(tmp_path: Path) -> None:
    llm = open_onnx(write_folder(tmp_path, graph(("hidden_states",)), manifest=False), threads=1)
    capabilities = await llm.capabilities()
    assert Need.INSPECT not in capabilities.needs
    assert capabilities.context_tokens is None
    await llm.aclose()


def test_the_identity_changes_with_the_model_and_the_tokenizer(tmp_path: Path) -> None:
    first = open_onnx(write_folder(tmp_path / "a"), threads=1).identity
    assert open_onnx(write_folder(tmp_path / "b", manifest=False), threads=1).identity == first
    (tmp_path / "b" / "chat_template.jinja").write_text("{{ messages }}")
    assert open_onnx(tmp_path / "b", threads=1).identity != first
    other = build(replace(SHAPE, norm_eps=1e-2), random_weights, "fp32")
    assert open_onnx(write_folder(tmp_path / "c", other), threads=1).identity != first


def test_the_context_comes_from_the_configuration_where_there_is_no_manifest(tmp_path: Path) -> None:
    write_folder(tmp_path, manifest=False)
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 77}')
    assert open_onnx(tmp_path, threads=1).info.context_tokens == 77
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(DataError, match=r"config\.json is not JSON"):
        open_onnx(tmp_path, threads=1)


def test_the_layout_with_a_folder_of_graphs_is_found(tmp_path: Path) -> None:
    write_folder(tmp_path, manifest=False)
    (tmp_path / "onnx").mkdir()
    (tmp_path / "model.onnx").rename(tmp_path / "onnx" / "model.onnx")
    assert open_onnx(tmp_path, threads=1).info.layers == 2


def damage_model(folder: Path) -> None:
    (folder / "model.onnx").write_bytes((folder / "model.onnx").read_bytes()[:-9])


def corrupt_without_manifest(folder: Path) -> None:
    damage_model(folder)
    (folder / "manifest.json").unlink()


def lose(name: str) -> Any:
    return lambda folder: (folder / name).unlink()


def change_manifest(**values: Any) -> Any:
    def change(folder: Path) -> None:
        found = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps({**found, **values}))

    return change


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lose("model.onnx"), r"has neither model\.onnx nor onnx/model\.onnx"),
        (lose("tokenizer.json"), r"tokenizer\.json is missing"),
        (damage_model, "another SHA-256"),
        (corrupt_without_manifest, "not a model that onnxruntime can open"),
        (lambda folder: (folder / "manifest.json").write_text("{"), r"manifest\.json is not JSON"),
        (change_manifest(strange=1), "is not a manifest: 'strange' is not known"),
        (change_manifest(files=[]), "is not a manifest: 'files' is a list; expected an object"),
        (change_manifest(format=9), "has format 9; this version reads 1"),
        (change_manifest(files={"../model.onnx": ""}), "outside of its folder"),
    ],
)
def test_a_damaged_folder_is_one_clear_line(harm: Any, message: str, tmp_path: Path) -> None:
    harm(write_folder(tmp_path))
    with pytest.raises(DataError, match=message) as caught:
        open_onnx(tmp_path, threads=1)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        open_onnx(tmp_path / "nowhere")


def test_a_file_that_the_manifest_does_not_list(tmp_path: Path) -> None:
    write_folder(tmp_path)
    with pytest.raises(DataError, match=r"does not list extra\.txt"):
        Manifest("tiny", {}, 1, 48, "fp32").verify(tmp_path, "extra.txt")
