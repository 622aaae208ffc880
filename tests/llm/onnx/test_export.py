import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from arbitrag.errors import DataError, MissingExtra, UsageError
from arbitrag.storage.files import file_digest
from arbitrag.storage.model_manifest import read_manifest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("onnx")

from arbitrag.llm.onnx import export as exporting  # noqa: E402  (needs what was just looked for)
from arbitrag.llm.onnx.graph import Precision, quantized  # noqa: E402

VOCABULARY = 61
SHAPES: dict[str, dict[str, Any]] = {
    "grouped": {"num_attention_heads": 4, "num_key_value_heads": 2},
    "tied": {"num_attention_heads": 4, "num_key_value_heads": 4, "tie_word_embeddings": True},
    "wide heads and biases": {"head_dim": 16, "num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True},
    "other rotation": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "rms_norm_eps": 1e-3},
}


def tiny(**changes: Any) -> Any:
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        "eos_token_id": 1,
        "bos_token_id": 0,
    }
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**sizes, **changes}))
    with torch.no_grad():  # norms and biases begin as ones and zeros, which would hide a forgotten one
        for name, weight in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                weight.copy_(torch.rand_like(weight) + 0.5)
            else:
                weight.mul_(8)
    return model.half().float().eval()  # weights that an fp16 file can hold exactly, as a checkpoint in fp16 has


def save(model: Any, folder: Path) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<s>": 0, "</s>": 1, **{f"w{number}": number for number in range(2, VOCABULARY)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w2"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(str(folder))
    model.save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tiny(**SHAPES["grouped"]), tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("precision", get_args(Precision))
def test_an_export_computes_what_transformers_does(shape: str, precision: Any, tmp_path: Path) -> None:
    """The check covers texts of different length side by side, at once and in parts, with all hidden states."""
    checkpoint = save(tiny(**SHAPES[shape]), tmp_path / "checkpoint")
    found = exporting.export(checkpoint, tmp_path / "out", precision=precision)
    assert found.logits < 1e-3
    assert found.loglikelihoods < 1e-4
    assert found.hidden_states < 1e-3
    assert (found.rounding > 0) == (precision == "int8")


def test_int8_has_a_scale_for_every_output_and_changes_little() -> None:
    """By hand: 127 steps to the largest of a row, the nearest step, ties to even; a row of zeros stays that."""
    value = np.array([[1.27, -0.635, 0.004], [0.0, 0.0, 0.0], [-254.0, 3.0, 1.0]], np.float32)
    steps, scale = quantized(value, 1)
    assert steps.dtype == np.int8
    assert steps.tolist() == [[127, -64, 0], [0, 0, 0], [-127, 2, 0]]
    assert scale.ravel() == pytest.approx([0.01, 0, 2])
    turned, scales = quantized(value.T, 0)
    assert np.array_equal(turned.T, steps)
    assert scales.shape == (1, 3)
    again, _ = quantized(steps * scale, 1)
    assert np.array_equal(again, steps), "rounding what was quantized changes nothing"


