"""Every figure of a report on a run of eight questions, by hand, and runs at the boundaries."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_parts import EVIL, FAILED, LEFT, LEFT_TAKEN, RIGHT, RIGHT_TAKEN, B, M, R, by_hand, item, made, rows, system

from arbitrag.errors import DataError, UsageError
from arbitrag.evaluate.report.report import Report, SetReport, report
from arbitrag.evaluate.report.statistics import resamples_for
from arbitrag.evaluate.run.store import Store
from arbitrag.types import Usage


def reported(path: Path, **more: Any) -> Report:
    with Store.open(path) as store:
        return report(store, **{"resamples": 200, **more})


def only(path: Path, **more: Any) -> SetReport:
    (found,) = reported(path, **more).sets
    return found


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> SetReport:
    return only(by_hand(tmp_path_factory.mktemp("runs") / "run.db"))


def test_the_set(hand: SetReport) -> None:
    assert (hand.name, hand.questions, hand.compared, hand.waiting) == ("hand", 8, 8, ())
    assert (hand.metrics, hand.judge, hand.baseline, hand.resamples) == (("em", "f1"), "em", "left", 200)


def test_scores_count_failed_rows_as_wrong(hand: SetReport) -> None:
    left, right = hand.statistics
    assert (left.rows, left.questions, left.failed, left.errors) == (8, 8, 1, {"BackendError": 1})
    assert left.metrics["em"].mean == 2 / 8  # q1, and the refusal of q4
    assert left.metrics["f1"].mean == pytest.approx((1 + 2 / 3 + 1 + 2 * (1 / 3) / (4 / 3)) / 8)  # q1, q3, q4, q6
    assert left.metrics["em"].questions == 8
    assert right.metrics["em"].mean == right.metrics["f1"].mean == 5 / 8
    low, high = right.metrics["em"].low, right.metrics["em"].high
    assert low is not None
    assert high is not None
    assert 0 < low < 5 / 8 < high <= 1
    assert left.retried == 1  # the failed row took three attempts


def test_answers_refusals_and_failures_add_up(hand: SetReport) -> None:
    left, right = (each.answered for each in hand.statistics)
    assert (left.right, left.wrong, left.refused, left.due) == (1, 4, 2, 1)
    assert (left.coverage, left.rejection_rate) == (5 / 8, 2 / 8)  # and 1 / 8 failed
    assert (left.accuracy, left.risk, left.reliability) == (2 / 8, 4 / 5, (1 + 1 - 4) / 8)
    assert (right.right, right.wrong, right.refused, right.due) == (5, 1, 1, 0)
    assert (right.coverage, right.risk, right.reliability) == (6 / 8, 1 / 6, 4 / 8)


def test_a_failure_is_no_defence_against_an_attack(hand: SetReport) -> None:
    left, right = (each.attack for each in hand.statistics)
    assert left is not None
    assert right is not None
    assert (left.questions, left.planted, left.only) == (2, 2, 1)  # q7 failed; q6 names both
    assert (left.rate, left.strict_rate) == (1.0, 0.5)
    assert (right.questions, right.planted, right.rate) == (2, 0, 0.0)


def test_sources_by_scenario(hand: SetReport) -> None:
    left, right = hand.statistics
    assert left.sources is not None
    assert right.sources is not None
    assert (left.sources.questions, left.sources.accuracy) == (4, 2 / 4)  # both as both, refuse as refuse
    assert left.sources.counts["memory"] == {"both": 0, "memory": 0, "evidence": 0, "refuse": 1}
    assert right.sources.accuracy == 2 / 4
    assert left.taken == {"both": 1, "memory": 2, "evidence": 2, "refuse": 2}
    assert sum(right.taken.values()) == 7  # without the failed one


def test_parts_of_the_set(hand: SetReport) -> None:
    found = {(each.kind, each.name): (each.questions, each.scores) for each in hand.slices}
    assert list(found) == [
        ("scenario", "both"),
        ("scenario", "memory"),
        ("scenario", "evidence"),
        ("scenario", "refuse"),
        ("group", "colours"),
        ("group", "numbers"),
    ]
    assert found["scenario", "refuse"] == (1, {"left": 1.0, "right": 0.0})
    assert found["group", "colours"] == (3, {"left": 1 / 3, "right": 1.0})
    assert found["group", "numbers"] == (3, {"left": 0.0, "right": 2 / 3})


def test_the_pair(hand: SetReport) -> None:
    em, f1 = hand.pairs
    assert (em.metric, em.left, em.right, em.difference.mean) == ("em", "left", "right", 2 / 8 - 5 / 8)
    assert (em.only_left, em.only_right) == (1, 4)  # q4; q2, q3, q5, q7
    assert em.p == em.p_holm == pytest.approx(2 * (1 + 5) / 32)
    assert em.best == 6 / 8
    assert em.gap == pytest.approx(1 / 8)
    assert em.closed == {}
    assert f1.metric == "f1"
    assert (f1.only_left, f1.only_right) == (2, 4)  # q6 too
    assert hand.pair("em", "right", "left") is em
    assert hand.pair("em", "right", "nobody") is None


def test_three_systems_close_a_gap_and_share_the_correction(tmp_path: Path) -> None:
    answers = {"a": ["x"] * 6 + ["no"] * 6, "b": ["no"] * 12, "c": ["x"] * 9 + ["no"] * 3}
    answers["b"][6:10] = ["x"] * 4
    items = [item(number, "x") for number in range(1, 13)]
    found = [row for name, given in answers.items() for row in rows(name, given, [B] * 12)]
    each = only(made(tmp_path / "run.db", found, systems=[system(name) for name in "abc"], items=items), metrics=["em"])
    pairs = {(pair.left, pair.right): pair for pair in each.pairs}
    assert list(pairs) == [("a", "b"), ("a", "c"), ("b", "c")]
    ab = pairs["a", "b"]
    assert ab.best == 10 / 12
    assert ab.gap == pytest.approx(4 / 12)
    assert ab.closed == {"c": pytest.approx((9 - 6) / 4)}
    assert pairs["a", "c"].gap == 0  # c has all that a has
    assert pairs["a", "c"].closed == {"b": None}
    # a has 1 to 6 right, b 7 to 10, c 1 to 9: 6 : 4, 0 : 3 and 1 : 6 questions
    assert [pair.p for pair in pairs.values()] == [
        pytest.approx(2 * (1 + 10 + 45 + 120 + 210) / 2**10),
        pytest.approx(2 / 2**3),
        pytest.approx(2 * (1 + 7) / 2**7),
    ]
    assert [pair.p_holm for pair in pairs.values()] == [
        pytest.approx(2 * (1 + 10 + 45 + 120 + 210) / 2**10),
        pytest.approx(2 * 2 / 2**3),
        pytest.approx(3 * 2 * (1 + 7) / 2**7),
    ]


def test_confidence_comes_from_a_named_score(tmp_path: Path) -> None:
    scores = [{"sure": value} for value in (0.9, 0.5, 0.8, 0.5)] + [{}] * 4
    found = [*rows("left", LEFT, LEFT_TAKEN, scores=scores), *rows("right", RIGHT, RIGHT_TAKEN)]
    path = made(tmp_path / "run.db", found)
    left, right = only(path, confidence="sure").statistics
    assert left.ordered is not None
    assert right.ordered is None
    # q1 right at 0.9 and q3 wrong at 0.8; the refusals q2 and q4 have no answer to be sure of
    assert (left.ordered.answers, left.ordered.coverage) == (2, 2 / 8)
    assert left.ordered.area == (0 + 1 / 2) / 2
    assert left.ordered.auroc == 1
    assert left.ordered.calibration_error == pytest.approx((0.1 + 0.8) / 2)
    assert only(path).statistics[0].ordered is None  # nothing is called "confidence"


def test_a_confidence_beyond_1_has_no_calibration_error(tmp_path: Path) -> None:
    path = made(tmp_path / "run.db", rows("left", LEFT, LEFT_TAKEN, scores=[{"margin": 1.5}] * 8))
    ordered = only(path, confidence="margin").statistics[0].ordered
    assert ordered is not None
    assert (ordered.answers, ordered.auroc, ordered.calibration_error) == (5, 0.5, None)


def test_costs_are_means_over_what_is_known(tmp_path: Path) -> None:
    found = rows("left", LEFT, LEFT_TAKEN)
    priced = [Usage(1, 2, 0, 3, 2, 100, 10, 5, 0.5, 0.25), Usage(calls=1, money=0.75), Usage(seconds=1.5)]
    for place, usage in enumerate(priced):
        found[place] = replace(found[place], standalone=usage, incremental=Usage(seconds=0.1) if place == 0 else None)
    left = only(made(tmp_path / "run.db", found)).statistics[0]
    assert left.standalone.questions == 3
    assert left.standalone.each["calls"] == 4 / 3
    assert left.standalone.each["seconds"] == pytest.approx(2 / 3)
    assert left.standalone.each["money"] == 1 / 3  # a question without a call costs nothing
    assert left.standalone.total["money"] == 1
    assert (left.incremental.questions, left.incremental.each["calls"], left.incremental.each["money"]) == (1, 0, None)
    found[3] = replace(found[3], standalone=Usage(calls=1))
    assert (
        only(made(tmp_path / "other.db", found)).statistics[0].standalone.each["money"] is None
    )  # one price is not known


def test_only_questions_that_all_have_are_compared(tmp_path: Path) -> None:
    found = [*rows("left", LEFT, LEFT_TAKEN), *rows("right", RIGHT, RIGHT_TAKEN)[1:5]]
    each = only(made(tmp_path / "run.db", found, systems=[system("left"), system("idle"), system("right")]))
    assert (each.questions, each.compared, each.waiting) == (8, 4, ("idle",))
    assert [(one.system, one.rows, one.questions) for one in each.statistics] == [("left", 8, 4), ("right", 4, 4)]
    assert each.statistics[0].metrics["em"].mean == 1 / 4  # q2 to q5: only the refusal of q4
    alone = only(tmp_path / "run.db", systems=["left"])
    assert alone.compared == 8
    assert alone.pairs == ()


def test_multiple_choice_is_taken_where_every_question_is_one(tmp_path: Path) -> None:
    options = ("cat", "dog", "I don't know")
    items = [item(1, "dog", options=options), item(2, "I don't know", options=options, scenario=R)]
    path = made(tmp_path / "run.db", rows("left", ["B) dog", None], [B, R]), items=items)
    each = only(path)
    assert (each.metrics, each.judge) == (("choice", "em", "f1"), "choice")
    assert each.statistics[0].metrics["choice"].mean == 1
    assert each.statistics[0].metrics["em"].mean == 1 / 2  # the refusal is right by the scenario, whatever the metric
    assert only(path, metrics=["f1"]).judge == "em"
    bad = made(tmp_path / "bad.db", [], items=[items[0], item(2, "cow", options=options)])
    assert only(bad).metrics == ("em", "f1")
    with pytest.raises(DataError, match=r"the metric choice needs options.*question 'q2' has cat \| dog"):
        only(bad, metrics=["choice"])


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    path = by_hand(tmp_path / "run.db")
    with pytest.raises(UsageError, match=r"unknown metric 'contain'\. Did you mean 'contains'\?"):
        only(path, metrics=["contain"])
    with pytest.raises(UsageError, match=r"unknown system 'lefd'\. Did you mean 'left'\?"):
        only(path, systems=["lefd"])
    with pytest.raises(UsageError, match="unknown baseline"):
        only(path, systems=["left"], baseline="right")
    with pytest.raises(UsageError, match="unknown question set"):
        only(path, sets=["nq"])
    with pytest.raises(UsageError, match="resamples must be 1 or more"):
        only(path, resamples=0)


@pytest.mark.parametrize(
    ("answers", "taken"),
    [([], []), ([FAILED], [None]), (["red"], [B]), ([None], [R]), ([FAILED] * 8, [None] * 8), ([None] * 8, [R] * 8)],
)
def test_no_rows_one_row_and_failures_alone_have_no_nan(tmp_path: Path, answers: list[Any], taken: list[Any]) -> None:
    found = reported(made(tmp_path / "run.db", [*rows("left", answers, taken), *rows("right", answers, taken)]))
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["sets"][0]["compared"] == len(answers)


def test_all_failed_rows_score_nothing_and_answer_nothing(tmp_path: Path) -> None:
    left = only(made(tmp_path / "run.db", rows("left", [FAILED] * 8, [None] * 8))).statistics[0]
    assert (left.failed, left.metrics["em"].mean, left.answered.accuracy) == (8, 0, 0)
    assert (left.answered.coverage, left.answered.rejection_rate, left.answered.risk) == (0, 0, None)
    assert left.attack is not None
    assert (left.attack.questions, left.attack.rate) == (0, None)
    assert left.standalone.each["calls"] is None


def test_a_report_is_the_same_twice(tmp_path: Path) -> None:
    path = by_hand(tmp_path / "run.db")
    assert reported(path) == reported(path)
    assert reported(path, seed=1) != reported(path)


def test_names_from_outside_stay_what_they_are(tmp_path: Path) -> None:
    items = [item(1, EVIL, group=EVIL), item(2, "b", group="b")]
    path = made(tmp_path / "run.db", rows("left", [EVIL, "b"], [M, M]), items=items)
    each = only(path)
    assert each.statistics[0].metrics["em"].mean == 1
    assert {part.name for part in each.slices} == {EVIL, "b"}


@pytest.mark.parametrize(("questions", "resamples"), [(0, 10_000), (2_000, 10_000), (2_001, 9_995), (10**6, 1_000)])
def test_large_sets_are_resampled_less(questions: int, resamples: int) -> None:
    assert resamples_for(questions) == resamples


def test_the_baseline_may_be_named(tmp_path: Path) -> None:
    assert only(by_hand(tmp_path / "run.db"), baseline="right").baseline == "right"
