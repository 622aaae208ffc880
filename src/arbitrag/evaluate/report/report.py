"""A report of a run: one value with every figure in it, from which text, pages and files are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arbitrag.errors import UsageError, unknown
from arbitrag.evaluate.report.measure import MeasuredSet, RunResults, measure
from arbitrag.evaluate.report.statistics import (
    LEVEL,
    Pair,
    Slice,
    SystemStatistics,
    comparisons,
    pairs,
    resamples_for,
    slices,
    system_statistics,
)
from arbitrag.serialization import to_plain
from arbitrag.text import one_line

SIGNIFICANT = 0.05
LISTED = 300
RULES = (
    "Every comparison is over the same questions: those for which each system has a row.",
    "A failed row scores 0 and stays in every count of questions; it is neither an answer nor a refusal.",
    "A refusal scores 1 where refusing is right, and 0 elsewhere.",
    "Risk is the share of wrong answers among those given; reliability is right - wrong over all questions.",
)


@dataclass(frozen=True, slots=True)
class Made:
    """A system of the run, and how it was set."""

    name: str
    method: str
    settings: Mapping[str, Any]
    model: str


@dataclass(frozen=True, slots=True)
class SetReport:
    """A question set: ``questions`` in it, of which ``compared`` have a row of each of the systems in ``figures``.

    ``differing`` are ids of questions, ``LISTED`` at most, that some systems have right and others not. ``waiting`` are
    systems without any row. ``judge`` is the metric that says what is right, in refusals, scenarios
    and groups. ``baseline`` is the system that the marks compare with, None where it has no row.
    """

    name: str
    digest: str
    questions: int
    compared: int
    waiting: tuple[str, ...]
    metrics: tuple[str, ...]
    judge: str
    baseline: str | None
    level: float
    resamples: int
    seed: int
    statistics: tuple[SystemStatistics, ...]
    pairs: tuple[Pair, ...]
    slices: tuple[Slice, ...]
    differing: tuple[str, ...]

    def pair(self, metric: str, left: str, right: str) -> Pair | None:
        """The comparison of two systems in this order or the other; None where there is none."""
        wanted = {left, right}
        return next((pair for pair in self.pairs if pair.metric == metric and {pair.left, pair.right} == wanted), None)


@dataclass(frozen=True, slots=True)
class Report:
    """``about`` is what the run says of itself; ``command`` made the report; ``rules`` say how it counts."""

    run: str
    command: str
    about: Mapping[str, Any]
    rules: tuple[str, ...]
    systems: tuple[Made, ...]
    sets: tuple[SetReport, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        plain: dict[str, Any] = to_plain(self)
        return plain


def report(
    run: RunResults,
    *,
    name: str = "",
    command: str = "",
    metrics: Sequence[str] = (),
    sets: Sequence[str] = (),
    systems: Sequence[str] = (),
    baseline: str | None = None,
    confidence: str = "confidence",
    resamples: int | None = None,
    seed: int = 0,
    show: Callable[[int, int, str], None] = lambda done, total, note: None,
) -> Report:
    """Measure a run, all of it unless ``sets`` and ``systems`` are named.

    ``baseline`` is the first system unless it is named; ``confidence`` is the named score by which answers are
    ordered for the area under the risk-coverage curve. Without ``resamples`` there are 10,000 for each interval, fewer
    beyond 2,000 questions. ``show(done, total, set)`` is told of every set.

    Raises:
        UsageError: a metric, set, system or baseline is not known.
        DataError: the run cannot be read, or multiple choice was asked of a set that is none.
    """
    known = [system.name for system in run.systems]
    used = named("system", systems, known)
    wanted = named("question set", sets, run.sets)
    first = named("baseline", [baseline], used)[0] if baseline is not None else next(iter(used), None)
    made = []
    for done, each in enumerate(wanted):
        show(done, len(wanted), each)
        measured = measure(run, each, used, metrics=metrics, confidence=confidence)
        made.append(_set_report(measured, digest_of(run.meta, each), first, confidence, resamples, seed))
    return Report(
        name,
        command,
        plain_of(run.meta),
        (*_asked(run), *RULES),
        tuple(
            Made(each.name, each.method, plain_of(each.settings), each.model)
            for each in run.systems
            if each.name in used
        ),
        tuple(made),
    )


def _asked(run: RunResults) -> list[str]:
    """How the questions were asked, as far as the run noted it."""
    meta = run.meta
    limits = meta.get("limits", {})
    if not {"context_tokens", "answer_tokens"} <= limits.keys() or "passages" not in meta:
        return []
    models = ", ".join(dict.fromkeys(system.model for system in run.systems))
    passages = "the questions' own passages" if meta["passages"] == "given" else "retrieved passages"
    return [
        f"Every system had {passages}, of up to {limits['context_tokens']:,} tokens, and {limits['answer_tokens']:,} "
        f"tokens for an answer; model: {one_line(models, 200)}."
    ]


def named(kind: str, asked: Sequence[str], known: Sequence[str]) -> list[str]:
    """The names asked for, in the order known; all of them where none is asked for.

    Raises UsageError for one that is not known.
    """
    for name in asked:
        if name not in known:
            raise unknown(kind, name, known)
    return [name for name in known if not asked or name in asked]


def plain_of(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping as plain JSON values."""
    plain: dict[str, Any] = to_plain(mapping)
    return plain


def _set_report(
    measured: MeasuredSet, digest: str, baseline: str | None, confidence: str, resamples: int | None, seed: int
) -> SetReport:
    if resamples is not None and resamples < 1:
        raise UsageError(f"resamples must be 1 or more; got {resamples}")
    number = resamples or resamples_for(len(measured.items))
    found = comparisons(measured, number, seed)
    return SetReport(
        measured.name,
        digest,
        measured.questions,
        len(measured.items),
        measured.waiting,
        tuple(metric.name for metric in measured.metrics),
        measured.judge.name,
        baseline if baseline in measured.systems else None,
        LEVEL,
        number,
        seed,
        tuple(system_statistics(measured, system, found, confidence) for system in measured.systems),
        pairs(measured, found, number, seed),
        slices(measured),
        _differing(measured),
    )


def _differing(measured: MeasuredSet) -> tuple[str, ...]:
    """The ids of the first questions that are right for some systems and wrong for others."""
    if not measured.systems:
        return ()
    right = np.stack(list(measured.right.values()))
    places = np.flatnonzero(right.any(axis=0) & ~right.all(axis=0))[:LISTED]
    return tuple(measured.items[place].id for place in places.tolist())


def digest_of(meta: Mapping[str, Any], name: str) -> str:
    """The digest of a set as the run recorded it; empty where it did not."""
    recorded = meta.get("sets", {}).get(name, "")
    return str(recorded["digest"]) if isinstance(recorded, Mapping) else str(recorded)