def test_the_change_by_quantization_is_reported(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exporting.main([str(checkpoint), str(tmp_path / "out"), "--precision", "int8"]) == 0
    assert "int8 changed log-likelihoods" in capsys.readouterr().out
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    assert manifest.precision == "int8"
    assert manifest.made["difference"]["rounding"] > 0


def test_rounding_that_the_graph_does_not_share_is_refused(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "quantized", lambda value, _: (value, np.float32(1)))
    with pytest.raises(DataError, match="log-likelihoods differ"):
        exporting.export(checkpoint, tmp_path / "out", precision="int8")


def test_a_wrong_graph_does_not_pass_the_check(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = exporting.shape_of
    broken = {"norm_eps": 0.5}
    monkeypatch.setattr(exporting, "shape_of", lambda config: type(s := real(config))(**{**vars(s), **broken}))
    with pytest.raises(DataError, match="log-likelihoods differ"):
        exporting.export(checkpoint, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_logits_are_given_for_as_many_positions_as_asked(checkpoint: Path, tmp_path: Path) -> None:
    import onnxruntime  # type: ignore[import-untyped]

    exporting.export(checkpoint, tmp_path / "out")
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    past = {name.name: np.zeros((1, 2, 5, 16), np.float32) for name in session.get_inputs() if "past" in name.name}
    given = {"input_ids": np.arange(5)[None], "last_slots": np.array([4], np.int32), **past}
    given["longest"] = np.array(5, np.int32)
    asked = {keep: session.run(["logits"], {**given, "num_logits_to_keep": np.array(keep)})[0] for keep in (0, 1, 3)}
    assert [asked[keep].shape for keep in (0, 1, 3)] == [(1, 5, 61), (1, 1, 61), (1, 3, 61)]
    assert np.allclose(asked[3], asked[0][:, -3:], atol=1e-5)


def test_the_folder_holds_the_tokenizer_and_a_manifest(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    assert exporting.main([str(checkpoint), str(out), "--name", "tiny"]) == 0
    manifest = read_manifest(out)
    assert manifest is not None
    assert (manifest.name, manifest.context_tokens, manifest.precision) == ("tiny", 64, "fp16")
    assert manifest.parameters == sum(weight.numel() for weight in tiny(**SHAPES["grouped"]).parameters())
    assert {"model.onnx", "tokenizer.json", "generation_config.json"} <= manifest.files.keys()
    manifest.verify(out)
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert out.stat().st_mode & 0o755 == 0o755, "others can read it"


def test_smaller_numbers_make_a_smaller_file(tmp_path: Path) -> None:
    checkpoint = save(tiny(head_dim=16, num_key_value_heads=2), tmp_path / "checkpoint")
    sizes = {}
    for precision in get_args(Precision):
        exporting.export(checkpoint, tmp_path / precision, precision=precision)
        sizes[precision] = (tmp_path / precision / "model.onnx").stat().st_size
    matrices = 2 * VOCABULARY * 32 + 2 * (32 * (64 + 32 + 32) + 64 * 32 + 3 * 32 * 48)
    assert sizes["fp32"] - sizes["fp16"] == pytest.approx(2 * matrices, rel=0.1)
    assert sizes["fp16"] - sizes["int8"] == pytest.approx(matrices, rel=0.2)


def test_a_large_model_keeps_its_weights_beside_the_graph(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "_LARGE", 1000)
    assert exporting.export(checkpoint, tmp_path / "out").logits < 1e-2
    assert (tmp_path / "out" / "model.onnx_data").is_file()


def test_an_export_is_replaced_and_a_failed_one_leaves_it_alone(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    exporting.export(checkpoint, out, name="first")
    exporting.export(checkpoint, out, name="second")
    assert (found := read_manifest(out)) is not None
    assert found.name == "second"
    before = {path.name: file_digest(path) for path in out.iterdir()}

    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if self.name == "made":
            raise OSError("no space")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="no space"):
        exporting.export(checkpoint, out, name="third")
    assert {path.name: file_digest(path) for path in out.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_with_something_else_in_it_is_not_touched(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not an exported model"):
        exporting.export(checkpoint, tmp_path)
    assert os.listdir(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, "architecture is 'gpt2'"),
        ({"hidden_act": "gelu"}, "activation is 'gelu'"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, "rope type is 'linear'"),
    ],
)
def test_what_is_not_a_plain_llama_is_refused(
    changes: dict[str, Any], message: str, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "changed"
    changed.mkdir()
    for path in checkpoint.iterdir():
        (changed / path.name).write_bytes(path.read_bytes())
    config = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps({**config, **changes}))
    assert exporting.main([str(changed), str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_weights_that_half_precision_cannot_hold_are_refused(tmp_path: Path) -> None:
    model = tiny()
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = 70_000
    with pytest.raises(UsageError, match="--precision fp32"):
        exporting.export(save(model, tmp_path / "checkpoint"), tmp_path / "out")


def test_a_checkpoint_that_is_none_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert exporting.main([str(tmp_path / "empty"), str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.startswith(f"DataError: {tmp_path / 'empty'} is not a checkpoint")


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtra, match=r"pip install 'arbitrag\[train\]'"):
        exporting.export(tmp_path, tmp_path / "out")


def test_it_runs_as_a_module() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "arbitrag.llm.onnx.export", "--help"], capture_output=True, text=True, check=True
    )
    assert "CHECKPOINT" in found.stdout.upper()
