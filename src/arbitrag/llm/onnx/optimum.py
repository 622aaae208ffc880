"""A ``Runtime`` over ONNX files in the layout of optimum's and transformers.js' exports.

Every forward pass returns the whole KV cache. ``input_ids`` and ``past_key_values.i.key|value`` are needed;
``attention_mask``, ``position_ids`` and ``num_logits_to_keep`` are used where they are inputs. Hidden states are those
of the ``hidden_states.i`` outputs of a file, which most files do not have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arbitrag.errors import BackendError
from arbitrag.llm.engine.runtime import ForwardOutput, ModelInfo
from arbitrag.llm.onnx import numpy_ops
from arbitrag.llm.onnx.numpy_ops import Slots
from arbitrag.llm.onnx.session import NumpyLogits, translate_oom

_PAST = re.compile(r"past_key_values\.(\d+)\.(key|value)")
_STATE = re.compile(r"hidden_states\.(\d+)")
_FED = {"input_ids", "attention_mask", "position_ids", "num_logits_to_keep", "use_cache_branch"}
_TYPES: dict[str, type[np.generic]] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_TYPES |= {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}


class OptimumRuntime(NumpyLogits):
    """A ``Runtime`` over a session of onnxruntime, in optimum's layout; caches are numpy arrays (see ``host``)."""

    def __init__(self, path: Path, session: Any, *, identity: str, context: int | None) -> None:
        self._session = session
        self._inputs = {given.name: given for given in self._session.get_inputs()}
        outputs = {output.name: output for output in self._session.get_outputs()}
        self._past = sorted(filter(_PAST.fullmatch, self._inputs), key=_place)
        self._present = [name.replace("past_key_values", "present") for name in self._past]
        self._check(path, outputs)
        self._empty = [self._no_slots(name) for name in self._past]
        states = {int(match[1]) for name in outputs if (match := _STATE.fullmatch(name))}
        vocabulary = outputs["logits"].shape[-1]
        if not isinstance(vocabulary, int):
            raise BackendError(f"{path} does not say how wide its logits are; export it with a fixed vocabulary size")
        self.info = ModelInfo(
            identity=identity,
            layers=len(self._past) // 2,
            vocabulary=vocabulary,
            context_tokens=context,
            token_bytes=sum(part.shape[1] * part.shape[3] * part.itemsize for part in self._empty),
            logits_bytes=vocabulary * 4,
            hidden_layers=frozenset(states),
            evidence=(f"onnxruntime on the CPU; hidden states: {'in the file' if states else 'not in the file'}",),
        )

    def forward(
        self,
        ids: np.ndarray,
        mask: np.ndarray,
        positions: np.ndarray,
        cache: Slots | None,
        *,
        logits_to_keep: int,
        layers: Sequence[int] = (),
    ) -> ForwardOutput:
        if missing := set(layers) - self.info.hidden_layers:
            raise BackendError(f"this model gives no hidden states of layer {min(missing)}")
        batch = len(ids)
        past = cache or [np.repeat(part, batch, axis=0) for part in self._empty]
        if {"attention_mask", "position_ids"} <= self._inputs.keys() or (batch == 1 and mask.all()):
            return self._run(ids, mask, positions, past, logits_to_keep, layers)
        return self._row_by_row(ids, mask, positions, past, logits_to_keep, layers)

    def assemble(self, rows: Sequence[Sequence[Slots]], *, single_pass: bool = False) -> Slots | None:
        with translate_oom():
            return numpy_ops.assemble(rows, self._empty)

    def join(self, first: Slots, second: Slots) -> Slots:
        with translate_oom():
            return numpy_ops.join(first, second)

    def select(self, cache: Slots, rows: Sequence[int], start: int) -> Slots:
        return numpy_ops.select(cache, rows, start)

    def block(self, cache: Slots, row: int, start: int, stop: int) -> Slots:
        return numpy_ops.block(cache, row, start, stop)

    def cut(self, block: Slots, start: int, stop: int) -> Slots:
        return numpy_ops.cut(block, start, stop)

    def _run(
        self,
        ids: np.ndarray,
        mask: np.ndarray,
        positions: np.ndarray,
        past: Slots,
        logits_to_keep: int,
        layers: Sequence[int],
    ) -> ForwardOutput:
        given = {
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": positions,
            "num_logits_to_keep": np.array(logits_to_keep),
            "use_cache_branch": np.array(past[0].shape[2] > 0),
        }
        fed = {name: self._fitted(name, value) for name, value in given.items() if name in self._inputs}
        wanted = ["logits", *self._present, *(f"hidden_states.{layer}" for layer in layers)]
        with translate_oom():
            found = self._session.run(wanted, {**fed, **dict(zip(self._past, past, strict=True))})
        ends = 1 + len(self._present)
        states = {layer: state[:, -1].astype(np.float32) for layer, state in zip(layers, found[ends:], strict=True)}
        return ForwardOutput(found[1:ends], found[0][:, -logits_to_keep:], states)

    def _row_by_row(
        self,
        ids: np.ndarray,
        mask: np.ndarray,
        positions: np.ndarray,
        past: Slots,
        logits_to_keep: int,
        layers: Sequence[int],
    ) -> ForwardOutput:
        """For a graph without inputs for padding: each row alone, without it, and put back where it belongs."""
        slots = past[0].shape[2]
        grown = [np.pad(part, ((0, 0), (0, 0), (0, ids.shape[1]), (0, 0))) for part in past]
        logits: list[np.ndarray] = []
        states: dict[int, list[np.ndarray]] = {layer: [] for layer in layers}
        for row, real in enumerate(mask):
            new = real[slots:]
            kept = [part[row : row + 1][:, :, real[:slots]] for part in past]
            count = min(logits_to_keep, int(new.sum()))
            alone = (ids[row : row + 1, new], real[None, real], positions[row : row + 1, new])
            step = self._run(*alone, kept, count, layers)
            for part, found in zip(grown, step.cache, strict=True):
                part[row][:, slots + np.flatnonzero(new)] = found[0, :, kept[0].shape[2] :]
            logits.append(np.pad(step.logits, ((0, 0), (logits_to_keep - count, 0), (0, 0))))
            for layer, state in step.hidden_states.items():
                states[layer].append(state)
        joined = {layer: np.concatenate(parts) for layer, parts in states.items()}
        return ForwardOutput(grown, np.concatenate(logits), joined)

    def _fitted(self, name: str, value: np.ndarray) -> np.ndarray:
        """``value`` in the type of an input, and with one dimension where the graph wants that of a single number."""
        wanted = self._inputs[name]
        typed = value.astype(_TYPES[wanted.type], copy=False)
        return typed.reshape(1) if value.ndim == 0 and len(wanted.shape) == 1 else typed

    def _no_slots(self, name: str) -> np.ndarray:
        """A past of no tokens for one row."""
        given = self._inputs[name]
        _, heads, _, width = given.shape
        return np.zeros((1, heads, 0, width), _TYPES[given.type])

    def _check(self, path: Path, outputs: Mapping[str, Any]) -> None:
        """Raise BackendError for a graph in another layout."""
        if not self._past:
            raise BackendError(
                f"{path} has no key/value inputs (past_key_values.0.key, …), so a token would prefill the text again; "
                "export it with a cache: python -m arbitrag.llm.onnx.export, or optimum's text-generation-with-past"
            )
        missing = {"logits", *self._present} - outputs.keys() | {"input_ids"} - self._inputs.keys()
        strange = self._inputs.keys() - _FED - set(self._past)
        odd = [name for name in self._past if not _fixed(self._inputs[name].shape)]
        odd += [name for name, given in self._inputs.items() if given.type not in _TYPES]
        if missing or strange or odd:
            found = f"missing: {_listed(missing)}; unknown inputs: {_listed(strange)}; unknown form: {_listed(odd)}"
            raise BackendError(f"{path} is not a decoder in the layout of optimum's exports; {found}")


def _place(name: str) -> tuple[int, str]:
    match = _PAST.fullmatch(name)
    assert match is not None
    return int(match[1]), match[2]


def _fixed(shape: Sequence[Any]) -> bool:
    return len(shape) == 4 and isinstance(shape[1], int) and isinstance(shape[3], int)


def _listed(names: Sequence[str] | set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
