"""Precision, recall and reciprocal rank at k, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from arbitrag.errors import UsageError
from arbitrag.evaluate.metrics.ranking import Ranked, Ranking, precision_at, ranking, recall_at, reciprocal_rank_at

FOUND = [False, True, False, True]


def near(value: float) -> Any:
    """``pytest.approx``, in a place that wants a float."""
    return pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("k", "precision", "recall", "reciprocal"),
    [
        (1, 0, 0, 0),
        (2, 1 / 2, 1 / 3, 1 / 2),
        (3, 1 / 3, 1 / 3, 1 / 2),
        (4, 1 / 2, 2 / 3, 1 / 2),
        (5, 2 / 5, 2 / 3, 1 / 2),  # a place left empty is not relevant
    ],
)
def test_at_k(k: int, precision: float, recall: float, reciprocal: float) -> None:
    assert precision_at(k, FOUND) == precision
    assert recall_at(k, FOUND, 3) == recall
    assert reciprocal_rank_at(k, FOUND) == reciprocal


def test_rankings_at_the_boundaries() -> None:
    assert precision_at(3, []) == 0
    assert recall_at(3, [], 2) == 0
    assert recall_at(3, [], 0) is None  # nothing is relevant
    assert reciprocal_rank_at(3, []) == 0
    assert reciprocal_rank_at(1, [True]) == 1


def test_means_leave_out_what_nobody_could_rank() -> None:
    lists = [Ranked((True, False), 1), Ranked((False, True), 2), Ranked((False, False), 1), Ranked((False, False), 0)]
    assert ranking(lists, 2) == Ranking(
        k=2,
        questions=3,
        left_out=1,
        precision=near((1 / 2 + 1 / 2 + 0) / 3),
        recall=near((1 + 1 / 2 + 0) / 3),
        reciprocal_rank=near((1 + 1 / 2 + 0) / 3),
    )
    assert ranking([], 3) == Ranking(3, 0, 0, None, None, None)
    assert ranking([Ranked((), 0)], 3) == Ranking(3, 0, 1, None, None, None)


@pytest.mark.parametrize("k", [0, -1])
def test_k_counts_from_one(k: int) -> None:
    for ask in (
        lambda: precision_at(k, FOUND),
        lambda: recall_at(k, FOUND, 2),
        lambda: reciprocal_rank_at(k, FOUND),
        lambda: ranking([], k),
    ):
        with pytest.raises(UsageError, match="k must be 1 or more"):
            ask()


def test_more_found_than_there_are_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="2 relevant passages were found of 1"):
        recall_at(4, FOUND, 1)
