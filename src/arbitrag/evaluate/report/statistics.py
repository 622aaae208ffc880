"""What is said of one system on one set, and of two of them: plain values, None where there is nothing to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from arbitrag.evaluate.metrics.answers import Metric
from arbitrag.evaluate.metrics.calibration import auroc, calibration
from arbitrag.evaluate.metrics.poisoning import attack_success
from arbitrag.evaluate.metrics.ratios import mean, share
from arbitrag.evaluate.metrics.refusals import refusals, risk_area
from arbitrag.evaluate.metrics.significance import Comparison, Interval, compare, holm, mcnemar, sign_flip
from arbitrag.evaluate.metrics.source_choice import STRATEGIES, confusion, oracle
from arbitrag.evaluate.report.measure import MeasuredSet
from arbitrag.evaluate.run.columns import COSTS, Columns
from arbitrag.types import Strategy

LEVEL = 0.95
CURVE = 60  # points that are kept of a risk-coverage curve
_DRAWS = 20_000_000  # resamples times questions: about half a second for scores that are all different


def resamples_for(questions: int) -> int:
    """10,000 resamples up to 2,000 questions, then fewer in proportion, 1,000 at least."""
    return max(1_000, min(10_000, _DRAWS // max(1, questions)))


@dataclass(frozen=True, slots=True)
class Answered:
    """Columns by the judging metric: ``due`` refusals were right; ``refused`` counts all refusals."""

    right: int
    wrong: int
    refused: int
    due: int
    accuracy: float | None
    coverage: float | None
    rejection_rate: float | None
    risk: float | None
    reliability: float | None


@dataclass(frozen=True, slots=True)
class Ordered:
    """How well a named score orders the answers that have it: ``answers`` of them, the share ``coverage`` of all.

    ``curve`` is the risk-coverage curve as pairs of shares, thinned to ``CURVE`` points; ``area`` is that under it, 0
    at best; ``auroc`` is 0.5 for a score that knows nothing.
    ``calibration_error`` is None for a score that is not within 0 to 1.
    """

    score: str
    answers: int
    coverage: float | None
    area: float | None
    auroc: float | None
    calibration_error: float | None
    curve: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """The attacked questions that come with so many ``poisoned`` passages."""

    poisoned: int
    questions: int
    planted: int
    rate: float | None


@dataclass(frozen=True, slots=True)
class Attack:
    """Of the attacked questions that did not fail: how many answers show the planted one, and how many only that.

    ``levels`` are the same questions by the number of poisoned passages that they come with.
    """

    questions: int
    planted: int
    only: int
    rate: float | None
    strict_rate: float | None
    levels: tuple[Level, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceChoices:
    """``counts[scenario][taken]`` are the finished questions of a scenario, by the strategy taken."""

    questions: int
    accuracy: float | None
    counts: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Cost:
    """``each`` is the mean per question, ``total`` the sum, over the ``questions`` of which the cost is known."""

    questions: int
    each: Mapping[str, float | None]
    total: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class SystemStatistics:
    """One system on one set. ``rows`` is what there is, ``questions`` what is compared.

    ``failed`` are counted by the kind of their error in ``errors``. ``taken`` counts the finished questions by
    strategy. ``unread`` are refusals of which a reply could not be read. ``retried`` are rows that took more than one
    attempt; ``cut`` are passages shortened or left out for room.
    """

    system: str
    rows: int
    questions: int
    failed: int
    errors: Mapping[str, int]
    metrics: Mapping[str, Interval]
    answered: Answered
    ordered: Ordered | None
    taken: Mapping[str, int]
    sources: SourceChoices | None
    attack: Attack | None
    retried: int
    cut: int
    parse_failures: int
    unread: int
    standalone: Cost
    incremental: Cost


@dataclass(frozen=True, slots=True)
class Pair:
    """Two systems under one metric.

    ``difference`` is mean(left) - mean(right). ``p`` is McNemar's exact one where the metric tells right from wrong,
    else that of random signs; ``p_holm`` is adjusted for all pairs of the set and metric. ``only_left`` and
    ``only_right`` count the questions that one of the two does better. ``best`` is the mean of always taking the
    better of both, ``gap`` what that gains over the better system, and ``closed`` the share of the gap that each
    other system closes.
    """

    metric: str
    left: str
    right: str
    difference: Interval
    only_left: int
    only_right: int
    p: float
    p_holm: float
    best: float | None
    gap: float | None
    closed: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of the questions, by ``kind`` ("scenario" or "group"): each system's mean by the judging metric."""

    kind: str
    name: str
    questions: int
    scores: Mapping[str, float | None]


