"""Two runs beside each other: what was set differently, what came out differently, and whether that is noise.

Systems and sets are matched by their names; where each run has a single set, these two are. Of a set that is not the
same in both runs, only the questions that are identical in both, passages and gold answers included, are compared.
Each comparison is paired: over the questions for which both runs have a row; failed rows count as wrong, and are
counted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from typing import Any

import numpy as np

from arbitrag.errors import UsageError
from arbitrag.evaluate.metrics.answers import METRICS
from arbitrag.evaluate.metrics.significance import Interval, compare, holm
from arbitrag.evaluate.report.measure import MeasuredSet, RunResults, measure
from arbitrag.evaluate.report.report import SIGNIFICANT, digest_of, named, plain_of
from arbitrag.evaluate.report.statistics import LEVEL, p_between, resamples_for
from arbitrag.serialization import to_plain

DIFF_LINES = 12  # of a prompt
LISTED = 10  # ids of questions that flipped
# What every run has of its own, and what is said elsewhere.
_PASSING = frozenset({"sessions", "sets", "started", "command", "options", "prompts", "unfinished"})


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is not the same; None where a run does not have it. ``lines`` say more, for a reader."""

    what: str
    before: str | None
    after: str | None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricChange:
    """One metric of one system, in both runs, over the same questions; ``difference`` is after - before.

    ``p_holm`` is adjusted for all systems of the set. It is ``noise`` as far as one can tell where that is
    above 0.05.
    """

    metric: str
    before: float | None
    after: float | None
    difference: Interval
    p: float
    p_holm: float
    noise: bool


@dataclass(frozen=True, slots=True)
class SystemChange:
    """A system that is in both runs. ``gained`` and ``lost`` count the questions that became right or wrong by the
    judging metric; their first ids follow."""

    system: str
    questions: int
    failed_before: int
    failed_after: int
    shifts: tuple[MetricChange, ...]
    gained: int
    lost: int
    gained_ids: tuple[str, ...]
    lost_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetDifference:
    """A set in both runs; ``identical`` questions of it are compared, all of them where it is the ``same``."""

    name: str
    name_after: str
    same: bool
    before: int
    after: int
    identical: int
    judge: str
    resamples: int
    systems: tuple[SystemChange, ...]


@dataclass(frozen=True, slots=True)
class RunDifference:
    before: str
    after: str
    changes: tuple[Change, ...]
    sets: tuple[SetDifference, ...]

    def to_dict(self) -> dict[str, Any]:
        """The difference as plain JSON values."""
        plain: dict[str, Any] = to_plain(self)
        return plain


def difference(
    before: RunResults,
    after: RunResults,
    *,
    names: tuple[str, str] = ("", ""),
    metrics: Sequence[str] = (),
    sets: Sequence[str] = (),
    systems: Sequence[str] = (),
    resamples: int | None = None,
    seed: int = 0,
) -> RunDifference:
    """Compare two runs.

    Raises:
        UsageError: a metric, or a set or system that is in both runs, is not known.
        DataError: a run cannot be read.
    """
    both_systems = named("system", systems, _both([s.name for s in before.systems], [s.name for s in after.systems]))
    matched = _matched(before.sets, after.sets)
    both_sets = named("question set", sets, list(matched))
    return RunDifference(
        *names,
        tuple(_changes(before, after)),
        tuple(_set(before, after, (each, matched[each]), both_systems, metrics, resamples, seed) for each in both_sets),
    )


def _both(left: Sequence[str], right: Sequence[str]) -> list[str]:
    return [name for name in left if name in right]


def _matched(before: Sequence[str], after: Sequence[str]) -> dict[str, str]:
    """The names of the sets to compare, by what the first run calls them."""
    if len(before) == len(after) == 1:
        return {before[0]: after[0]}
    return {name: name for name in _both(before, after)}


def _changes(before: RunResults, after: RunResults) -> Iterator[Change]:
    """Settings, versions, prompts and sets that differ, then systems."""
    yield from _unequal(_conditions(before), _conditions(after))
    yield from _prompts(before, after)
    for name in dict.fromkeys([*before.sets, *after.sets]):
        was, now = (digest_of(run.meta, name) if name in run.sets else None for run in (before, after))
        if was != now:
            yield Change(f"question set {name}", was, now, _questions(before, after, name))
    left, right = ({system.name: system for system in run.systems} for run in (before, after))
    for name in dict.fromkeys([*left, *right]):
        if name not in left or name not in right:
            was, now = ("present" if name in side else None for side in (left, right))
            yield Change(f"system {name}", was, now)
        else:
            yield from _unequal(_flat(_of_system(left[name])), _flat(_of_system(right[name])), f"{name}: ")


def _prompts(before: RunResults, after: RunResults) -> Iterator[Change]:
    """Prompt files that differ, by name, with the lines that do; once for all models that they differ alike for."""
    found: dict[tuple[str, str | None, str | None], list[str]] = {}
    left, right = (plain_of(run.meta).get("prompts") or {} for run in (before, after))
    for model in [model for model in left if model in right]:
        for name in sorted({*left[model], *right[model]}):
            digests = (left[model].get(name), right[model].get(name))
            if digests[0] != digests[1]:
                found.setdefault((name, *digests), []).append(model)
    texts = {**getattr(before, "texts", {}), **getattr(after, "texts", {})} if found else {}
    for (name, was, now), models in found.items():
        whose = "" if len(models) == len(left) else f" of {', '.join(models)}"
        yield Change(f"prompt {name}{whose}", was, now, _text_difference(texts.get(was or ""), texts.get(now or "")))


