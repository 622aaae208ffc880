"""The oracle of two candidates, and the confusion of strategies, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbitrag.evaluate.metrics.source_choice import STRATEGIES, Confusion, Oracle, confusion, oracle
from arbitrag.types import Strategy

FA, FI, FE, RA = Strategy.BOTH, Strategy.MEMORY, Strategy.EVIDENCE, Strategy.REFUSE


def test_the_gap_by_hand() -> None:
    found = oracle([1, 0, 0, 0.5], [0, 1, 1, 0.25])
    assert found == Oracle(questions=4, first=0.375, second=0.5625, best=0.875)
    assert found.gap == 0.3125
    assert found.closed(0.875) == 1
    assert found.closed(0.5625) == 0
    assert found.closed(0.71875) == 0.5
    assert found.closed(0.25) == -1
    assert found.closed(1.0) == pytest.approx(1.4)  # answers that neither candidate has


def test_without_a_question_nothing_is_known() -> None:
    assert oracle([], []) == Oracle(0, None, None, None)
    assert oracle([], []).gap is None
    assert oracle([], []).closed(0.5) is None


def test_a_gap_of_nothing_cannot_be_closed() -> None:
    found = oracle([0.1, 0.2, 0.3], [0.1, 0.1, 0.3])  # the first is never worse
    assert found.gap == 0
    assert found.closed(0.9) is None
    assert oracle([1], [0]).gap == 0  # one question


def test_candidates_are_of_the_same_questions() -> None:
    with pytest.raises(ValueError, match="zip"):
        oracle([1], [1, 0])
    with pytest.raises(ValueError, match="zip"):
        confusion([FA], [])


scores = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20)


@given(scores)
def test_the_oracle_is_never_below_a_candidate(pairs: list[tuple[float, float]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    found = oracle(first, second)
    assert found.gap is not None
    assert found.gap >= 0
    if all(a >= b for a, b in pairs):
        assert found.gap == 0
    assert found.gap == oracle(second, first).gap


def test_rows_are_scenarios_and_columns_what_was_taken() -> None:
    found = confusion([FA, FA, FI, FI, FI, FE], [FA, FI, FI, FA, FI, RA])
    assert STRATEGIES == (FA, FI, FE, RA)
    assert found == Confusion(((1, 1, 0, 0), (1, 2, 0, 0), (0, 0, 0, 1), (0, 0, 0, 0)))
    assert found.questions == 6
    assert found.accuracy == 0.5
    assert found.count(FE, RA) == 1
    assert found.share(FI, FA) == 1 / 3
    assert found.recall(FI) == 2 / 3
    assert found.precision(FI) == 2 / 3
    assert found.recall(FE) == 0
    assert found.precision(FE) is None  # never taken
    assert found.precision(RA) == 0
    assert found.recall(RA) is None  # no such scenario


def test_no_question_has_no_confusion() -> None:
    found = confusion([], [])
    assert found.questions == 0
    assert found.accuracy is None
    assert found.share(FA, FI) is None


@given(st.lists(st.tuples(st.sampled_from(STRATEGIES), st.sampled_from(STRATEGIES))))
def test_the_shares_of_a_scenario_add_up(pairs: list[tuple[Strategy, Strategy]]) -> None:
    found = confusion([a for a, _ in pairs], [b for _, b in pairs])
    assert found.questions == len(pairs)
    for scenario in STRATEGIES:
        shares = [share for taken in STRATEGIES if (share := found.share(scenario, taken)) is not None]
        assert sum(shares) == pytest.approx(1 if any(a is scenario for a, _ in pairs) else 0)