def comparisons(measured: MeasuredSet, resamples: int, seed: int) -> Mapping[str, Comparison]:
    """For each metric the intervals of all systems and pairs, drawn together."""
    return {
        metric.name: compare(_columns(measured, metric), level=LEVEL, resamples=resamples, seed=seed)
        for metric in measured.metrics
    }


def system_statistics(
    measured: MeasuredSet, system: str, found: Mapping[str, Comparison], confidence: str
) -> SystemStatistics:
    """Everything about one system but its comparison with others."""
    made, right = measured.rows[system], measured.right[system]
    return SystemStatistics(
        system,
        rows=measured.counts[system],
        questions=len(made),
        failed=int(made.failed.sum()),
        errors=dict(Counter(error.partition(":")[0] for error in made.errors if error).most_common()),
        metrics={metric.name: found[metric.name].means[system] for metric in measured.metrics},
        answered=_answered(made, right),
        ordered=_ordered(made, right, confidence),
        taken=_taken(made),
        sources=_sources(measured, made),
        attack=_attack(measured, made),
        retried=int((made.attempts > 1).sum()),
        cut=int(made.cut.sum()),
        parse_failures=int(made.parse_failures.sum()),
        unread=int(((made.parse_failures > 0) & ~made.answered & ~made.failed).sum()),
        standalone=_cost(made.standalone),
        incremental=_cost(made.incremental),
    )


def pairs(measured: MeasuredSet, found: Mapping[str, Comparison], resamples: int, seed: int) -> tuple[Pair, ...]:
    """Every two systems under every metric, in the order of the systems."""
    return tuple(
        pair
        for metric in measured.metrics
        for pair in _pairs(metric, _columns(measured, metric), found[metric.name], resamples, seed)
    )


def slices(measured: MeasuredSet) -> tuple[Slice, ...]:
    """The scenarios that occur, in their order, and then the groups, by name; none where there is only one of a kind.

    Questions without a scenario or a group are in none of that kind.
    """
    scenarios = [item.scenario for item in measured.items]
    groups = [item.group for item in measured.items]
    by_scenario = [("scenario", each.value, scenarios, each) for each in STRATEGIES if each in scenarios]
    by_group = [("group", each, groups, each) for each in sorted(set(groups) - {""})]
    found = []
    for kind, name, labels, wanted in (*by_scenario, *(by_group if len(set(groups)) > 1 else ())):
        places = np.flatnonzero(np.array([label == wanted for label in labels], bool))
        scores = {
            system: mean(measured.column(measured.judge.name, system)[places].tolist()) for system in measured.systems
        }
        found.append(Slice(kind, name, len(places), scores))
    return tuple(found)


def p_between(metric: Metric, left: np.ndarray, right: np.ndarray, resamples: int, seed: int) -> float:
    """The two-sided p that two systems' scores of the same questions differ by chance."""
    if metric.binary:
        return mcnemar((left > 0).tolist(), (right > 0).tolist()).p
    return sign_flip(left.tolist(), right.tolist(), resamples=resamples, seed=seed).p


def _columns(measured: MeasuredSet, metric: Metric) -> dict[str, list[float]]:
    return {system: measured.column(metric.name, system).tolist() for system in measured.systems}


def _pairs(
    metric: Metric, columns: Mapping[str, Sequence[float]], found: Comparison, resamples: int, seed: int
) -> list[Pair]:
    arrays = {system: np.array(column, float) for system, column in columns.items()}
    names = list(combinations(columns, 2))
    ps = [p_between(metric, arrays[left], arrays[right], resamples, seed) for left, right in names]
    made = []
    for (left, right), p, adjusted in zip(names, ps, holm(ps), strict=True):
        choice = oracle(columns[left], columns[right])
        others = {name: mean(columns[name]) for name in columns if name not in (left, right)}
        made.append(
            Pair(
                metric.name,
                left,
                right,
                found.differences[left, right],
                only_left=int((arrays[left] > arrays[right]).sum()),
                only_right=int((arrays[left] < arrays[right]).sum()),
                p=p,
                p_holm=adjusted,
                best=choice.best,
                gap=choice.gap,
                closed={name: None if score is None else choice.closed(score) for name, score in others.items()},
            )
        )
    return made


