"""What the plots of a page show, and that every point lies where it should."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_parts import item, made, rows, system

from arbitrag.evaluate.metrics.refusals import risk_coverage
from arbitrag.evaluate.questions import QuestionSet
from arbitrag.evaluate.report.page import page
from arbitrag.evaluate.report.plots import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, Plot, plots, ticks
from arbitrag.evaluate.report.report import Report, report
from arbitrag.evaluate.run.store import Row, RunPlan, Store
from arbitrag.types import Passage, Strategy, Usage

M, R = Strategy.MEMORY, Strategy.REFUSE


def poisoned(number: int, level: int) -> Any:
    passages = tuple(Passage(f"text {place}", id=f"p{place}") for place in range(5))
    return replace(
        item(number, "right", planted=("planted",)),
        passages=passages,
        poisoned=frozenset(each.id for each in passages[:level]),
    )


@pytest.fixture
def attacked(tmp_path: Path) -> Report:
    """Two sets of one file, with 1 and with 3 poisoned passages; ``left`` says what was planted in 2 and 6 of 10."""
    systems = (system("left"), system("right"))
    sets = [QuestionSet(f"news?poisoned={level}&k=5", [poisoned(n + 1, level) for n in range(10)]) for level in (1, 3)]
    with Store.create(tmp_path / "run.db", RunPlan(systems, sets, {}, {})) as store:
        for each, planted in zip(sets, (2, 6), strict=True):
            for name, cost in (("left", 100), ("right", 4000)):
                hits = planted if name == "left" else 0
                answers = ["planted" if n < hits else "right" for n in range(9)]
                usage = Usage(calls=1, prompt_tokens=cost)
                scores = [{"confidence": 1 - n / 10} for n in range(9)]
                for row in rows(name, answers, [M] * 9, of=each.name, scores=scores, usage=usage):
                    store.record(row)
                store.record(Row(name, each.name, "q10", None, R, "why", standalone=usage, incremental=usage))
    with Store.open(tmp_path / "run.db") as store:
        return report(store, resamples=50)


def named(found: tuple[Plot, ...], title: str) -> Plot:
    return next(plot for plot in found if plot.title == title)


def test_attack_success_is_drawn_against_the_level_over_all_sets_of_a_file(attacked: Report) -> None:
    first, second = (plots(attacked, each) for each in attacked.sets)
    plot = named(first, "Attack success against poisoned passages")
    assert [words for _, words in plot.x_ticks] == ["1", "3"]
    left, right = plot.series
    assert [mark.words for mark in left.marks] == [
        "left, 1 poisoned: 2 of 10 answers hold what was planted",
        "left, 3 poisoned: 6 of 10 answers hold what was planted",
    ]
    zero = next(place for place, words in plot.y_ticks if words == "0")
    assert [mark.y for mark in right.marks] == [zero, zero]
    assert left.marks[0].y > left.marks[1].y  # downwards on a screen
    assert plot.notes == ("Lower is better. Questions of 2 sets that did not fail; 10 at the level with the fewest.",)
    assert "Attack success against poisoned passages" not in [plot.title for plot in second]


def test_accuracy_is_drawn_against_cost(attacked: Report) -> None:
    plot = named(plots(attacked, attacked.sets[0]), "EM against cost")
    assert plot.x_title == "uncached prompt and completion tokens per question (logarithmic)"
    assert [series.marks[0].words for series in plot.series] == [
        "left: 70.0% at 100 tokens a question",
        "right: 90.0% at 4,000 tokens a question",
    ]
    left, right = (series.marks[0] for series in plot.series)
    assert left.x < right.x
    assert left.y > right.y
    assert left.low is not None
    assert left.high is not None
    assert left.high < left.y < left.low


def test_risk_is_drawn_against_coverage_with_a_curve_where_a_score_orders_answers(attacked: Report) -> None:
    (found, *_) = attacked.sets
    ordered = found.statistics[0].ordered
    assert ordered is not None
    assert ordered.curve[0] == (0.1, 1.0)  # the surest of ten answers is planted
    assert ordered.curve[-1] == pytest.approx((0.9, 2 / 9))
    plot = named(plots(attacked, found), "Risk and coverage")
    assert plot.series[0].line.count(",") == len(ordered.curve)
    assert plot.series[0].marks[0].words == "left: 22.2% wrong of the 90.0% answered"


def test_the_thinned_curve_has_points_of_the_whole_one(tmp_path: Path) -> None:
    items = [item(n + 1, "right") for n in range(200)]
    answers = ["right" if n % 3 else "wrong" for n in range(200)]
    scores = [{"confidence": (n * 37 % 101) / 101} for n in range(200)]
    found = rows("one", answers, [M] * 200, scores=scores)
    path = made(tmp_path / "run.db", found, systems=[system("one")], items=items)
    with Store.open(path) as store:
        ordered = report(store, resamples=10).sets[0].statistics[0].ordered
    assert ordered is not None
    right = [answer == "right" for answer in answers]
    whole = risk_coverage(right, [score["confidence"] for score in scores]).points
    points = [(point.coverage, point.risk) for point in whole]
    assert len(points) == 101
    assert len(ordered.curve) == 60
    assert set(ordered.curve) <= set(points)
    assert (ordered.curve[0], ordered.curve[-1]) == (points[0], points[-1])


def test_every_place_is_within_the_drawing(attacked: Report) -> None:
    for found in attacked.sets:
        for plot in plots(attacked, found):
            for series in plot.series:
                line = [tuple(map(float, point.split(","))) for point in series.line.split()]
                for x, y in [*((mark.x, mark.y) for mark in series.marks), *line]:
                    assert LEFT <= x <= WIDTH - RIGHT
                    assert TOP <= y <= HEIGHT - BOTTOM


def test_a_system_has_one_colour_in_all_plots(attacked: Report) -> None:
    drawn = [plot for found in attacked.sets for plot in plots(attacked, found)]
    colours = {(series.name, series.colour) for plot in drawn for series in plot.series}
    assert colours == {("left", 0), ("right", 1)}


@pytest.mark.parametrize(
    ("first", "last", "log", "found"),
    [
        (0.0, 1.0, False, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.13, 0.52, False, [0.2, 0.3, 0.4, 0.5]),
        (0.0, 2160.0, False, [0, 500, 1000, 1500, 2000]),
        (7.0, 5000.0, True, [10, 100, 1000]),
        (30.0, 700.0, True, [50, 100, 200, 500]),
    ],
)
def test_ticks_are_round(first: float, last: float, log: bool, found: list[float]) -> None:
    assert ticks(Axis(first, last, 0, 1, log)) == pytest.approx(found)


def test_the_page_begins_with_the_answer_and_draws_the_plots(attacked: Report) -> None:
    written = page(attacked)
    body = written[written.index("<body>") :]
    assert body.index('class="answer"') < body.index("<h2>") < body.index("<svg")
    assert re.findall(r"<p>(Highest|No system|Best)", body)
    assert written.count("<figure") == 5  # three of the first set, two of the second
    assert "<script" not in written
    assert "http" not in re.sub(r'content="[^"]*"', "", body).replace("http-equiv", "")
