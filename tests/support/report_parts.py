"""Made-up runs for the tests of reports: eight questions by hand, two systems and a third that has not begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arbitrag.evaluate.questions import Item, QuestionSet
from arbitrag.evaluate.run.store import Row, RunPlan, Store, System
from arbitrag.types import Question, Strategy, Usage

FAILED = object()
EVIL = "<script>alert(1)</script>\x1b[31m\n=1+1 \u202e|`*"
B, M, E, R = Strategy.BOTH, Strategy.MEMORY, Strategy.EVIDENCE, Strategy.REFUSE


def system(name: str, **settings: Any) -> System:
    return System(name, name, settings, "made up", "identity")


def item(number: int, *answers: str, **more: Any) -> Item:
    return Item(Question(f"Question {number}?", more.pop("options", ()), f"q{number}"), answers, **more)


ITEMS = (
    item(1, "red", scenario=B, group="colours"),
    item(2, "green", scenario=M, group="colours"),
    item(3, "blue sky", scenario=E, group="colours"),
    item(4, scenario=R),
    item(5, "five", planted=("six",), group="numbers"),
    item(6, "seven", planted=("eight",), group="numbers"),
    item(7, "nine", planted=("ten",), group="numbers"),
    item(8, "eleven"),
)
#          q1 right; q2 refused; q3 half right; q4 refused rightly; q5 planted; q6 both; q7 failed; q8 wrong
LEFT = ("Red", None, "blue", None, "six", "seven, not eight", FAILED, "twelve")
LEFT_TAKEN = (B, R, M, R, E, E, None, M)
#          right; right; right; answered although it has none; right; failed; right; refused
RIGHT = ("red", "green", "the blue sky", "purple", "five", FAILED, "nine", None)
RIGHT_TAKEN = (B, M, B, M, E, None, E, R)


def rows(
    name: str,
    answers: Sequence[Any],
    taken: Sequence[Strategy | None],
    *,
    of: str = "hand",
    scores: Sequence[Mapping[str, float]] = (),
    usage: Usage | None = None,
) -> list[Row]:
    made = []
    for place, (answer, strategy) in enumerate(zip(answers, taken, strict=True)):
        if answer is FAILED:
            made.append(Row(name, of, f"q{place + 1}", error="BackendError: HTTP 500", attempts=3))
            continue
        number = scores[place] if scores else {}
        made.append(
            Row(name, of, f"q{place + 1}", answer, strategy, "why", scores=number, standalone=usage, incremental=usage)
        )
    return made


def made(
    path: Path,
    found: Sequence[Row],
    *,
    systems: Sequence[System] = (system("left"), system("right")),
    items: Sequence[Item] = ITEMS,
    name: str = "hand",
    **conditions: Any,
) -> Path:
    """A run file with these rows."""
    plan = RunPlan(
        systems, [QuestionSet(name, items)], conditions, {"command": "arbitrag bench run", "arbitrag": "0.1.0"}
    )
    with Store.create(path, plan) as store, store.together():
        for row in found:
            store.record(row)
    return path


def by_hand(path: Path) -> Path:
    """Both systems on all questions."""
    return made(path, [*rows("left", LEFT, LEFT_TAKEN), *rows("right", RIGHT, RIGHT_TAKEN)])
