"""What a run recorded of one method, question by question: the numbers that it decided by, and every call.

Systems of a run that differ in nothing but the settings that are tuned asked the same questions of the same model, so
what one of them recorded serves the others: each question is decided again from the calls of all of them together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from arbitrag.errors import DataError, UsageError, unknown
from arbitrag.evaluate.questions import Item
from arbitrag.evaluate.report.measure import RunMetadata
from arbitrag.evaluate.run.store import System
from arbitrag.evaluate.tune.grid import Round, Show
from arbitrag.serialization import from_plain
from arbitrag.text import one_line
from arbitrag.trace import FORMAT, Call, Trace
from arbitrag.types import Decision

Read = Callable[[Sequence[Decision]], tuple[Round, ...]]
_TOLERANCE = 1e-6  # the last bits of an encoder depend on what else was in its batch
_UNUSED = {
    "failed": "failed",
    "waiting": "not yet answered",
    "untraced": "answered without a trace",
    "damaged": "with a damaged trace",
}


class Recorded(RunMetadata, Protocol):
    """What tuning reads of a run; ``evaluate.run.store.Store`` is one."""

    def done(self, set: str, system: str) -> Mapping[str, bool]: ...

    def trace(self, system: str, set: str, question: str) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class Case:
    """A question that can be decided again, the numbers of its decision, and the ``systems`` that recorded them."""

    item: Item
    rounds: tuple[Round, ...]
    systems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """The questions of a set: ``cases`` can be decided again, and ``ids`` has those of the others by why.

    "failed" has a failed row only; "waiting" none; "untraced" no trace; "damaged" one that cannot be read. "apart" are
    cases of which the systems recorded different numbers, so that only the first one's calls count.
    """

    cases: tuple[Case, ...]
    ids: Mapping[str, tuple[str, ...]]


def alike(
    run: Recorded, method: str, tuned: Collection[str], fixed: Mapping[str, object], wanted: str | None = None
) -> tuple[System, ...]:
    """The systems with this method that differ only in what is ``tuned``; those like ``wanted`` where it is named.

    Raises UsageError when there is none, when there are several kinds and none is named, or when a setting is not as
    ``fixed`` says.
    """
    own = {system.name: system for system in run.systems if system.method == method}
    if not own:
        there = ", ".join(dict.fromkeys(system.method for system in run.systems)) or "none"
        raise UsageError(f"the run has no {method}; its methods: {one_line(there, 200)}")
    if wanted is not None and wanted not in own:
        raise unknown("system", wanted, list(own))
    forms: dict[str, list[System]] = {}
    for system in own.values():
        others = {key: value for key, value in system.settings.items() if key not in tuned}
        forms.setdefault(json.dumps([system.model, others], sort_keys=True), []).append(system)
    if wanted is None and len(forms) > 1:
        names = "; ".join(one_line(form[0].name, 100) for form in forms.values())
        raise UsageError(f"the run has {method} in {len(forms)} forms; choose one with --system: {names}")
    chosen = next(form for form in forms.values() if wanted is None or own[wanted] in form)
    for key, value in fixed.items():
        if (got := chosen[0].settings.get(key, value)) != value:
            raise UsageError(
                f"{method} with {key}={got} decides by no threshold, so there is nothing to tune; choose another"
            )
    return tuple(chosen)


def recorded(run: Recorded, set: str, systems: Sequence[System], read: Read, show: Show) -> Record:
    """Look up every question of a set. Raises DataError when there is none that can be decided again."""
    done = {system.name: run.done(set, system.name) for system in systems}
    ids: dict[str, list[str]] = {}
    cases: list[Case] = []
    items = run.items(set, passages=False)
    for number, item in enumerate(items):
        show(number, len(items), "reading what was recorded")
        rows = {name: rows[item.id] for name, rows in done.items() if item.id in rows}
        traces = {name: run.trace(name, set, item.id) for name, failed in rows.items() if not failed}
        rounds = {name: _rounds(trace, read) for name, trace in traces.items() if trace is not None}
        readable = {name: each for name, each in rounds.items() if each is not None}
        if readable:
            cases.append(_joined(item, readable))
            why = "apart" if len(cases[-1].systems) < len(rounds) else ""
        else:
            why = "damaged" if rounds else "untraced" if traces else "failed" if rows else "waiting"
        if why:
            ids.setdefault(why, []).append(item.id)
    if not cases:
        name, counts = (
            one_line(systems[0].name, 100),
            (f"{len(ids[key])} {_UNUSED[key]}" for key in _UNUSED if key in ids),
        )
        raise DataError(
            f"nothing of {name} on {one_line(set, 100)} can be decided again: {', '.join(counts)}.\n"
            "Record it with its calls, in a new file: arbitrag bench run NEW.db --questions ... "
            f"--method {systems[0].method} --traces"
        )
    return Record(tuple(cases), {key: tuple(each) for key, each in ids.items()})


def joined_trace(run: Recorded, set: str, case: Case) -> Trace:
    """The trace of the first system, with the calls and prompts of the others that it lacks.

    Raises ValueError for a trace that is damaged.
    """
    first, *others = (from_plain(Trace, run.trace(name, set, case.item.id)) for name in case.systems)
    calls, known = list(first.calls), {_key(call) for call in first.calls}
    prompts = {role: dict(texts) for role, texts in first.prompts.items()}
    for other in others:
        new = [call for call in other.calls if _key(call) not in known]
        calls += new
        known |= {_key(call) for call in new}
        for role, texts in other.prompts.items():
            prompts[role] = {**texts, **prompts.get(role, {})}
    return replace(first, calls=tuple(calls), prompts=prompts)


def _key(call: Call) -> str:
    return json.dumps([call.kind, call.role, call.request], sort_keys=True)


def _rounds(plain: Mapping[str, Any], read: Read) -> tuple[Round, ...] | None:
    """The numbers in a trace; None when it is damaged or of another format."""
    if plain.get("format") != FORMAT:
        return None
    try:
        rounds = read(from_plain(tuple[Decision, ...], plain["decisions"]))
        finite = all(math.isfinite(value) for each in rounds for value in each.values())
    except (ValueError, TypeError, LookupError, OverflowError):
        return None
    return rounds if finite else None


def _joined(item: Item, rounds: Mapping[str, tuple[Round, ...]]) -> Case:
    """What the systems recorded together: the longest rounds, and the systems whose rounds are how those begin."""
    first = next(iter(rounds.values()))
    longest = max((each for each in rounds.values() if _agree(each, first)), key=len)
    together = (name for name, each in rounds.items() if _agree(each, first) and _agree(each, longest))
    return Case(item, longest, tuple(together))


def _agree(left: Sequence[Round], right: Sequence[Round]) -> bool:
    """Whether one begins with the other."""
    return all(
        a.keys() == b.keys() and all(abs(a[key] - b[key]) <= _TOLERANCE for key in a)
        for a, b in zip(left, right, strict=False)
    )
