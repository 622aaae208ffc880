"""Key/value caches as the models of transformers use them: one that grows in place, one that serves a single pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from transformers import cache_utils

Block: TypeAlias = tuple[torch.Tensor, torch.Tensor]

SPARE = 64  # slots allocated ahead, so that writing copies a cache every 64th step instead of every step


class GrowingLayer(cache_utils.DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, (rows, heads, slots, width), in buffers with room for more slots."""

    is_initialized: bool
    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def hold(self, keys: torch.Tensor, values: torch.Tensor, slots: int) -> None:
        """Take buffers of which the first ``slots`` slots are filled."""
        self.dtype, self.device = keys.dtype, keys.device
        self._buffers = keys, values
        self.keys, self.values = keys[:, :, :slots], values[:, :, :slots]
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.hold(key_states, value_states, key_states.shape[2])
            return self.keys, self.values
        before, after = self.keys.shape[2], self.keys.shape[2] + key_states.shape[2]
        if after > self._buffers[0].shape[2]:
            grown = [with_slots(filled, after + SPARE) for filled in (self.keys, self.values)]
            self.hold(grown[0], grown[1], before)
        for buffer, fresh in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, before:after] = fresh
        self.hold(*self._buffers, after)
        return self.keys, self.values

    def part(self, row: int, start: int, stop: int) -> Block:
        """Keys and values (heads, tokens, width) of some slots of a row."""
        return self.keys[row, :, start:stop], self.values[row, :, start:stop]


class PassingLayer(cache_utils.DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's past for a single pass: put together when the layer is computed and gone after it.

    ``rows`` are the rows' blocks, keys (0) and values (1) of all layers; only what the pass adds is kept.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, rows: Sequence[Sequence[Block]], layer: int, slots: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sides = [[[block[side][layer] for block in blocks] for blocks in rows] for side in range(2)]
        self._slots = slots

    def get_seq_length(self) -> int:
        return self._slots

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys, self.values = key_states, value_states
        whole = [self._whole(rows, fresh) for rows, fresh in zip(self._sides, (key_states, value_states), strict=True)]
        self._sides = []
        return whole[0], whole[1]

    def _whole(self, rows: Sequence[Sequence[torch.Tensor]], fresh: torch.Tensor) -> torch.Tensor:
        batch, heads, count, width = fresh.shape
        buffer = fresh.new_empty((batch, heads, self._slots + count, width))
        buffer[:, :, self._slots :] = fresh
        for row, parts in enumerate(rows):
            fill(buffer[row], parts, self._slots)
        return buffer

    def part(self, row: int, start: int, stop: int) -> Block:
        first, last = start - self._slots, stop - self._slots
        return self.keys[row, :, first:last], self.values[row, :, first:last]


class Cache(cache_utils.Cache):
    """A cache of growing layers or of passing ones; without ``layers`` an empty one that grows."""

    layers: Any  # list[GrowingLayer] | list[PassingLayer], which the base class does not know

    def __init__(self, layers: Sequence[GrowingLayer | PassingLayer] = ()) -> None:
        if layers:
            super().__init__(layers=list(layers))
        else:
            super().__init__(layer_class_to_replicate=GrowingLayer)


def with_slots(filled: torch.Tensor, slots: int) -> torch.Tensor:
    rows, heads, used, width = filled.shape
    buffer = filled.new_empty((rows, heads, slots, width))
    buffer[:, :, :used] = filled
    return buffer


def fill(buffer: torch.Tensor, parts: Sequence[torch.Tensor], slots: int) -> None:
    """Write parts (..., tokens, width) so that they end at ``slots``, with zeros before them."""
    at = slots - sum(part.shape[-2] for part in parts)
    buffer[..., :at, :] = 0
    for part in parts:
        buffer[..., at : at + part.shape[-2], :] = part
        at += part.shape[-2]
