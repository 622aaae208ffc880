"""A ``Runtime`` over the graph of ``llm.onnx.graph``, which writes new keys and values where the cache already is.

Rows are ragged: each fills its slots from the left, and a step reads as many of a row as it has. No key is copied while
the rows of a batch stay the same. After a past, attention takes either several tokens of one row or one token of
several. Rows that have nothing in the cache yet can be read together, the shorter ones filled up at their end, all but
the last token of each; so they are where that takes less.

The cores share out the rows. A model that fits into the processor's cache runs every row (or, in a step of one token,
every part of the batch) on a single thread, several at a time: that leaves out the waiting between the operators of a
pass, which takes longer than they do. A larger model runs one pass at a time on all cores, since each pass has to fetch
all of its weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from arbitrag.errors import BackendError
from arbitrag.llm.engine.runtime import ForwardOutput, ModelInfo
from arbitrag.llm.onnx.packing import Part, fed_to, passes
from arbitrag.llm.onnx.session import HostLogits, memory, open_session

SPARE = 64  # slots allocated ahead, so that writing copies a cache every 64th step
KEPT = 2**27  # bytes of a cache that is gone, up to which its memory stays for the next one
_FREE = 3  # of such memories: rows that join others may be copied from two caches into a third
_SMALL = 2**25  # bytes of a model file up to which its weights stay in the processor's cache
_LONG = 64  # new tokens from which on a pass over a single row gains by more threads
_REREAD = 8  # tokens that rows have behind them, up to which many of them gain by being read together from the first


def in_place(session: Any) -> bool:
    """Whether a session's graph has this layout."""
    return {"last_slots", "longest"} <= {given.name for given in session.get_inputs()}


def small(path: Path) -> bool:
    """Whether a model's weights stay in the processor's cache."""
    return path.stat().st_size <= _SMALL and not path.with_name(f"{path.name}_data").exists()


class Memory:
    """Where caches are: the memory of those that are gone serves the next, since fresh memory takes longer to fill."""

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []  # the smallest first

    def take(self, shape: Sequence[int]) -> np.ndarray:
        """A float32 array of that shape, whose values mean nothing."""
        size = math.prod(shape)
        at = next((at for at, each in enumerate(self._free) if each.size >= size), None)
        if at is None:
            del self._free[:1]  # a larger one takes its place
            found = np.empty(1 << (size - 1).bit_length(), np.float32)  # what is not filled costs nothing
        else:
            found = self._free.pop(at)
        return found[:size].reshape(shape)

    def give(self, taken: np.ndarray) -> None:
        """Take an array back that nothing looks into any more; the largest are kept, up to ``KEPT`` bytes each."""
        whole = taken.base
        assert whole is not None
        if whole.nbytes <= KEPT:
            self._free = sorted([*self._free, whole], key=len)[-_FREE:]


@dataclass(eq=False, slots=True)
class Rows:
    """The cache: ``slots`` are (2 x layers, places, heads, room, D), keys and values of every layer in turn.

    The first B of the places are taken, and there may be more for rows that come later. Row b has filled its first
    ``lengths[b]`` slots. The engine counts ``width`` of them in every row, of which those that a shorter row lacks come
    first. The slots are of ``memory`` and go back there with the cache.
    """

    slots: np.ndarray
    lengths: np.ndarray
    width: int
    memory: Memory

    def __del__(self) -> None:
        self.memory.give(self.slots)

    def part(self, row: int, start: int, stop: int) -> np.ndarray:
        """A view of some of a row's slots, as the engine counts them, (2 x layers, heads, n, D)."""
        missing = self.width - int(self.lengths[row])
        return self.slots[:, row, :, max(start - missing, 0) : max(stop - missing, 0)]

    def make_room(self, count: int) -> None:
        """Have at least ``count`` free slots in every row."""
        longest = int(self.lengths.max())
        if longest + count > self.slots.shape[3]:
            wider = packed(self.parts(), self.memory, count, places=self.slots.shape[1])
            self.slots, wider.slots = wider.slots, self.slots

    def parts(self) -> Sequence[Sequence[np.ndarray]]:
        """Views of all that each row has filled, in the form that ``packed`` takes."""
        return [[self.slots[:, row, :, :length]] for row, length in enumerate(self.lengths)]

    def add(self, other: Rows | Loose) -> bool:
        """Put the rows of another cache behind these, where there are places for them and some room to spare."""
        count, lengths = len(self.lengths), other.lengths
        _, places, _, room, _ = self.slots.shape
        if count + len(lengths) > places or int(lengths.max()) >= room:
            return False
        for place, blocks in enumerate(other.parts(), count):
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
        """Have only these rows; those that stand elsewhere now come from behind all that stay."""
        for place, row in enumerate(rows):
            if place != row:
                length = self.lengths[row]
                _copy(self.slots[:, row, :, :length], self.slots[:, place, :, :length])
        self.lengths = self.lengths[rows]


