"""Key/value caches as the models of transformers use them: one that grows in place, one that serves a single pass.

Both keep the rows of a batch in bands (see ``torch_bands``). With a single band they do for a model what its own cache
does; more than one need its attention to be ``torch_bands.attend``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import cache_utils

from arbitrag.llm.hf.length_buckets import Bands, Pair, banded

Block = Pair

SPARE = 64  # slots allocated ahead, so that writing copies a cache every 64th step instead of every step


class Strip:
    """Keys and values of a band's rows in one layer, (rows, heads, slots, width), in buffers with room for more slots.

    ``slots`` slots are filled.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, slots: int) -> None:
        self._buffers = keys, values
        self.slots = slots

    @property
    def pair(self) -> Pair:
        """The filled slots."""
        keys, values = self._buffers
        return keys[:, :, : self.slots], values[:, :, : self.slots]

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> Pair:
        """Add the same number of slots to every row; returns the filled slots."""
        after = self.slots + keys.shape[2]
        if after > self._buffers[0].shape[2]:
            filled = self.pair
            self._buffers = _with_slots(filled[0], after + SPARE), _with_slots(filled[1], after + SPARE)
        for buffer, fresh in zip(self._buffers, (keys, values), strict=True):
            buffer[:, :, self.slots : after] = fresh
        self.slots = after
        return self.pair

    def select(self, rows: Sequence[int], start: int) -> Strip:
        """A copy of these rows without the slots before ``start``."""
        index = torch.tensor(rows, device=self._buffers[0].device)
        kept = [side[:, :, start:].index_select(0, index) for side in self.pair]
        slots = self.slots - start
        return Strip(_with_slots(kept[0], slots + SPARE), _with_slots(kept[1], slots + SPARE), slots)


