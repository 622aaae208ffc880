"""Every question of a run with what each system made of it: answer, verdict, and the passages that it read.

A page shows so many that it stays a file to open: at most ``MOST`` questions of a set and ``MOST_LETTERS`` in all.
Where not all fit, those come first on which the systems differ, because they are what a comparison rests on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from arbitrag.evaluate.metrics.answers import METRICS
from arbitrag.evaluate.questions import Item
from arbitrag.evaluate.report.measure import RunResults
from arbitrag.evaluate.report.report import LISTED, Report, SetReport
from arbitrag.evaluate.run.store import Row
from arbitrag.serialization import from_plain
from arbitrag.text import one_line
from arbitrag.types import Passage, Verdict

MOST = LISTED  # questions of a set
MOST_LETTERS = 6_000_000  # of all sets together
_PASSAGE, _TEXT = 400, 300  # characters of one


class RunVerdicts(RunResults, Protocol):
    """What this reads of a run; ``evaluate.run.store.Store`` is one."""

    def row(self, set: str, system: str, question: str) -> Row | None: ...

    def verdict(self, system: str, set: str, question: str) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class RetrievedPassage:
    """A passage that at least one system found, called by its ``number`` among those of the question."""

    number: int
    words: str
    place: str
    poisoned: bool


@dataclass(frozen=True, slots=True)
class SystemAnswer:
    """What one system made of a question. ``kind`` is right, wrong, refused, due, failed or none.

    ``read`` and ``dropped`` are the numbers of passages, the latter with their reason.
    """

    system: str
    kind: str
    answer: str
    why: str
    read: tuple[int, ...]
    dropped: tuple[tuple[tuple[int, ...], str], ...]
    unread: int


@dataclass(frozen=True, slots=True)
class QuestionDetail:
    """A question with its gold, the answers in the order of the systems, and the passages that were found."""

    id: str
    text: str
    facts: tuple[tuple[str, str], ...]
    answers: tuple[SystemAnswer, ...]
    passages: tuple[RetrievedPassage, ...]


@dataclass(frozen=True, slots=True)
class QuestionList:
    """The questions of a set that are shown, of ``questions`` in it, and in words which."""

    questions: int
    shown: tuple[QuestionDetail, ...]
    note: str


def question_lists(
    run: RunVerdicts, report: Report, *, most: int = MOST, letters: int = MOST_LETTERS
) -> dict[str, QuestionList]:
    """The questions of each set of a report, by the set's name. Raises DataError for a run that cannot be read."""
    found = {}
    for each in report.sets:
        found[each.name] = _question_list(run, each, most, letters // max(1, len(report.sets)))
    return found


def _question_list(run: RunVerdicts, found: SetReport, most: int, letters: int) -> QuestionList:
    items = run.items(found.name, passages=False)
    systems = [each.system for each in found.statistics]
    shown: list[QuestionDetail] = []
    room = letters
    for place in _order(found, items, most):
        each = _question_detail(run, found, items[place], systems)
        room -= _letters(each)
        if room < 0:
            break
        shown.append(each)
    if len(shown) == len(items):
        return QuestionList(len(items), tuple(shown), f"all {len(items):,} questions")
    which = "those on which the systems differ first" if len(items) > most else "the first that fit a page"
    return QuestionList(
        len(items),
        tuple(shown),
        f"{len(shown):,} of {len(items):,} questions are shown, {which}; "
        "any other is shown by: arbitrag bench show RUN.db --question ID",
    )


def _order(found: SetReport, items: Sequence[Item], most: int) -> list[int]:
    """The places of the questions to show, in their order: those first on which systems differ, then others."""
    differing = set(found.differing)
    ranked = sorted(range(len(items)), key=lambda place: items[place].id not in differing)
    return sorted(ranked[:most])


def _question_detail(run: RunVerdicts, found: SetReport, item: Item, systems: Sequence[str]) -> QuestionDetail:
    numbers: dict[tuple[str, str], int] = {}
    passages: list[RetrievedPassage] = []

    def number(passage: Passage) -> int:
        key = (passage.id, passage.text)
        if key not in numbers:
            numbers[key] = len(numbers) + 1
            poisoned = passage.id in item.poisoned
            title = f"{passage.title}: " if passage.title else ""
            words, place = one_line(f"{title}{passage.text}", _PASSAGE), one_line(passage.place, 120)
            passages.append(RetrievedPassage(numbers[key], words, place, poisoned))
        return numbers[key]

    answers = tuple(_system_answer(run, found, item, system, number) for system in systems)
    facts = [("Gold", " | ".join(item.answers) or "none; refusing is right")]
    facts += [("Options", " | ".join(item.question.options))] if item.question.options else []
    facts += [("Scenario", item.scenario.value)] if item.scenario else []
    facts += [("Planted", " | ".join(item.planted))] if item.planted else []
    facts += [("Group", item.group)] if item.group else []
    told = tuple((key, one_line(value, _TEXT)) for key, value in facts)
    return QuestionDetail(one_line(item.id, 80), one_line(item.question.text, _TEXT), told, answers, tuple(passages))


def _system_answer(run: RunVerdicts, found: SetReport, item: Item, system: str, number: Any) -> SystemAnswer:
    row = run.row(found.name, system, item.id)
    name = one_line(system, 120)
    if row is None:
        return SystemAnswer(name, "none", "no row yet", "", (), (), 0)
    if row.strategy is None:
        return SystemAnswer(name, "failed", "failed", one_line(row.error, _TEXT), (), (), row.parse_failures)
    right = METRICS[found.judge](row.answer, item) > 0
    kind = ("due" if right else "refused") if row.answer is None else "right" if right else "wrong"
    plain = run.verdict(system, found.name, item.id)
    answer = "refused" if row.answer is None else one_line(row.answer, _TEXT) or "(empty)"
    trusted = "" if row.answer is None else f"trusted {row.strategy.value} · "
    why = f"{trusted}{one_line(row.why, _TEXT)}"
    if plain is None:
        return SystemAnswer(name, kind, answer, why, (), (), row.parse_failures)
    try:
        verdict = from_plain(Verdict, plain)
    except ValueError:  # a method of one's own may keep what is no verdict of ours
        return SystemAnswer(name, kind, answer, why, (), (), row.parse_failures)
    read = tuple(number(passage) for passage in verdict.kept)
    reasons: dict[str, list[int]] = {}
    for each in verdict.dropped:
        reasons.setdefault(one_line(each.reason, 120), []).append(number(each.passage))
    dropped = tuple((tuple(numbers), reason) for reason, numbers in reasons.items())
    return SystemAnswer(name, kind, answer, why, read, dropped, row.parse_failures)


def _letters(shown: QuestionDetail) -> int:
    """About how much of a file it takes."""
    passages = sum(len(each.words) + len(each.place) + 80 for each in shown.passages)
    answers = sum(len(each.answer) + len(each.why) + 160 for each in shown.answers)
    return len(shown.text) + sum(len(value) for _, value in shown.facts) + passages + answers + 300
