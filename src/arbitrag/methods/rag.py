"""RAG: answer from the retrieved passages, whatever they say. The baseline that always trusts the evidence.

Cost: 1 generation, 1 step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from arbitrag.kit import Kit
from arbitrag.methods.base import setting
from arbitrag.retrieve.base import check_k
from arbitrag.text import clean_answer, final_answer
from arbitrag.types import Candidate, Need, Question, Strategy, Verdict


@dataclass(frozen=True)
class Rag:
    """Read the top ``k`` passages and answer."""

    name: ClassVar[str] = "rag"
    needs: ClassVar[Need] = Need.GENERATE | Need.RETRIEVE
    cost: ClassVar[str] = "1 answer"
    streams: ClassVar[bool] = True  # the one text that is written is the answer
    paper: ClassVar[str] = "baseline"

    k: int = setting(20, "passages that are looked up; those that fit into --context-tokens are read")

    def __post_init__(self) -> None:
        check_k(self.k)

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        found = await kit.retrieve(question, k=self.k)
        fit = await kit.llm.fit(found, "rag/answer", question=question)
        if not fit.kept:
            return Verdict(None, Strategy.REFUSE, "no passages to read", dropped=fit.dropped)

        reply = await kit.llm.generate(kit.llm.prompt("rag/answer", question=question, passages=fit.kept))
        evidence = Candidate(clean_answer(reply.text), Strategy.EVIDENCE, tuple(p.id for p in fit.kept))
        answer = final_answer(evidence.text, question.options)
        return Verdict(
            answer=answer,
            strategy=Strategy.REFUSE if answer is None else Strategy.EVIDENCE,
            why="the passages give no answer" if answer is None else "the answer is from the passages alone",
            candidates=(evidence,),
            kept=fit.kept,
            dropped=fit.dropped,
            cuts=fit.cuts,
        )
