"""A trained lab model as a folder that transformers, ``hf:`` and ``python -m arbitrag.llm.onnx.export`` read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbitrag.errors import DataError
from arbitrag.lab.model import PROMPTS
from arbitrag.lab.world import World
from arbitrag.storage.model_manifest import Manifest, hash_files, read_manifest
from training.network import CONTEXT, EPSILON, THETA, Shape
from training.samples import END
from training.tokenizer import BEGIN, CHAT_TEMPLATE, PAD

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor


def write_checkpoint(
    folder: Path,
    weights: Mapping[str, Tensor],
    shape: Shape,
    tokenizer: Tokenizer,
    world: World,
    *,
    made: Mapping[str, Any],
) -> None:
    """Put the checkpoint in ``folder``, in place of what was there; ``made`` goes into the manifest.

    ``weights`` have the names of transformers; see ``lab_network``. They are stored as fp16, so that an export in fp16
    loses nothing. The folder holds the wording that the model was trained on, too, and its manifest names the world.
    Raises DataError for weights that fp16 cannot hold.
    """
    from safetensors.torch import save_file

    draft = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    halves = {name: weight.half() for name, weight in weights.items()}
    if not all(bool(weight.isfinite().all()) for weight in halves.values()):
        raise DataError(
            "a weight is not finite in fp16, in which lab models are stored; train with a lower learning rate"
        )
    save_file(halves, draft / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(draft / "tokenizer.json"))
    ids = {f"{name}_token_id": tokenizer.token_to_id(text) for name, text in _NAMED.items()}
    _write(draft / "config.json", {**_config(shape), **ids})
    _write(draft / "generation_config.json", ids)
    _write(draft / "tokenizer_config.json", _TOKENIZER_CONFIG)
    shutil.copytree(PROMPTS, draft / "prompts")
    Manifest(
        name=folder.name,
        files=hash_files(draft),
        parameters=sum(weight.numel() for weight in weights.values()),
        context_tokens=CONTEXT,
        precision="fp16",
        world={"version": world.version, "seed": world.seed},
        made=dict(made),
    ).write(draft)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)


@dataclass(frozen=True)
class Start:
    """A checkpoint to go on from: its sizes, its weights under transformers' names, its tokenizer in JSON."""

    shape: Shape
    weights: Mapping[str, Tensor]
    tokenizer: str


def read_checkpoint(folder: Path, world: World) -> Start:
    """What ``write_checkpoint`` wrote; raises DataError for anything else, or a model of another world."""
    manifest = read_manifest(folder)
    if manifest is None or manifest.world != {"version": world.version, "seed": world.seed}:
        found = "no manifest" if manifest is None else f"world {manifest.world}"
        raise DataError(f"{folder} has {found}; a training goes on from a lab checkpoint of its own world")
    return read_llama(folder)


def read_llama(folder: Path) -> Start:
    """A checkpoint in transformers layout of the kind that lab models are; raises DataError when it cannot be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        shape = Shape(
            layers=config["num_hidden_layers"],
            width=config["hidden_size"],
            inner_width=config["intermediate_size"],
            head_width=config["head_dim"],
            vocabulary=config["vocab_size"],
        )
        weights = load_file(folder / "model.safetensors")
        return Start(shape, weights, (folder / "tokenizer.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DataError(f"{folder} cannot be read as a lab checkpoint: {error}") from None


_NAMED = {"bos": BEGIN, "eos": END, "pad": PAD}
_TOKENIZER_CONFIG = {
    **{f"{name}_token": text for name, text in _NAMED.items()},
    "chat_template": CHAT_TEMPLATE,
    "clean_up_tokenization_spaces": False,
    "model_max_length": CONTEXT,
    "tokenizer_class": "PreTrainedTokenizerFast",
}


def _config(shape: Shape) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.head_width,
        "intermediate_size": shape.inner_width,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": CONTEXT,
        "hidden_act": "silu",
        "rms_norm_eps": EPSILON,
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": "float16",
    }


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
