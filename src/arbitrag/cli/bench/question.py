"""One question of a run, as every system answered it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arbitrag.cli.verdict import render
from arbitrag.errors import UsageError, nearest
from arbitrag.evaluate.metrics.answers import Metric
from arbitrag.evaluate.questions import Item
from arbitrag.evaluate.report.measure import chosen, judge
from arbitrag.evaluate.report.report import named
from arbitrag.evaluate.run.runfile import decoded
from arbitrag.evaluate.run.store import Row, Store
from arbitrag.serialization import from_plain, to_plain
from arbitrag.text import one_line
from arbitrag.types import Verdict


@dataclass(frozen=True, slots=True)
class Answer:
    """What one system made of it. ``row`` is None where it has none yet, ``verdict`` where that failed too.

    ``scores`` are by metric; ``right`` is what the judging metric says. Both say nothing without a row.
    """

    system: str
    row: Row | None
    verdict: Mapping[str, Any] | None
    scores: Mapping[str, float]
    right: bool | None


@dataclass(frozen=True, slots=True)
class Answers:
    """A question of a set with its gold, and the answers of the systems in their order."""

    set: str
    item: Item
    metrics: tuple[str, ...]
    judge: str
    answers: tuple[Answer, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        item = self.item
        gold = {"answers": item.answers, "scenario": item.scenario, "planted": item.planted, "group": item.group}
        plain: dict[str, Any] = to_plain(
            {
                "set": self.set,
                "question": item.question,
                "gold": {**gold, "poisoned": sorted(item.poisoned)},
                "judge": self.judge,
                "answers": self.answers,
            }
        )
        return plain


def found(store: Store, question: str, sets: Sequence[str], systems: Sequence[str]) -> list[Answers]:
    """The question in every set that has it.

    Raises UsageError for a set, system or question that is not in the run.
    """
    used = named("system", systems, [system.name for system in store.systems])
    there = []
    ids: dict[str, None] = {}
    for each in named("question set", sets, store.sets):
        items = store.items(each, passages=False)
        item = next((item for item in items if item.id == question), None)
        ids |= dict.fromkeys(item.id for item in items)
        if item is not None:
            there.append(_answers(store, each, item, used, chosen((), items)))
    if not there:
        close = nearest(question, ids)
        raise UsageError(
            f"there is no question '{one_line(question)}' in {one_line(str(store.path), 200)}"
            + (f"; did you mean '{one_line(close)}'?" if close else "")
        )
    return there


def told(answers: Answers, width: int) -> str:
    """The question, what is right, and every verdict, on lines of about ``width`` columns."""
    item = answers.item
    lines = [f"{one_line(answers.set)}  {one_line(item.id)}", one_line(item.question.text, 500)]
    lines += [f"Options   {one_line(' | '.join(item.question.options), 500)}"] if item.question.options else []
    lines.append(f"Gold      {one_line(' | '.join(item.answers), 500) or '(none; refusing is right)'}")
    lines += [f"Scenario  {item.scenario.value}"] if item.scenario else []
    lines += [f"Planted   {one_line(' | '.join(item.planted), 500)}"] if item.planted else []
    return "\n".join([*lines, *(line for each in answers.answers for line in ("", *_told(each, width)))])


def _answers(store: Store, name: str, item: Item, systems: Sequence[str], metrics: Sequence[Metric]) -> Answers:
    judging = judge(metrics)
    made = [_answer(store, name, item, system, metrics, judging) for system in systems]
    return Answers(name, item, tuple(metric.name for metric in metrics), judging.name, tuple(made))


def _answer(store: Store, name: str, item: Item, system: str, metrics: Sequence[Metric], judging: Metric) -> Answer:
    row = store.row(name, system, item.id)
    if row is None:
        return Answer(system, None, None, {}, None)
    if row.strategy is None:
        return Answer(system, row, None, {metric.name: 0.0 for metric in metrics}, False)
    scores = {metric.name: metric(row.answer, item) for metric in metrics}
    verdict = store.verdict(system, name, item.id)
    with decoded(store.path):
        _ = None if verdict is None else from_plain(Verdict, verdict)  # said of the file, and not while it is shown
    return Answer(system, row, verdict, scores, judging(row.answer, item) > 0)


def _told(each: Answer, width: int) -> Iterator[str]:
    """The system and how it did; then the verdict, or what went wrong."""
    numbers = ", ".join(f"{metric} {score:.2f}" for metric, score in each.scores.items())
    if each.row is None:
        yield f"{one_line(each.system, 200)}: no row yet"
    elif each.row.strategy is None:
        times = f" after {each.row.attempts} attempts" if each.row.attempts > 1 else ""
        yield f"{one_line(each.system, 200)}: failed{times}, which counts as wrong"
        yield f"Error     {one_line(each.row.error, 1000)}"
    else:
        yield f"{one_line(each.system, 200)}: {'right' if each.right else 'wrong'} ({numbers})"
        yield from _verdict(each.row, each.verdict, width)


def _verdict(row: Row, verdict: Mapping[str, Any] | None, width: int) -> Iterator[str]:
    if verdict is None:  # only the row was kept
        yield f"Answer    {'(none)' if row.answer is None else one_line(row.answer, 500)}"
        yield f"Why       {one_line(row.why, 1000)}"
    else:
        yield render(from_plain(Verdict, verdict), width)
    if row.incremental is not None and row.incremental != row.standalone:
        label = "Cost" if verdict is None else ""
        yield f"{label:<10}incremental: {row.incremental.in_words()}"
    if row.scores:
        yield f"Scores    {', '.join(f'{one_line(key)} {value:.3f}' for key, value in row.scores.items())}"
