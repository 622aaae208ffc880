"""Sentence encoders as ONNX files, run by onnxruntime without torch.

A folder of the sentence-transformers layout: ``model.onnx`` (or ``onnx/model.onnx``), ``tokenizer.json``, and where
they are ``modules.json`` with the pooling's ``config.json``, ``config_sentence_transformers.json`` (prompts) and
``sentence_bert_config.json`` (the longest input). A folder without a pooling config is read with the mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arbitrag.encode.base import PROMPT_NAMES, Kind, checked, prompt_for
from arbitrag.errors import BackendError, DataError
from arbitrag.security import telemetry
from arbitrag.serialization import json_digest
from arbitrag.storage.files import file_digest, read_json
from arbitrag.text import one_line

_MODELS = ("model.onnx", "onnx/model.onnx")
_SENTENCE = "sentence_embedding"
_TOKENS = ("last_hidden_state", "token_embeddings")
_POOLING_STEP, _NORMALIZE_STEP, _TRANSFORMER_STEP = "Pooling", "Normalize", "Transformer"
_LONGEST = 512  # tokens read where the folder does not say


class OnnxEncoder:
    """The encoder ``onnx:FOLDER``. Texts longer than the model reads are cut at its limit."""

    def __init__(self, folder: str | Path, *, batch: int = 32, threads: int | None = None) -> None:
        """``threads`` are those of one forward pass, by default every core.

        Raises DataError for a folder that lacks a file or holds one that cannot be read.
        """
        self._folder = Path(folder)
        self._path = _model_in(self._folder)
        self._session = _session(self._path, threads)
        self._inputs = frozenset(each.name for each in self._session.get_inputs())
        outputs = {each.name: each for each in self._session.get_outputs()}
        self._output = next((name for name in (_SENTENCE, *_TOKENS) if name in outputs), "")
        if not self._output:
            known = ", ".join((_SENTENCE, *_TOKENS))
            raise DataError(f"{self._path} has the outputs {', '.join(outputs)}; a sentence encoder has one of {known}")
        self._width: int = outputs[self._output].shape[-1]
        if not isinstance(self._width, int):
            raise DataError(f"{self._path} does not say how wide its vectors are; export it with a fixed hidden size")
        self._pooling = _pooling(self._folder) if self._output != _SENTENCE else ""
        self._prompts = _prompts(self._folder)
        self._tokenizer = _tokenizer(self._folder)
        self._batch = batch
        self.name = f"onnx:{folder}"
        settings = [file_digest(self._path), file_digest(self._folder / "tokenizer.json"), self._pooling, self._prompts]
        self.identity = f"onnx-encoder:{json_digest(settings)[:16]}:{self._width}"

    @property
    def width(self) -> int:
        return self._width

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        """Unit vectors (texts, width) float32, with the model's own prompt for queries or passages."""
        if not texts:
            return np.empty((0, self._width), np.float32)
        return await asyncio.to_thread(self._encode, [self._prompts.get(kind, "") + text for text in texts])

    async def aclose(self) -> None:
        pass

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        vectors = np.empty((len(texts), self._width), np.float32)
        # Texts of like length share a batch, so that little is computed on padding.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        for start in range(0, len(order), self._batch):
            chosen = order[start : start + self._batch]
            vectors[chosen] = self._forward([texts[index] for index in chosen])
        return checked(vectors, texts, self.name)

    def _forward(self, texts: Sequence[str]) -> np.ndarray:
        encoded = self._tokenizer.encode_batch(list(texts))
        given = {
            "input_ids": np.array([each.ids for each in encoded], np.int64),
            "attention_mask": np.array([each.attention_mask for each in encoded], np.int64),
            "token_type_ids": np.array([each.type_ids for each in encoded], np.int64),
        }
        try:
            (found,) = self._session.run([self._output], {name: given[name] for name in self._inputs & given.keys()})
        except Exception as error:  # (onnxruntime's errors share no base class)
            raise BackendError(f"{self.name} failed: {one_line(str(error), 300)}") from error
        found = np.asarray(found, np.float32)
        if self._output == _SENTENCE:
            return found
        mask = given["attention_mask"].astype(np.float32)[:, :, None]
        if self._pooling == "cls":
            # The first token that is not padding, whichever side that is on.
            return np.asarray(found[np.arange(len(found)), given["attention_mask"].argmax(axis=1)])
        if self._pooling == "max":
            return np.asarray(np.where(mask > 0, found, -np.inf).max(axis=1))
        total = (found * mask).sum(axis=1)
        return np.asarray(total / np.maximum(mask.sum(axis=1), 1))