def packed(rows: Sequence[Sequence[np.ndarray]], memory: Memory, count: int = 0, places: int = 0) -> Rows:
    """Rows of blocks in order, (2 x layers, heads, n, D) each, with room for ``count`` slots and some to spare.

    At least one row has a block. There are at least so many ``places`` for rows.
    """
    lengths = np.array([sum(block.shape[2] for block in blocks) for blocks in rows])
    kinds, heads, _, size = next(block for blocks in rows for block in blocks).shape
    longest = int(lengths.max())
    slots = memory.take((kinds, max(len(rows), places), heads, longest + count + SPARE, size))
    made = Rows(slots, lengths, longest, memory)
    for place, blocks in enumerate(rows):
        made.put(place, blocks)
    return made


def _copy(block: np.ndarray, to: np.ndarray) -> None:
    """Copy slots of a row, (2 x layers, heads, n, D), each head's as one item.

    Of so few items as a small model has heads numpy keeps Python's lock, so that the copy does not end with waiting for
    the threads that took the lock meanwhile, which would take longer than the copy.
    """
    kinds, heads, count, size = block.shape
    if count:
        whole = np.dtype((np.void, count * size * block.itemsize))
        source, target = (each.reshape(kinds, heads, count * size).view(whole) for each in (block, to))
        target[:] = source


def _copied(block: np.ndarray) -> np.ndarray:
    """A copy of some slots of a row."""
    made = np.empty(block.shape, block.dtype)
    _copy(block, made)
    return made


@dataclass(frozen=True, slots=True)
class Loose:
    """Rows of blocks in order that have no place yet; they are put where they are needed, and copied only then."""

    rows: Sequence[Sequence[np.ndarray]]

    @property
    def lengths(self) -> np.ndarray:
        return np.array([sum(block.shape[2] for block in blocks) for blocks in self.rows])

    @property
    def width(self) -> int:
        return int(self.lengths.max())

    def parts(self) -> Sequence[Sequence[np.ndarray]]:
        return self.rows


