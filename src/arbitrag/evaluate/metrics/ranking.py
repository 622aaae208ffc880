"""How well passages are ranked: precision, recall and reciprocal rank of the first k.

``found`` says of each passage of a ranked list, best first, whether it is relevant. A list may be shorter than k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from arbitrag.errors import UsageError
from arbitrag.evaluate.metrics.ratios import mean, share


def precision_at(k: int, found: Sequence[bool]) -> float:
    """relevant among the first k / k; places that a shorter list leaves empty count as not relevant."""
    return _hits(k, found) / k


def recall_at(k: int, found: Sequence[bool], relevant: int) -> float | None:
    """relevant among the first k / all that are ``relevant``; None where nothing is.

    Raises:
        ValueError: more were found than are relevant.
    """
    if sum(found) > relevant:
        raise ValueError(f"{sum(found)} relevant passages were found of {relevant} that there are")
    hits = _hits(k, found)
    return share(hits, relevant)


def reciprocal_rank_at(k: int, found: Sequence[bool]) -> float:
    """1 / the place, from 1, of the first relevant passage; 0 where none is among the first k."""
    _check(k)
    return next((1 / place for place, good in enumerate(islice(found, k), 1) if good), 0.0)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A ranked list, and how many passages are relevant to its question in all, found or not."""

    found: tuple[bool, ...]
    relevant: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """Means over ``questions``, those to which nothing is relevant left out: nobody could have ranked these well.

    ``left_out`` counts them. The means are None where no question remains.
    """

    k: int
    questions: int
    left_out: int
    precision: float | None
    recall: float | None
    reciprocal_rank: float | None


def ranking(lists: Sequence[Ranked], k: int) -> Ranking:
    """Precision@k, Recall@k and MRR@k (Voorhees 1999; Manning, Raghavan and Schütze 2008, chapter 8).

    Raises:
        UsageError: k is less than 1.
        ValueError: a list has more relevant passages than there are.
    """
    _check(k)
    recalls = [recall_at(k, each.found, each.relevant) for each in lists]
    counted = [each for each in lists if each.relevant]
    return Ranking(
        k,
        questions=len(counted),
        left_out=len(lists) - len(counted),
        precision=mean([precision_at(k, each.found) for each in counted]),
        recall=mean([recall for recall in recalls if recall is not None]),
        reciprocal_rank=mean([reciprocal_rank_at(k, each.found) for each in counted]),
    )


def _hits(k: int, found: Sequence[bool]) -> int:
    _check(k)
    return sum(islice(found, k))


def _check(k: int) -> None:
    if k < 1:
        raise UsageError(f"k must be 1 or more; got {k}")