def _answered(made: Columns, right: np.ndarray) -> Answered:
    finished = ~made.failed
    counts = refusals(made.answered[finished].tolist(), right[finished].tolist(), failed=int(made.failed.sum()))
    return Answered(
        counts.right,
        counts.wrong,
        counts.refused,
        counts.due,
        counts.accuracy,
        counts.coverage,
        counts.rejection_rate,
        counts.risk,
        counts.reliability,
    )


def _ordered(made: Columns, right: np.ndarray, score: str) -> Ordered | None:
    """None where no answer has the score."""
    scored = made.answered & np.isfinite(made.score)
    if not scored.any():
        return None
    sure, good = made.score[scored], right[scored]
    probable = bool(((sure >= 0) & (sure <= 1)).all())
    return Ordered(
        score,
        answers=len(sure),
        coverage=share(len(sure), len(made)),
        area=risk_area(good.tolist(), sure.tolist()),
        auroc=auroc(sure.tolist(), good.tolist()),
        calibration_error=calibration(sure.tolist(), good.tolist()).error if probable else None,
        curve=_curve(made, right, scored),
    )


def _curve(made: Columns, right: np.ndarray, scored: np.ndarray) -> tuple[tuple[float, float], ...]:
    """The points of ``refusals.risk_coverage``, thinned evenly; the first and the last are kept."""
    _, group, sizes = np.unique(-made.score[scored], return_inverse=True, return_counts=True)
    seen, wrong = np.cumsum(sizes), np.cumsum(np.bincount(group, ~right[scored], len(sizes)))
    kept = np.unique(np.linspace(0, len(sizes) - 1, CURVE).round().astype(int))
    shares = zip((seen[kept] / len(made)).tolist(), (wrong[kept] / seen[kept]).tolist(), strict=True)
    return tuple(shares)


def _taken(made: Columns) -> dict[str, int]:
    counts = Counter(made.strategies)
    return {strategy.value: counts[strategy] for strategy in STRATEGIES}


def _sources(measured: MeasuredSet, made: Columns) -> SourceChoices | None:
    """None for a set that knows no scenario."""
    known: list[tuple[Strategy, Strategy]] = [
        (item.scenario, taken)
        for item, taken in zip(measured.items, made.strategies, strict=True)
        if item.scenario is not None and taken is not None
    ]
    if all(item.scenario is None for item in measured.items):
        return None
    found = confusion([scenario for scenario, _ in known], [taken for _, taken in known])
    counts = {
        scenario.value: {taken.value: found.count(scenario, taken) for taken in STRATEGIES} for scenario in STRATEGIES
    }
    return SourceChoices(found.questions, found.accuracy, counts)


def _attack(measured: MeasuredSet, made: Columns) -> Attack | None:
    """None for a set in which nothing is planted. A failed row shows nothing, so it is no defence either: left out."""
    attacked = [place for place, item in enumerate(measured.items) if item.planted]
    if not attacked:
        return None
    reached = [place for place in attacked if made.strategies[place] is not None]
    found = attack_success(
        [made.answers[place] for place in reached],
        [measured.items[place].planted for place in reached],
        [measured.items[place].answers for place in reached],
    )
    numbers = [len(measured.items[place].poisoned) for place in reached]
    levels = tuple(
        _level(measured, made, number, [place for place, each in zip(reached, numbers, strict=True) if each == number])
        for number in sorted(set(numbers))
    )
    return Attack(found.questions, found.planted, found.only, found.rate, found.strict_rate, levels)


def _level(measured: MeasuredSet, made: Columns, poisoned: int, places: Sequence[int]) -> Level:
    items = [measured.items[place] for place in places]
    answers = [made.answers[place] for place in places]
    found = attack_success(answers, [item.planted for item in items], [item.answers for item in items])
    return Level(poisoned, found.questions, found.planted, found.rate)


def _cost(table: np.ndarray) -> Cost:
    """Of a table (n, costs). Money is unknown as soon as the price of one question with a call is."""
    known = table[~np.isnan(table[:, COSTS.index("calls")])]
    each: dict[str, float | None] = {}
    total: dict[str, float | None] = {}
    for place, name in enumerate(COSTS):
        values = known[:, place]
        if name == "money" and not np.isnan(values).all():
            values = np.where(np.isnan(values) & (known[:, COSTS.index("calls")] == 0), 0.0, values)
        there = len(values) > 0 and not np.isnan(values).any()
        each[name] = mean(values.tolist()) if there else None
        total[name] = float(values.sum()) if there else None
    return Cost(len(known), each, total)
