"""One session of a run, from what was typed to the rows in the file."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_args

from arbitrag.cli.bench.options import BenchOptions, command_again, open_kits, prices_of, refuse_strangers
from arbitrag.cli.foreign import refuse_foreign
from arbitrag.cli.options import model_from
from arbitrag.cli.terminal.output import complain, progress, say_json
from arbitrag.data.reading import LAB as LAB_QUESTIONS
from arbitrag.errors import UsageError, unknown
from arbitrag.evaluate.questions import QuestionSet
from arbitrag.evaluate.run.plan import Entry, Passages, entries, plan
from arbitrag.evaluate.run.provenance import provenance
from arbitrag.evaluate.run.runner import RunProgress, check_all, run
from arbitrag.evaluate.run.store import Store
from arbitrag.llm.budget import Budget
from arbitrag.methods import method_from
from arbitrag.methods.base import Method, needs_of
from arbitrag.retrieve import LAB
from arbitrag.security.addresses import same_address, shown, without_secrets
from arbitrag.security.trust import FromFile
from arbitrag.text import one_line
from arbitrag.types import Need

METHODS = ("direct", "rag", "trustmargin")  # when none is typed
STOPPED = 3  # the exit status when a limit of tokens or money ended the run
RETRIES = 5  # of a request that a server failed


@dataclass
class Session:
    """``store`` is open for the length of ``run``, and ``tally`` says how far it is."""

    path: Path
    options: BenchOptions
    prices: Sequence[str]
    concurrency: int
    traces: bool
    retry: bool = False
    budget: Budget | None = None
    foreign: bool = False
    store: Store | None = None
    llms: Sequence[str] = ()  # the models of this session
    typed: frozenset[str] = frozenset()  # methods that a person typed
    tally: RunProgress = field(default=RunProgress(0))
    found: FromFile | None = None  # the mark of the models that were typed, where a found file of settings names them
    _unfinished: tuple[int, float] = (0, 0.0)

    def run(
        self, questions: Sequence[str], methods: Sequence[str], llms: Sequence[str], limit: int | None, as_json: bool
    ) -> int:
        """Make the rows, say how it went, and give the exit status: 1 when rows failed."""
        with ExitStack() as opened:
            remembered: Mapping[str, Any] = {}
            if self.retry or (self.path.exists() and self.path.stat().st_size):
                self.store = opened.enter_context(Store.open(self.path, write=True))
                remembered = self._remembered()
            typed, self.options = self.options, self.options.over(remembered, str(self.path))
            sets = self._sets(questions, limit)
            systems = self._systems(methods, llms, remembered)
            about_lab = next((each.name for each in sets if each.name.partition("?")[0] == LAB_QUESTIONS), None)
            if about_lab is not None and not self.foreign:
                asked = systems if questions else llms  # what goes on as it began was let in before
                refuse_foreign(asked, f"the questions of {about_lab} are", "--foreign")
            self.typed = frozenset(methods)
            self.options = replace(self.options, passages=self._passages(sets))
            self.options = replace(self.options, index=self._index(questions, systems, typed.index))
            self.llms = list(systems)
            refuse_strangers(self._command, str(self.path), self.llms, llms, self.options)
            try:
                asyncio.run(self._run(systems, llms, sets, remembered, opened))
            except KeyboardInterrupt:
                kept = self.tally.before + self.tally.done
                complain(
                    f"{kept:,} of {self.tally.before + self.tally.total:,} rows are finished and kept; "
                    f"go on with: {self._again(self._command)}"
                )
                raise
            return self._end(as_json)

    @property
    def _command(self) -> str:
        return "retry" if self.retry else "run"

    def _again(self, command: str) -> str:
        """The command that goes on with this run, or asks its failed rows again."""
        return command_again(command, str(self.path), self.llms, self.options.elsewhere())

    def _remembered(self) -> Mapping[str, Any]:
        """The options of the last session, with a word to the person when it was of another version."""
        assert self.store is not None
        sessions = self.store.meta["sessions"]
        if not sessions:
            return {}
        last, now = sessions[-1], provenance()
        for what in ("arbitrag", "commit"):
            if last.get(what) != now[what]:
                complain(
                    f"Warning: rows in {self.path} were made by {what} {last.get(what)}, and this is {now[what]}; "
                    "the file notes which is which"
                )
                break
        options: Mapping[str, Any] = last.get("options", {})
        return options

    def _sets(self, questions: Sequence[str], limit: int | None) -> list[QuestionSet]:
        """Those that were typed, or all that the run file has."""
        if questions:
            from arbitrag.data import open_set

            return [open_set(each, limit=limit, seed=self.options.seed) for each in questions]
        if limit is not None:
            raise UsageError("--limit is for --questions")
        if self.store is None:
            raise UsageError(
                "a new run needs questions: --questions FILE, or for a try the lab's own: "
                f"arbitrag bench run {shlex.quote(str(self.path))} --questions lab:questions?count=200 --llm lab"
            )
        return [QuestionSet(name, self.store.items(name)) for name in self.store.sets]

    def _systems(
        self, methods: Sequence[str], llms: Sequence[str], remembered: Mapping[str, Any]
    ) -> dict[str, list[str]]:
        """The methods to run on each model: all that were typed on all, or those of the run file as they are there.

        A model of the run file that is typed again goes on with its methods there.
        """
        known: dict[str, list[str]] = {}
        for method, model in self._known():
            known.setdefault(remembered.get("addresses", {}).get(model, model), []).append(method)
        again = {llm: next((each for each in known if same_address(llm, each)), None) for llm in llms}
        if self.retry and None in again.values():
            new = next(llm for llm, before in again.items() if before is None)
            raise unknown("model of this run", shown(new), map(shown, known))
        if known and not methods and None not in again.values():
            renamed = {before: llm for llm, before in again.items()}
            wanted = known if self.retry or not llms else [each for each in known if each in renamed]
            return {renamed.get(each, each): known[each] for each in wanted}
        every = dict.fromkeys(method for names in known.values() for method in names)
        return {llm: list(methods or every or METHODS) for llm in llms or known or [model_from(None)]}

    def _known(self) -> list[tuple[str, str]]:
        return [] if self.store is None else self.store.labels

    def _passages(self, sets: Sequence[QuestionSet]) -> Passages:
        """Which passages are read: as typed, else those of an index, else the questions' own where all have some."""
        typed = self.options.passages
        if typed is not None:
            if typed not in get_args(Passages):
                raise unknown("choice of passages", typed, get_args(Passages))
            return cast(Passages, typed)
        own = all(item.passages is not None for each in sets for item in each.items)
        return "given" if own and self.options.index is None else "retrieved"

    def _index(self, questions: Sequence[str], systems: Mapping[str, list[str]], typed: str | None) -> str | None:
        """Where passages are looked up: the lab's world, unasked, for a new run of its own questions on its own model.

        Raises UsageError for other questions that would be looked up there unasked.
        """
        index = self.options.index
        if self.options.passages == "given" or typed is not None or not questions:
            return index
        others = [each for each in questions if each.partition("?")[0] != LAB_QUESTIONS]
        if index == LAB and others:
            raise UsageError(
                f"this run looks passages up in the lab's world, which knows nothing of {one_line(others[0])}\n"
                f"Name another run file for it, with an index of its own, or insist: --index {LAB}"
            )
        return LAB if index is None and self.store is None and LAB in systems and not others else index

    async def _run(
        self,
        systems: Mapping[str, list[str]],
        typed: Sequence[str],
        sets: list[QuestionSet],
        remembered: Mapping[str, Any],
        opened: ExitStack,
    ) -> None:
        passages = cast(Passages, self.options.passages)
        self.options = replace(self.options, retries=_or(self.options.retries, RETRIES))
        llms = list(systems)
        prices = {**remembered.get("prices", {}), **prices_of(llms, self.prices)}
        chosen = {
            llm: [method_from(text, typed=text in self.typed) for text in methods] for llm, methods in systems.items()
        }
        if passages == "retrieved" and self.options.index is None:
            _check_passages([method for methods in chosen.values() for method in methods], sets)
        sources = {llm: self.found if llm in typed else FromFile(str(self.path), "--llm") for llm in llms}
        async with open_kits(
            sources, self.options, passages=passages, prices=prices, concurrency=self.concurrency
        ) as kits:
            if self.budget is not None and self.store is not None:
                self.budget.tokens, self.budget.money = self.store.spent()
            taking_part = [entry for llm, kit in zip(llms, kits, strict=True) for entry in entries(chosen[llm], [kit])]
            addresses = {kit.llm.backend.name: shown(llm) for llm, kit in zip(llms, kits, strict=True)}
            made = plan(
                taking_part,
                sets,
                passages=passages,
                seed=self.options.seed,
                deterministic=bool(self.options.deterministic),
                retries=self.options.retries,
                about={
                    **provenance(),
                    "command": without_secrets(["arbitrag", *sys.argv[1:]]),
                    "concurrency": self.concurrency,
                    "options": {
                        **self.options.remembered(),
                        "prices": prices,
                        "addresses": {**remembered.get("addresses", {}), **addresses},
                    },
                },
            )
            await check_all(taking_part, passages)  # a run that is refused leaves no file, and no system in one
            if self.budget is not None:
                _ = [kit.with_models(self.budget.metered) for kit in kits]
            if self.store is None:
                self.store = opened.enter_context(Store.create(self.path, made))
            else:
                self.store.extend(made)
            await self._rows(taking_part, [each.name for each in sets], passages)

    async def _rows(self, taking_part: Sequence[Entry], sets: Sequence[str], passages: Passages) -> None:
        assert self.store is not None
        with progress("Answering") as show:

            def told(tally: RunProgress) -> None:
                self.tally = tally
                show(tally.done, tally.total, noted(tally))

            try:
                self.tally = await run(
                    self.store,
                    taking_part,
                    sets=sets,
                    passages=passages,
                    concurrency=self.concurrency,
                    retry=self.retry,
                    traces=self.traces,
                    budget=self.budget,
                    show=told,
                )
            finally:
                self._note_unfinished()

    def _note_unfinished(self) -> None:
        """Keep in the run what was spent on rows that did not end, so that the next session's limit counts it."""
        if self.store is None or self.budget is None:
            return
        tokens, money = self.store.spent()
        self._unfinished = max(0, self.budget.tokens - tokens), max(0.0, self.budget.money - money)
        if any(self._unfinished):
            self.store.note("unfinished", dict(zip(("tokens", "money"), self._unfinished, strict=True)))

    def _end(self, as_json: bool) -> int:
        assert self.store is not None
        tally, file = self.tally, shlex.quote(str(self.path))
        failed = tally.failed + tally.failed_before
        if as_json:
            say_json(
                {
                    "run": str(self.path),
                    "systems": [system.name for system in self.store.systems],
                    "sets": list(self.store.sets),
                    "made": tally.done,
                    "finished_before": tally.before,
                    "failed": failed,
                    "tokens": tally.tokens,
                    "money": tally.money,
                    "seconds": tally.seconds,
                    **self._limited(),
                }
            )
        complain(
            f"{tally.done - tally.failed:,} rows made, {tally.failed:,} failed"
            + (f", {tally.before:,} finished before" if tally.before else "")
            + (f", {tally.failed_before:,} failed before" if tally.failed_before else "")
            + (f"; {noted(tally)}" if tally.done else "")
        )
        if failed:
            complain(f"Ask the failed ones again: {self._again('retry')}")
        if self.budget is not None and self.budget.reached:
            self._say_reached(self.budget)
        complain(f"Compare the systems: arbitrag bench report {file}")
        return STOPPED if self.budget is not None and self.budget.reached else 1 if failed else 0

    def _limited(self) -> Mapping[str, Any]:
        """What a limit came to, as JSON values; nothing without one."""
        if self.budget is None:
            return {}
        left = self.tally.total - self.tally.done
        return {"spent": {"tokens": self.budget.tokens, "money": self.budget.money}, "left": left}

    def _say_reached(self, budget: Budget) -> None:
        left = self.tally.total - self.tally.done
        tokens, money = self._unfinished
        on_others = f"{tokens:,} tokens" + (f" and {money:.4g}" if budget.max_cost is not None else "")
        complain(
            f"Stopped before {budget.limits}: {budget.spent} were spent in all"
            + (f" ({on_others} of it in no row: in rows that were given up, or not reported)" if tokens else "")
            + f"; {left:,} of {self.tally.before + self.tally.total:,} rows are left"
        )
        options = [f"--max-tokens {2 * budget.max_tokens}"] if budget.max_tokens is not None else []
        options += [f"--max-cost {2 * budget.max_cost:g}"] if budget.max_cost is not None else []
        complain(f"Go on with a higher limit: {' '.join([self._again(self._command), *options])}")


def _check_passages(methods: Sequence[Method], sets: Sequence[QuestionSet]) -> None:
    """Raise UsageError where a method is to read passages, and there are none to look up."""
    reader = next((method.name for method in methods if Need.RETRIEVE in needs_of(method)), None)
    if reader is None:
        return
    bare = next((each for each in sets if any(item.passages is None for item in each.items)), None)
    have = "no index is named" if bare is None else f"the questions of {bare.name} have none, and no index is named"
    raise UsageError(
        f"{reader} reads passages, but {have}\n"
        "Name one: --index docs.idx (made by: arbitrag index ./docs -o docs.idx), or a server's address"
    )


def noted(tally: RunProgress) -> str:
    """Rate, failures, tokens and money in a few words."""
    parts = [f"{tally.rate:.1f}/s"]
    if tally.failed:
        parts.append(f"{tally.failed:,} failed")
    parts.append(f"{_short(tally.tokens)} tokens")
    if tally.money is not None:
        parts.append(f"{tally.money:.4g} paid")
    return ", ".join(parts)


def _short(number: int) -> str:
    for size, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return str(number)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
