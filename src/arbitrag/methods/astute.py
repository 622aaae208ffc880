"""ASTUTE RAG: bring memory and passages together with their sources in view, and answer from the best supported group.

    I = up to m̂ passages that the model writes from memory, or none        1 call
    D0 = passages + I, each with its source
    t - 1 times: groups = consolidate(D0, groups)                           t - 1 calls
    groups with an answer and a confidence each, then the chosen answer     1 call

Cost: t + 1 calls in a row (t with m̂ = 0), 2 with the paper's t = 1; one more for each reply that had to be put into
form.

Paper: Wang et al. 2024, arXiv 2410.07176, Algorithm 1; its appendix gives the prompts, there is no published code.
Differences: the prompts are worded anew, and a reply consists of lines that are read strictly. The strategy is that of
the sources of the groups whose answer was chosen: memory, evidence, or both. When the passages from memory cannot be
read, there are none; when a consolidation cannot be read, the one before it stands; when the last reply cannot be
read, the method refuses, as it does where there are neither passages nor memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from arbitrag.errors import UsageError
from arbitrag.kit import Kit, gather
from arbitrag.methods.base import setting
from arbitrag.retrieve.base import check_k
from arbitrag.stages.grouping import (
    group_blocks,
    group_candidates,
    groups_decision,
    left_out,
    memory_blocks,
    not_dropped,
)
from arbitrag.stages.order import ORDERS, check_order, ordered
from arbitrag.stages.parsing import forms
from arbitrag.stages.parsing.forms import Conclusion, Group
from arbitrag.stages.parsing.grammar import Parsed
from arbitrag.stages.parsing.values import Known
from arbitrag.stages.structured import ask_structured, counts, notes
from arbitrag.truncation import Fit
from arbitrag.types import Decision, Need, Passage, Question, Strategy, Verdict


@dataclass(frozen=True)
class AstuteRag:
    """Consolidate what memory and the passages say, and choose the answer with the best support."""

    name: ClassVar[str] = "astute"
    needs: ClassVar[Need] = Need.GENERATE | Need.RETRIEVE
    cost: ClassVar[str] = "2 answers in a row, one more for each further iteration"
    paper: ClassVar[str] = "ASTUTE RAG, arXiv 2410.07176"

    own_passages: int = setting(1, "m̂: passages that memory writes at most; 0 asks it for none")
    iterations: int = setting(1, "t: rounds of grouping, the last of which answers")
    passage_order: str = setting("retrieved", "how the passages stand in the prompts", ORDERS)
    seed: int = setting(0, "of the order random")
    k: int = setting(10, "passages that are looked up")

    def __post_init__(self) -> None:
        check_k(self.k)
        check_order(self.passage_order)
        if self.own_passages < 0 or self.iterations < 1:
            raise UsageError(
                "astute: own_passages is 0 or more and iterations 1 or more; "
                f"got own_passages={self.own_passages}, iterations={self.iterations}"
            )

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        asked = replace(question, options=())  # options are for the prompt that asks for an answer
        recalled, found = await gather(self._recall(asked, kit), kit.retrieve(question, k=self.k))
        memory = memory_blocks(recalled.value_or(()))
        in_order = ordered(found, self.passage_order, f"{self.seed} {question.text}")
        room = kit.limits.writing_tokens * min(self.iterations, 2)  # for the reply, and for the groups before it
        fields: dict[str, Any] = {"question": question, "memory": memory, "groups": ()}
        fit = await kit.llm.fit(in_order, "astute/answer", reply_tokens=room, **fields)
        if not fit.kept and not memory:
            nothing = Parsed(Conclusion(None), prompt="astute/answer")
            return self._verdict(nothing, "there are no passages, and memory offers none", fit, [recalled])

        documents: dict[str, Any] = {"passages": fit.kept, "memory": memory}
        known = Known(len(fit.kept), len(memory))
        replies: list[Parsed[Any]] = [recalled]
        groups: tuple[Group, ...] = ()
        for _ in range(self.iterations - 1):
            documents["groups"] = group_blocks(groups)
            regrouped = await ask_structured(kit.llm, "astute/consolidate", forms.groups(known), asked, **documents)
            groups = regrouped.value_or(groups)
            replies.append(regrouped)

        documents["groups"] = group_blocks(groups)
        conclude = forms.conclusion(known, question.options)
        last = await ask_structured(kit.llm, "astute/answer", conclude, question, **documents)
        return self._verdict(last, _why(last), fit, [*replies, last])

    async def _recall(self, question: Question, kit: Kit) -> Parsed[tuple[str, ...]]:
        if not self.own_passages:
            return Parsed((), prompt="astute/recall")
        form, most = forms.passages(self.own_passages), str(self.own_passages)
        return await ask_structured(kit.llm, "astute/recall", form, question, most=most)

    def _verdict(self, last: Parsed[Conclusion], why: str, fit: Fit, replies: Sequence[Parsed[Any]]) -> Verdict:
        conclusion = last.value_or(Conclusion(None))
        strategy = conclusion.strategy
        dropped = () if last.failed else left_out(fit.kept, conclusion.groups)
        chosen = {"chosen": conclusion.answer or "none", "iterations": self.iterations}
        return Verdict(
            answer=conclusion.answer,
            strategy=strategy,
            why=why,
            candidates=group_candidates(conclusion.groups, fit.kept),
            kept=not_dropped(fit.kept, dropped),
            dropped=(*dropped, *fit.dropped),
            cuts=fit.cuts,
            scores=counts(*replies),
            decisions=(
                groups_decision(conclusion.groups, fit.kept),
                Decision("answer", "the group that the model finds best supported", chosen, strategy.value),
            ),
            notes=(*_rules(fit.kept, replies), *notes(*replies)),
        )


def _why(last: Parsed[Conclusion]) -> str:
    if last.failed:
        return "the last reply could not be read, so there is no answer"
    conclusion = last.value_or(Conclusion(None))
    count = len(conclusion.groups)
    of = f"of {count} group{'' if count == 1 else 's'} of documents"
    if conclusion.answer is None:
        return f"none {of} supports an answer"
    said = {
        Strategy.BOTH: "memory and passages together",
        Strategy.MEMORY: "memory alone",
        Strategy.EVIDENCE: "passages alone",
    }
    return f"the best supported {of} rests on {said[conclusion.strategy]}"


def _rules(passages: Sequence[Passage], replies: Sequence[Parsed[Any]]) -> list[str]:
    """The fallbacks that the method used, in sentences."""
    failed = {reply.prompt for reply in replies if reply.failed}
    previous = "the reply that consolidates could not be read, so the previous groups are kept"
    rules = {
        "there are no passages": not passages,
        "the reply from memory could not be read, so nothing from memory is used": "astute/recall" in failed,
        previous: "astute/consolidate" in failed,
    }
    return [rule for rule, applies in rules.items() if applies]
