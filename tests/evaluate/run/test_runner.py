"""Runs: every row made once, failures counted, shared work done and paid once, and the same numbers at any width."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from runner_parts import Breaks, Numbers, given_plan, methods, numbers

from arbitrag.errors import BackendError, CapabilityError, DataError, UsageError
from arbitrag.evaluate.run import runner
from arbitrag.evaluate.run.plan import entries
from arbitrag.evaluate.run.runner import RunProgress, run
from arbitrag.evaluate.run.store import Row, RunPlan, Store
from arbitrag.kit import Kit, Limits
from arbitrag.llm.base import Price
from arbitrag.testing import FixedRetriever
from arbitrag.types import Passage, Strategy, Usage

THREE = ("direct", "rag", "trustmargin")


class Case:
    """A store over some questions, and systems on one scripted model."""

    def __init__(self, path: Path, count: int = 6, chosen: tuple[str, ...] = THREE, **model: Any) -> None:
        self.llm = Numbers(**model)
        self.entries = entries(methods(*chosen), [Kit.of(self.llm)])
        self.plan = given_plan([numbers(count)], [Kit.of(self.llm)], methods(*chosen))
        self.store = Store.create(path, self.plan)

    async def run(self, **options: Any) -> RunProgress:
        return await run(self.store, self.entries, passages="given", **options)

    def rows(self, system: str) -> list[Row]:
        return list(self.store.rows("numbers", system))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


@pytest.fixture
def case(path: Path) -> Iterator[Case]:
    case = Case(path)
    yield case
    case.store.close()


async def test_every_system_answers_every_question(case: Case) -> None:
    progress = await case.run()
    assert (progress.total, progress.done, progress.failed, progress.before) == (18, 18, 0, 0)
    assert [row.question for row in case.rows("direct")] == [f"q{n}" for n in range(1, 7)]
    assert [row.answer for row in case.rows("direct")] == [f"memory {n}" for n in range(1, 7)]
    assert [row.answer for row in case.rows("rag")][:2] == ["evidence 1", "memory 2"]
    margin = case.rows("trustmargin")
    assert [row.strategy for row in margin] == [Strategy.MEMORY, Strategy.BOTH] * 3
    assert margin[0].scores == {"prior": -2.0, "binding": 0.0, "margin": -2.0}
    assert margin[1].scores == {}
    verdict = case.store.verdict("trustmargin", "numbers", "q1")
    assert verdict is not None
    assert [passage["id"] for passage in verdict["kept"]] == ["p1"]
    assert case.store.trace("trustmargin", "numbers", "q1") is None


async def test_shared_calls_are_made_once_and_paid_once(case: Case) -> None:
    await case.run()
    assert sorted(case.llm.asked) == sorted(f"{kind} {n}" for n in range(1, 7) for kind in ("direct", "rag"))
    (direct,), (rag,), (margin,) = ([row for row in case.rows(name) if row.question == "q1"] for name in THREE)
    for row in (direct, rag):
        assert row.standalone == row.incremental
    assert direct.standalone is not None
    assert margin.standalone is not None
    assert margin.incremental is not None
    assert rag.standalone is not None
    # Two generations that others had asked for, and three requests of two scorings each that nobody else makes.
    assert (margin.standalone.generations, margin.standalone.calls, margin.standalone.scorings) == (2, 5, 6)
    assert (margin.incremental.generations, margin.incremental.calls, margin.incremental.scorings) == (0, 3, 6)
    deduplicated = margin.standalone.prompt_tokens - margin.incremental.prompt_tokens
    assert deduplicated == direct.standalone.prompt_tokens + rag.standalone.prompt_tokens
    assert margin.standalone.completion_tokens == direct.standalone.completion_tokens + rag.standalone.completion_tokens
    assert (
        margin.incremental.completion_tokens,
        margin.standalone.cached_tokens,
        margin.incremental.cached_tokens,
    ) == (0, 0, 0)


async def test_money_is_that_of_the_calls_that_were_made(path: Path) -> None:
    case = Case(path, count=2, price=Price(prompt=1_000_000, completion=1_000_000))
    progress = await case.run()
    rows = [row for name in THREE for row in case.rows(name)]
    assert progress.money == sum(
        row.incremental.money for row in rows if row.incremental and row.incremental.money is not None
    )
    for row in rows:
        assert row.standalone is not None
        assert row.standalone.money == row.standalone.prompt_tokens + row.standalone.completion_tokens
    # q2's two answers agree, so TrustMargin asks for nothing that the others did not pay for.
    (agreed,) = [row.incremental for row in case.rows("trustmargin") if row.question == "q2"]
    assert agreed is not None
    assert (agreed.money, agreed.calls) == (0.0, 0)
    case.store.close()


async def test_alone_is_what_a_run_of_that_system_costs(path: Path, tmp_path: Path) -> None:
    case, single = Case(path), Case(tmp_path / "single.db", chosen=("trustmargin",))
    await case.run()
    await single.run()
    for row, only in zip(case.rows("trustmargin"), single.rows("trustmargin"), strict=True):
        assert row.standalone is not None
        assert only.incremental is not None
        assert replace(row.standalone, seconds=0) == replace(only.incremental, seconds=0)
    for each in (case, single):
        each.store.close()


def numbers_of(row: Row) -> Row:
    """What must not depend on how many rows are under way: all but the time, who paid for what is shared, and how many
    calls a row that failed had made by then."""
    assert row.standalone is not None
    return replace(row, standalone=None if row.error else replace(row.standalone, seconds=0), incremental=None)


async def test_the_numbers_are_the_same_with_one_and_with_64_under_way(tmp_path: Path) -> None:
    found, paid = [], []
    for width in (1, 64):
        case = Case(tmp_path / f"{width}.db", count=40, steps=3)
        case.llm.down = {"7": BackendError("down"), "20": BackendError("out")}
        progress = await case.run(concurrency=width)
        assert (case.llm.most_at_a_time > 2) == (width > 1)
        rows = [row for name in THREE for row in case.rows(name)]
        found.append([numbers_of(row) for row in rows])
        paid.append(sum(row.incremental.prompt_tokens for row in rows if row.incremental))
        assert (progress.done, progress.failed) == (120, 6)
        case.store.close()
    assert found[0] == found[1]
    assert paid[0] == paid[1]


@pytest.mark.parametrize("width", [1, 3, 64])
async def test_no_more_rows_are_under_way_than_asked_for(path: Path, width: int) -> None:
    case = Case(path, count=30, chosen=("direct",), steps=5)
    await case.run(concurrency=width)
    assert case.llm.most_at_a_time == min(width, 30)
    case.store.close()


async def test_a_run_goes_on_where_it_stopped_and_asks_nothing_twice(case: Case) -> None:
    seen: list[RunProgress] = []

    def stop(progress: RunProgress) -> None:
        seen.append(progress)
        if progress.done == 7:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        await case.run(concurrency=1, show=stop)
    assert [progress.done for progress in seen] == list(range(1, 8))
    before = {name: case.rows(name) for name in THREE}
    assert sum(map(len, before.values())) == 7
    case.llm.asked.clear()
    progress = await case.run()
    assert (progress.total, progress.done, progress.before) == (11, 11, 7)
    assert all(row in case.rows(name) for name, rows in before.items() for row in rows)
    assert sorted(case.llm.asked) == sorted(f"{kind} {n}" for n in range(3, 7) for kind in ("direct", "rag"))
    assert await case.run() == RunProgress(total=0, before=18)


async def test_failed_rows_are_counted_and_stay_until_they_are_retried(case: Case) -> None:
    case.llm.down = {"3": BackendError("the server is down"), "4": ValueError("4?")}
    progress = await case.run()
    assert (progress.done, progress.failed) == (18, 6)
    failed = [row for row in case.rows("rag") if row.error]
    assert [(row.question, row.error, row.strategy) for row in failed] == [
        ("q3", "BackendError: the server is down", None),
        ("q4", "ValueError: 4?", None),
    ]
    again = await case.run()
    assert (again.total, again.before, again.failed_before) == (0, 12, 6)

    del case.llm.down["3"]
    retried = await case.run(retry=True)
    assert (retried.total, retried.done, retried.failed, retried.before) == (6, 6, 3, 12)
    (better,) = [row for row in case.rows("rag") if row.question == "q3"]
    assert (better.answer, better.error, better.attempts) == ("evidence 3", "", 2)
    assert [(row.question, row.attempts) for row in case.rows("rag") if row.error] == [("q4", 2)]


async def test_a_failure_keeps_what_it_cost_and_a_retry_adds_to_it(path: Path) -> None:
    case = Case(path, count=1, chosen=("direct",))
    case.entries = entries([Breaks()], [Kit.of(case.llm)])
    case.store.extend(replace(case.plan, systems=[case.entries[0].system]))
    progress = await case.run()
    (row,) = case.rows("breaks")
    assert row.error == "KeyError: 'no such place'"
    assert row.standalone is not None
    assert row.incremental is not None
    assert (row.incremental.calls, row.incremental.prompt_tokens) == (
        1,
        progress.tokens - row.incremental.completion_tokens,
    )
    again = await case.run(retry=True)
    (twice,) = case.rows("breaks")
    assert twice.incremental is not None
    assert (twice.attempts, twice.incremental.calls, twice.incremental.prompt_tokens) == (
        2,
        2,
        2 * row.incremental.prompt_tokens,
    )
    assert twice.standalone is not None
    assert twice.standalone.calls == 1
    assert again.tokens == progress.tokens
    case.store.close()


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("nan", "ValueError: Out of range float"),
        ("object", "TypeError: object is not a plain value"),
        ("cancels", "BackendError: the method gave up a call that nobody had cancelled"),
    ],
)
async def test_whatever_a_method_does_is_a_failed_row(path: Path, how: str, error: str) -> None:
    case = Case(path, count=2, chosen=("direct",))
    case.entries = entries([Breaks(how), *methods("direct")], [Kit.of(case.llm)])
    case.store.extend(replace(case.plan, systems=[entry.system for entry in case.entries]))
    progress = await case.run()
    assert (progress.done, progress.failed) == (4, 2)
    assert all(row.error.startswith(error) for row in case.rows(f"breaks how={how}"))
    case.store.close()


async def test_a_run_that_is_cancelled_stops_and_keeps_its_rows(case: Case) -> None:
    task: asyncio.Task[RunProgress]

    def stop(progress: RunProgress) -> None:
        if progress.done == 5:
            task.cancel()

    task = asyncio.ensure_future(case.run(concurrency=2, show=stop))
    with pytest.raises(asyncio.CancelledError):
        await task
    kept = sum(len(case.rows(name)) for name in THREE)
    assert 5 <= kept < 18
    assert (await case.run()).done == 18 - kept


@pytest.mark.parametrize("retry", [False, True])
async def test_fewer_rows_than_were_to_be_made_are_an_error(
    case: Case, monkeypatch: pytest.MonkeyPatch, retry: bool
) -> None:
    case.llm.down = {str(n): BackendError("down") for n in range(1, 7)} if retry else {}
    if retry:
        await case.run()
    every = runner._jobs
    monkeypatch.setattr(runner, "_jobs", lambda *given: islice(every(*given), 2))
    with pytest.raises(DataError, match=r"18 rows were to be made, 2 were, and (2|18) of them are in"):
        await case.run(retry=retry)
    monkeypatch.undo()
    case.llm.down = {}
    assert (await case.run(retry=retry)).failed == 0
    assert all(len(case.rows(name)) == 6 for name in THREE)


async def test_a_row_that_is_said_to_be_kept_and_is_not_is_an_error(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case.store, "record", lambda *given: None)
    with pytest.raises(DataError, match="18 rows were to be made, 18 were, and 0 of them are in"):
        await case.run()


async def test_a_system_takes_part_once(case: Case) -> None:
    with pytest.raises(UsageError, match="rag takes part 2 times; once is enough"):
        await run(case.store, [*case.entries, case.entries[1]], passages="given")
    assert case.llm.asked == []


async def test_traces_are_kept_on_demand(case: Case) -> None:
    case.llm.down = {"3": BackendError("down")}
    await case.run(traces=True)
    trace = case.store.trace("trustmargin", "numbers", "q1")
    assert trace is not None
    assert [call["kind"] for call in trace["calls"]].count("generate") == 2
    failed = case.store.trace("direct", "numbers", "q3")
    assert failed is not None
    assert failed["calls"][0]["error"] == "BackendError: down"


async def test_passages_that_were_shortened_are_counted(path: Path) -> None:
    case = Case(path, count=1)
    (item,) = numbers(1).items
    long = replace(item, passages=(Passage("the fact 1 " * 20, id="a"), Passage("more", id="b")))
    sets = [replace(numbers(1), name="long", items=[long])]
    kit = Kit.of(case.llm, limits=Limits(context_tokens=30))
    case.entries = entries(methods("rag"), [kit])
    store = Store.create(path.with_name("long.db"), given_plan(sets, [kit], methods("rag")))
    await run(store, case.entries, passages="given")
    (row,) = store.rows("long", "rag")
    assert row.cut == 2
    for each in (store, case.store):
        each.close()


async def test_retrieved_passages_are_looked_up_once_for_all_systems(path: Path) -> None:
    class Counting(FixedRetriever):
        asked = 0

        async def retrieve(self, query: str, k: int, where: Any = None) -> tuple[Passage, ...]:
            self.asked += 1
            await asyncio.sleep(0)
            return await super().retrieve(query, k, where)

    retriever = Counting([Passage("the fact", id="p")])
    case = Case(path)
    case.entries = entries(methods(*THREE), [Kit.of(case.llm, retriever)])
    progress = await run(case.store, case.entries, passages="retrieved")
    assert (progress.failed, retriever.asked) == (0, 6)
    case.store.close()


async def test_capabilities_and_widths_are_checked_before_the_first_question(case: Case) -> None:
    with pytest.raises(CapabilityError, match="rag needs passages"):
        await run(case.store, case.entries, passages="retrieved")
    with pytest.raises(UsageError, match="the concurrency is 0"):
        await case.run(concurrency=0)
    assert case.llm.asked == []


async def test_a_full_disk_stops_the_run_and_keeps_its_rows(case: Case) -> None:
    await case.run(concurrency=1, sets=[])
    pages = case.store._all("PRAGMA page_count")[0][0]
    case.store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    seen: list[RunProgress] = []
    wide = "x" * 20_000
    case.llm.down = {str(n): BackendError(wide) for n in range(2, 7)}
    with pytest.raises(DataError, match="the disk is full; what it holds is kept"):
        await case.run(concurrency=4, show=seen.append)
    kept = sum(len(case.rows(name)) for name in THREE)
    assert kept == len(seen) < 18
    case.store._connection.execute("PRAGMA max_page_count = 100000")
    case.llm.down = {}
    assert (await case.run()).done == 18 - kept


async def test_a_plan_needs_passages_of_its_own_when_they_are_to_be_given() -> None:
    kit = Kit.of(Numbers())
    bare = replace(numbers(3), items=[replace(item, passages=None) for item in numbers(3).items])
    with pytest.raises(DataError, match=r"rag is to read the passages of the set numbers, and 3 of its 3 questions"):
        given_plan([bare], [kit], methods("direct", "rag"))
    assert isinstance(given_plan([bare], [kit], methods("direct")), RunPlan)


async def test_threads_take_short_turns_while_rows_are_made(case: Case) -> None:
    before = sys.getswitchinterval()
    seen: list[float] = []
    await case.run(show=lambda progress: seen.append(sys.getswitchinterval()))
    assert seen == pytest.approx([runner.TURN_S] * 18)
    assert sys.getswitchinterval() == before
    sys.setswitchinterval(runner.TURN_S / 2)
    try:
        with runner.short_turns():
            assert sys.getswitchinterval() == pytest.approx(runner.TURN_S / 2), "shorter ones stay"
    finally:
        sys.setswitchinterval(before)


def test_the_tally_adds_up() -> None:
    row = Row("a", "b", "c", incremental=Usage(prompt_tokens=105, cached_tokens=100, completion_tokens=2, money=0.25))
    progress = RunProgress(total=4).plus(row, 2.0).plus(replace(row, error="x", incremental=None), 4.0)
    assert (progress.done, progress.failed, progress.tokens, progress.money, progress.rate) == (2, 1, 7, 0.25, 0.5)
    assert RunProgress(total=4).rate == 0.0