class InPlaceRuntime(HostLogits):
    """``session`` is that of the file at ``path``: on one core for a ``small`` model, else on all ``threads``."""

    def __init__(self, path: Path, session: Any, *, identity: str, threads: int, context: int | None) -> None:
        self._path, self._session, self._threads = path, session, threads
        self._small = small(path)
        self._memory = Memory()
        shapes = {given.name: given.shape for given in (*session.get_inputs(), *session.get_outputs())}
        layers = sum(name.startswith("past_key_values") for name in shapes) // 2
        kinds = [f"{layer}.{kind}" for layer in range(layers) for kind in ("key", "value")]
        self._caches = [(f"past_key_values.{kind}", f"present.{kind}") for kind in kinds]
        _, heads, _, size = shapes["past_key_values.0.key"]
        self._nothing = np.zeros((2 * layers, heads, 0, size), np.float32)
        self._widths = {layer: shapes[f"hidden_states.{layer}"][-1] for layer in range(layers + 1)}
        reach = int(session.get_modelmeta().custom_metadata_map["context_tokens"])
        vocabulary = shapes["logits"][-1]
        self.info = ModelInfo(
            identity=identity,
            layers=layers,
            vocabulary=vocabulary,
            context_tokens=reach if context is None else min(context, reach),
            token_bytes=2 * layers * heads * size * self._nothing.itemsize,
            reprefill_threshold=_REREAD,
            logits_bytes=vocabulary * 4,
            hidden_layers=frozenset(self._widths),
            evidence=("onnxruntime on the CPU; hidden states: in the file",),
        )

    def forward(
        self,
        ids: np.ndarray,
        mask: np.ndarray,
        positions: np.ndarray,
        cache: Rows | Loose | None,
        *,
        logits_to_keep: int,
        layers: Sequence[int] = (),
    ) -> ForwardOutput:
        if missing := set(layers) - self.info.hidden_layers:
            raise BackendError(f"this model gives no hidden states of layer {min(missing)}")
        batch, fresh = ids.shape
        counts = mask[:, -fresh:].sum(axis=1)
        with memory():
            rows = self._placed(Loose([[self._nothing]] * batch) if cache is None else cache, fresh)
            if (positions[:, -1] + 1 != rows.lengths + counts).any():
                raise BackendError("a row of this cache can only be read on from where it ends")
            rows.make_room(fresh)
            width = self.info.vocabulary
            logits = np.zeros((batch, logits_to_keep, width), np.float32)
            states = {layer: np.empty((batch, self._widths[layer]), np.float32) for layer in layers}

            def read(session: Any, part: Part) -> None:
                first, stop, begin, end = part
                last = rows.lengths[first:stop] + counts[first:stop] - end - 1
                kept = logits[first:stop, max(logits_to_keep - begin, 0) : max(logits_to_keep - end, 0)]
                direct = kept.size and kept.flags.c_contiguous
                into = kept if direct else np.empty((stop - first, 1, width), np.float32)
                fed = fed_to(part, ids, counts)
                found = self._read(session, fed, rows, part, last, into, layers)
                if kept.size and not direct:
                    kept[:] = into
                for layer, state in found.items():
                    states[layer][first:stop] = state

            for parts in passes(rows.lengths, counts, self._threads if self._small else 1, logits_to_keep):
                self._each(read, parts)
        rows.lengths, rows.width = rows.lengths + counts, rows.width + fresh
        return ForwardOutput(rows, logits, states)

    def assemble(self, rows: Sequence[Sequence[np.ndarray]], *, single_pass: bool = False) -> Loose | None:
        return Loose(rows) if any(block.shape[2] for blocks in rows for block in blocks) else None

    def join(self, first: Rows | Loose, second: Rows | Loose) -> Rows:
        with memory():
            if isinstance(first, Rows) and first.add(second):
                return first
            rows = [*first.parts(), *second.parts()]
            joined = packed(rows, self._memory, places=1 << (len(rows) - 1).bit_length())
        joined.width = max(first.width, second.width)
        return joined

    def select(self, cache: Rows | Loose, rows: Sequence[int], start: int) -> Rows:
        with memory():
            cache = self._placed(cache)
        behind = all(row == place or row >= len(rows) for place, row in enumerate(rows))
        if behind and start <= cache.width - int(cache.lengths[rows].max()):  # no row has a slot before it
            cache.keep(rows)
            chosen = cache
        else:
            with memory():
                chosen = packed([[cache.part(row, start, cache.width)] for row in rows], self._memory)
        chosen.width = cache.width - start
        return chosen

    def block(self, cache: Rows | Loose, row: int, start: int, stop: int) -> np.ndarray:
        return _copied(self._placed(cache).part(row, start, stop))

    def cut(self, block: np.ndarray, start: int, stop: int) -> np.ndarray:
        return _copied(block[:, :, start:stop])

    def _placed(self, cache: Rows | Loose, count: int = 0) -> Rows:
        """The cache where rows can be read on, with room for ``count`` slots and some to spare if it is new."""
        return packed(cache.rows, self._memory, count) if isinstance(cache, Loose) else cache

    def _read(
        self,
        session: Any,
        ids: np.ndarray,
        rows: Rows,
        part: Part,
        last: np.ndarray,
        logits: np.ndarray,
        layers: Sequence[int],
    ) -> dict[int, np.ndarray]:
        """One pass up to the slots ``last``, into ``logits`` and the cache; gives the states of the last position."""
        first, stop, fresh = part.first, part.stop, ids.shape[1]
        given = {
            "input_ids": ids,
            "last_slots": last.astype(np.int32),
            "longest": np.array(last.max() + 1, np.int32),
            "num_logits_to_keep": np.array(logits.shape[1]),
        }
        found = {layer: np.empty((stop - first, fresh, self._widths[layer]), np.float32) for layer in layers}
        binding = session.io_binding()
        for name, value in given.items():
            _bind(binding.bind_input, name, value)
        cached = rows.slots[:, first:stop]
        start, apart, shape = cached.ctypes.data, cached.strides[0], cached.shape[1:]
        for at, (past, present) in enumerate(self._caches):
            binding.bind_input(past, "cpu", 0, np.float32, shape, start + at * apart)
            binding.bind_output(present, "cpu", 0, np.float32, shape, start + at * apart)
        _bind(binding.bind_output, "logits", logits)
        for layer, state in found.items():
            _bind(binding.bind_output, f"hidden_states.{layer}", state)
        session.run_with_iobinding(binding)
        return {layer: state[:, -1] for layer, state in found.items()}

    def _each(self, read: Callable[[Any, Part], None], parts: Sequence[Part]) -> None:
        """Read all parts: of a small model several at a time, each on one core."""
        if self._threads == 1 or not self._small:
            for part in parts:
                read(self._session, part)
        elif len(parts) == 1:
            read(self._wide if parts[0].begin - parts[0].end >= _LONG else self._session, parts[0])
        else:
            self._side_by_side(read, parts)

    def _side_by_side(self, read: Callable[[Any, Part], None], parts: Sequence[Part]) -> None:
        todo: SimpleQueue[Part] = SimpleQueue()
        for part in parts:
            todo.put(part)

        def work() -> None:
            while True:
                try:
                    part = todo.get_nowait()
                except Empty:
                    return
                read(self._session, part)

        helpers = [self._pool.submit(work) for _ in range(min(self._threads, len(parts)) - 1)]
        try:
            work()
        finally:
            wait(helpers)
        for helper in helpers:
            helper.result()

    @cached_property
    def _wide(self) -> Any:
        """A small model on all cores, for a single long row."""
        return open_session(self._path, self._threads)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads - 1, thread_name_prefix="arbitrag-onnx")


def _bind(bind: Callable[..., None], name: str, value: np.ndarray) -> None:
    """Let a session read or write an array where it is."""
    bind(name, "cpu", 0, value.dtype.type, value.shape, value.ctypes.data)
