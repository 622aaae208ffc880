"""Coverage, risk and reliability by hand, and the area under the curve against all orders of ties."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbitrag.evaluate.metrics.refusals import Refusals, RiskCoveragePoint, refusals, risk_coverage


def test_ten_questions_by_hand() -> None:
    answered = [True] * 6 + [False] * 4
    right = [True] * 4 + [False] * 2 + [True] + [False] * 3  # one refusal was due
    found = refusals(answered, right)
    assert found == Refusals(questions=10, right=4, wrong=2, due=1)
    assert (found.answered, found.refused) == (6, 4)
    assert found.coverage == 0.6
    assert found.rejection_rate == 0.4
    assert found.accuracy == 0.5
    assert found.risk == 2 / 6
    assert found.reliability == 0.3  # 4 + 1 - 2 of 10


@pytest.mark.parametrize(
    ("outcomes", "coverage", "risk", "reliability"),
    [
        ([], None, None, None),  # (answered, right) of each question
        ([(True, True)], 1, 0, 1),
        ([(True, False)], 1, 1, -1),
        ([(False, False)], 0, None, 0),  # all refuse: no risk, and no NaN
        ([(False, True)], 0, None, 1),
        ([(True, True), (True, False)], 1, 0.5, 0),
    ],
)
def test_boundaries(
    outcomes: list[tuple[bool, bool]], coverage: float | None, risk: float | None, reliability: float | None
) -> None:
    found = refusals([spoke for spoke, _ in outcomes], [good for _, good in outcomes])
    assert (found.coverage, found.risk, found.reliability) == (coverage, risk, reliability)
    assert found.rejection_rate == (None if coverage is None else 1 - coverage)
    assert found.questions == len(outcomes)


def test_the_curve_by_hand() -> None:
    found = risk_coverage([True, False, True, False, True], [0.9, 0.6, 0.8, None, 0.3])
    assert found.points == (
        RiskCoveragePoint(0.9, 1 / 5, 0),
        RiskCoveragePoint(0.8, 2 / 5, 0),
        RiskCoveragePoint(0.6, 3 / 5, 1 / 3),
        RiskCoveragePoint(0.3, 4 / 5, 1 / 4),
    )
    assert found.area == pytest.approx((0 + 0 + 1 / 3 + 1 / 4) / 4, abs=1e-15)
    assert (found.questions, found.answered) == (5, 4)


def test_ties_are_one_point_and_count_with_the_mean_of_their_orders() -> None:
    found = risk_coverage([True, False], [0.5, 0.5])
    assert found.points == (RiskCoveragePoint(0.5, 1, 0.5),)
    assert found.area == 0.5  # (0 + 1/2) / 2 in one order, (1 + 1/2) / 2 in the other


@pytest.mark.parametrize(
    ("right", "confidence", "area"),
    [
        ([], [], None),
        ([False, False], [None, None], None),  # all refuse
        ([True], [0.2], 0),
        ([False], [0.2], 1),
        ([True, True, True], [3, 2, 1], 0),
        ([False, False], [2, 1], 1),
        ([True, False], [2, 1], 0.25),  # the best order of one right and one wrong
        ([False, True], [2, 1], 0.75),  # the worst
        ([True, False], [-math.inf, -7], 0.75),  # on any scale
    ],
)
def test_areas(right: list[bool], confidence: list[float | None], area: float | None) -> None:
    assert risk_coverage(right, confidence).area == area


answers = st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.3]), st.booleans()), min_size=1, max_size=6)


def area_of_order(order: tuple[tuple[float, bool], ...]) -> float:
    wrong = itertools.accumulate(not good for _, good in order)
    return math.fsum(count / place for place, count in enumerate(wrong, 1)) / len(order)


@given(answers)
def test_the_area_is_the_mean_over_all_orders_of_ties(rows: list[tuple[float, bool]]) -> None:
    orders = [
        order for order in itertools.permutations(rows) if all(a[0] >= b[0] for a, b in itertools.pairwise(order))
    ]
    found = risk_coverage([good for _, good in rows], [sure for sure, _ in rows])
    assert found.area == pytest.approx(math.fsum(map(area_of_order, orders)) / len(orders), abs=1e-12)
    assert found.points[-1].coverage == 1


@given(answers, st.randoms(use_true_random=False))
def test_the_order_of_the_questions_means_nothing(rows: list[tuple[float, bool]], rng: object) -> None:
    shuffled = list(rows)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = (risk_coverage([g for _, g in each], [s for s, _ in each]) for each in (rows, shuffled))
    assert first == second


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        risk_coverage([True], [math.nan])
    with pytest.raises(ValueError, match="zip"):
        risk_coverage([True], [])
    with pytest.raises(ValueError, match="zip"):
        refusals([True], [])
