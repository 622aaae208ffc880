"""The answer that a page begins with: it says what the statistics say, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from report_parts import FAILED, item, made, rows, system

from arbitrag.evaluate.report.conclusion import conclusion
from arbitrag.evaluate.report.report import SetReport, report
from arbitrag.evaluate.run.store import Store
from arbitrag.types import Strategy, Usage

COUNT = 80
M, R = Strategy.MEMORY, Strategy.REFUSE


def measured(path: Path, right: dict[str, int], *, tokens: dict[str, int] | None = None, failed: int = 0) -> SetReport:
    """Systems that have the first so many of ``COUNT`` questions right."""
    items = [item(n + 1, f"answer {n}") for n in range(COUNT)]
    found = []
    for name, count in right.items():
        answers: list[Any] = [f"answer {n}" if n < count else "wrong" for n in range(COUNT)]
        answers[COUNT - failed :] = [FAILED] * failed
        computed = (tokens or {}).get(name, 100)  # 3 of them are of the completion; 50 more are cached
        usage = Usage(calls=1, prompt_tokens=computed - 3 + 50, cached_tokens=50, completion_tokens=3)
        found += rows(name, answers, [None if each is FAILED else M for each in answers], usage=usage)
    with Store.open(made(path / "run.db", found, systems=[system(name) for name in right], items=items)) as store:
        return report(store, resamples=200).sets[0]


def test_best_is_said_only_of_what_is_above_every_other_one(tmp_path: Path) -> None:
    found = measured(tmp_path, {"one": 30, "two": 70, "three": 50})
    assert conclusion(found) == ("Best: two at 87.5% by EM, significantly above every other system (three and one).",)


def test_the_highest_is_named_with_those_that_it_is_not_told_apart_from(tmp_path: Path) -> None:
    found = measured(tmp_path, {"one": 30, "two": 70, "three": 69})
    assert conclusion(found)[0] == (
        "Highest: two at 87.5% by EM, significantly above one, but not told apart from three."
    )


def test_noise_is_called_noise(tmp_path: Path) -> None:
    found = measured(tmp_path, {"one": 40, "two": 41})
    assert conclusion(found)[0] == (
        "No system is shown to be best. Highest is two at 51.2% by EM; the difference from any other one could be "
        "noise (least p 1: one)."
    )


def test_equal_means_are_named_together(tmp_path: Path) -> None:
    assert conclusion(measured(tmp_path, {"one": 40, "two": 40}))[0] == (
        "No system is shown to be best: one and two at 50.0% by EM, all of them."
    )
    (tmp_path / "b").mkdir()
    assert conclusion(measured(tmp_path / "b", {"one": 70, "two": 70, "three": 20}))[0] == (
        "Highest: one and two at 87.5% by EM, significantly above three."
    )


def test_one_system_is_compared_with_nothing(tmp_path: Path) -> None:
    assert conclusion(measured(tmp_path, {"one": 40}))[0] == (
        "one at 50.0% by EM over 80 questions; there is no other system to compare it with."
    )


def test_a_much_cheaper_one_that_is_no_worse_is_named(tmp_path: Path) -> None:
    tokens = {"one": 100, "two": 1000, "three": 90}
    found = measured(tmp_path, {"one": 69, "two": 70, "three": 20}, tokens=tokens)
    assert conclusion(found)[1] == "Of these, one takes 100 tokens a question, and two 1,000."


def test_what_the_answer_suffers_from_stands_beside_it(tmp_path: Path) -> None:
    told = conclusion(measured(tmp_path, {"one": 30, "two": 60}, failed=4))
    assert told[1:] == (
        "Failed rows count as wrong here (two 4, one 4); ask them again before believing a difference.",
    )


def test_unread_replies_and_few_questions_are_said(tmp_path: Path) -> None:
    items: Sequence[Any] = [item(n + 1, f"answer {n}") for n in range(10)]
    found = rows("one", [None, *["answer"] * 8], [R, *[M] * 8])
    found[0] = replace(found[0], parse_failures=2)
    with Store.open(made(tmp_path / "run.db", found, systems=[system("one")], items=items)) as store:
        (each,) = report(store, resamples=10).sets
    assert each.statistics[0].unread == 1
    assert conclusion(each)[1:] == (
        "Only 9 questions: intervals are too narrow, and little can be told apart.",
        "The run is unfinished: 1 of 10 questions are not in this yet.",
        "Some refusals are replies that could not be read (one 1), and no decision of the method.",
    )


def test_nothing_is_said_of_nothing(tmp_path: Path) -> None:
    with Store.open(made(tmp_path / "run.db", [], systems=[system("one")], items=[item(1, "a")])) as store:
        (each,) = report(store, resamples=10).sets
    assert conclusion(each) == ("Nothing can be said yet: no question has been answered by every system.",)
