"""Which new tokens of a ragged batch go through the graph of ``graph.py`` in one run, by how long each way takes.

After a past, the graph's attention takes several tokens of one row, or one token of several rows; without a past it
takes several tokens of several rows. Costs are in tokens: how many more of them in a run take as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np

_MAX_STEPWISE = 8  # new tokens of a row up to which rows may be batched token by token
_RUN_COST = 12  # tokens that take about as long as the overhead of one run of a small model
_MAX_PADDED = 1024  # tokens in one run of rows without a past, padding included
_ATTENDED = 128  # attended positions whose keys and values take about as long to load as a token takes to compute


class Chunk(NamedTuple):
    """One run of the graph: of rows ``first`` to ``stop`` the new tokens ``begin`` to ``end``, counted from the last.

    Where rows have fewer than ``begin`` new tokens, none of these rows has a past.
    """

    first: int
    stop: int
    begin: int
    end: int


def ids_of(chunk: Chunk, ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The token ids of a chunk, (rows, T), left-aligned with zeros behind; ``ids`` of all rows are right-aligned."""
    first, stop, begin, end = chunk
    width = ids.shape[1]
    if stop - first == 1 or begin - end == 1:
        return np.ascontiguousarray(ids[first:stop, width - begin : width - end])
    found = np.zeros((stop - first, begin - end), ids.dtype)
    for at, count in enumerate(counts[first:stop]):
        found[at, : count - end] = ids[first + at, width - count : width - end]
    return found


def chunks(lengths: np.ndarray, counts: np.ndarray, workers: int, logits_to_keep: int = 1) -> Iterator[list[Chunk]]:
    """Chunks to run side by side, list after list, given the filled slots of each row and its new tokens.

    A row is a chunk of its own, those with most tokens first, so that the workers end together. Rows are batched in two
    ways, where the estimated cost is lower, in about equal chunks. Neighbours without a past, where the logits of one
    position are wanted: all their tokens but the last in one run, padded to the longest, then the last of each. Many
    rows with few new tokens: token by token; there are fewer runs, but each token loads its row's slots again.
    """
    with_past = (lengths > 0) | (counts <= 1) | (logits_to_keep > 1)
    padded = np.zeros(len(counts), bool)
    for first, stop in _neighbours(~with_past, 1):
        padded[first:stop] = stop - first > 2  # two never gain
    cost, stepwise = _stepwise(lengths, counts, np.zeros_like(padded))
    if padded.any():
        cost_beside, stepwise_beside = _stepwise(lengths, counts, padded)
        if cost_beside + _padded_cost(counts, padded, workers) < cost:
            stepwise = stepwise_beside
        else:
            padded[:] = False
    alone = [row for row in np.argsort(-counts, kind="stable").tolist() if not stepwise[row] and not padded[row]]
    found = [Chunk(row, row + 1, int(counts[row]), 0) for row in alone]
    found += [Chunk(*rows, int(counts[slice(*rows)].max()), 1) for rows in _padded(counts, padded, workers)]
    if found:
        yield found
    most = int(counts[stepwise].max(initial=int(padded.any())))
    for left in range(most, 0, -1):
        here = stepwise & (counts >= left)
        yield [Chunk(*rows, left, left - 1) for rows in _neighbours(here | padded if left == 1 else here, workers)]


def _stepwise(lengths: np.ndarray, counts: np.ndarray, padded: np.ndarray) -> tuple[float, np.ndarray]:
    """The cost of all rows but the ``padded`` ones, and which of them are batched token by token."""
    alone = np.where(padded, 0, _RUN_COST + counts)
    few = (counts <= _MAX_STEPWISE) & ~padded
    loading = lengths / _ATTENDED
    batched = _RUN_COST * int(counts[few].max(initial=0)) + float((counts * (1 + loading))[few].sum())
    if batched >= float((alone + loading)[few].sum()):
        few[:] = False
        return float(alone.sum()), few
    return batched + float(alone[~few].sum()), few


def _padded_cost(counts: np.ndarray, padded: np.ndarray, workers: int) -> float:
    """The cost of batching neighbours without a past."""
    groups = [counts[first:stop] for first, stop in _padded(counts, padded, workers)]
    all_but_last = sum(_RUN_COST + len(group) * (int(group.max()) - 1) for group in groups)
    return all_but_last + float(sum(_RUN_COST + (1 + group / _ATTENDED).sum() for group in groups))


def _padded(counts: np.ndarray, padded: np.ndarray, workers: int) -> Iterator[tuple[int, int]]:
    """Where each batch of rows without a past begins and ends."""
    for first, stop in _neighbours(padded, 1):
        tokens = (stop - first) * int(counts[first:stop].max())
        yield from _cut(first, stop, max(workers, math.ceil(tokens / _MAX_PADDED)))


def _neighbours(rows: np.ndarray, pieces: int) -> Iterator[tuple[int, int]]:
    """Where each run of neighbours among these rows begins and ends, in at most so many pieces."""
    for wanted, run in groupby(enumerate(rows.tolist()), key=itemgetter(1)):
        if wanted:
            places = [place for place, _ in run]
            yield from _cut(places[0], places[-1] + 1, pieces)


def _cut(first: int, stop: int, pieces: int) -> Iterator[tuple[int, int]]:
    """About equal pieces of a range."""
    cuts = [first + (stop - first) * piece // pieces for piece in range(pieces + 1)]
    return ((begin, end) for begin, end in pairwise(cuts) if begin < end)
