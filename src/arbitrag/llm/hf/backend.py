"""``hf:`` models: any causal language model of transformers 5, in this process, on a CPU or a GPU."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from arbitrag.errors import BackendError, MissingExtra, unknown
from arbitrag.llm.base import Price
from arbitrag.llm.engine.batch import BatchLimits
from arbitrag.llm.engine.engine import PREFIX_BYTES, Engine
from arbitrag.security import telemetry

PRECISIONS = ("float32", "bfloat16", "float16")
_PIECE = 1 << 20
_PIECES = 64


def open_hf(
    path_or_name: str,
    *,
    device: str | None = None,
    dtype: str | None = None,
    quantize: Any = None,
    deterministic: bool = False,
    prefix_bytes: int | None = None,
    batch_rows: int | None = None,
    batch_tokens: int | None = None,
    price: Price | None = None,
    revision: str | None = None,
    local_files_only: bool = False,
    wording: str | Path | None = None,
) -> Engine:
    """The model in a folder, or of that name on the Hugging Face hub. Code that comes with a model is never run.

    Without ``device`` the first of cuda, mps and cpu that is there; without ``dtype`` (float32, bfloat16 or float16)
    the one that suits it: ``capabilities().evidence`` says which, and why. ``quantize`` is what transformers takes as
    ``quantization_config``. ``prefix_bytes`` is the capacity of the prefix cache: 1 GiB, on a GPU a quarter of the
    memory that the model leaves free. ``batch_rows`` is the largest decode batch, ``batch_tokens`` the most new tokens
    in one forward pass.

    ``local_files_only`` opens what is on this machine already, and does not ask the hub.

    Raises MissingExtra without torch and transformers, UsageError for an unknown device or precision, BackendError when
    the model cannot be loaded or keeps no keys and values.
    """
    telemetry.turn_off()
    try:
        import torch
        import transformers
    except ImportError:
        raise MissingExtra("hf", f"hf:{path_or_name}") from None
    from arbitrag.llm.hf import cpu
    from arbitrag.llm.hf.runtime import TorchRuntime
    from arbitrag.llm.tokenizer import TextCodec

    device, why_device = _device(torch, device)
    precision, why_precision = _precision(torch, device, dtype)
    model, tokenizer = _load(
        transformers, path_or_name, revision, getattr(torch, precision), quantize, device, local_files_only
    )
    eos_ids = getattr(model.generation_config, "eos_token_id", None)
    if eos_ids is None:
        eos_ids = model.config.eos_token_id
    codec = TextCodec.from_transformers(tokenizer, eos_ids=_as_ids(eos_ids))
    weights = getattr(model.config, "_commit_hash", None) or _fingerprint(Path(path_or_name))
    quantized = f" quantized {quantize}" if quantize is not None else ""
    runtime = TorchRuntime(
        model,
        identity=f"hf:{path_or_name}@{weights} {precision}{quantized}",
        evidence=(
            f"{device}: {why_device}",
            f"{precision}: {why_precision}{quantized}",
            f"attention: {getattr(model.config, '_attn_implementation', 'unknown')}, as transformers offers it",
        ),
    )
    cpu.optimise(runtime)
    free = _free_bytes(torch, device)
    limits = BatchLimits(
        rows=batch_rows or BatchLimits().rows,
        tokens=batch_tokens or (BatchLimits().tokens if device == "cpu" else 4 * BatchLimits().tokens),
        slots=max(1, free // 2 // runtime.info.token_bytes),
    )
    return Engine(
        runtime,
        codec,
        name=f"hf:{path_or_name}",
        deterministic=deterministic,
        prefix_bytes=free // 4 if prefix_bytes is None else prefix_bytes,
        limits=limits,
        price=price,
        wording=None if wording is None else Path(wording),
    )


def _device(torch: Any, asked: str | None) -> tuple[str, str]:
    available = ["cpu"]
    if torch.backends.mps.is_available():
        available.insert(0, "mps")
    if torch.cuda.is_available():
        available[:0] = ["cuda", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if asked is None:
        return available[0], f"the first available of {', '.join(available)}"
    if asked not in available:
        raise unknown("device", asked, available)
    return asked, "as asked"


def _precision(torch: Any, device: str, asked: str | None) -> tuple[str, str]:
    if asked is not None:
        if asked not in PRECISIONS:
            raise unknown("precision", asked, PRECISIONS)
        return asked, "as asked"
    if device == "cpu":
        return "float32", "exact, and nothing else is faster on every CPU"
    if device == "mps":
        return "float16", "half the memory; every Apple GPU computes it"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return "bfloat16", "half the memory, and this GPU computes it"
    return "float16", "half the memory; this GPU does not compute bfloat16"


def _load(
    transformers: Any,
    path_or_name: str,
    revision: str | None,
    dtype: Any,
    quantize: Any,
    device: str,
    local_files_only: bool,
) -> tuple[Any, Any]:
    if not Path(path_or_name).is_dir() and (path_or_name.startswith((".", "~", os.sep)) or os.sep * 2 in path_or_name):
        raise BackendError(f"there is no folder {path_or_name}; give a checkpoint's folder or its name on the hub")
    options = {"revision": revision, "trust_remote_code": False, "local_files_only": local_files_only}
    place = {"device_map": device, "quantization_config": quantize} if quantize is not None else {}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path_or_name, **options)
        model = transformers.AutoModelForCausalLM.from_pretrained(path_or_name, dtype=dtype, **options, **place)
        return (model if quantize is not None else model.to(device)), tokenizer
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise BackendError(f"cannot load hf:{path_or_name}: {reason}") from error


def _free_bytes(torch: Any, device: str) -> int:
    """Memory to share between batches and the prefix cache: what is free on a GPU, 4 GiB elsewhere."""
    if not device.startswith("cuda"):
        return 4 * PREFIX_BYTES
    free: int = torch.cuda.mem_get_info(torch.device(device))[0]
    return free


def _fingerprint(folder: Path) -> str:
    """A hash over the checkpoint's config and weights; of a large file its size and 64 pieces of 1 MiB."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("config.json"), *folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            for start in range(0, size, max(_PIECE, size // _PIECES)):
                file.seek(start)
                digest.update(file.read(_PIECE))
    return digest.hexdigest()[:16]


def _as_ids(value: int | Iterable[int] | None) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)
