"""Calibration error, Brier score and AUROC by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbitrag.errors import UsageError
from arbitrag.evaluate.metrics.calibration import Bin, Calibration, auroc, brier, calibration

SURE = [0.05, 0.15, 0.95, 0.85, 0.92]
RIGHT = [False, True, True, True, False]


def near(value: float) -> Any:
    """``pytest.approx``, in a place that wants a float."""
    return pytest.approx(value, rel=1e-12)


def test_bins_of_equal_width_by_hand() -> None:
    found = calibration(SURE, RIGHT, bins=2)
    assert found.bins == (Bin(2, near(0.1), 0.5), Bin(3, near(2.72 / 3), near(2 / 3)))
    # 2/5 |1/2 - 0.1| + 3/5 |2/3 - 2.72/3|
    assert found.error == near(2 / 5 * 0.4 + 3 / 5 * 0.72 / 3)
    assert found.questions == 5


def test_bins_of_equal_mass_by_hand() -> None:
    found = calibration([0.1, 0.2, 0.3, 0.4], [False, True, True, True], bins=2, by="mass")
    assert found.bins == (Bin(2, near(0.15), 0.5), Bin(2, near(0.35), 1))
    assert found.error == near((0.35 + 0.65) / 2)


def test_equal_confidences_stay_in_one_bin_of_equal_mass() -> None:
    found = calibration([0.9, 0.9, 0.9, 0.1], [True, True, False, False], bins=2, by="mass")
    # The three share the bin of their first, which is the second of four and so in the first half.
    assert [each.questions for each in found.bins] == [4]
    found = calibration([0.9, 0.9, 0.1, 0.1], [True, True, False, False], bins=2, by="mass")
    assert [each.questions for each in found.bins] == [2, 2]


def test_more_bins_of_equal_mass_than_answers() -> None:
    assert [each.questions for each in calibration([0.2, 0.7], [True, False], bins=15, by="mass").bins] == [1, 1]


@pytest.mark.parametrize(
    ("confidence", "of_ten"), [(0.0, 0), (0.1, 0), (0.100001, 1), (0.3, 2), (0.6, 5), (0.7, 6), (0.9, 8), (1.0, 9)]
)
def test_an_edge_belongs_to_the_bin_below_it(confidence: float, of_ten: int) -> None:
    beside = of_ten / 10 + 0.05  # the middle of the bin
    assert len(calibration([confidence, beside], [True, True], bins=10).bins) == 1


@pytest.mark.parametrize("by", ["width", "mass"])
@pytest.mark.parametrize(
    ("confidence", "right", "error"),
    [([1.0], [True], 0), ([1.0], [False], 1), ([0.0, 0.0], [False, False], 0), ([0.5, 0.5], [True, False], 0)],
)
def test_calibration_boundaries(by: str, confidence: list[float], right: list[bool], error: float) -> None:
    assert calibration(confidence, right, by=by).error == error  # type: ignore[arg-type]


def test_nothing_has_no_calibration() -> None:
    assert calibration([], []) == Calibration(0, None, ())
    assert calibration([], [], by="mass") == Calibration(0, None, ())
    assert brier([], []) is None
    assert auroc([], []) is None


def test_brier_by_hand() -> None:
    assert brier([0.8, 0.4], [True, False]) == pytest.approx((0.04 + 0.16) / 2)
    assert brier([1.0], [True]) == 0
    assert brier([1.0], [False]) == 1


@pytest.mark.parametrize(
    ("scores", "right", "expected"),
    [
        ([0.1, 0.4, 0.35, 0.8], [False, False, True, True], 0.75),  # 3 of the 4 pairs in order
        ([3, 2, 1], [True, True, False], 1),
        ([1, 2, 3], [True, True, False], 0),
        ([5, 5], [True, False], 0.5),  # a tie
        ([1, 2, 2, 3], [False, True, False, True], 3.5 / 4),
        ([7, 7, 7], [True, False, True], 0.5),
        ([-math.inf, 0, math.inf], [False, True, True], 1),
        ([1], [True], None),
        ([1, 2], [True, True], None),  # all right
        ([1, 2], [False, False], None),  # all wrong
    ],
)
def test_auroc(scores: list[float], right: list[bool], expected: float | None) -> None:
    assert auroc(scores, right) == expected


answers = st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.25, 0.7, 1.0]), st.booleans()), min_size=1, max_size=20)


@given(answers)
def test_auroc_counts_pairs(rows: list[tuple[float, bool]]) -> None:
    won = [(a > b) + (a == b) / 2 for a, good in rows for b, other in rows if good and not other]
    expected = sum(won) / len(won) if won else None
    found = auroc([score for score, _ in rows], [good for _, good in rows])
    assert found == (None if expected is None else pytest.approx(expected))


@given(answers, st.integers(1, 20))
def test_calibration_is_within_bounds_and_counts_all(rows: list[tuple[float, bool]], bins: int) -> None:
    sure, good = [s for s, _ in rows], [g for _, g in rows]
    distance = abs(sum(sure) - sum(good)) / len(rows)
    for found in (calibration(sure, good, bins=bins), calibration(sure, good, bins=bins, by="mass")):
        assert found.error is not None
        assert distance - 1e-12 <= found.error <= 1  # more bins cannot hide what all of them together show
        assert sum(each.questions for each in found.bins) == len(rows)
        assert len(found.bins) <= bins


def test_what_is_no_probability_is_refused() -> None:
    for value in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="outside of 0 to 1"):
            calibration([value], [True])
    with pytest.raises(ValueError, match="outside of 0 to 1"):
        brier([math.nan], [True])
    with pytest.raises(ValueError, match="NaN"):
        auroc([math.nan, 1], [True, False])
    with pytest.raises(ValueError, match="got 2 for 1"):
        brier([0.1, 0.2], [True])
    with pytest.raises(UsageError, match="1 bin or more"):
        calibration([0.1], [True], bins=0)
