"""Export a Llama checkpoint to a folder that the ``onnx:`` backend runs without torch.

    python -m arbitrag.llm.onnx.export CHECKPOINT FOLDER --precision fp16

The folder holds ``model.onnx`` (its layout: ``graph.py``), the tokenizer, and ``manifest.json`` with their hashes;
of a lab model also the prompts that come with it, and the name of its world.
Before it replaces a folder, the model is compared with transformers on random tokens: a batch of two texts of
different length, in one prefill and in several passes. Nothing is replaced when the log-likelihoods differ by more than
``TOLERANCE``.

int8 quantization halves the file once more, and changes the model: there the comparison is with the quantized weights,
and what quantization changed in the log-likelihoods is reported too. The model's quality has to be measured again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import numpy as np

from arbitrag.errors import ArbitragError, DataError, MissingExtra, UsageError
from arbitrag.llm.engine.batch import Row, forward
from arbitrag.llm.engine.runtime import Block, Runtime
from arbitrag.llm.onnx.backend import open_runtime
from arbitrag.llm.onnx.graph import Precision, Shape, build, quantized
from arbitrag.storage.model_manifest import NAME, Manifest, hash_files, read_manifest

if TYPE_CHECKING:
    from onnx import ModelProto

TOLERANCE = 1e-3  # natural-log probability of a token
_LARGE = 1_500_000_000  # bytes; a protobuf file ends at 2 GB
_LENGTH = 48

States: TypeAlias = dict[tuple[int, int], np.ndarray]  # by layer and place in the text


@dataclass(frozen=True)
class Difference:
    """The largest differences to transformers: of states where a part of a text ends, of the others at every token.

    ``rounding`` is what int8 changed in the log-likelihoods; 0 otherwise.
    """

    logits: float
    loglikelihoods: float
    hidden_states: float
    rounding: float = 0.0


def export(checkpoint: str | Path, folder: Path, *, precision: Precision = "fp16", name: str = "") -> Difference:
    """Write the ONNX folder of a checkpoint and give its measured difference to transformers.

    ``checkpoint`` is a folder in transformers layout, or a name that transformers resolves. An existing ``folder`` is
    replaced only when it is an export, and only by one that passed its check. Raises UsageError for a checkpoint that
    is not a plain Llama and for a folder with something else in it, DataError when the check fails.
    """
    try:
        import onnx
        import torch
        import transformers
    except ImportError:
        raise MissingExtra("train", "exporting a model to ONNX") from None

    if folder.exists() and not (folder / NAME).is_file() and (folder.is_file() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not an exported model; give another folder")
    try:
        config = transformers.AutoConfig.from_pretrained(str(checkpoint), trust_remote_code=False)
        shape = shape_of(config)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(checkpoint), dtype=torch.float32, trust_remote_code=False
        )
        model.requires_grad_(False).train(False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(checkpoint), trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{checkpoint} is not a checkpoint that transformers can read: {error}") from None

    folder.parent.mkdir(parents=True, exist_ok=True)
    rounding = _quantize(model) if precision == "int8" else 0.0
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as parent:
        made = Path(parent) / "made"
        made.mkdir()
        _save(build(shape, _weights_of(model, precision), precision), made)
        lab = read_manifest(Path(checkpoint)) if Path(checkpoint).is_dir() else None
        if (prompts := Path(checkpoint, "prompts")).is_dir():
            shutil.copytree(prompts, made / "prompts")
        for part in (tokenizer, model.generation_config):
            part.save_pretrained(str(made))
        difference = replace(compare(made / "model.onnx", model), rounding=rounding)
        if not difference.loglikelihoods <= TOLERANCE:
            raise DataError(
                f"log-likelihoods differ from transformers by up to {difference.loglikelihoods:.2g} "
                f"(allowed: {TOLERANCE}); nothing was written.{' Try --precision fp32' if precision == 'fp16' else ''}"
            )
        Manifest(
            name=name or Path(checkpoint).resolve().name,
            files=hash_files(made),
            parameters=sum(weight.numel() for weight in model.parameters()),
            context_tokens=config.max_position_embeddings,
            precision=precision,
            world=None if lab is None else lab.world,
            made={
                "by": "python -m arbitrag.llm.onnx.export",
                "onnx": onnx.__version__,
                "transformers": transformers.__version__,
                "difference": vars(difference),
            },
        ).write(made)
        _put_in_place(made, folder, Path(parent) / "replaced")
    return difference


def shape_of(config: Any) -> Shape:
    """The sizes in a transformers configuration; raises UsageError for anything but a plain Llama."""
    found = {
        "architecture": (config.model_type, "llama"),
        "activation": (getattr(config, "hidden_act", None), "silu"),
        "rope type": ((rope := getattr(config, "rope_parameters", None) or {}).get("rope_type", "default"), "default"),
        "rotated part of a head": (rope.get("partial_rotary_factor", 1.0), 1.0),
    }
    for what, (value, wanted) in found.items():
        if value != wanted:
            raise UsageError(f"cannot export this checkpoint: its {what} is {value!r}; only {wanted!r} is supported")
    return Shape(
        layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        intermediate_size=config.intermediate_size,
        vocabulary=config.vocab_size,
        context=config.max_position_embeddings,
        rope_theta=rope["rope_theta"],
        norm_eps=config.rms_norm_eps,
    )


def _weights_of(model: Any, precision: Precision) -> Any:
    """A function from the name of a weight to its float32 array, or None; refuses what float16 cannot hold."""
    state = model.state_dict()
    tied = state["lm_head.weight"].data_ptr() == state["model.embed_tokens.weight"].data_ptr()
    largest = float(np.finfo(np.float16).max)

    def weight(name: str) -> np.ndarray | None:
        if name not in state or (tied and name == "lm_head.weight"):
            return None
        value: np.ndarray = state[name].detach().numpy()
        if precision == "fp16" and np.abs(value).max() > largest:
            raise UsageError(f"{name} has values beyond {largest:.0f}, too large for fp16; give --precision fp32")
        return value

    return weight


def _quantize(model: Any) -> float:
    """Quantize the matrices of a model to int8 and back; returns the largest change of a log-likelihood by it."""
    import torch

    texts = _texts(model)
    before = [_likelihoods(_reference(model, text)[0], text) for text in texts]
    matrices = {id(weight): weight for weight in model.parameters() if weight.ndim == 2}  # a tied one comes once
    for weight in matrices.values():
        steps, scale = quantized(weight.numpy(), 1)
        weight.copy_(torch.from_numpy(steps * scale))
    after = [_likelihoods(_reference(model, text)[0], text) for text in texts]
    return max(float(np.abs(one - two).max()) for one, two in zip(before, after, strict=True))


def _save(proto: ModelProto, folder: Path) -> None:
    import onnx

    large = proto.ByteSize() > _LARGE
    onnx.save(proto, str(folder / "model.onnx"), save_as_external_data=large, location="model.onnx_data")


def compare(path: Path, model: Any) -> Difference:
    """Run two random texts through the file, in one pass and in several, and through transformers."""
    runtime, texts = open_runtime(path), _texts(model)
    length, short = map(len, texts)
    cut = length // 3
    references = [_reference(model, text) for text in texts]
    at_once, in_parts = [(length, short)], [(cut, 1), (length - cut - 2, short - 3), (1, 1), (1, 1)]
    differences = [
        _difference(logits, states, reference, text)
        for parts in (at_once, in_parts)
        for (logits, states), reference, text in zip(_run(runtime, texts, parts), references, texts, strict=True)
    ]
    return Difference(*(max(column) for column in zip(*differences, strict=True)))


def _texts(model: Any) -> list[list[int]]:
    """Random tokens: a text, and one of half its length."""
    length = min(_LENGTH, model.config.max_position_embeddings)
    draw = np.random.default_rng(0)
    return [draw.integers(0, model.config.vocab_size, count).tolist() for count in (length, length // 2)]


def _run(
    runtime: Runtime, texts: Sequence[Sequence[int]], parts: Sequence[Sequence[int]]
) -> list[tuple[np.ndarray, States]]:
    """Logits (T, V) of each text and states at the places where a part ends; a part is a number of tokens of each."""
    blocks: list[list[Block]] = [[] for _ in texts]
    logits: list[list[np.ndarray]] = [[] for _ in texts]
    states: list[States] = [{} for _ in texts]
    past = [0 for _ in texts]
    for counts in parts:
        news = [text[at : at + count] for text, at, count in zip(texts, past, counts, strict=True)]
        rows = [Row(block, at, [new]) for block, at, new in zip(blocks, past, news, strict=True)]
        output, width = forward(runtime, rows, logits_to_keep=max(counts), layers=sorted(runtime.info.hidden_layers))
        for row, count in enumerate(counts):
            blocks[row].append(runtime.block(output.cache, row, width - count, width))
            logits[row].append(output.logits[row, -count:])
            past[row] += count
            states[row] |= {(layer, past[row] - 1): state[row] for layer, state in output.hidden_states.items()}
    return [(np.concatenate(each), ends) for each, ends in zip(logits, states, strict=True)]


def _reference(model: Any, ids: Sequence[int]) -> tuple[np.ndarray, list[np.ndarray]]:
    """What transformers gives for one text: logits (T, V) and hidden states (T, W) of every layer."""
    import torch

    with torch.no_grad():
        out = model(torch.tensor([ids]), output_hidden_states=True)
    return out.logits[0].numpy(), [state[0].numpy() for state in out.hidden_states]


def _difference(
    logits: np.ndarray, states: States, reference: tuple[np.ndarray, list[np.ndarray]], ids: Sequence[int]
) -> tuple[float, float, float]:
    """The largest differences of logits, of the log-likelihoods of the tokens that follow, and of hidden states."""
    expected, expected_states = reference
    likelihoods = _likelihoods(logits, ids) - _likelihoods(expected, ids)
    gaps = [np.abs(state - expected_states[layer][place]).max() for (layer, place), state in states.items()]
    return float(np.abs(logits - expected).max()), float(np.abs(likelihoods).max()), float(max(gaps))


def _likelihoods(logits: np.ndarray, ids: Sequence[int]) -> np.ndarray:
    """Log-probability of each token but the first, from logits (T, V)."""
    logits = logits.astype(np.float64)
    total = np.logaddexp.reduce(logits, axis=-1)[:-1]
    chosen: np.ndarray = logits[np.arange(len(ids) - 1), ids[1:]] - total
    return chosen


def _put_in_place(made: Path, folder: Path, aside: Path) -> None:
    """Rename ``made`` to ``folder``; an older one steps aside first and comes back if that fails."""
    if folder.exists():
        folder.rename(aside)
    try:
        made.rename(folder)
    except OSError:
        if aside.exists():
            aside.rename(folder)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m arbitrag.llm.onnx.export", description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", help="a Llama checkpoint: a folder in transformers layout, or a hub name")
    parser.add_argument("folder", type=Path, help="where the ONNX folder goes")
    parser.add_argument("--precision", choices=get_args(Precision), default="fp16", help="of the stored matrices")
    parser.add_argument("--name", default="", help="the model's name in the manifest (default: the checkpoint's)")
    given = parser.parse_args(arguments)
    try:
        found = export(given.checkpoint, given.folder, precision=given.precision, name=given.name)
    except ArbitragError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_status
    print(f"{given.folder}: largest difference to transformers in logits {found.logits:.2g},", end=" ")
    print(f"in log-likelihoods {found.loglikelihoods:.2g} (allowed {TOLERANCE}), in states {found.hidden_states:.2g}")
    if given.precision == "int8":
        print(f"int8 changed log-likelihoods of random text by up to {found.rounding:.2g}; measure the model again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
