"""Operations of a runtime on numpy arrays: sampling from logits, and assembling and slicing KV caches.

A cache is a list of arrays (B, heads, P, head_dim), keys and values of every layer in turn; a block is the same for one
row, (heads, n, head_dim). No function changes an array that it is given.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arbitrag.llm.engine.runtime import SampledTokens

Slots = list[np.ndarray]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Natural log-probabilities over the last axis, float32; NaN throughout where the logits are not finite."""
    logits = logits.astype(np.float32, copy=False)
    with np.errstate(invalid="ignore"):
        found: np.ndarray = logits - _log_total(logits)[..., None]
    return found


def token_logprobs(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Log-probabilities (B, K) of ``targets`` (B, K) from logits (B, K, V)."""
    logits = logits.astype(np.float32, copy=False)
    chosen = np.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    with np.errstate(invalid="ignore"):
        found: np.ndarray = chosen - _log_total(logits)
    return found


def _log_total(logits: np.ndarray) -> np.ndarray:
    """The logarithm of the sum of exponentials over the last axis; NaN where the logits are not finite."""
    largest = logits.max(axis=-1)
    with np.errstate(invalid="ignore"):  # infinity less infinity is the NaN that is wanted
        shifted = logits - largest[..., None]
        found: np.ndarray = largest + np.log(np.exp(shifted, out=shifted).sum(axis=-1))
    return found


def sample(logits: np.ndarray, temperatures: np.ndarray, top_ps: np.ndarray, draws: np.ndarray) -> SampledTokens:
    """Sample a next token per row of logits (B, V), by the rule of ``Runtime.sample``."""
    ids = logits.argmax(axis=-1).astype(np.int64)
    logprobs = token_logprobs(logits[:, None], ids[:, None])[:, 0]
    for row in np.flatnonzero((temperatures > 0) & ~np.isnan(logprobs)):
        of_all = log_softmax(logits[row])
        ids[row] = _sample_one(of_all, temperatures[row], top_ps[row], draws[row])
        logprobs[row] = of_all[ids[row]]
    return SampledTokens(ids, logprobs)


def _sample_one(logprobs: np.ndarray, temperature: float, top_p: float, draw: float) -> int:
    scaled = (logprobs.astype(np.float64) - float(logprobs.max())) / temperature
    order = np.argsort(-scaled, kind="stable")
    weights = np.exp(scaled[order])
    reached = np.cumsum(weights / weights.sum())
    kept = reached[: int(np.searchsorted(reached, top_p)) + 1]
    place = int(np.searchsorted(kept, draw * kept[-1], side="right"))
    return int(order[min(place, len(kept) - 1)])


def assemble(rows: Sequence[Sequence[Slots]], empty: Slots) -> Slots | None:
    """A cache of the rows' blocks in order, left-padded with zeros; ``empty`` is a cache of one row and no slots."""
    lengths = [sum(block[0].shape[1] for block in blocks) for blocks in rows]
    width = max(lengths, default=0)
    if width == 0:
        return None
    cache = [np.zeros((len(rows), part.shape[1], width, part.shape[3]), part.dtype) for part in empty]
    for row, (blocks, length) in enumerate(zip(rows, lengths, strict=True)):
        at = width - length
        for block in blocks:
            stop = at + block[0].shape[1]
            for part, piece in zip(cache, block, strict=True):
                part[row, :, at:stop] = piece
            at = stop
    return cache


def join(first: Slots, second: Slots) -> Slots:
    """The rows of both caches, left-padded with zeros to the wider."""
    width = max(first[0].shape[2], second[0].shape[2])
    return [np.concatenate([widen(one, width), widen(two, width)]) for one, two in zip(first, second, strict=True)]


def widen(part: np.ndarray, width: int) -> np.ndarray:
    """One array of a cache with ``width`` slots, the new ones zeros on the left."""
    missing = width - part.shape[2]
    return part if missing == 0 else np.pad(part, ((0, 0), (0, 0), (missing, 0), (0, 0)))


def select(cache: Slots, rows: Sequence[int], start: int) -> Slots:
    """These rows in this order, without the slots before ``start``."""
    return [np.ascontiguousarray(part[list(rows), :, start:]) for part in cache]


def block(cache: Slots, row: int, start: int, stop: int) -> Slots:
    """A copy of slots ``start`` to ``stop`` of one row."""
    return [part[row, :, start:stop].copy() for part in cache]


def cut(given: Slots, start: int, stop: int) -> Slots:
    """A copy of a block's tokens ``start`` to ``stop``."""
    return [part[:, start:stop].copy() for part in given]