class GrowingLayer(cache_utils.DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values, a strip for each band."""

    is_initialized: bool

    def __init__(self, strips: Sequence[Strip] = (), bands: Bands | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.hold(strips, bands)

    def hold(self, strips: Sequence[Strip], bands: Bands | None) -> None:
        self.strips = list(strips)
        self._bands = bands
        self.is_initialized = bool(strips)

    def get_seq_length(self) -> int:
        return max((strip.slots for strip in self.strips), default=0)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.strips:
            self.hold([Strip(key_states, value_states, key_states.shape[2])], self._bands)
            return key_states, value_states
        if len(self.strips) == 1:
            return self.strips[0].append(key_states, value_states)
        assert self._bands is not None
        pairs = [
            strip.append(key_states[index], value_states[index])
            for strip, index in zip(self.strips, self._bands.index, strict=True)
        ]
        return banded(key_states, self._bands, pairs), value_states

    def past(self) -> list[int]:
        return [strip.slots for strip in self.strips]

    def part(self, band: int, row: int, start: int, stop: int) -> Block:
        """Keys and values (heads, tokens, width) of a row in some slots of the widest band."""
        strip = self.strips[band]
        at = row if self._bands is None else self._bands.rows[band].index(row)
        before = self.get_seq_length() - strip.slots
        keys, values = (side[at, :, start - before : stop - before] for side in strip.pair)
        return keys, values


class PassingLayer(cache_utils.DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's past for a single pass: put together when the layer is computed and gone after it.

    ``rows`` are the rows' blocks, keys (0) and values (1) of all layers; only what the pass adds is kept. With several
    bands the layers of a pass put their past into the same ``room``, one after the other.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(
        self,
        rows: Sequence[Sequence[Block]],
        layer: int,
        slots: Sequence[int],
        bands: Bands,
        room: dict[tuple[int, int], torch.Tensor],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sides = [[[block[side][layer] for block in blocks] for blocks in rows] for side in range(2)]
        self._slots = slots
        self._bands = bands
        self._room = room

    def get_seq_length(self) -> int:
        return max(self._slots)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys, self.values = fresh = key_states, value_states
        pairs = [(self._whole(band, 0, fresh[0]), self._whole(band, 1, fresh[1])) for band in range(len(self._bands))]
        self._sides = []
        return pairs[0] if len(pairs) == 1 else (banded(key_states, self._bands, pairs), value_states)

    def _whole(self, band: int, side: int, states: torch.Tensor) -> torch.Tensor:
        slots, places = self._slots[band], self._bands.rows[band]
        _, heads, count, width = states.shape
        buffer = self._buffer(band, side, states, (len(places), heads, slots + count, width))
        buffer[:, :, slots:] = states[self._bands.index[band]]
        for into, row in zip(buffer, places, strict=True):
            _fill(into, self._sides[side][row], slots)
        return buffer

    def _buffer(self, band: int, side: int, states: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        found = self._room.get((band, side))
        if found is None or found.shape != shape:
            found = states.new_empty(shape)
            if len(self._bands) > 1:
                self._room[band, side] = found
        return found

    def past(self) -> list[int]:
        return list(self._slots)

    def part(self, band: int, row: int, start: int, stop: int) -> Block:
        """Keys and values (heads, tokens, width) of some of the slots that the pass added."""
        first, last = start - max(self._slots), stop - max(self._slots)
        return self.keys[row, :, first:last], self.values[row, :, first:last]


class Cache(cache_utils.Cache):
    """A cache of growing layers or of passing ones; without ``layers`` an empty one that grows, of a single band."""

    layers: Any  # list[GrowingLayer] | list[PassingLayer], which the base class does not know

    def __init__(self, layers: Sequence[GrowingLayer | PassingLayer] = (), bands: Bands | None = None) -> None:
        if layers:
            super().__init__(layers=list(layers))
        else:
            super().__init__(layer_class_to_replicate=GrowingLayer)
        self._bands = bands

    @property
    def bands(self) -> Bands:
        if self._bands is None:
            self._bands = Bands([range(len(self.layers[0].strips[0].pair[0]))])
        return self._bands

    @property
    def banded(self) -> bool:
        """Whether there are several bands."""
        return self._bands is not None and len(self._bands) > 1

    @property
    def slots(self) -> int:
        """Slots of the widest band; those of another band are the last of these."""
        found: int = self.layers[0].get_seq_length() if self.layers else 0
        return found

    def past(self) -> list[int]:
        """Slots of each band."""
        found: list[int] = self.layers[0].past()
        return found

    def block(self, row: int, start: int, stop: int) -> Block:
        """A copy of some slots of a row, (layers, heads, tokens, width) each."""
        band = next(number for number, places in enumerate(self.bands.rows) if row in places)
        parts = [layer.part(band, row, start, stop) for layer in self.layers]
        return torch.stack([keys for keys, _ in parts]), torch.stack([values for _, values in parts])


def passing(rows: Sequence[Sequence[Block]], groups: Sequence[Sequence[int]]) -> Cache:
    """A cache for one pass over rows of blocks, a band for each group."""
    bands, room = Bands(groups), dict[tuple[int, int], torch.Tensor]()
    slots = [max(_tokens(rows[row]) for row in group) for group in groups]
    return Cache([PassingLayer(rows, layer, slots, bands, room) for layer in range(_depth(rows))], bands)


def growing(rows: Sequence[Sequence[Block]], groups: Sequence[Sequence[int]]) -> Cache:
    """A cache that grows after rows of blocks, a band for each group, left-padded with zeros to its longest row."""
    bands = Bands(groups)
    sample = next(blocks[0] for blocks in rows if blocks)
    layers = [GrowingLayer(bands=bands) for _ in range(_depth(rows))]
    for group in groups:
        slots = max(_tokens(rows[row]) for row in group)
        sides = [
            _filled(sample[side], [[block[side] for block in rows[row]] for row in group], slots) for side in (0, 1)
        ]
        for layer, keys, values in zip(layers, *sides, strict=True):
            layer.strips.append(Strip(keys, values, slots))
    return Cache(layers, bands)


def joined(first: Cache, second: Cache, alike: Callable[[Sequence[int]], list[list[int]]]) -> Cache:
    """The rows of both; their bands become one where their slots are ``alike``."""
    before = sum(map(len, first.bands.rows))
    rows = [*first.bands.rows, *([row + before for row in places] for places in second.bands.rows)]
    groups = alike([*first.past(), *second.past()])
    merged = Bands([sorted(row for band in group for row in rows[band]) for group in groups])
    layers = []
    for one, two in zip(first.layers, second.layers, strict=True):
        strips = [*one.strips, *two.strips]
        layers.append(
            GrowingLayer(
                [_stacked([strips[band] for band in group], [rows[band] for band in group]) for group in groups], merged
            )
        )
    return Cache(layers, merged)


def selected(cache: Cache, rows: Sequence[int], start: int) -> Cache:
    """Only these rows, in this order, without the slots before ``start``. The given cache is used up."""
    place = {row: at for at, row in enumerate(rows)}
    old, slots = cache.bands.rows, cache.slots
    kept = [sorted((place[row], at) for at, row in enumerate(places) if row in place) for places in old]
    cuts = [max(0, start - slots + past) for past in cache.past()]
    bands = Bands([[to for to, _ in band] for band in kept if band])
    for layer in cache.layers:
        strips = []
        for strip, band, places, cut in zip(layer.strips, kept, old, cuts, strict=True):
            order = [at for _, at in band]
            if band:
                strips.append(strip.select(order, cut) if cut or order != list(range(len(places))) else strip)
        layer.hold(strips, bands)
    return Cache(cache.layers, bands)


def _depth(rows: Sequence[Sequence[Block]]) -> int:
    return next(len(blocks[0][0]) for blocks in rows if blocks)


def _tokens(blocks: Sequence[Block]) -> int:
    return sum(keys.shape[2] for keys, _ in blocks)


def _filled(sample: torch.Tensor, rows: Sequence[Sequence[torch.Tensor]], slots: int) -> torch.Tensor:
    """One buffer (layers, rows, heads, slots + SPARE, width) for the keys or the values of all layers."""
    layers, heads, _, width = sample.shape
    buffer = sample.new_empty((layers, len(rows), heads, slots + SPARE, width))
    for row, parts in enumerate(rows):
        _fill(buffer[:, row], parts, slots)
    return buffer


def _stacked(strips: Sequence[Strip], places: Sequence[Sequence[int]]) -> Strip:
    """The rows of all in the order of their places, each padded with zeros on the left of its slots."""
    if len(strips) == 1:
        return strips[0]
    slots, ranks = max(strip.slots for strip in strips), sorted(row for rows in places for row in rows)
    sides = []
    for side in range(2):
        _, heads, _, width = strips[0].pair[side].shape
        buffer = strips[0].pair[side].new_empty((len(ranks), heads, slots + SPARE, width))
        for strip, rows in zip(strips, places, strict=True):
            for row, filled in zip(rows, strip.pair[side], strict=True):
                _fill(buffer[ranks.index(row)], [filled], slots)
        sides.append(buffer)
    return Strip(sides[0], sides[1], slots)


def _with_slots(filled: torch.Tensor, slots: int) -> torch.Tensor:
    rows, heads, used, width = filled.shape
    buffer = filled.new_empty((rows, heads, slots, width))
    buffer[:, :, :used] = filled
    return buffer


def _fill(buffer: torch.Tensor, parts: Sequence[torch.Tensor], slots: int) -> None:
    """Write parts (..., tokens, width) so that they end at ``slots``, with zeros before them."""
    at = slots - sum(part.shape[-2] for part in parts)
    buffer[..., :at, :] = 0
    for part in parts:
        buffer[..., at : at + part.shape[-2], :] = part
        at += part.shape[-2]
