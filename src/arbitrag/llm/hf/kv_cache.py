"""KV caches in the form that the models of transformers use: one that grows in place, one for a single forward pass.

All rows of a batch are left-padded to the longest. ``hf/cpu.py`` puts several of these caches, one for each length
bucket, behind one interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from transformers import cache_utils

Pair: TypeAlias = tuple[torch.Tensor, torch.Tensor]  # keys and values
Block: TypeAlias = Pair  # of some tokens of one row, (layers, heads, tokens, head_dim) each

SPARE = 64  # slots allocated ahead, so that a cache is copied in every 64th decode step instead of every step


class GrowingLayer(cache_utils.DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values, (rows, heads, slots, head_dim), in buffers with room for more slots.

    ``slots`` slots are filled.
    """

    is_initialized: bool

    def __init__(self, buffers: Pair | None = None, slots: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._buffers = buffers
        self.slots = slots
        self.is_initialized = buffers is not None

    @property
    def pair(self) -> Pair:
        """The filled slots."""
        assert self._buffers is not None
        keys, values = self._buffers
        return keys[:, :, : self.slots], values[:, :, : self.slots]

    def get_seq_length(self) -> int:
        return self.slots

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Pair:
        """Append the same number of slots to every row; returns the filled slots."""
        count = key_states.shape[2]
        if self._buffers is None:
            self._buffers, self.slots, self.is_initialized = (key_states, value_states), count, True
            return self._buffers
        after = self.slots + count
        if after > self._buffers[0].shape[2]:
            keys, values = self.pair
            self._buffers = _with_slots(keys, after + SPARE), _with_slots(values, after + SPARE)
        for buffer, fresh in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, self.slots : after] = fresh
        self.slots = after
        return self.pair

    def select(self, rows: Sequence[int], start: int) -> GrowingLayer:
        """A copy of these rows without the slots before ``start``."""
        index = torch.tensor(rows, device=self.pair[0].device)
        keys, values = (side[:, :, start:].index_select(0, index) for side in self.pair)
        slots = self.slots - start
        return GrowingLayer((_with_slots(keys, slots + SPARE), _with_slots(values, slots + SPARE)), slots)

    def part(self, row: int, start: int, stop: int) -> Pair:
        """Keys and values (heads, tokens, head_dim) of a row in some slots."""
        keys, values = (side[row, :, start:stop] for side in self.pair)
        return keys, values


