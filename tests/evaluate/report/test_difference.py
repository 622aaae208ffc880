"""Two runs beside each other, by hand: what changed, what moved, which questions flipped, what is compared at all."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from report_parts import FAILED, ITEMS, LEFT, LEFT_TAKEN, B, M, R, item, made, rows, system

from arbitrag.cli.bench.difference import told as told_of
from arbitrag.errors import UsageError
from arbitrag.evaluate.questions import QuestionSet
from arbitrag.evaluate.report.difference import Change, RunDifference, difference
from arbitrag.evaluate.run.store import RunPlan, Store


def between(before: Path, after: Path, **more: Any) -> RunDifference:
    with Store.open(before) as first, Store.open(after) as second:
        return difference(first, second, names=("a", "b"), **{"resamples": 200, **more})


def test_the_same_run_twice_has_no_difference(tmp_path: Path) -> None:
    paths = [made(tmp_path / f"{name}.db", rows("left", LEFT, LEFT_TAKEN)) for name in "ab"]
    found = between(*paths)
    assert found.changes == ()
    (each,) = found.sets
    assert (each.same, each.before, each.after, each.identical) == (True, 8, 8, 8)
    (left,) = each.systems
    assert (left.system, left.questions, left.failed_before, left.failed_after) == ("left", 8, 1, 1)
    assert [(shift.metric, shift.difference.mean, shift.p, shift.noise) for shift in left.shifts] == [
        ("em", 0, 1, True),
        ("f1", 0, 1, True),
    ]
    assert (left.gained, left.lost, left.gained_ids, left.lost_ids) == (0, 0, (), ())


def test_what_was_set_differently_is_named(tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", [], limits={"answer_tokens": 32, "context_tokens": 9}, prompts={"x": {"rag": "1"}})
    systems = [system("left", threshold=-1.0), system("new")]
    second = made(
        tmp_path / "b.db", [], systems=systems, items=ITEMS[:5], limits={"answer_tokens": 16, "context_tokens": 9}
    )
    found = between(first, second)
    digests = [each for each in found.changes if each.what == "question set hand"]
    assert found.changes == (
        Change("limits answer_tokens", "32", "16"),
        *digests,
        Change("left: threshold", None, "-1.0"),
        Change("system right", "present", None),
        Change("system new", None, "present"),
    )
    assert len(digests) == 1
    assert digests[0].before != digests[0].after
    assert digests[0].lines == ("3 only in the first run: q6, q7, q8",)


def test_prompts_are_told_by_name_with_the_lines_that_differ(tmp_path: Path) -> None:
    texts = ["Read.\nAnswer briefly.\n{question}", "Read.\nAnswer in one word.\n{question}"]
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    paths = []
    for name, digest, text in zip("ab", digests, texts, strict=True):
        prompts = {"x": {"rag/answer": digest, "same": "1"}, "y": {"rag/answer": digest}}
        paths.append(tmp_path / f"{name}.db")
        plan = RunPlan([system("left")], [QuestionSet("hand", ITEMS)], {"prompts": prompts}, {}, {digest: text})
        Store.create(paths[-1], plan).close()
    assert between(*paths).changes == (
        Change("prompt rag/answer", digests[0], digests[1], ("-Answer briefly.", "+Answer in one word.")),
    )
    told = told_of(between(*paths), 100)
    assert "prompt rag/answer:\n  -Answer briefly.\n  +Answer in one word.\n" in told
    assert not re.search("[0-9a-f]{12}", told)


def test_of_hashes_only_that_they_differ_is_said(tmp_path: Path) -> None:
    first, second = "ab" * 8, "cd" * 8
    paths = [
        made(tmp_path / "a.db", [], retriever=f"bm25:docs:{first}", commit=first + "0"),
        made(tmp_path / "b.db", [], items=ITEMS[1:], retriever=f"bm25:docs:{second}", commit=second + "0"),
    ]
    lines = told_of(between(*paths), 100).splitlines()
    assert [line.split(maxsplit=1)[0] for line in lines[2:5]] == ["commit", "retriever", "question"]
    assert lines[2].split() == ["commit", "ababababab", "cdcdcdcdcd"]
    assert "bm25:docs (other contents)" in lines[3]
    assert lines[4].split() == ["question", "set", "hand", "one", "another"]
    assert "  1 only in the first run: q1" in lines
    assert not re.search("[0-9a-f]{12}", "\n".join(lines))


def test_questions_that_flipped_are_counted_and_the_first_ten_named(tmp_path: Path) -> None:
    items = [item(number, "x") for number in range(1, 31)]
    before = ["no"] * 12 + ["x"] * 18
    after = ["x"] * 12 + ["no"] + ["x"] * 17
    paths = [
        made(tmp_path / f"{name}.db", rows("left", given, [M] * 30), items=items)
        for name, given in (("a", before), ("b", after))
    ]
    (left,) = between(*paths, metrics=["em"]).sets[0].systems
    assert (left.gained, left.lost, left.lost_ids) == (12, 1, ("q13",))
    assert left.gained_ids == tuple(f"q{number}" for number in range(1, 11))
    (em,) = left.shifts
    assert (em.before, em.after) == (18 / 30, 29 / 30)
    assert em.difference.mean == pytest.approx(11 / 30)
    assert em.difference.low is not None
    assert em.difference.low > 0
    assert em.p == em.p_holm == pytest.approx(2 * (1 + 13) / 2**13)
    assert not em.noise


def test_p_is_adjusted_over_the_systems(tmp_path: Path) -> None:
    items = [item(number, "x") for number in range(1, 7)]
    right, wrong, some = ["x"] * 6, ["no"] * 6, ["x"] + ["no"] * 5
    first = made(tmp_path / "a.db", [*rows("left", wrong, [M] * 6), *rows("right", wrong, [M] * 6)], items=items)
    second = made(tmp_path / "b.db", [*rows("left", right, [M] * 6), *rows("right", some, [M] * 6)], items=items)
    found = between(first, second, metrics=["em"]).sets[0].systems
    assert [(each.shifts[0].p, each.shifts[0].p_holm, each.shifts[0].noise) for each in found] == [
        (pytest.approx(2 / 64), pytest.approx(4 / 64), True),  # 0.031 alone is 0.063 of two
        (1, 1, True),
    ]
    (alone,) = between(first, second, metrics=["em"], systems=["left"]).sets[0].systems
    assert not alone.shifts[0].noise


def test_of_different_sets_only_identical_questions_are_compared(tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", rows("left", LEFT, LEFT_TAKEN))
    changed = [*ITEMS[:2], item(3, "another answer"), ITEMS[4], item(9, "new")]
    found = rows("left", ["red", None, "blue"], [B, R, M])
    second = made(tmp_path / "b.db", found, items=changed)
    (each,) = between(first, second).sets
    assert (each.same, each.before, each.after, each.identical) == (False, 8, 5, 3)
    (left,) = each.systems
    assert left.questions == 2  # q1 and q2; q5 has no row in the second run
    assert left.shifts[0].before == left.shifts[0].after == 1 / 2


def test_failed_rows_count_as_wrong_and_are_counted(tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", rows("left", [FAILED, "green"], [None, M]))
    second = made(tmp_path / "b.db", rows("left", ["red", FAILED], [B, None]))
    (left,) = between(first, second, metrics=["em"]).sets[0].systems
    assert (left.failed_before, left.failed_after) == (1, 1)
    assert (left.gained_ids, left.lost_ids) == (("q1",), ("q2",))
    assert left.shifts[0].difference.mean == 0


def test_a_lone_set_is_compared_under_another_name(tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", rows("left", LEFT, LEFT_TAKEN))
    second = made(tmp_path / "b.db", rows("left", LEFT, LEFT_TAKEN, of="moved"), name="moved")
    (each,) = between(first, second).sets
    assert (each.name, each.name_after, each.same, each.systems[0].questions) == ("hand", "moved", True, 8)


def test_runs_without_a_common_row_say_nothing_more(tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", rows("left", LEFT, LEFT_TAKEN))
    second = made(tmp_path / "b.db", [])
    assert between(first, second).sets[0].systems == ()
    third = made(tmp_path / "c.db", rows("left", [FAILED], [None]))
    (left,) = between(first, third).sets[0].systems
    assert (left.questions, left.shifts[0].difference.low) == (1, None)
    with pytest.raises(UsageError, match="unknown system 'nobody'"):
        between(first, second, systems=["nobody"])
    with pytest.raises(UsageError, match="resamples must be 1 or more"):
        between(first, second, resamples=0)
