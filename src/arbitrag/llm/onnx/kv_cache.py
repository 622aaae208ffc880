"""KV caches that onnxruntime writes in place, and the pool of buffers that they are in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SPARE = 64  # slots allocated ahead, so that a cache is copied in every 64th decode step
MAX_POOLED_BYTES = 2**27  # of one buffer: larger ones are freed with their cache
_POOLED = 3  # buffers in the pool: rows that join others may be copied from two caches into a third


class BufferPool:
    """Buffers of freed caches, which serve the next ones, since newly allocated memory takes longer to fill."""

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []  # the smallest first

    def take(self, shape: Sequence[int]) -> np.ndarray:
        """A float32 array of that shape, uninitialised."""
        size = math.prod(shape)
        at = next((at for at, each in enumerate(self._free) if each.size >= size), None)
        if at is None:
            del self._free[:1]  # a larger one takes its place
            found = np.empty(1 << (size - 1).bit_length(), np.float32)  # pages that are not written cost nothing
        else:
            found = self._free.pop(at)
        return found[:size].reshape(shape)

    def give_back(self, taken: np.ndarray) -> None:
        """Return an array that nothing uses any more; the largest are kept, up to ``MAX_POOLED_BYTES`` each."""
        buffer = taken.base
        assert buffer is not None
        if buffer.nbytes <= MAX_POOLED_BYTES:
            self._free = sorted([*self._free, buffer], key=len)[-_POOLED:]


@dataclass(frozen=True, slots=True)
class UnplacedCache:
    """A KV cache as blocks of its rows, which are copied into a ``PlacedCache`` only where they are needed."""

    rows: Sequence[Sequence[np.ndarray]]

    @property
    def lengths(self) -> np.ndarray:
        return np.array([sum(block.shape[2] for block in blocks) for blocks in self.rows])

    @property
    def width(self) -> int:
        return int(self.lengths.max())

    def blocks(self) -> Sequence[Sequence[np.ndarray]]:
        return self.rows


@dataclass(eq=False, slots=True)
class PlacedCache:
    """The KV cache of a ragged batch in one buffer.

    ``slots`` are (2 x layers, places, heads, room, head_dim), keys and values in turn. The first B places hold rows,
    and there may be more for rows that join. Row b has filled its first ``lengths[b]`` slots: rows are left-aligned
    here. The engine counts ``width`` slots in every row, right-aligned, so that a shorter row lacks the first of them.
    The buffer goes back to ``pool`` with the cache.
    """

    slots: np.ndarray
    lengths: np.ndarray
    width: int
    pool: BufferPool

    def __del__(self) -> None:
        self.pool.give_back(self.slots)

    def view(self, row: int, start: int, stop: int) -> np.ndarray:
        """Some of a row's slots, as the engine counts them, (2 x layers, heads, n, head_dim)."""
        missing = self.width - int(self.lengths[row])
        return self.slots[:, row, :, max(start - missing, 0) : max(stop - missing, 0)]

    def make_room(self, count: int) -> None:
        """Have at least ``count`` free slots in every row."""
        longest = int(self.lengths.max())
        if longest + count > self.slots.shape[3]:
            wider = placed(self.blocks(), self.pool, count, places=self.slots.shape[1])
            self.slots, wider.slots = wider.slots, self.slots

    def blocks(self) -> Sequence[Sequence[np.ndarray]]:
        """Views of the filled slots of each row, in the form that ``placed`` takes."""
        return [[self.slots[:, row, :, :length]] for row, length in enumerate(self.lengths)]

    def add(self, other: PlacedCache | UnplacedCache) -> bool:
        """Append the rows of another cache, if there are places for them and some slots to spare."""
        count, lengths = len(self.lengths), other.lengths
        _, places, _, room, _ = self.slots.shape
        if count + len(lengths) > places or int(lengths.max()) >= room:
            return False
        for place, blocks in enumerate(other.blocks(), count):
            self.put(place, blocks)
        self.lengths = np.concatenate([self.lengths, lengths])
        self.width = max(self.width, other.width)
        return True

    def put(self, place: int, blocks: Sequence[np.ndarray]) -> None:
        """Fill a place from its first slot on."""
        at = 0
        for block in blocks:
            stop = at + block.shape[2]
            _copy(block, self.slots[:, place, :, at:stop])
            at = stop

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only these rows; those that change their place come from behind all that stay."""
        for place, row in enumerate(rows):
            if place != row:
                length = self.lengths[row]
                _copy(self.slots[:, row, :, :length], self.slots[:, place, :, :length])
        self.lengths = self.lengths[rows]


def placed(rows: Sequence[Sequence[np.ndarray]], pool: BufferPool, count: int = 0, places: int = 0) -> PlacedCache:
    """The cache of rows of blocks in order, (2 x layers, heads, n, head_dim) each, with ``count`` free slots and some
    to spare, and at least so many ``places`` for rows. At least one row has a block."""
    lengths = np.array([sum(block.shape[2] for block in blocks) for blocks in rows])
    kinds, heads, _, size = next(block for blocks in rows for block in blocks).shape
    longest = int(lengths.max())
    slots = pool.take((kinds, max(len(rows), places), heads, longest + count + SPARE, size))
    made = PlacedCache(slots, lengths, longest, pool)
    for place, blocks in enumerate(rows):
        made.put(place, blocks)
    return made


def copied(block: np.ndarray) -> np.ndarray:
    """A copy of some slots of a row."""
    made = np.empty(block.shape, block.dtype)
    _copy(block, made)
    return made


def _copy(block: np.ndarray, to: np.ndarray) -> None:
    """Copy slots of a row, (2 x layers, heads, n, head_dim), without releasing the GIL: each head's slots as one item.

    numpy keeps the GIL for as few items as a small model has heads. Waiting for the threads that would take it
    meanwhile would take longer than the copy.
    """
    kinds, heads, count, size = block.shape
    if count:
        whole = np.dtype((np.void, count * size * block.itemsize))
        source, target = (each.reshape(kinds, heads, count * size).view(whole) for each in (block, to))
        target[:] = source
