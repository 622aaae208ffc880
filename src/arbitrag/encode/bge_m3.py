"""The encoder BGE-M3: XLM-RoBERTa with a dense, a sparse and a multi-vector head, in this process (extra ``hf``).

With h the last hidden states of a text, (tokens, width):

dense     h of the first token, of length one
sparse    ReLU(W_lex h) for each token, and for a token that repeats the largest; special tokens have none
multi     W_mul h of every token but the first, of length one each

A folder, or a model's files, hold what transformers reads, and ``sparse_linear`` and ``colbert_linear`` as
``.safetensors`` or ``.pt`` with a weight and a bias. A ``.pt`` is read as tensors only, never as code.

Paper: Chen et al. 2024, "BGE M3-Embedding", section 3. Model: BAAI/bge-m3.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbitrag.encode.base import Kind, checked
from arbitrag.encode.similarity import Heads
from arbitrag.errors import BackendError, DataError, MissingExtra
from arbitrag.security import telemetry
from arbitrag.serialization import json_digest
from arbitrag.storage.model_manifest import hash_files
from arbitrag.text import one_line

if TYPE_CHECKING:
    import numpy as np

_SPARSE, _MULTI = "sparse_linear", "colbert_linear"
_WANTED = ("*.json", "*.model", "*.safetensors", "*.pt", "pytorch_model.bin")


class BgeM3Encoder:
    """The encoder ``bge-m3:NAME-OR-PATH``. Texts longer than ``max_tokens`` are cut there."""

    def __init__(
        self,
        model: str = "BAAI/bge-m3",
        *,
        device: str | None = None,
        dtype: str | None = None,
        batch: int = 16,
        max_tokens: int = 8192,
        revision: str | None = None,
        local_files_only: bool = False,
    ) -> None:
        """Load it, onto the GPU where there is one and no ``device`` is named; ``dtype`` is torch's name of one.

        Code that comes with a model is never run. ``local_files_only`` takes no step to the hub.

        Raises MissingExtra without transformers, BackendError when it cannot be loaded, DataError when a head is
        missing or of another shape.
        """
        telemetry.turn_off()
        try:
            import torch
            from transformers import AutoModel, AutoTokenizer
        except ImportError as error:
            raise MissingExtra("hf", f"bge-m3:{model}") from error
        self.name = f"bge-m3:{model}"
        folder = _folder(model, revision, local_files_only)
        try:
            kind = getattr(torch, dtype) if dtype else torch.float32
            self._tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
            network = AutoModel.from_pretrained(folder, dtype=kind, trust_remote_code=False)
        except Exception as error:  # (transformers raises whatever its parts raise)
            raise BackendError(f"{self.name} cannot be loaded: {one_line(str(error), 300)}") from error
        there = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        self._device = device or (there.type if there else "cpu")
        self._network = network.to(self._device).eval()
        self._width: int = network.config.hidden_size
        self._sparse = _linear(folder, _SPARSE, self._width, 1).to(self._device, kind)
        self._multi = _linear(folder, _MULTI, self._width, None).to(self._device, kind)
        positions = network.config.max_position_embeddings - 2  # XLM-RoBERTa counts positions from 2
        self._max_tokens = min(max_tokens, positions)
        self._batch = batch
        self._special = frozenset(self._tokenizer.all_special_ids)
        self._lock = threading.Lock()
        files = json.dumps(hash_files(folder), sort_keys=True) if Path(model).is_dir() else folder.name
        settings = [files, str(kind), self._max_tokens]
        self.identity = f"bge-m3:{json_digest(settings)[:16]}:{self._width}"

    @property
    def width(self) -> int:
        return self._width

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        """Unit vectors (texts, width) float32 of the dense head; queries and passages are read alike."""
        import numpy as np

        if not texts:
            return np.empty((0, self._width), np.float32)
        return np.stack([each.dense for each in await self.encode_heads(texts, kind=kind)])

    async def encode_heads(self, texts: Sequence[str], *, kind: Kind) -> list[Heads]:
        """All three heads of each text. Raises BackendError when the model fails."""
        return await asyncio.to_thread(self._encode, list(texts))

    async def aclose(self) -> None:
        pass

    def _encode(self, texts: Sequence[str]) -> list[Heads]:
        # Texts of like length share a batch, so that little is computed on padding.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        found: dict[int, Heads] = {}
        with self._lock:
            for start in range(0, len(order), self._batch):
                chosen = order[start : start + self._batch]
                try:
                    heads = self._forward([texts[index] for index in chosen])
                except Exception as error:  # (torch and the tokenizer raise whatever their parts raise)
                    raise BackendError(f"{self.name} failed: {one_line(str(error), 300)}") from error
                found.update(zip(chosen, heads, strict=True))
        return [found[index] for index in range(len(texts))]

    def _forward(self, texts: Sequence[str]) -> list[Heads]:
        import torch

        given = self._tokenizer(
            texts, padding=True, truncation=True, max_length=self._max_tokens, return_tensors="pt"
        ).to(self._device)
        with torch.inference_mode():
            hidden = self._network(**given).last_hidden_state  # (texts, tokens, width)
            weights = torch.relu(self._sparse(hidden)).squeeze(-1)  # (texts, tokens)
            rows = torch.nn.functional.normalize(self._multi(hidden[:, 1:]).float(), dim=-1)
        dense = checked(hidden[:, 0].float().cpu().numpy(), texts, self.name)
        lengths = given["attention_mask"].sum(dim=1).tolist()
        return [
            Heads(
                dense[index],
                self._lexical(given["input_ids"][index, :length].tolist(), weights[index, :length].tolist()),
                rows[index, : length - 1].cpu().numpy(),
            )
            for index, length in enumerate(lengths)
        ]

    def _lexical(self, ids: Sequence[int], weights: Sequence[float]) -> dict[str, float]:
        """By token, the largest of its weights above 0."""
        found: dict[str, float] = {}
        for token, weight in zip(ids, weights, strict=True):
            if token not in self._special and weight > found.get(str(token), 0.0):
                found[str(token)] = weight
        return found


def _folder(model: str, revision: str | None, local_files_only: bool) -> Path:
    """The folder of the model's files; a named model is downloaded unless it is cached."""
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download

    try:
        found = snapshot_download(
            model, revision=revision, allow_patterns=list(_WANTED), local_files_only=local_files_only
        )
        return Path(found)
    except Exception as error:  # (errors of the network and of the hub share no base class)
        raise BackendError(
            f"bge-m3:{model} is no folder, and cannot be downloaded: {one_line(str(error), 200)}"
        ) from error


def _linear(folder: Path, name: str, width: int, out: int | None) -> Any:
    """The linear layer in ``name.safetensors`` or ``name.pt``, from ``width`` to ``out`` numbers (None for any)."""
    import torch

    path = next((each for end in ("safetensors", "pt") if (each := folder / f"{name}.{end}").is_file()), None)
    if path is None:
        raise DataError(f"{folder} has no {name}.pt; as an encoder with one head it is st:{folder}")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        weight, bias = state["weight"], state["bias"]
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict({"weight": weight, "bias": bias})
    except Exception as error:  # (a damaged file, or one with code in it, can raise anything)
        raise DataError(f"{path} is not a linear layer with weight and bias: {one_line(str(error), 200)}") from error
    if layer.in_features != width or out not in (None, layer.out_features):
        raise DataError(f"{path} goes from {layer.in_features} to {layer.out_features} numbers, the model has {width}")
    return layer.eval()
