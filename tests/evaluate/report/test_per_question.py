"""Every question on the page: what each system answered, from which passages, and how many are shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_parts import EVIL, FAILED, item, system

from arbitrag.evaluate.questions import QuestionSet
from arbitrag.evaluate.report.page import page
from arbitrag.evaluate.report.per_question import QuestionList, question_lists
from arbitrag.evaluate.report.report import report
from arbitrag.evaluate.run.store import Row, RunPlan, Store
from arbitrag.types import Dropped, Passage, Strategy, Verdict

E, R = Strategy.EVIDENCE, Strategy.REFUSE
BAD = Passage(f"It is blue. {EVIL}", id="bad", title="News", source="a.md", line=3)
GOOD = Passage("It is red.", id="good")


def verdict(answer: str | None, kept: tuple[Passage, ...], dropped: tuple[Dropped, ...] = ()) -> dict[str, Any]:
    return Verdict(answer, R if answer is None else E, "why", kept=kept, dropped=dropped).to_dict()


def filled(path: Path, count: int = 6) -> Path:
    items = [
        replace(item(n + 1, "red", planted=("blue",)), passages=(BAD, GOOD), poisoned=frozenset({"bad"}))
        for n in range(count)
    ]
    plan = RunPlan((system("left"), system("right")), [QuestionSet("hand", items)])
    with Store.create(path, plan) as store, store.together():
        for n in range(count):
            answers: tuple[Any, Any] = ("red", "blue") if n % 2 else ("red", "red")
            for name, answer in zip(("left", "right"), (None, FAILED) if n == 2 else answers, strict=True):
                if answer is FAILED:
                    store.record(Row(name, "hand", f"q{n + 1}", error=f"BackendError: {EVIL}"))
                    continue
                taken, unread = (R, 1) if answer is None else (E, 0)
                row = Row(name, "hand", f"q{n + 1}", answer, taken, "why", parse_failures=unread)
                kept, dropped = ((BAD, GOOD), ()) if name == "right" else ((GOOD,), (Dropped(BAD, "odd"),))
                store.record(row, verdict(answer, kept, dropped))
    return path


def seen(path: Path, **limits: int) -> QuestionList:
    with Store.open(path) as store:
        return question_lists(store, report(store, resamples=10), **limits)["hand"]


def test_every_question_with_answers_and_passages(tmp_path: Path) -> None:
    view = seen(filled(tmp_path / "run.db"))
    assert view.note == "all 6 questions"
    assert [each.id for each in view.shown] == [f"q{n}" for n in range(1, 7)]
    second = view.shown[1]
    assert second.facts == (("Gold", "red"), ("Planted", "blue"))
    left, right = second.answers
    assert (left.system, left.kind, left.answer, left.why) == ("left", "right", "red", "trusted evidence · why")
    assert (left.read, left.dropped) == ((1,), (((2,), "odd"),))
    assert (right.kind, right.answer, right.read) == ("wrong", "blue", (2, 1))
    assert [(each.number, each.poisoned, each.place) for each in second.passages] == [
        (1, False, "good"),
        (2, True, "a.md:3"),
    ]
    third = view.shown[2]
    assert [each.kind for each in third.answers] == ["refused", "failed"]
    assert [each.unread for each in third.answers] == [1, 0]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_where_not_all_fit_those_come_first_on_which_systems_differ(most: int, tmp_path: Path) -> None:
    view = seen(filled(tmp_path / "run.db"), most=most)
    assert [each.id for each in view.shown] == ["q2", "q4", "q6"][:most]
    assert view.note == (
        f"{most} of 6 questions are shown, those on which the systems differ first; "
        "any other is shown by: arbitrag bench show RUN.db --question ID"
    )


def test_the_size_of_a_page_is_bounded(tmp_path: Path) -> None:
    path = filled(tmp_path / "run.db", 40)
    view = seen(path, letters=9_000)
    assert 2 < len(view.shown) < 20
    assert "of 40 questions are shown, the first that fit a page" in view.note
    with Store.open(path) as store:
        made = report(store, resamples=10)
        few, all_of_them = page(made, {"hand": view}), page(made, question_lists(store, made))
    assert len(few) - len(page(made)) < 30_000
    assert len(all_of_them) > len(few)


def test_the_page_shows_them_escaped_and_closed(tmp_path: Path) -> None:
    with Store.open(filled(tmp_path / "run.db")) as store:
        made = report(store, resamples=10)
        shown = page(made, question_lists(store, made))
    assert shown.count('<details class="question">') == 6
    assert shown.count('<span class="poisoned">poisoned</span>') == 6
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "\x1b" not in shown
    assert "all 6 questions." in shown
