"""Stack: one pipeline of parts that are chosen by name, each with its options behind it.

    gate      none, likelihood, allocator      does memory alone do?             stages/gate.py
    filter    none, robust, reference          which passages look honest?       stages/filters/, TrustRAG's first stage
    rerank    none, encoder, heads             which k come first?               stages/rerank.py
    arbiter   any method                       which source is trusted?          methods/
    refusal   none, agreement, number          is that sure enough?              stages/refusal.py

``--set gate="likelihood least=0.9" --set arbiter="trustmargin threshold=-1"``. The arbiter finds the passages that are
left and nothing else, whatever it searches for. What a gate answers from memory passes by the rest.

Cost: the arbiter's, and for a gate other than none 1 step before it. The other parts ask no model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import ClassVar, NamedTuple

from arbitrag.errors import UsageError
from arbitrag.kit import Kit
from arbitrag.methods import method_from
from arbitrag.methods.base import Method, Prepared, needs_of, part_from, setting
from arbitrag.stages.filters import FILTERS
from arbitrag.stages.filters.base import Filter, Filtered
from arbitrag.stages.gate import GATES, Gate, GateResult
from arbitrag.stages.refusal import REFUSALS, Refusal
from arbitrag.stages.rerank import RERANKS, Rerank, RerankResult
from arbitrag.text import listed
from arbitrag.types import Candidate, Dropped, Need, Passage, Question, Strategy, Verdict


class Parts(NamedTuple):
    gate: Gate
    filter: Filter
    rerank: Rerank
    arbiter: Method
    refusal: Refusal


@dataclass(frozen=True)
class Stack:
    """Ask a gate, clean and order what is found, and let a method and a rule of refusal decide."""

    name: ClassVar[str] = "stack"
    needs: ClassVar[Need] = Need.GENERATE | Need.RETRIEVE
    cost: ClassVar[str] = "what the arbiter costs, and 1 step for a gate"
    paper: ClassVar[str] = "parts of all"

    gate: str = setting("none", f"whether memory alone does: {listed(list(GATES), 'or')}")
    filter: str = setting("robust", f"which passages look honest: {listed(list(FILTERS), 'or')}")
    rerank: str = setting("none", f"which k come first: {listed(list(RERANKS), 'or')}")
    arbiter: str = setting("trustmargin", "which source is trusted: any other method")
    refusal: str = setting("none", f"whether that is sure enough: {listed(list(REFUSALS), 'or')}")
    fetch: int = setting(20, "passages that are looked up")
    k: int = setting(10, "passages of those that pass the filter, in their new order")

    def __post_init__(self) -> None:
        if min(self.k, self.fetch) < 1:
            raise UsageError(f"stack: fetch and k are 1 or more; got fetch={self.fetch}, k={self.k}")
        _ = self.parts

    @property
    def parts(self) -> Parts:
        return Parts(
            gate=part_from(self.gate, GATES, "gate"),
            filter=part_from(self.filter, FILTERS, "filter"),
            rerank=part_from(self.rerank, RERANKS, "rerank"),
            arbiter=method_from(self.arbiter),
            refusal=part_from(self.refusal, REFUSALS, "refusal"),
        )

    @property
    def needs_of_parts(self) -> Need:
        parts = self.parts
        return reduce(or_, (parts.gate.needs, parts.filter.needs, parts.rerank.needs, needs_of(parts.arbiter)))

    async def prepare(self, kit: Kit) -> None:
        parts = self.parts
        await parts.gate.prepare(kit)
        await parts.rerank.prepare(kit)
        if isinstance(parts.arbiter, Prepared):
            await parts.arbiter.prepare(kit)

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        gate, filter_, rerank, arbiter, refusal = self.parts
        gated = await gate.ask(question, kit)
        if gated.memory is not None:
            return _from_memory(gated.memory, gated)
        found = await kit.retrieve(question, k=self.fetch)
        clean = await filter_.keep(question, found, kit)
        best = await rerank.top(question, clean.kept, self.k, kit)
        verdict = await arbiter.answer(question, kit.with_passages(best.kept))
        return refusal.apply(_joined(gated, clean, best, arbiter.name, verdict))


def _from_memory(memory: Candidate, gated: GateResult) -> Verdict:
    return Verdict(
        memory.text,
        Strategy.MEMORY,
        "the gate trusts memory, so nothing was retrieved",
        candidates=(memory,),
        scores=gated.scores,
        decisions=gated.decisions,
        notes=gated.notes,
    )


def _joined(gated: GateResult, clean: Filtered, best: RerankResult, arbiter: str, verdict: Verdict) -> Verdict:
    """The arbiter's verdict, with what the parts before it decided and dropped."""
    unread = tuple(Dropped(passage, f"not read by {arbiter}") for passage in _unread(best.kept, verdict))
    nothing_left = ("the filter kept none of the passages",) if clean.dropped and not clean.kept else ()
    return replace(
        verdict,
        dropped=(*verdict.dropped, *unread, *best.dropped, *clean.dropped),
        scores={**gated.scores, **verdict.scores},
        decisions=(*gated.decisions, *clean.decisions, *best.decisions, *verdict.decisions),
        notes=(*gated.notes, *nothing_left, *verdict.notes),
    )


def _unread(passages: tuple[Passage, ...], verdict: Verdict) -> Iterator[Passage]:
    """The passages that the verdict neither keeps, perhaps truncated, nor drops."""
    told = [*verdict.kept, *(each.passage for each in verdict.dropped)]
    for passage in passages:
        if not any(each.id == passage.id and passage.text.startswith(each.text) for each in told):
            yield passage
