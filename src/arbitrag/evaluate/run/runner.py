"""Run systems over question sets into a store: concurrently, with request deduplication, each row kept as it ends.

Rows are begun question by question, so that requests which are equal or share a prefix come together. A row that fails,
by whatever error, is recorded as a failed one and the others go on.

With a deterministic engine (``Engine(deterministic=True)``: ``hf:``, ``onnx:`` and ``lab``) a model's answer depends
on its request alone, so that answers, scores and the standalone cost are the same with 1 row under way and with 64.
Which of two systems pays for an equal request still depends on which comes first, though the sum does not; and so does,
for a row that fails, how many of its calls were made by then. Of a server, greedy decoding is all that can be asked;
whether that makes it repeatable is the server's affair.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from arbitrag.errors import BudgetError, DataError, UnreachableError, UsageError
from arbitrag.evaluate.questions import Item
from arbitrag.evaluate.run.deduplication import Deduplication, incremental_cost, standalone_cost, total_usage
from arbitrag.evaluate.run.plan import Entry, Passages
from arbitrag.evaluate.run.store import Row, Store
from arbitrag.kit import Kit, gather
from arbitrag.llm.budget import Budget
from arbitrag.methods.base import Method
from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.run import Failure, attempt, check
from arbitrag.serialization import to_plain
from arbitrag.text import printable
from arbitrag.trace import Call
from arbitrag.types import Usage, Verdict

CONCURRENCY = 64
TURN_S = 0.0002
OnProgress = Callable[["RunProgress"], None]


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is. ``done`` of ``total`` rows were made in this session, ``before`` are kept from earlier ones.

    ``failed`` counts this session's failures, and ``failed_before`` those that still stand from earlier ones. Tokens
    and money are what this session paid; ``money`` is None where no price is known.
    """

    total: int
    before: int = 0
    failed_before: int = 0
    done: int = 0
    failed: int = 0
    tokens: int = 0
    money: float | None = None
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Rows a second; 0 before the first."""
        return self.done / self.seconds if self.seconds else 0.0

    def plus(self, row: Row, seconds: float) -> RunProgress:
        """With one more row."""
        paid = row.incremental or Usage()
        money = self.money if paid.money is None else (self.money or 0.0) + paid.money
        return replace(
            self,
            done=self.done + 1,
            failed=self.failed + bool(row.error),
            tokens=self.tokens + paid.uncached_tokens + paid.completion_tokens,
            money=money,
            seconds=seconds,
        )


async def run(
    store: Store,
    taking_part: Sequence[Entry],
    *,
    sets: Sequence[str] | None = None,
    passages: Passages = "retrieved",
    concurrency: int = CONCURRENCY,
    retry: bool = False,
    traces: bool = False,
    budget: Budget | None = None,
    show: OnProgress | None = None,
) -> RunProgress:
    """Make the rows that the store does not have yet, of its ``sets`` (all of them by default).

    Up to ``concurrency`` rows are under way at a time. ``retry`` makes only rows that failed before. ``traces`` keeps
    every call. ``show`` is told after each row. When this is cancelled, what is finished is kept. A ``budget`` that is
    reached ends the run early; rows that it left unfinished are not recorded.

    Raises CapabilityError before the first question when a kit lacks something, UsageError for a system that comes
    twice or a model without a price that the budget needs, UnreachableError at the first question that shows that a
    server cannot be reached or refuses the key, DataError when the store cannot be written or holds fewer
    rows at the end than were to be made.
    """
    if concurrency < 1:
        raise UsageError(f"the concurrency is {concurrency}; it is 1 or more")
    names = [store.name_of(entry.system) for entry in taking_part]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{twice} takes part {names.count(twice)} times; once is enough")
    await check_all(taking_part, passages)
    if budget is not None:
        taking_part = [replace(entry, kit=entry.kit.with_models(budget.metered)) for entry in taking_part]
    places = {
        (set, name): _Place.of(store, set, name, entry, retry)
        for set in (store.sets if sets is None else sets)
        for name, entry in zip(names, taking_part, strict=True)
    }
    progress = RunProgress(
        total=sum(len(place.waiting) for place in places.values()),
        before=sum(place.finished for place in places.values()),
        failed_before=sum(place.failed for place in places.values()),
    )
    recorder = _Recorder(store, progress, traces, show or (lambda progress: None))
    jobs = _jobs(store, places, passages)  # one iterator for all workers: each takes the next row when it is free

    async def work() -> None:
        while budget is None or await budget.begin():
            job = next(jobs, None)
            try:
                if job is None:
                    return
                await recorder.record(job)
            finally:
                if budget is not None:
                    budget.end()

    with short_turns():
        await gather(*(work() for _ in range(min(concurrency, progress.total))))
    if budget is None or not budget.reached:
        _check_whole(store, places, recorder.progress)
    return recorder.progress


async def check_all(taking_part: Sequence[Entry], passages: Passages) -> None:
    """Raise CapabilityError when the kit of a system lacks something that its method needs."""
    for entry in taking_part:
        given = replace(entry.kit, retriever=FixedRetriever(())) if passages == "given" else entry.kit
        await check(entry.method, given)


@contextmanager
def short_turns() -> Iterator[None]:
    """Let Python's threads take turns of a fifth of a millisecond meanwhile, where they are longer.

    An engine in this process needs Python for a moment between any two passes. With Python's own turns of 5 ms it waits
    for the rows that are being made about as long as they take, and a second core has nothing to do.
    """
    before = sys.getswitchinterval()
    if before <= TURN_S:
        yield
        return
    sys.setswitchinterval(TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _check_whole(store: Store, places: Mapping[tuple[str, str], _Place], progress: RunProgress) -> None:
    """Raise DataError unless every row that was to be made is there: a table must not stand on fewer in silence."""
    there = sum(len(place.waiting.keys() & store.done(*key).keys()) for key, place in places.items())
    if not progress.done == there == progress.total:
        raise DataError(
            f"{progress.total:,} rows were to be made, {progress.done:,} were, and {there:,} of them are in "
            f"{store.path}; this is a fault of Arbitrag. What is there is kept: run the same command again"
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """The rows of one system on one set: the ids that wait to be made, failed ones among them when they are retried."""

    entry: Entry
    waiting: Mapping[str, Row | None]
    finished: int
    failed: int

    @classmethod
    def of(cls, store: Store, set: str, name: str, entry: Entry, retry: bool) -> _Place:
        done = store.done(set, name)
        failed = sum(done.values())
        if retry:
            waiting: dict[str, Row | None] = {row.question: row for row in store.rows(set, name) if row.error}
            return cls(entry, waiting, len(done) - failed, 0)
        waiting = {item.id: None for item in store.items(set, passages=False) if item.id not in done}
        return cls(entry, waiting, len(done) - failed, failed)


@dataclass(frozen=True, slots=True)
class _Job:
    """One row to make; ``old`` is the failed one that it replaces."""

    system: str
    set: str
    item: Item
    method: Method
    kit: Kit
    old: Row | None


def _jobs(store: Store, places: Mapping[tuple[str, str], _Place], passages: Passages) -> Iterator[_Job]:
    """The rows to make, question by question."""
    for set in dict.fromkeys(name for name, _ in places):
        here = [(system, place) for (name, system), place in places.items() if name == set]
        for item in store.items(set, passages=passages == "given"):
            deduplication = Deduplication()
            given = FixedRetriever(item.passages or ()) if passages == "given" else None
            for system, place in here:
                if item.id in place.waiting:
                    kit = place.entry.kit if given is None else replace(place.entry.kit, retriever=given)
                    yield _Job(system, set, item, place.entry.method, deduplication.kit(kit), place.waiting[item.id])


@dataclass(frozen=True, slots=True)
class _Made:
    """A row with its verdict and its trace, as far as there are such."""

    job: _Job
    row: Row
    verdict: Mapping[str, Any] | None = None
    trace: Mapping[str, Any] | None = None


class _Recorder:
    """Makes rows and keeps each as soon as it is there; those that end at the same time are committed together."""

    def __init__(self, store: Store, progress: RunProgress, traces: bool, show: OnProgress) -> None:
        self.progress = progress
        self._store = store
        self._traces = traces
        self._show = show
        self._waiting: list[_Made] = []  # to be committed
        self._began = time.perf_counter()

    async def record(self, job: _Job) -> None:
        made = await self._made(job)
        if made is None:
            return
        self._waiting.append(made)
        if len(self._waiting) == 1:  # the first commits for all that come until it is its turn again
            try:
                await asyncio.sleep(0)
            finally:
                self._commit()

    def _commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        with self._store.together():
            recorded = [self._keep(made) for made in waiting]
        for row in recorded:
            self.progress = self.progress.plus(row, time.perf_counter() - self._began)
            self._show(self.progress)

    def _keep(self, made: _Made) -> Row:
        try:
            self._store.record(_after(made.job.old, made.row), made.verdict, made.trace)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:  # a verdict that no file can hold
            row = replace(_failed(made.job, error), standalone=made.row.standalone, incremental=made.row.incremental)
            self._store.record(_after(made.job.old, row))
            return row
        return made.row

    async def _made(self, job: _Job) -> _Made | None:
        """None for a row that the budget left no room for."""
        clock = time.perf_counter()
        try:
            outcome = await attempt(job.item.question, job.method, job.kit)
            trace = to_plain(outcome.trace) if self._traces else None
            if isinstance(outcome, Failure) and isinstance(outcome.error, BudgetError):
                return None
            if isinstance(outcome, Failure) and isinstance(outcome.error, UnreachableError):
                raise outcome.error
            if isinstance(outcome, Failure):
                row, verdict, seconds = _failed(job, outcome.error), None, time.perf_counter() - clock
            else:
                row, verdict, seconds = _answered(job, outcome), outcome.to_dict(), outcome.usage.seconds
        except UnreachableError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a method does, its row says so and the run goes on
            return _Made(job, _failed(job, error))
        return _Made(job, _with_costs(row, job, outcome.trace.calls, seconds), verdict, trace)


def _answered(job: _Job, verdict: Verdict) -> Row:
    return Row(
        job.system,
        job.set,
        job.item.id,
        verdict.answer,
        verdict.strategy,
        verdict.why,
        scores=verdict.scores,
        cut=len(verdict.cuts) + sum(dropped.no_room for dropped in verdict.dropped),
        parse_failures=int(verdict.scores.get("parse_failures", 0)),
    )


def _failed(job: _Job, error: Exception) -> Row:
    return Row(job.system, job.set, job.item.id, error=printable(f"{type(error).__name__}: {error}"))


def _with_costs(row: Row, job: _Job, calls: Sequence[Call], seconds: float) -> Row:
    prices = {model.role: model.backend.price for model in (job.kit.scorer, job.kit.llm)}
    return replace(
        row, standalone=standalone_cost(calls, seconds, prices), incremental=incremental_cost(calls, seconds)
    )


def _after(old: Row | None, row: Row) -> Row:
    """The row as another attempt at an old one: what that paid was paid as well."""
    if old is None:
        return row
    paid = (
        row.incremental
        if old.incremental is None or row.incremental is None
        else total_usage(old.incremental, row.incremental)
    )
    return replace(row, attempts=old.attempts + 1, incremental=paid)
