"""TrustRAG: clean the passages, then let the model resolve what conflicts with its own knowledge.

    stage 1: passages that look planted are dropped, by their words and embeddings       no call
    stage 2: what memory holds, in under 50 words, or nothing                            1 call, beside stage 1
             what the documents say together; what conflicts or dictates is left out     1 call
             which to trust, and the answer                                              1 call

Cost: 3 calls in a row; one more for each reply that had to be put into form. Stage 1 alone (``resolve=false``): 1 call.
``filter=none`` is stage 2 alone.

Paper: Zhou et al. 2025, arXiv 2501.00879. Reference: HuichiZhou/TrustRAG@11dcea0 defend_module.py.
Differences: ``filter=reference`` decides as the reference does, and the default, ``robust``, does not drop what honest
passages have in common (``stages/filters/robust.py``). The prompts are worded anew, hold no example of an attack, and
ask for lines that are read strictly; the last one asks which source is trusted, so the strategy is the model's own
word. Memory that cannot be read holds nothing; when the consolidation cannot be read, or is switched off, each passage
stands as it is; when the last reply cannot be read, the method refuses, as it does where neither passages nor memory
are left to answer from. Without the self-assessment, the sources are those of the groups that hold the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from arbitrag.kit import Kit, gather
from arbitrag.methods.base import setting
from arbitrag.retrieve.base import check_k
from arbitrag.stages.filters import FILTERS, filter_named
from arbitrag.stages.filters.base import Filter, Filtered
from arbitrag.stages.grouping import (
    group_blocks,
    groups_decision,
    ids_of,
    left_out,
    memory_blocks,
    not_dropped,
    single_groups,
)
from arbitrag.stages.parsing import forms
from arbitrag.stages.parsing.forms import Conclusion, Consolidation, Group
from arbitrag.stages.parsing.grammar import Parsed
from arbitrag.stages.parsing.values import Known
from arbitrag.stages.structured import ask_structured, counts, notes
from arbitrag.text import clean_answer, final_answer
from arbitrag.truncation import Fit
from arbitrag.types import Candidate, Decision, Need, Passage, Question, Strategy, Verdict

_TRUST_LINE = 16  # tokens, beside those of the answer
_SAID = {
    Strategy.BOTH: "the passages and memory",
    Strategy.MEMORY: "memory",
    Strategy.EVIDENCE: "the passages",
}


@dataclass(frozen=True)
class TrustRag:
    """Drop passages that look planted, group the others, and judge them by what the model knows itself."""

    name: ClassVar[str] = "trustrag"
    needs: ClassVar[Need] = Need.GENERATE | Need.RETRIEVE | Need.ENCODE
    cost: ClassVar[str] = "3 answers in a row"
    paper: ClassVar[str] = "TrustRAG, arXiv 2501.00879"

    filter: str = setting("robust", "stage 1, by which passages that look planted are dropped", FILTERS)
    similar: float = setting(0.0, "the cosine from which the filter robust takes two for copies; 0: the encoder's own")
    resolve: bool = setting(True, "stage 2; without it the passages that are left are read as rag reads them")
    internal_knowledge: bool = setting(True, "ask memory beside the passages")
    conflict_removal: bool = setting(True, "have documents grouped, and those left out that conflict or dictate")
    self_assessment: bool = setting(True, "have the model say whom it trusts; else the groups with the answer tell")
    k: int = setting(5, "passages that are looked up")

    def __post_init__(self) -> None:
        check_k(self.k)
        _ = self._stage_1

    @property
    def _stage_1(self) -> Filter:
        return filter_named(self.filter, similar=self.similar)

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        if not self.resolve:
            return await self._read(question, await self._find(question, kit), kit)
        asked = replace(question, options=())  # options are for the prompts that ask for an answer
        recalled, found = await gather(self._recall(asked, kit), self._find(question, kit))
        memory = recalled.value_or(())
        room = kit.limits.writing_tokens + self._reply_tokens(kit)  # the last prompt shows groups in place of passages
        fields: dict[str, Any] = {"question": asked, "memory": memory_blocks(memory)}
        fit = await kit.llm.fit(found.kept, "trustrag/consolidate", reply_tokens=room, **fields)
        consolidated = await self._consolidate(asked, fit.kept, memory, kit)
        context = _Context(found, fit, recalled, consolidated, self.self_assessment)
        last = await self._conclude(question, context, kit)
        return _verdict(context, last)

    def _reply_tokens(self, kit: Kit) -> int:
        """What the last reply may take."""
        return kit.limits.answer_tokens + _TRUST_LINE

    async def _find(self, question: Question, kit: Kit) -> Filtered:
        found = await kit.retrieve(question, k=self.k)
        return await self._stage_1.keep(question, found, kit)

    async def _recall(self, question: Question, kit: Kit) -> Parsed[tuple[str, ...]]:
        if not self.internal_knowledge:
            return Parsed((), prompt="trustrag/memory")
        return await ask_structured(kit.llm, "trustrag/memory", forms.passages(1), question)

    async def _consolidate(
        self, question: Question, passages: Sequence[Passage], memory: Sequence[str], kit: Kit
    ) -> Parsed[Consolidation | None]:
        """What the documents say together; None where that is not asked for."""
        if not self.conflict_removal or not passages:
            return Parsed(None, prompt="trustrag/consolidate")
        form = forms.consolidation(Known(len(passages), len(memory)))
        documents: dict[str, Any] = {"passages": passages, "memory": memory_blocks(memory)}
        return await ask_structured(kit.llm, "trustrag/consolidate", form, question, **documents)

    async def _conclude(self, question: Question, context: _Context, kit: Kit) -> Parsed[Conclusion]:
        """The answer and what it rests on; nothing is asked where nothing is left to answer from."""
        if not context.groups and not context.memory:
            return Parsed(Conclusion(None), prompt="trustrag/assess")
        shown: dict[str, Any] = {"groups": group_blocks(context.groups), "memory": memory_blocks(context.memory)}
        limit = self._reply_tokens(kit)
        if self.self_assessment:
            outside = any(group.passages for group in context.groups)
            possible = frozenset(Strategy) - {Strategy.REFUSE} if outside else frozenset({Strategy.MEMORY})
            assess = forms.assessment(possible, question.options)
            return await ask_structured(kit.llm, "trustrag/assess", assess, question, max_tokens=limit, **shown)
        sources = (*context.groups, *(Group(text, memory=(1,)) for text in context.memory))
        form = forms.supported_answer(sources, question.options)
        return await ask_structured(kit.llm, "trustrag/answer", form, question, max_tokens=limit, **shown)

    async def _read(self, question: Question, found: Filtered, kit: Kit) -> Verdict:
        """Stage 1 alone: answer from the passages that it left."""
        fit = await kit.llm.fit(found.kept, "rag/answer", question=question)
        shared: dict[str, Any] = {"kept": fit.kept, "cuts": fit.cuts, "decisions": found.decisions}
        shared["dropped"] = (*found.dropped, *fit.dropped)
        if not fit.kept:
            return Verdict(None, Strategy.REFUSE, "no passages to read", **shared)
        reply = await kit.llm.generate(kit.llm.prompt("rag/answer", question=question, passages=fit.kept))
        ids = tuple(passage.id for passage in fit.kept)
        evidence = Candidate(clean_answer(reply.text), Strategy.EVIDENCE, ids)
        answer = final_answer(evidence.text, question.options)
        strategy = Strategy.REFUSE if answer is None else Strategy.EVIDENCE
        why = "the kept passages give no answer" if answer is None else "the answer is from the kept passages alone"
        return Verdict(answer, strategy, why, candidates=(evidence,), **shared)


@dataclass(frozen=True, slots=True)
class _Context:
    """The inputs of the last call."""

    found: Filtered
    fit: Fit
    recalled: Parsed[tuple[str, ...]]
    consolidated: Parsed[Consolidation | None]
    assessed: bool

    @property
    def consolidation(self) -> Consolidation:
        """Without one every passage stands as it is."""
        return self.consolidated.value or Consolidation(single_groups(self.fit.kept))

    @property
    def groups(self) -> tuple[Group, ...]:
        return self.consolidation.groups

    @property
    def memory(self) -> tuple[str, ...]:
        """What the last prompt shows of memory beside the groups; to be assessed, all of it."""
        return self.recalled.value_or(()) if self.assessed or self.consolidated.value is None else ()


def _verdict(context: _Context, last: Parsed[Conclusion]) -> Verdict:
    conclusion = last.value_or(Conclusion(None))
    strategy, fit, found = conclusion.strategy, context.fit, context.found
    replies: list[Parsed[Any]] = [context.recalled, context.consolidated, last]
    dropped = left_out(fit.kept, context.groups, dict(context.consolidation.dropped))
    rests_on = [] if strategy is Strategy.MEMORY else conclusion.groups or context.groups
    answered = Candidate(conclusion.answer or "", strategy, ids_of(rests_on, fit.kept))
    inputs = {"chosen": conclusion.answer or "none", "memory": list(context.memory)}
    return Verdict(
        answer=conclusion.answer,
        strategy=strategy,
        why=_why(context, last),
        candidates=() if conclusion.answer is None else (answered,),
        kept=not_dropped(fit.kept, dropped),
        dropped=(*found.dropped, *dropped, *fit.dropped),
        cuts=fit.cuts,
        scores=counts(*replies),
        decisions=(
            *found.decisions,
            groups_decision(context.groups, fit.kept),
            Decision("answer", "which sources the model trusts", inputs, strategy.value),
        ),
        notes=(*_rules(context), *notes(*replies)),
    )


def _why(context: _Context, last: Parsed[Conclusion]) -> str:
    conclusion = last.value_or(Conclusion(None))
    if last.failed:
        return "the last reply could not be read, so there is no answer"
    if not context.groups and not context.memory:
        return "no passage was kept, and memory gave no answer"
    if conclusion.answer is None:
        return "the model trusts no answer"
    how = "the model trusts" if context.assessed else "the answer is in what was taken from"
    return f"{how} {_SAID[conclusion.strategy]}"


def _rules(context: _Context) -> list[str]:
    """The fallbacks that the method used, in sentences."""
    came = len(context.found.kept) + len(context.found.dropped)
    single = "the reply that consolidates could not be read, so each passage is a group of its own"
    rules = {
        "there are no passages": came == 0,
        f"the filter left none of the passages ({came})": came > 0 and not context.found.kept,
        "the reply from memory could not be read, so nothing from memory is used": context.recalled.failed,
        single: context.consolidated.failed,
    }
    return [rule for rule, applies in rules.items() if applies]
