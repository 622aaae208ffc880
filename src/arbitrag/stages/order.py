"""The order in which passages stand in a prompt (Alessio et al. 2024, as in ASTUTE RAG's Table 3)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from arbitrag.errors import unknown
from arbitrag.types import Passage

ORDERS = ("retrieved", "descending", "ascending", "random", "ping-pong-top", "ping-pong-bottom")


def check_order(order: str) -> None:
    """Raises UsageError for a name that is not an order."""
    if order not in ORDERS:
        raise unknown("passage order", order, ORDERS)


def ordered(passages: Sequence[Passage], order: str, seed: str = "") -> tuple[Passage, ...]:
    """The passages in an order. The best is the one with the highest score, or the first where one lacks a score.

    The ping-pong orders put the best at the ends and the worst in the middle: the top one begins with the best and ends
    with the second, the bottom one the other way round. ``seed`` decides what random gives.
    """
    check_order(order)
    if order == "retrieved":
        return tuple(passages)
    if order == "random":
        return tuple(random.Random(seed).sample(list(passages), len(passages)))
    best = list(passages)
    if all(passage.score is not None for passage in passages):
        best.sort(key=lambda passage: -(passage.score or 0.0))
    if order == "descending":
        return tuple(best)
    if order == "ascending":
        return tuple(reversed(best))
    from_top = (*best[::2], *reversed(best[1::2]))
    return from_top if order == "ping-pong-top" else tuple(reversed(from_top))
