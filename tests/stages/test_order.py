"""The orders of passages: by rank where scores are missing, by score where all have one."""

from __future__ import annotations

import pytest

from arbitrag.errors import UsageError
from arbitrag.stages.order import ORDERS, check_order, ordered
from arbitrag.types import Passage

RANKED = [Passage(text) for text in "12345"]  # the first is the best
SCORED = [Passage(text, score=score) for text, score in (("3", 0.3), ("1", 0.9), ("5", -2.0), ("2", 0.5), ("4", 0.0))]


@pytest.mark.parametrize(
    ("order", "texts"),
    [
        ("retrieved", "12345"),
        ("descending", "12345"),
        ("ascending", "54321"),
        ("ping-pong-top", "13542"),
        ("ping-pong-bottom", "24531"),
    ],
)
def test_orders(order: str, texts: str) -> None:
    assert "".join(each.text for each in ordered(RANKED, order)) == texts
    scored = "".join(each.text for each in ordered(SCORED, order))
    assert scored == ("31524" if order == "retrieved" else texts)


def test_one_passage_without_a_score_makes_the_rank_count() -> None:
    mixed = [*SCORED[:2], Passage("x")]
    assert [each.text for each in ordered(mixed, "descending")] == ["3", "1", "x"]


def test_an_even_number_of_passages_has_the_two_worst_in_the_middle() -> None:
    assert "".join(each.text for each in ordered(RANKED[:4], "ping-pong-top")) == "1342"
    assert "".join(each.text for each in ordered(RANKED[:4], "ping-pong-bottom")) == "2431"


def test_random_is_a_shuffle_that_the_seed_decides() -> None:
    first = ordered(RANKED, "random", "1 Who?")
    assert ordered(RANKED, "random", "1 Who?") == first
    assert sorted(each.text for each in first) == list("12345")
    shuffles = ["".join(each.text for each in ordered(RANKED, "random", f"{seed} Who?")) for seed in range(20)]
    assert len(set(shuffles)) > 5


@pytest.mark.parametrize("order", ORDERS)
def test_none_and_one(order: str) -> None:
    assert ordered([], order) == ()
    assert ordered(RANKED[:1], order) == (RANKED[0],)


def test_an_unknown_order_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown passage order 'acending'\. Did you mean 'ascending'"):
        check_order("acending")