def _text_difference(before: str | None, after: str | None) -> tuple[str, ...]:
    if before is None or after is None:
        return ()
    lines = list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))
    told = [line for line in lines[2:] if not line.startswith("@@")]
    rest = len(told) - DIFF_LINES
    return tuple(told if rest <= 1 else [*told[:DIFF_LINES], f"… and {rest} more lines"])


def _questions(before: RunResults, after: RunResults, name: str) -> tuple[str, ...]:
    """What differs between two sets of one name, in counts and ids."""
    if name not in before.sets or name not in after.sets:
        return ()
    left, right = ({item.id: item for item in run.items(name)} for run in (before, after))
    changed = [key for key, item in left.items() if key in right and right[key] != item]
    parts = (
        ("changed", changed),
        ("only in the first run", [key for key in left if key not in right]),
        ("only in the second", [key for key in right if key not in left]),
    )
    return tuple(
        f"{len(ids):,} {what}: {', '.join(ids[:LISTED])}{', …' if len(ids) > LISTED else ''}"
        for what, ids in parts
        if ids
    )


def _of_system(system: Any) -> dict[str, Any]:
    """What of a system may differ although its name does not."""
    return {"method": system.method, "model": system.model, "identity": system.identity, **plain_of(system.settings)}


def _conditions(run: RunResults) -> dict[str, str]:
    return _flat({key: value for key, value in plain_of(run.meta).items() if key not in _PASSING})


def _unequal(before: Mapping[str, str], after: Mapping[str, str], within: str = "") -> Iterator[Change]:
    for key in dict.fromkeys([*before, *after]):
        if before.get(key) != after.get(key):
            yield Change(within + key, before.get(key), after.get(key))


def _flat(values: Mapping[str, Any], within: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{within}{key} ")
        else:
            flat[within + key] = value if isinstance(value, str) else json.dumps(value)
    return flat


def _set(
    before: RunResults,
    after: RunResults,
    names: tuple[str, str],
    systems: Sequence[str],
    metrics: Sequence[str],
    resamples: int | None,
    seed: int,
) -> SetDifference:
    digests = [digest_of(run.meta, name) for run, name in zip((before, after), names, strict=True)]
    sizes = [len(run.items(name, passages=False)) for run, name in zip((before, after), names, strict=True)]
    same = bool(digests[0]) and digests[0] == digests[1]
    ids = None if same else _identical(before, after, names)
    identical = sizes[0] if ids is None else len(ids)
    number = resamples if resamples is not None else resamples_for(identical)
    if number < 1:
        raise UsageError(f"resamples must be 1 or more; got {number}")
    found, judge = [], "em"
    for system in systems:
        first = measure(before, names[0], [system], metrics=metrics, only=ids)
        used = [metric.name for metric in first.metrics]
        second = measure(after, names[1], [system], metrics=used, only=ids)
        if first.systems and second.systems:
            found.append(_moved(system, first, second, number, seed))
            judge = first.judge.name
    return SetDifference(*names, same, sizes[0], sizes[1], identical, judge, number, _adjusted(found))


def _identical(before: RunResults, after: RunResults, names: tuple[str, str]) -> Collection[str]:
    there = {item.id: item for item in after.items(names[1])}
    return {item.id for item in before.items(names[0]) if there.get(item.id) == item}


def _moved(system: str, first: MeasuredSet, second: MeasuredSet, resamples: int, seed: int) -> SystemChange:
    """The p are not adjusted yet."""
    places = {item.id: place for place, item in enumerate(second.items)}
    pairs = [(place, places[item.id]) for place, item in enumerate(first.items) if item.id in places]
    left, right = np.array(pairs, int).reshape(len(pairs), 2).T
    shifts = []
    for metric in first.metrics:
        was, now = first.column(metric.name, system)[left], second.column(metric.name, system)[right]
        drawn = compare({"now": now.tolist(), "was": was.tolist()}, level=LEVEL, resamples=resamples, seed=seed)
        p = p_between(metric, now, was, resamples, seed)
        means = drawn.means
        shifts.append(
            MetricChange(
                metric.name, means["was"].mean, means["now"].mean, drawn.differences["now", "was"], p, p, False
            )
        )
    was_right, is_right = first.right[system][left], second.right[system][right]
    ids = [first.items[place].id for place in left.tolist()]
    gained = [ids[place] for place in np.flatnonzero(is_right & ~was_right).tolist()]
    lost = [ids[place] for place in np.flatnonzero(was_right & ~is_right).tolist()]
    return SystemChange(
        system,
        len(pairs),
        int(first.rows[system].failed[left].sum()),
        int(second.rows[system].failed[right].sum()),
        tuple(shifts),
        len(gained),
        len(lost),
        tuple(gained[:LISTED]),
        tuple(lost[:LISTED]),
    )


def _adjusted(found: Sequence[SystemChange]) -> tuple[SystemChange, ...]:
    """With p adjusted by Holm, for each metric over all systems."""
    adjusted = {
        metric: iter(holm([shift.p for each in found for shift in each.shifts if shift.metric == metric]))
        for metric in METRICS
    }

    def told(shift: MetricChange) -> MetricChange:
        p = next(adjusted[shift.metric])
        return replace(shift, p_holm=p, noise=p > SIGNIFICANT)

    return tuple(replace(each, shifts=tuple(map(told, each.shifts))) for each in found)
