"""What a run recorded of one method, question by question: the numbers that it decided by, and every call.

Systems of a run that differ in nothing but the settings that are tuned asked the same questions of the same model, so
what one of them recorded serves the others: each question is decided again from the calls of all of them together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from arbitrag.errors import DataError, UsageError, unknown
from arbitrag.evaluate.questions import Item
from arbitrag.evaluate.report.measure import RunMetadata
from arbitrag.evaluate.run.store import System
from arbitrag.serialization import from_plain
from arbitrag.text import one_line
from arbitrag.trace import FORMAT, Call, Trace
from arbitrag.types import Decision

Show = Callable[[int, int, str], None]
Round = Mapping[str, float]
Read = Callable[[Sequence[Decision]], tuple[Round, ...]]  # the numbers of a decision, a round each
_NOISE = 1e-6  # the last bits of an encoder depend on what else it read


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
    """The questions of a set by what was recorded of them, by id where they cannot be decided again.

    ``failed`` has a failed row only; ``waiting`` none; ``untraced`` no trace; ``damaged`` one that cannot be read.
    ``apart`` are questions of which the systems recorded different numbers, so that only the first one's calls count.
    """

    cases: tuple[Case, ...]
    failed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    untraced: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


def family(run: Recorded, method: str, tuned: Collection[str], wanted: str | None = None) -> tuple[System, ...]:
    """The systems with this method that differ only in what is ``tuned``; those like ``wanted`` where it is named.

    Raises UsageError when there is none, or when there are several kinds and none is named.
    """
    own = [system for system in run.systems if system.method == method]
    if not own:
        there = ", ".join(dict.fromkeys(system.method for system in run.systems)) or "none"
        raise UsageError(f"the run has no {method}; its methods: {one_line(there, 200)}")
    alike: dict[str, list[System]] = {}
    for system in own:
        fixed = {key: value for key, value in system.settings.items() if key not in tuned}
        alike.setdefault(json.dumps([system.model, fixed], sort_keys=True), []).append(system)
    if wanted is not None:
        if wanted not in [system.name for system in own]:
            raise unknown("system", wanted, [system.name for system in own])
        return next(tuple(group) for group in alike.values() if wanted in [system.name for system in group])
    if len(alike) > 1:
        names = "; ".join(one_line(group[0].name, 100) for group in alike.values())
        raise UsageError(f"the run has {method} in {len(alike)} forms; choose one with --system: {names}")
    return tuple(own)


def recorded(run: Recorded, set: str, systems: Sequence[System], read: Read, show: Show) -> Record:
    """Look up every question of a set. Raises DataError when there is none that can be decided again."""
    done = {system.name: run.done(set, system.name) for system in systems}
    found: dict[str, list[str]] = {key: [] for key in ("failed", "waiting", "untraced", "damaged", "apart")}
    cases: list[Case] = []
    items = run.items(set, passages=False)
    for number, item in enumerate(items):
        show(number, len(items), "reading what was recorded")
        rows = [(name, rows[item.id]) for name, rows in done.items() if item.id in rows]
        finished = [name for name, failed in rows if not failed]
        if not finished:
            found["failed" if rows else "waiting"].append(item.id)
            continue
        plains = {name: run.trace(name, set, item.id) for name in finished}
        kept = {name: plain for name, plain in plains.items() if plain is not None}
        if not kept:
            found["untraced"].append(item.id)
            continue
        rounds = {name: _rounds(plain, read) for name, plain in kept.items()}
        case = _joined(item, {name: each for name, each in rounds.items() if each is not None})
        if case is None:
            found["damaged"].append(item.id)
            continue
        if len(case.systems) < len(kept):
            found["apart"].append(item.id)
        cases.append(case)
    record = Record(tuple(cases), **{key: tuple(ids) for key, ids in found.items()})
    if not cases:
        raise _nothing(set, systems, record)
    return record


def joined_trace(run: Recorded, set: str, case: Case) -> Trace:
    """The trace of the first system, with the calls and prompts of the others that it lacks.

    Raises ValueError for a trace that is damaged.
    """
    first, *others = (from_plain(Trace, run.trace(name, set, case.item.id)) for name in case.systems)
    calls = {_key(call): None for call in first.calls}
    more: list[Call] = []
    prompts = {role: dict(texts) for role, texts in first.prompts.items()}
    for other in others:
        new = [call for call in other.calls if _key(call) not in calls]
        more += new
        calls |= dict.fromkeys(map(_key, new))
        for role, texts in other.prompts.items():
            prompts[role] = {**texts, **prompts.get(role, {})}
    return replace(first, calls=(*first.calls, *more), prompts=prompts)


def _key(call: Call) -> str:
    return json.dumps([call.kind, call.role, call.request], sort_keys=True)


def _rounds(plain: Mapping[str, Any], read: Read) -> tuple[Round, ...] | None:
    """The numbers in a trace; None when it is damaged or of another format."""
    if plain.get("format") != FORMAT:
        return None
    try:
        return read(from_plain(tuple[Decision, ...], plain["decisions"]))
    except (ValueError, TypeError, LookupError):
        return None


def _joined(item: Item, rounds: Mapping[str, tuple[Round, ...]]) -> Case | None:
    """What the systems recorded together: the longest rounds, and the systems whose rounds are how those begin."""
    if not rounds:
        return None
    first = next(iter(rounds.values()))
    alike = {name: each for name, each in rounds.items() if _agree(each, first)}
    longest = max(alike.values(), key=len)
    together = tuple(name for name, each in alike.items() if _agree(each, longest))
    return Case(item, longest, together)


def _agree(left: Sequence[Round], right: Sequence[Round]) -> bool:
    """Whether one begins with the other."""
    return all(
        a.keys() == b.keys() and all(abs(a[key] - b[key]) <= _NOISE for key in a)
        for a, b in zip(left, right, strict=False)
    )


def _nothing(set: str, systems: Sequence[System], record: Record) -> DataError:
    name = one_line(systems[0].name, 100)
    counts = ", ".join(
        f"{len(ids)} {words}"
        for ids, words in (
            (record.failed, "failed"),
            (record.waiting, "not yet answered"),
            (record.untraced, "answered without a trace"),
            (record.damaged, "with a damaged trace"),
        )
        if ids
    )
    return DataError(
        f"nothing of {name} on {one_line(set, 100)} can be decided again: {counts}.\n"
        "Record it with its calls, in a new file: arbitrag bench run NEW.db --questions ... "
        f"--method {systems[0].method} --traces"
    )
