"""A ``Runtime`` over the graph of ``graph.py``, whose KV cache onnxruntime writes in place.

Rows are ragged: each fills its slots from the left, and a pass takes as many tokens of a row as it has. No key is
copied while the rows of a batch stay the same. ``packing.py`` decides which tokens of which rows are one run of the
graph.

The cores share out these runs. A small model, whose weights fit into the processor's cache, runs each on a single
thread, several at a time: that leaves out the waiting between the operators of a run, which takes longer than they do.
A larger model does one run at a time on all cores, since each run has to load all of its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from arbitrag.errors import BackendError
from arbitrag.llm.engine.runtime import ForwardOutput, ModelInfo
from arbitrag.llm.onnx.kv_cache import BufferPool, PlacedCache, UnplacedCache, copied, placed
from arbitrag.llm.onnx.packing import Chunk, chunks, ids_of
from arbitrag.llm.onnx.session import NumpyLogits, open_session, translate_oom

_SMALL_BYTES = 2**25  # of a model file, up to which its weights stay in the processor's cache
_MULTITHREADED = 64  # new tokens from which on a run of a single row is faster on several threads
_REPREFILL_THRESHOLD = 8  # cached tokens up to which many rows are faster when they are batched without a past


def in_place(session: Any) -> bool:
    """Whether a session's graph has this layout."""
    return {"last_slots", "longest"} <= {given.name for given in session.get_inputs()}


def small(path: Path) -> bool:
    """Whether a model's weights stay in the processor's cache."""
    return path.stat().st_size <= _SMALL_BYTES and not path.with_name(f"{path.name}_data").exists()


