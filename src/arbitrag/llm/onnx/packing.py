"""Which rows of a batch to read in one pass of the graph of ``llm.onnx.graph``, by how long each way takes.

After a past, attention takes several tokens of one row or one of several; without a past, several of several.
Times are in tokens: how many more of them in a pass take as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np

_FEW = 8  # new tokens of a row up to which it may be read with others, a token at a time
_PASS = 12  # a pass over a small model takes about as long as this many tokens more in it
_JOINED = 1024  # tokens, filled up ones among them, that rows read together have at most in a pass
_PAST = 128  # slots that a token looks back on, which take about as long to fetch as the token to compute


class Part(NamedTuple):
    """Of the rows from ``first`` up to ``stop`` the new tokens from ``begin`` up to ``end``, counted from the last.

    Rows of which some have fewer than ``begin`` have nothing in the cache.
    """

    first: int
    stop: int
    begin: int
    end: int


def fed_to(part: Part, ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The tokens of a part, (rows, T), given those of all rows at the right end of ``ids``; zeros fill short rows."""
    first, stop, begin, end = part
    fresh = ids.shape[1]
    if stop - first == 1 or begin - end == 1:
        return np.ascontiguousarray(ids[first:stop, fresh - begin : fresh - end])
    fed = np.zeros((stop - first, begin - end), ids.dtype)
    for at, count in enumerate(counts[first:stop]):
        fed[at, : count - end] = ids[first + at, fresh - count : fresh - end]
    return fed


def passes(lengths: np.ndarray, counts: np.ndarray, shares: int, logits_to_keep: int = 1) -> Iterator[list[Part]]:
    """What to read at the same time, pass after pass, given the slots that each row has filled and its new tokens.

    A row is read alone, those with most to read first, so that the cores end together. There are two ways to read rows
    together, in about equal shares, and they are taken where that takes less. Where neighbours have nothing behind them
    and the logits of one position are wanted, all their tokens but the last are read at once, and then the last of
    each; that reads the shorter ones as if they were as long as the longest. Where many have few tokens, these are read
    a token at a time; there are fewer passes, but each token fetches its row's slots anew.
    """
    begun = (lengths > 0) | (counts <= 1) | (logits_to_keep > 1)
    starts = np.zeros(len(counts), bool)
    for first, stop in _neighbours(~begun, 1):
        starts[first:stop] = stop - first > 2  # two never gain
    apart, few = _few(lengths, counts, np.zeros_like(starts))
    if starts.any():
        joint, few_beside = _few(lengths, counts, starts)
        if joint + _from_start(counts, starts, shares) < apart:
            few = few_beside
        else:
            starts[:] = False
    alone = [row for row in np.argsort(-counts, kind="stable").tolist() if not few[row] and not starts[row]]
    parts = [Part(row, row + 1, int(counts[row]), 0) for row in alone]
    parts += [Part(*rows, int(counts[slice(*rows)].max()), 1) for rows in _joined(counts, starts, shares)]
    if parts:
        yield parts
    most = int(counts[few].max(initial=int(starts.any())))
    for left in range(most, 0, -1):
        here = few & (counts >= left)
        yield [Part(*rows, left, left - 1) for rows in _neighbours(here | starts if left == 1 else here, shares)]


def _few(lengths: np.ndarray, counts: np.ndarray, starts: np.ndarray) -> tuple[float, np.ndarray]:
    """How long it takes to read all rows but ``starts``, in tokens, and which of them are read a token at a time."""
    alone = np.where(starts, 0, _PASS + counts)
    few = (counts <= _FEW) & ~starts
    back = lengths / _PAST
    together = _PASS * int(counts[few].max(initial=0)) + float((counts * (1 + back))[few].sum())
    if together >= float((alone + back)[few].sum()):
        few[:] = False
        return float(alone.sum()), few
    return together + float(alone[~few].sum()), few


def _from_start(counts: np.ndarray, starts: np.ndarray, shares: int) -> float:
    """How long it takes to read neighbours from their first token on together, in tokens."""
    groups = [counts[first:stop] for first, stop in _joined(counts, starts, shares)]
    read = sum(_PASS + len(group) * (int(group.max()) - 1) for group in groups)
    return read + float(sum(_PASS + (1 + group / _PAST).sum() for group in groups))


def _joined(counts: np.ndarray, starts: np.ndarray, shares: int) -> Iterator[tuple[int, int]]:
    """Where rows that are read together from their first token on begin and end."""
    for first, stop in _neighbours(starts, 1):
        tokens = (stop - first) * int(counts[first:stop].max())
        yield from _cut(first, stop, max(shares, math.ceil(tokens / _JOINED)))


def _neighbours(rows: np.ndarray, shares: int) -> Iterator[tuple[int, int]]:
    """Where the rows that are asked for begin and end, neighbours together, in at most ``shares`` pieces a run."""
    for wanted, run in groupby(enumerate(rows.tolist()), key=itemgetter(1)):
        if wanted:
            places = [place for place, _ in run]
            yield from _cut(places[0], places[-1] + 1, shares)


def _cut(first: int, stop: int, shares: int) -> Iterator[tuple[int, int]]:
    """Rows in about equal shares."""
    cuts = [first + (stop - first) * share // shares for share in range(shares + 1)]
    return ((begin, end) for begin, end in pairwise(cuts) if begin < end)
