"""Intervals, tests and corrections: by hand, against all cases listed out, and against what theory says."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbitrag.errors import UsageError
from arbitrag.evaluate.metrics.significance import (
    Interval,
    McNemar,
    SignFlip,
    compare,
    holm,
    mcnemar,
    paired_bootstrap,
    sign_flip,
)

RNG = np.random.default_rng(5)
FEW = RNG.integers(0, 2, (400, 2)).astype(float)  # right and wrong: four distinct rows
MANY = RNG.random((150, 2))  # all distinct


def near(value: float) -> Any:
    """``pytest.approx``, in a place that wants a float."""
    return pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("table", [FEW, MANY], ids=["few distinct", "many distinct"])
def test_the_interval_of_a_large_sample_is_about_the_normal_one(table: np.ndarray) -> None:
    found = paired_bootstrap(table[:, 0].tolist(), table[:, 1].tolist())
    difference = table[:, 0] - table[:, 1]
    half = 1.96 * difference.std() / math.sqrt(len(difference))
    assert found.mean == pytest.approx(difference.mean(), abs=1e-12)
    assert found.low == pytest.approx(difference.mean() - half, abs=0.06 * half)
    assert found.high == pytest.approx(difference.mean() + half, abs=0.06 * half)
    assert (found.questions, found.level, found.resamples, found.seed) == (len(table), 0.95, 10_000, 0)


def test_two_questions_listed_out() -> None:
    # Of the means of two draws from {0, 1}, a quarter is 0, a half 1/2 and a quarter 1.
    found = [paired_bootstrap([0, 1], [0, 0], level=level) for level in (0.45, 0.55)]
    assert [(each.low, each.high) for each in found] == [(0.5, 0.5), (0, 1)]


@pytest.mark.parametrize("table", [FEW, MANY], ids=["few distinct", "many distinct"])
def test_the_order_of_the_questions_means_nothing(table: np.ndarray) -> None:
    shuffled = RNG.permutation(table)
    first, second = (paired_bootstrap(*each.T.tolist(), resamples=50) for each in (table, shuffled))
    assert first == second
    first_p, second_p = (sign_flip(*each.T.tolist(), resamples=50) for each in (table, shuffled))
    assert first_p == second_p


def test_a_seed_gives_the_same_interval_and_another_seed_another() -> None:
    left, right = MANY.T.tolist()
    assert paired_bootstrap(left, right, seed=3) == paired_bootstrap(left, right, seed=3)
    assert paired_bootstrap(left, right, seed=3).low != paired_bootstrap(left, right, seed=4).low


@pytest.mark.parametrize(
    ("left", "right", "mean", "low", "high"),
    [
        ([], [], None, None, None),
        ([1], [0], 1, None, None),  # one question tells nothing of others
        ([1, 1], [0, 0], 1, 1, 1),
        ([1, 0, 1], [1, 0, 1], 0, 0, 0),  # two methods that agree
        ([0.3] * 40, [0.3] * 40, 0, 0, 0),
    ],
)
def test_intervals_at_the_boundaries(
    left: list[float], right: list[float], mean: float | None, low: float | None, high: float | None
) -> None:
    assert paired_bootstrap(left, right, resamples=20) == Interval(len(left), mean, low, high, 0.95, 20, 0)


def test_many_methods_are_drawn_together() -> None:
    scores = {"direct": FEW[:, 0].tolist(), "rag": FEW[:, 1].tolist(), "same as rag": FEW[:, 1].tolist()}
    found = compare(scores, resamples=500, level=0.9)
    assert list(found.means) == ["direct", "rag", "same as rag"]
    assert list(found.differences) == [("direct", "rag"), ("direct", "same as rag"), ("rag", "same as rag")]
    assert found.means["rag"] == found.means["same as rag"]
    assert found.differences["direct", "rag"] == found.differences["direct", "same as rag"]
    nothing = found.differences["rag", "same as rag"]
    assert (nothing.mean, nothing.low, nothing.high) == (0, 0, 0)
    alone = found.means["direct"]
    assert alone.mean == FEW[:, 0].mean()
    assert alone.low is not None
    assert alone.high is not None
    assert alone.low < FEW[:, 0].mean() < alone.high
    assert compare({}).means == {}
    assert compare({"direct": []}).means["direct"].questions == 0


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="same questions; got left 2, right 1"):
        paired_bootstrap([1, 0], [1])
    with pytest.raises(ValueError, match="same questions"):
        sign_flip([1, 0], [1])
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="NaN or infinite"):
            paired_bootstrap([value], [1])
    for level in (0, 1, math.nan):
        with pytest.raises(UsageError, match="between 0 and 1"):
            paired_bootstrap([1], [1], level=level)
    for test in (paired_bootstrap, sign_flip):
        with pytest.raises(UsageError, match="resamples must be 1 or more"):
            test([1], [1], resamples=0)
    with pytest.raises(ValueError, match="zip"):
        mcnemar([True], [])
    with pytest.raises(ValueError, match="not between 0 and 1"):
        holm([0.1, math.nan])


@pytest.mark.parametrize(
    ("only_left", "only_right", "p"),
    [
        (0, 0, 1),
        (1, 0, 1),  # one coin falls to a side for sure
        (5, 0, 2 / 32),
        (0, 6, 2 / 64),
        (1, 9, 2 * (1 + 10) / 1024),
        (3, 7, 2 * (1 + 10 + 45 + 120) / 1024),
        (4, 4, 1),
        (4, 5, 1),
    ],
)
def test_mcnemar_by_hand(only_left: int, only_right: int, p: float) -> None:
    left = [True] * only_left + [False] * only_right + [True, False]
    right = [False] * only_left + [True] * only_right + [True, False]
    assert mcnemar(left, right) == McNemar(only_left + only_right + 2, only_left, only_right, near(p))


def test_mcnemar_without_a_question_and_with_very_many() -> None:
    assert mcnemar([], []) == McNemar(0, 0, 0, 1)
    # 4,900 and 5,100 of 10,000: two standard deviations, so about the normal 0.0455, and a little more by exactness.
    many = mcnemar([True] * 4900 + [False] * 5100, [False] * 4900 + [True] * 5100)
    assert many.p == pytest.approx(0.0466, abs=0.0002)
    assert mcnemar([True] * 3000, [False] * 3000).p == 0  # too small for a float, and not an error


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_the_binomial_sum(heads: int, tails: int) -> None:
    number = heads + tails
    expected = min(1, 2 * sum(math.comb(number, each) for each in range(min(heads, tails) + 1)) / 2**number)
    left, right = [True] * heads + [False] * tails, [False] * heads + [True] * tails
    assert mcnemar(left, right).p == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "differences", [[1.0] * 5, [0.5, 0.25, -0.1, 1.0], [0.2, 0.2, -0.2, 0.6, 0.0], [0.1, -0.1], [0.1, 0.2, -0.3]]
)
def test_sign_flip_agrees_with_all_signs_listed_out(differences: list[float]) -> None:
    flipped = [
        abs(math.fsum(sign * value for sign, value in zip(signs, differences, strict=True)))
        for signs in itertools.product([-1, 1], repeat=len(differences))
    ]
    expected = np.mean([value >= abs(math.fsum(differences)) - 1e-9 for value in flipped])
    found = sign_flip(differences, [0] * len(differences))
    assert found.p == pytest.approx(expected, abs=0.02)
    assert found.questions == len(differences)
    assert found.different == sum(value != 0 for value in differences)


def test_sign_flip_at_the_boundaries() -> None:
    assert sign_flip([], []) == SignFlip(0, 0, 1)
    assert sign_flip([1, 0], [1, 0]) == SignFlip(2, 0, 1)
    assert sign_flip([1], [0]) == SignFlip(1, 1, 1)
    assert sign_flip([1] * 100, [0] * 100, resamples=999).p == 1 / 1000  # never 0


@pytest.mark.parametrize(
    ("p", "adjusted"),
    [
        ([], []),
        ([0.03], [0.03]),
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.5, 0.6], [1, 1]),
        ([0.02, 0.02], [0.04, 0.04]),
        ([0.01, 0.011, 0.02], [0.03, 0.03, 0.03]),  # none below a smaller one's
        ([0, 1], [0, 1]),
    ],
)
def test_holm_by_hand(p: list[float], adjusted: list[float]) -> None:
    assert holm(p) == pytest.approx(tuple(adjusted))


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), max_size=8), st.integers())
def test_holm_keeps_the_order_and_lies_between_no_correction_and_bonferroni(p: list[float], seed: int) -> None:
    adjusted = holm(p)
    for (before, after), (other, others) in itertools.combinations(zip(p, adjusted, strict=True), 2):
        assert (before < other) <= (after <= others)
        assert (before == other) <= (after == others)
    assert all(before <= after <= min(1, len(p) * before) for before, after in zip(p, adjusted, strict=True))
    order = random.Random(seed).sample(range(len(p)), len(p))
    assert holm([p[place] for place in order]) == tuple(adjusted[place] for place in order)
