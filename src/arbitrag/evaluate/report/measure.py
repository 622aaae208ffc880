"""Scores of the rows of a run by answer metrics: an array (questions, systems) for each metric of a question set.

Three rules hold for every number that a report shows:

- Systems are compared over the same questions only: those of a set for which each of them has a row.
- A failed row is a row. It scores 0 under every metric and stays in every count of questions, but it is neither an
  answer nor a refusal, so that coverage + rejection rate + the share of failed rows is 1.
- Where refusing is right (a question without an answer, or of the scenario ``refuse``), a refusal scores 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from arbitrag.errors import DataError, unknown
from arbitrag.evaluate.metrics.answers import METRICS, Metric
from arbitrag.evaluate.questions import Item
from arbitrag.evaluate.run.columns import Columns
from arbitrag.text import agree, one_line

if TYPE_CHECKING:
    from arbitrag.evaluate.run.store import System


class RunMetadata(Protocol):
    """What was asked in a run, and whom; ``evaluate.run.store.Store`` is one."""

    @property
    def meta(self) -> Mapping[str, Any]: ...

    @property
    def systems(self) -> Sequence[System]: ...

    @property
    def sets(self) -> Sequence[str]: ...

    def items(self, set: str, *, passages: bool = True) -> Sequence[Item]: ...


class RunResults(RunMetadata, Protocol):
    """What a report reads of a run."""

    def columns(self, set: str, system: str, score: str = "") -> Columns: ...


def chosen(names: Sequence[str], items: Sequence[Item]) -> tuple[Metric, ...]:
    """The metrics of these names for a set; without names EM and F1, after multiple choice where the set allows it.

    Raises:
        UsageError: a name is not known.
        DataError: multiple choice was asked for, and a question has no options or none that is a gold answer.
    """
    asked = tuple(dict.fromkeys(names))
    for name in asked:
        if name not in METRICS:
            raise unknown("metric", name, METRICS)
    for name in asked:
        for item in items if METRICS[name].needs_options else ():
            if not _choosable(item):
                raise DataError(
                    f"the metric {name} needs options with a gold answer among them; question "
                    f"'{one_line(item.id, 60)}' has {one_line(' | '.join(item.question.options)) or 'none'}"
                )
    if not asked:
        offered = ("choice", "em", "f1") if items and all(map(_choosable, items)) else ("em", "f1")
        asked = offered
    return tuple(METRICS[name] for name in asked)


def judge(metrics: Sequence[Metric]) -> Metric:
    """The metric that says which answers are right: the first that can; EM where none of them can."""
    return next((metric for metric in metrics if metric.binary), METRICS["em"])


@dataclass(frozen=True)
class MeasuredSet:
    """A set as several systems answered it: the questions that all of them have a row for, in the order of the set.

    ``counts`` are each system's rows before that; a system without any is in ``waiting`` and compared with nobody.
    ``scores[metric]`` is an array (n, systems), its columns in the order of ``systems``.
    """

    name: str
    questions: int
    items: tuple[Item, ...]
    systems: tuple[str, ...]
    waiting: tuple[str, ...]
    counts: Mapping[str, int]
    rows: Mapping[str, Columns]
    metrics: tuple[Metric, ...]
    judge: Metric
    scores: Mapping[str, np.ndarray]

    def column(self, metric: str, system: str) -> np.ndarray:
        """The scores (n,) of one system."""
        return self.scores[metric][:, self.systems.index(system)]

    @property
    def right(self) -> Mapping[str, np.ndarray]:
        """For each system whether each question is right (n,), by the judge; a refusal that was due is."""
        return {system: self.column(self.judge.name, system) > 0 for system in self.systems}


def measure(
    run: RunResults,
    name: str,
    systems: Sequence[str],
    *,
    metrics: Sequence[str] = (),
    confidence: str = "confidence",
    only: Collection[str] | None = None,
) -> MeasuredSet:
    """Score every row of a set, ``only`` of the questions with these ids where given.

    Raises:
        UsageError: a metric is not known.
        DataError: multiple choice was asked for, and a question is none.
    """
    items = run.items(name, passages=False)
    wanted = np.array([only is None or item.id in only for item in items], bool)
    found: dict[str, Columns] = {}
    for system in systems:
        rows = run.columns(name, system, confidence)
        if not wanted.all():
            rows = rows.at(np.flatnonzero(wanted[rows.places]))
        if len(rows):
            found[system] = rows
    common = _common([rows.places for rows in found.values()])
    asked = tuple(items[place] for place in common.tolist())
    named = chosen(metrics, items)
    judging = judge(named)
    used = (*named, judging) if judging not in named else named
    compared = {system: _only(common, rows) for system, rows in found.items()}
    return MeasuredSet(
        name,
        int(wanted.sum()),
        asked,
        tuple(found),
        tuple(system for system in systems if system not in found),
        {system: len(rows) for system, rows in found.items()},
        compared,
        named,
        judging,
        _scores(used, asked, list(compared.values())),
    )


def _common(places: Sequence[np.ndarray]) -> np.ndarray:
    """The places that all have, in rising order."""
    if not places:
        return np.array([], int)
    return reduce(partial(np.intersect1d, assume_unique=True), places)


def _only(common: np.ndarray, rows: Columns) -> Columns:
    return rows if len(rows) == len(common) else rows.at(np.searchsorted(rows.places, common))


def _scores(metrics: Sequence[Metric], items: Sequence[Item], systems: Sequence[Columns]) -> dict[str, np.ndarray]:
    """For each metric the scores (n, systems); an answer that several systems give is scored once."""
    flat: list[float] = []
    nothing = (0.0,) * len(metrics)
    failed = [each.failed.tolist() for each in systems]
    answers = [each.answers for each in systems]
    for place, item in enumerate(items):
        known: dict[str | None, Sequence[float]] = {}
        for theirs, lost in zip(answers, failed, strict=True):
            answer = theirs[place]
            if lost[place]:
                flat += nothing
                continue
            if answer not in known:
                known[answer] = [metric(answer, item) for metric in metrics]
            flat += known[answer]
    numbers = np.array(flat, float).reshape(len(items), len(systems), len(metrics))
    return {metric.name: numbers[:, :, number] for number, metric in enumerate(metrics)}


def _choosable(item: Item) -> bool:
    golds = [gold for gold in item.answers if gold.strip()]
    options = item.question.options
    return bool(options) and (not golds or any(agree(option, gold) for option in options for gold in golds))