def _model_in(folder: Path) -> Path:
    for name in _MODELS:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} holds no sentence encoder: neither {' nor '.join(_MODELS)} is there")


def _session(path: Path, threads: int | None) -> Any:
    onnxruntime = telemetry.onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # (onnxruntime's errors share no base class)
        raise DataError(f"{path} is not a model that onnxruntime can read: {one_line(str(error), 300)}") from error


def _tokenizer(folder: Path) -> Any:
    """The folder's tokenizer, padding to the longest text of a batch and cutting at the model's limit."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise DataError(f"{folder} has no tokenizer.json; a model folder needs it beside the model")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001  (the package raises a bare Exception)
        raise DataError(f"{path} is not a tokenizer: {error}") from None
    padding = tokenizer.padding or {}
    tokenizer.enable_padding(
        **{name: padding[name] for name in ("pad_id", "pad_type_id", "pad_token", "direction") if name in padding}
    )
    tokenizer.enable_truncation(max_length=_longest(folder))
    tokenizer.encode_special_tokens = True  # "[SEP]" in a passage is text
    return tokenizer


def _longest(folder: Path) -> int:
    limits = [
        read_json(folder / "sentence_bert_config.json", {}).get("max_seq_length"),
        read_json(folder / "tokenizer_config.json", {}).get("model_max_length"),
        read_json(folder / "config.json", {}).get("max_position_embeddings"),
    ]
    # A tokenizer without a limit says so with an astronomic number.
    return min((int(limit) for limit in limits if limit and limit < 1e6), default=_LONGEST)


def _pooling(folder: Path) -> str:
    """``mean``, ``cls`` or ``max``, from the steps in ``modules.json``; DataError for a step that is not done here."""
    steps = read_json(folder / "modules.json", [])
    pooling = "mean"
    for step in steps:
        kind = str(step.get("type", "")).rpartition(".")[2]
        if kind == _POOLING_STEP:
            pooling = _pooling_of(folder / str(step.get("path", "")) / "config.json")
        elif kind not in (_TRANSFORMER_STEP, _NORMALIZE_STEP):
            raise DataError(
                f"{folder}/modules.json has a step '{one_line(kind)}', which the torch-free encoder does not have; "
                f"use st:{folder}, or export the whole model with the output '{_SENTENCE}'"
            )
    return pooling


def _pooling_of(path: Path) -> str:
    config = read_json(path, {})
    modes = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}
    asked = config.get("pooling_mode") or [
        modes.get(key, key) for key, on in config.items() if key.startswith("pooling_mode_") and on
    ]
    chosen = [asked] if isinstance(asked, str) else list(asked)
    if not chosen:
        return "mean"
    if len(chosen) != 1 or chosen[0] not in modes.values():
        named = one_line(", ".join(map(str, chosen)))
        raise DataError(f"{path} asks for the pooling '{named}'; the torch-free encoder has mean, cls and max")
    return str(chosen[0])


def _prompts(folder: Path) -> dict[Kind, str]:
    named = read_json(folder / "config_sentence_transformers.json", {}).get("prompts") or {}
    return {kind: prompt_for(kind, named) for kind in PROMPT_NAMES}
