"""Forward passes over ragged batches: padding, masks, grouping by length, and smaller batches when out of memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from arbitrag.llm.engine.prefix_cache import PrefixCache
from arbitrag.llm.engine.requests import Request
from arbitrag.llm.engine.runtime import Block, Cache, ForwardOutput, ModelInfo, OutOfMemory, Runtime

if TYPE_CHECKING:
    import numpy as np

log = logging.getLogger("arbitrag.llm")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How large a batch may get: the limits of vLLM's scheduler, and the size of its KV cache.

    ``rows`` of the decode batch (vLLM: ``max_num_seqs``); new ``tokens`` in one forward pass
    (``max_num_batched_tokens``) and ``slots`` of the batch's KV cache, both with padding. A single request may exceed
    the last two.
    """

    rows: int = 64
    tokens: int = 4096
    slots: int = 262_144

    def below(self, rows: int, new_tokens: int, width: int) -> BatchLimits:
        """Half of a batch that was too large; a single row shows nothing of batches, nor a decode step of prefills."""
        if rows == 1:
            return self
        tokens = self.tokens if new_tokens == 1 else min(self.tokens, rows * new_tokens // 2)
        return BatchLimits(self.rows, tokens, min(self.slots, rows * width // 2))


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a forward pass: the blocks of its past, the number of past tokens, and the new ones.

    ``sequences`` are token ids, none empty. Several do not attend to each other (sequence packing), which only a
    runtime that ``packs`` can do.
    """

    blocks: Sequence[Block]
    past: int
    sequences: Sequence[Sequence[int]]

    def __len__(self) -> int:
        """New tokens."""
        return sum(map(len, self.sequences))

    def fill(self, ids: np.ndarray, positions: np.ndarray, mask: np.ndarray) -> None:
        """Write this row into a batch: ids and positions (T,), mask (P + T,) or (T, P + T), all right-aligned."""
        import numpy

        new_tokens = len(ids)
        past, at = mask.shape[-1] - new_tokens, new_tokens - len(self)
        mask[..., past - self.past : past] = True
        if mask.ndim == 1:
            mask[past + at :] = True
        else:
            numpy.fill_diagonal(mask[:at, past:], True)  # padding has to attend to something
        for sequence in self.sequences:
            end = at + len(sequence)
            ids[at:end] = sequence
            positions[at:end] = numpy.arange(self.past, self.past + len(sequence))
            if mask.ndim == 2:
                mask[at:end, past + at : past + end] = numpy.tri(len(sequence), dtype=bool)
            at = end


def forward(
    runtime: Runtime, rows: Sequence[Row], *, logits_to_keep: int, layers: Sequence[int] = ()
) -> tuple[ForwardOutput, int]:
    """One forward pass over ragged rows; also the number of slots that its KV cache then has."""
    import numpy

    past, new_tokens = max(row.past for row in rows), max(map(len, rows))
    ids = numpy.zeros((len(rows), new_tokens), numpy.int64)
    positions = numpy.zeros_like(ids)
    packs = any(len(row.sequences) > 1 for row in rows)
    mask = numpy.zeros((len(rows), *([new_tokens] if packs else []), past + new_tokens), bool)
    for at, row in enumerate(rows):
        row.fill(ids[at], positions[at], mask[at])
    cache: Cache | None = runtime.assemble([row.blocks for row in rows], single_pass=True) if past else None
    output = runtime.forward(ids, mask, positions, cache, logits_to_keep=logits_to_keep, layers=layers)
    return output, past + new_tokens


class BatchRunner:
    """Runs forward passes in batches within ``limits``, which shrink when the runtime is out of memory."""

    def __init__(self, runtime: Runtime, prefix_cache: PrefixCache, limits: BatchLimits) -> None:
        self.runtime = runtime
        self.prefix_cache = prefix_cache
        self.limits = limits
        self._warned = False
        self._tried = (1, 1, 1)  # rows, new tokens and slots of the last pass

    def forward(
        self, rows: Sequence[Row], *, logits_to_keep: int, layers: Sequence[int] = ()
    ) -> tuple[ForwardOutput, int]:
        """As the function ``forward``."""
        past, new_tokens = max(row.past for row in rows), max(map(len, rows))
        self._tried = len(rows), new_tokens, past + new_tokens
        return forward(self.runtime, rows, logits_to_keep=logits_to_keep, layers=layers)

    def run(
        self,
        items: Sequence[R],
        lengths: Sequence[tuple[int, int]],
        work: Callable[[Sequence[R]], None],
        owner: Callable[[R], Request],
    ) -> None:
        """Do the work for all items, in batches by their numbers of past and new tokens (see ``attempt``)."""
        for indices in batched(lengths, self.limits, self.runtime.info):
            self.attempt([items[at] for at in indices], work, owner)

    def attempt(self, batch: Sequence[R], work: Callable[[Sequence[R]], None], owner: Callable[[R], Request]) -> None:
        """Do the work for one batch; where it raises, the batch is halved until the culprits are alone, which fail."""
        batch = [item for item in batch if owner(item).pending]
        if not batch:
            return
        try:
            work(batch)
            return
        except OutOfMemory as error:
            freed = self.out_of_memory(*self._tried)
            if freed and len(batch) == 1:
                self.attempt(batch, work, owner)
                return
            reason: Exception = error
        except Exception as error:  # noqa: BLE001  (the request carries it)
            reason = error
        if len(batch) == 1:
            owner(batch[0]).fail(reason)
            return
        for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
            self.attempt(half, work, owner)

    def out_of_memory(self, rows: int, new_tokens: int, width: int) -> int:
        """Shrink the limits below this batch, and clear the prefix cache; returns the bytes freed."""
        self.limits = self.limits.below(rows, new_tokens, width)
        before = self.prefix_cache.bytes
        self.prefix_cache.clear()
        if not self._warned:
            self._warned = True
            log.warning("out of memory: batches are split and stay smaller from here on (the answers are the same)")
        return before - self.prefix_cache.bytes


def batched(lengths: Sequence[tuple[int, int]], limits: BatchLimits, info: ModelInfo) -> Iterator[list[int]]:
    """Indices of rows to batch, given (past, new tokens) of each; little of a batch is padding.

    Rows of similar length are batched, the longest at most 1.5 times as long as the shortest (short rows may differ
    more: there a pass takes about as long whatever its length).
    """
    order = sorted(range(len(lengths)), key=lambda at: (lengths[at][1], lengths[at][0]))
    batch: list[int] = []
    for at in order:
        new_tokens = lengths[at][1]
        longest_past = max(lengths[each][0] for each in [*batch, at])
        rows = len(batch) + 1
        if batch and (
            new_tokens > lengths[batch[0]][1] * 1.5 + 16
            or (not info.ragged and new_tokens != lengths[batch[0]][1])
            or rows > limits.rows
            or rows * new_tokens > limits.tokens
            or rows * (longest_past + new_tokens) > limits.slots
        ):
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch
