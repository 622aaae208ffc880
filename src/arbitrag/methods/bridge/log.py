"""The record of one BRIDGE answer, from which its verdict is made: replies, checks, scores and notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from arbitrag.encode.similarity import HEADS
from arbitrag.methods.bridge.knowledge_scores import KnowledgeScores
from arbitrag.methods.bridge.sub_queries import distinct
from arbitrag.prompts import Block
from arbitrag.stages.parsing.forms import Bias, Reflection
from arbitrag.stages.parsing.grammar import Parsed
from arbitrag.stages.soft_bias import EVEN, STAGE
from arbitrag.stages.structured import counts, notes
from arbitrag.text import final_answer
from arbitrag.truncation import Fit
from arbitrag.types import Candidate, Decision, Question, Strategy, Verdict

T = TypeVar("T")


@dataclass
class BridgeLog:
    """The replies, decisions, notes and scores of one question."""

    replies: list[Parsed[Any]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)

    def read(self, reply: Parsed[T]) -> T | None:
        self.replies.append(reply)
        return reply.value

    def remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)

    def bias(self, allocated: Parsed[Bias]) -> Bias:
        """The allocator's bias; equal weights where its reply could not be read."""
        bias = self.read(allocated)
        if bias is None:
            bias = EVEN
            self.remark("the allocator's reply could not be read, so retrieval and memory get equal weight")
        inputs = {"retrieval": bias.retrieval, "generation": bias.generation}
        larger = "evidence" if bias.retrieval > bias.generation else "memory"
        outcome = larger if bias.retrieval != bias.generation else "neither"
        self.decisions.append(Decision(STAGE, "what the question rests on, in percent", inputs, outcome))
        return bias

    def queries(self, written: tuple[str, ...] | None, question: str, wanted: int) -> tuple[str, ...]:
        """The sub-queries without duplicates; the question itself where none is left."""
        queries = distinct(written or (), question)
        different = 0 if queries == (question,) else len(queries)
        if different == 0:
            self.remark("no sub-query differs from the question, so the question itself is used")
        elif different < wanted:
            lost = {"duplicates": len(written or ()) - different, "not written": wanted - len(written or ())}
            counted = ", ".join(f"{what}: {count}" for what, count in lost.items() if count)
            self.remark(f"{different} of {wanted} sub-queries were used ({counted})")
        return queries

    def reflected(self, reflection: Reflection, question: str, wanted: int) -> tuple[str, ...]:
        inputs = {"contradiction": reflection.contradiction}
        self.decisions.append(Decision("reflection", "the main contradiction", inputs, reflection.kind))
        return self.queries(reflection.queries, question, wanted)

    def measured(self, measured: KnowledgeScores, weights: Mapping[str, float]) -> None:
        missing = [HEADS[head] for head, weight in weights.items() if weight and head not in measured.shares]
        scaled = f"; it has no {' and no '.join(missing)} head, so the other weights were scaled up" if missing else ""
        self.remark(f"compared with the encoder {measured.encoder}: {measured.formula}{scaled}")
        self.decisions.append(measured.decision)
        self.scores |= {**measured.numbers, **asdict(measured.scores)}

    def score_block(self) -> Block:
        """The last agreements and the bias, for a prompt in which the model decides by them."""
        agreements = {"passages_notes": "s1", "answers_notes": "s2", "found_passages": "s3", "answers_found": "s4"}
        bias = {"retrieval": "r_p", "generation": "g_p"}
        values = {name: f"{self.scores[key]:.2f}" for name, key in agreements.items()}
        return Block("scores", values | {name: f"{self.scores[key]:.0%}" for name, key in bias.items()})

    def verdict(self, text: str | None, question: Question, strategy: Strategy, why: str, fit: Fit) -> Verdict:
        """The answer that was read; without one, a refusal."""
        if text is None:
            return self.refusal(f"{why}: that trusts {strategy.value}, but the answer could not be read", fit)
        chosen = Candidate(text, strategy, tuple(passage.id for passage in fit.kept))
        answer = final_answer(text, question.options)
        if answer is None:
            return self.refusal(f"{why}: that trusts {strategy.value}, which gives no answer", fit, chosen)
        return self._of(answer, strategy, why, fit, chosen)

    def refusal(self, why: str, fit: Fit = Fit(()), *candidates: Candidate) -> Verdict:
        return self._of(None, Strategy.REFUSE, why, fit, *candidates)

    def _of(self, answer: str | None, strategy: Strategy, why: str, fit: Fit, *candidates: Candidate) -> Verdict:
        return Verdict(
            answer,
            strategy,
            why,
            candidates=candidates,
            kept=fit.kept,
            dropped=fit.dropped,
            cuts=fit.cuts,
            scores={**self.scores, **counts(*self.replies)},
            decisions=tuple(self.decisions),
            notes=(*self.remarks, *notes(*self.replies)),
        )