class SinglePassLayer(cache_utils.DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's past for a single forward pass: assembled when the layer is computed, and freed after it.

    ``rows`` are the rows' blocks, keys (0) and values (1) of all layers; only what the pass adds is kept. Layers that
    are given the same ``buffers`` assemble their past in them, one layer after the other.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(
        self,
        rows: Sequence[Sequence[Block]],
        layer: int,
        slots: int,
        buffers: dict[int, torch.Tensor] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sides = [[[block[side][layer] for block in blocks] for blocks in rows] for side in range(2)]
        self._buffers = buffers
        self.slots = slots

    def get_seq_length(self) -> int:
        return self.slots

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Pair:
        self.keys, self.values = key_states, value_states
        pair = self._whole(0, key_states), self._whole(1, value_states)
        self._sides = []
        return pair

    def _whole(self, side: int, states: torch.Tensor) -> torch.Tensor:
        """Past and new slots of keys or values."""
        rows, heads, count, width = states.shape
        whole = self._buffer(side, states, (rows, heads, self.slots + count, width))
        whole[:, :, self.slots :] = states
        for into, parts in zip(whole, self._sides[side], strict=True):
            _fill(into, parts, self.slots)
        return whole

    def _buffer(self, side: int, states: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        if self._buffers is None:
            return states.new_empty(shape)
        if side not in self._buffers or self._buffers[side].shape != shape:
            self._buffers[side] = states.new_empty(shape)
        return self._buffers[side]

    def part(self, row: int, start: int, stop: int) -> Pair:
        """Keys and values (heads, tokens, head_dim) of some of the slots that the pass added."""
        first, last = start - self.slots, stop - self.slots
        return self.keys[row, :, first:last], self.values[row, :, first:last]


class Cache(cache_utils.Cache):
    """The KV cache of a batch, layer by layer; without ``layers`` an empty one that grows."""

    layers: Any  # list[GrowingLayer] | list[SinglePassLayer], which the base class does not know

    def __init__(self, layers: Sequence[cache_utils.DynamicLayer] = ()) -> None:
        if layers:
            super().__init__(layers=list(layers))
        else:
            super().__init__(layer_class_to_replicate=GrowingLayer)

    @property
    def slots(self) -> int:
        """Filled slots in each row, padding included."""
        found: int = self.layers[0].get_seq_length() if self.layers else 0
        return found

    @property
    def rows(self) -> int:
        return len(self.layers[0].pair[0])

    def mask(self, mask: np.ndarray, device: torch.device) -> torch.Tensor | None:
        """The mask of ``Runtime.forward`` as the model takes it; None where nothing is masked."""
        if mask.ndim == 2 and mask.all():
            return None
        given = torch.from_numpy(mask).to(device)
        return given if given.ndim == 2 else given[:, None]

    def block(self, row: int, start: int, stop: int) -> Block:
        """A copy of some slots of a row, (layers, heads, tokens, head_dim) each."""
        parts = [layer.part(row, start, stop) for layer in self.layers]
        return torch.stack([keys for keys, _ in parts]), torch.stack([values for _, values in parts])

    def join(self, other: Cache) -> Cache:
        """The rows of both, those of ``other`` last."""
        count = self.rows
        return joined([self, other], [range(count), range(count, count + other.rows)])

    def select(self, rows: Sequence[int], start: int) -> Cache:
        """Only these rows, in this order, without the slots before ``start``; a copy unless nothing changes."""
        if start == 0 and list(rows) == list(range(self.rows)):
            return self
        return Cache([layer.select(rows, start) for layer in self.layers])


def assembled(
    rows: Sequence[Sequence[Block]],
    *,
    single_pass: bool,
    sample: Block | None = None,
    buffers: dict[int, torch.Tensor] | None = None,
) -> Cache:
    """The KV cache of rows of blocks, left-padded with zeros to the longest: for a single pass, or one that grows.

    ``sample`` is any block of the model, needed where no row has one; for ``buffers`` see ``SinglePassLayer``.
    """
    sample = next((blocks[0] for blocks in rows if blocks), sample)
    assert sample is not None
    slots = max(map(tokens_of, rows))
    if single_pass:
        return Cache([SinglePassLayer(rows, layer, slots, buffers) for layer in range(len(sample[0]))])
    sides = [_filled(sample[side], [[block[side] for block in blocks] for blocks in rows], slots) for side in (0, 1)]
    return Cache([GrowingLayer((keys, values), slots) for keys, values in zip(*sides, strict=True)])


def joined(caches: Sequence[Cache], places: Sequence[Sequence[int]]) -> Cache:
    """The rows of all these caches at their places, left-padded with zeros to the longest."""
    if len(caches) == 1:
        return caches[0]
    layers = zip(*(cache.layers for cache in caches), strict=True)
    return Cache([_stacked([layer.pair for layer in each], places) for each in layers])


def tokens_of(blocks: Sequence[Block]) -> int:
    return sum(keys.shape[2] for keys, _ in blocks)


def _filled(sample: torch.Tensor, rows: Sequence[Sequence[torch.Tensor]], slots: int) -> torch.Tensor:
    """One buffer (layers, rows, heads, slots + SPARE, head_dim) for the keys or the values of all layers."""
    layers, heads, _, width = sample.shape
    buffer = sample.new_empty((layers, len(rows), heads, slots + SPARE, width))
    for row, parts in enumerate(rows):
        _fill(buffer[:, row], parts, slots)
    return buffer


def _stacked(pairs: Sequence[Pair], places: Sequence[Sequence[int]]) -> GrowingLayer:
    """One layer of the rows of all, at their places."""
    slots, count = max(keys.shape[2] for keys, _ in pairs), sum(map(len, places))
    sides = []
    for side in range(2):
        _, heads, _, width = pairs[0][side].shape
        buffer = pairs[0][side].new_empty((count, heads, slots + SPARE, width))
        for pair, rows in zip(pairs, places, strict=True):
            for place, filled in zip(rows, pair[side], strict=True):
                _fill(buffer[place], [filled], slots)
        sides.append(buffer)
    return GrowingLayer((sides[0], sides[1]), slots)


def _with_slots(filled: torch.Tensor, slots: int) -> torch.Tensor:
    rows, heads, used, width = filled.shape
    buffer = filled.new_empty((rows, heads, slots, width))
    buffer[:, :, :used] = filled
    return buffer


def _fill(buffer: torch.Tensor, parts: Sequence[torch.Tensor], slots: int) -> None:
    """Write parts (..., tokens, head_dim) so that they end at ``slots``, with zeros before them."""
    at = slots - sum(part.shape[-2] for part in parts)
    buffer[..., :at, :] = 0
    for part in parts:
        buffer[..., at : at + part.shape[-2], :] = part
        at += part.shape[-2]