class InPlaceRuntime(NumpyLogits):
    """``session`` is that of the file at ``path``: on one thread for a ``small`` model, else on all ``threads``."""

    def __init__(self, path: Path, session: Any, *, identity: str, threads: int, context: int | None) -> None:
        self._path, self._session, self._threads = path, session, threads
        self._small = small(path)
        self._buffers = BufferPool()
        shapes = {given.name: given.shape for given in (*session.get_inputs(), *session.get_outputs())}
        layers = sum(name.startswith("past_key_values") for name in shapes) // 2
        kinds = [f"{layer}.{kind}" for layer in range(layers) for kind in ("key", "value")]
        self._caches = [(f"past_key_values.{kind}", f"present.{kind}") for kind in kinds]
        _, heads, _, size = shapes["past_key_values.0.key"]
        self._empty = np.zeros((2 * layers, heads, 0, size), np.float32)
        self._widths = {layer: shapes[f"hidden_states.{layer}"][-1] for layer in range(layers + 1)}
        trained = int(session.get_modelmeta().custom_metadata_map["context_tokens"])
        vocabulary = shapes["logits"][-1]
        self.info = ModelInfo(
            identity=identity,
            layers=layers,
            vocabulary=vocabulary,
            context_tokens=trained if context is None else min(context, trained),
            token_bytes=2 * layers * heads * size * self._empty.itemsize,
            reprefill_threshold=_REPREFILL_THRESHOLD,
            logits_bytes=vocabulary * 4,
            hidden_layers=frozenset(self._widths),
            evidence=("onnxruntime on the CPU; hidden states: in the file",),
        )

    def forward(
        self,
        ids: np.ndarray,
        mask: np.ndarray,
        positions: np.ndarray,
        cache: PlacedCache | UnplacedCache | None,
        *,
        logits_to_keep: int,
        layers: Sequence[int] = (),
    ) -> ForwardOutput:
        if missing := set(layers) - self.info.hidden_layers:
            raise BackendError(f"this model gives no hidden states of layer {min(missing)}")
        batch, new = ids.shape
        counts = mask[:, -new:].sum(axis=1)
        with translate_oom():
            cache = self._placed(UnplacedCache([[self._empty]] * batch) if cache is None else cache, new)
            if (positions[:, -1] + 1 != cache.lengths + counts).any():
                raise BackendError("a row of this KV cache can only be continued where it ends")
            cache.make_room(new)
            width = self.info.vocabulary
            logits = np.zeros((batch, logits_to_keep, width), np.float32)
            states = {layer: np.empty((batch, self._widths[layer]), np.float32) for layer in layers}

            def run(session: Any, chunk: Chunk) -> None:
                first, stop, begin, end = chunk
                last = cache.lengths[first:stop] + counts[first:stop] - end - 1
                kept = logits[first:stop, max(logits_to_keep - begin, 0) : max(logits_to_keep - end, 0)]
                direct = kept.size and kept.flags.c_contiguous
                into = kept if direct else np.empty((stop - first, 1, width), np.float32)
                found = self._run(session, ids_of(chunk, ids, counts), cache, chunk, last, into, layers)
                if kept.size and not direct:
                    kept[:] = into
                for layer, state in found.items():
                    states[layer][first:stop] = state

            for side_by_side in chunks(cache.lengths, counts, self._threads if self._small else 1, logits_to_keep):
                self._run_all(run, side_by_side)
        cache.lengths, cache.width = cache.lengths + counts, cache.width + new
        return ForwardOutput(cache, logits, states)

    def assemble(self, rows: Sequence[Sequence[np.ndarray]], *, single_pass: bool = False) -> UnplacedCache | None:
        return UnplacedCache(rows) if any(block.shape[2] for blocks in rows for block in blocks) else None

    def join(self, first: PlacedCache | UnplacedCache, second: PlacedCache | UnplacedCache) -> PlacedCache:
        with translate_oom():
            if isinstance(first, PlacedCache) and first.add(second):
                return first
            rows = [*first.blocks(), *second.blocks()]
            joined = placed(rows, self._buffers, places=1 << (len(rows) - 1).bit_length())
        joined.width = max(first.width, second.width)
        return joined

    def select(self, cache: PlacedCache | UnplacedCache, rows: Sequence[int], start: int) -> PlacedCache:
        with translate_oom():
            cache = self._placed(cache)
        in_order = all(row == place or row >= len(rows) for place, row in enumerate(rows))
        if in_order and start <= cache.width - int(cache.lengths[rows].max()):  # no row has a slot before it
            cache.keep(rows)
            chosen = cache
        else:
            with translate_oom():
                chosen = placed([[cache.view(row, start, cache.width)] for row in rows], self._buffers)
        chosen.width = cache.width - start
        return chosen

    def block(self, cache: PlacedCache | UnplacedCache, row: int, start: int, stop: int) -> np.ndarray:
        return copied(self._placed(cache).view(row, start, stop))

    def cut(self, block: np.ndarray, start: int, stop: int) -> np.ndarray:
        return copied(block[:, :, start:stop])

    def _placed(self, cache: PlacedCache | UnplacedCache, count: int = 0) -> PlacedCache:
        """The cache where a pass can write, with ``count`` free slots and some to spare if it is new."""
        return placed(cache.rows, self._buffers, count) if isinstance(cache, UnplacedCache) else cache

    def _run(
        self,
        session: Any,
        ids: np.ndarray,
        cache: PlacedCache,
        chunk: Chunk,
        last: np.ndarray,
        logits: np.ndarray,
        layers: Sequence[int],
    ) -> dict[int, np.ndarray]:
        """Run the graph up to the slots ``last``, into ``logits`` and the cache; hidden states of the last position."""
        first, stop, new = chunk.first, chunk.stop, ids.shape[1]
        given = {
            "input_ids": ids,
            "last_slots": last.astype(np.int32),
            "longest": np.array(last.max() + 1, np.int32),
            "num_logits_to_keep": np.array(logits.shape[1]),
        }
        found = {layer: np.empty((stop - first, new, self._widths[layer]), np.float32) for layer in layers}
        binding = session.io_binding()
        for name, value in given.items():
            _bind(binding.bind_input, name, value)
        slots = cache.slots[:, first:stop]
        start, stride, shape = slots.ctypes.data, slots.strides[0], slots.shape[1:]
        for at, (past, present) in enumerate(self._caches):
            binding.bind_input(past, "cpu", 0, np.float32, shape, start + at * stride)
            binding.bind_output(present, "cpu", 0, np.float32, shape, start + at * stride)
        _bind(binding.bind_output, "logits", logits)
        for layer, state in found.items():
            _bind(binding.bind_output, f"hidden_states.{layer}", state)
        session.run_with_iobinding(binding)
        return {layer: state[:, -1] for layer, state in found.items()}

    def _run_all(self, run: Callable[[Any, Chunk], None], side_by_side: Sequence[Chunk]) -> None:
        """Run all chunks: of a small model several at a time, each on one core."""
        if self._threads == 1 or not self._small:
            for chunk in side_by_side:
                run(self._session, chunk)
        elif len(side_by_side) == 1:
            (chunk,) = side_by_side
            run(self._multithreaded if chunk.begin - chunk.end >= _MULTITHREADED else self._session, chunk)
        else:
            self._run_in_parallel(run, side_by_side)

    def _run_in_parallel(self, run: Callable[[Any, Chunk], None], side_by_side: Sequence[Chunk]) -> None:
        todo: SimpleQueue[Chunk] = SimpleQueue()
        for chunk in side_by_side:
            todo.put(chunk)

        def work() -> None:
            while True:
                try:
                    chunk = todo.get_nowait()
                except Empty:
                    return
                run(self._session, chunk)

        helpers = [self._executor.submit(work) for _ in range(min(self._threads, len(side_by_side)) - 1)]
        try:
            work()
        finally:
            wait(helpers)
        for helper in helpers:
            helper.result()

    @cached_property
    def _multithreaded(self) -> Any:
        """A small model on all cores, for a single long row."""
        return open_session(self._path, self._threads)

    @cached_property
    def _executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads - 1, thread_name_prefix="arbitrag-onnx")


def _bind(bind: Callable[..., None], name: str, value: np.ndarray) -> None:
    """Bind an array to an input or output, so that the session uses its memory."""
    bind(name, "cpu", 0, value.dtype.type, value.shape, value.ctypes.data)
