"""TrustMargin: let the model's own likelihoods choose between the answer from memory and the one from the passages.

    prior   = l(r | q) - l(d | q)                                     does memory already accept r?
    binding = [l(r | q, P) - l(r | P)] - [l(d | q, P) - l(d | P)]     does the question tie r to P?

The evidence wins when ``prior + weight * binding > threshold``; l is the mean log-probability per answer token, d the
answer from memory (the paper's y_D) and r the one from the passages (y_R).

Cost: 2 generations, and 6 scorings when the answers differ; 2 steps on the critical path. All passage prompts begin
alike, so that a backend with prefix caching prefills the passages once.

With ``candidate`` another method's answer takes the place of r, as in the paper's appendix B. P is then what that
method kept, or the first k passages where it kept none, and its cost takes the place of one generation. Where it gives
no answer, memory's stands; its answer, when it is chosen, keeps the strategy that it had.

Paper: arXiv 2606.08397. Reference: mojixu/TrustMargin@c32b114 src/trustmargin.py. Differences: answers that agree are
not scored, and the passages' wording of them is given; a source that offers no text loses without scoring (the
reference gives it a likelihood of -1e9, with the same outcome); an answer that only says it does not know becomes a
refusal when it is chosen; a reply ends where the model goes on to ask itself a question; likelihoods are not rounded;
passages are cut at a word, with their fences counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from arbitrag.errors import UsageError
from arbitrag.kit import Kit, gather
from arbitrag.methods import method_from
from arbitrag.methods.base import Method, Prepared, needs_of, setting
from arbitrag.retrieve.base import check_k
from arbitrag.text import agree, as_option, clean_answer, declines
from arbitrag.truncation import Fit
from arbitrag.types import Candidate, Decision, Need, Question, Strategy, Verdict

PLAIN = "rag"  # the candidate that is asked for in place, beside memory
MARGIN = "margin"  # the stage of the decision that holds prior and binding
_RULE = "prior + weight * binding > threshold"


@dataclass(frozen=True)
class Margins:
    """The two margins, from mean log-probabilities per token: ``q_r`` is l(r | q), ``qp_d`` is l(d | q, P)."""

    prior: float
    binding: float

    @classmethod
    def of(cls, *, q_d: float, q_r: float, qp_d: float, qp_r: float, p_d: float, p_r: float) -> Margins:
        return cls(prior=q_r - q_d, binding=(qp_r - p_r) - (qp_d - p_d))


@dataclass(frozen=True)
class TrustMargin:
    """Trust the passages only when memory accepts their answer, or the question binds it to them."""

    name: ClassVar[str] = "trustmargin"
    needs: ClassVar[Need] = Need.GENERATE | Need.SCORE | Need.RETRIEVE
    cost: ClassVar[str] = "2 answers, 6 scorings where they differ"
    paper: ClassVar[str] = "TrustMargin, arXiv 2606.08397"

    weight: float = setting(0.5, "lambda: how much binding counts beside prior")
    threshold: float = setting(-1.5, "tau: the passages win above this margin; lower trusts them more often")
    k: int = setting(20, "passages that are looked up; those that fit into --context-tokens are read")
    candidate: str = setting(PLAIN, "whose answer is held against memory's: the passages' plain one, or a method's")

    def __post_init__(self) -> None:
        check_k(self.k)
        if self.other and Need.RETRIEVE not in needs_of(self.other):
            raise UsageError(f"trustmargin: {self.other.name} reads no passages, so that memory would judge itself")

    @property
    def other(self) -> Method | None:
        """The method whose answer is held against memory's, unless that is the plain one."""
        return None if self.candidate == PLAIN else method_from(self.candidate)

    @property
    def needs_of_parts(self) -> Need:
        return needs_of(self.other) if self.other else Need(0)

    async def prepare(self, kit: Kit) -> None:
        if isinstance(self.other, Prepared):
            await self.other.prepare(kit)

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        if self.other:
            return await self._against(self.other, question, kit)
        fit = await kit.fit(await kit.retrieve(question, k=self.k), "rag/answer", question=question)
        memory, evidence = await self._candidates(question, fit, kit)
        return await self._arbitrate(question, memory, evidence, fit, kit)

    async def _against(self, other: Method, question: Question, kit: Kit) -> Verdict:
        """Hold memory's answer against another method's, by the passages that it kept."""
        reply, found = await gather(
            kit.llm.generate(kit.llm.prompt("direct/answer", question=question)), other.answer(question, kit)
        )
        passages = found.kept or await kit.retrieve(question, k=self.k)
        fitted = await kit.fit(passages, "rag/answer", question=question)
        fit = Fit(found.kept, found.dropped, found.cuts).then(fitted)
        memory = Candidate(as_option(clean_answer(reply.text), question.options), Strategy.MEMORY)
        origin = Strategy.EVIDENCE if found.answer is None else found.strategy
        text = (found.answer or "") if fit.kept else ""
        evidence = Candidate(text, origin, tuple(passage.id for passage in fit.kept))
        verdict = await self._arbitrate(question, memory, evidence, fit, kit)
        return replace(
            verdict,
            scores={**found.scores, **verdict.scores},
            decisions=(*found.decisions, *verdict.decisions),
            notes=(f"{other.name} says: {found.answer or 'no answer'} ({found.why})", *found.notes, *verdict.notes),
        )

    async def _arbitrate(
        self, question: Question, memory: Candidate, evidence: Candidate, fit: Fit, kit: Kit
    ) -> Verdict:
        if not evidence.text or not memory.text:
            return self._one_sided(memory, evidence, fit)
        if agree(memory.text, evidence.text):
            equal = Decision("agreement", "the normalised answers are equal", {}, "both")
            strategy = Strategy.MEMORY if evidence.origin is Strategy.MEMORY else Strategy.BOTH
            return _verdict(evidence, strategy, f"memory and {self._rival} agree", memory, evidence, fit, equal)

        likelihoods = await self._score(question, fit, memory.text, evidence.text, kit)
        margins = Margins.of(**likelihoods)
        return self.decide(margins, memory, evidence, fit, likelihoods)

    @property
    def _rival(self) -> str:
        return self.other.name if self.other else "the passages"

    async def _candidates(self, question: Question, fit: Fit, kit: Kit) -> tuple[Candidate, Candidate]:
        """The answer from memory and the one from the passages (without text when there are none)."""
        prompts = [kit.llm.prompt("direct/answer", question=question)]
        if fit.kept:
            prompts.append(kit.llm.prompt("rag/answer", question=question, passages=fit.kept))
        replies = await gather(*map(kit.llm.generate, prompts))
        texts = [as_option(clean_answer(reply.text), question.options) for reply in replies]
        read = tuple(passage.id for passage in fit.kept)
        return (
            Candidate(texts[0], Strategy.MEMORY),
            Candidate(texts[1] if fit.kept else "", Strategy.EVIDENCE, read),
        )

    async def _score(self, question: Question, fit: Fit, d: str, r: str, kit: Kit) -> dict[str, float]:
        """The six mean log-probabilities, by the names that ``Margins.of`` takes."""
        scorer, answers = kit.scorer, (d, r)
        prompts = (
            scorer.prompt("direct/answer", question=question),
            scorer.prompt("rag/answer", question=question, passages=fit.kept),
            scorer.prompt("trustmargin/passages_only", passages=fit.kept),
        )
        q, qp, p = await gather(*(scorer.score(prompt, answers) for prompt in prompts))
        views = {"q": q.means, "qp": qp.means, "p": p.means}
        return {f"{view}_{name}": mean for view, means in views.items() for name, mean in zip("dr", means, strict=True)}

    def decide(
        self,
        margins: Margins,
        memory: Candidate,
        evidence: Candidate,
        fit: Fit,
        likelihoods: dict[str, float],
    ) -> Verdict:
        """Apply the rule; at exactly the threshold memory keeps the answer."""
        margin = margins.prior + self.weight * margins.binding
        trusted = Strategy.EVIDENCE if margin > self.threshold else Strategy.MEMORY
        numbers = {"prior": margins.prior, "binding": margins.binding, "margin": margin}
        inputs = {**likelihoods, **numbers, "weight": self.weight, "threshold": self.threshold}
        decision = Decision(MARGIN, _RULE, inputs, trusted.value)
        accepts = "does not reject" if margins.prior > self.threshold else "rejects"
        binds = "binds" if margins.binding > 0 else "does not bind"
        why = (
            f'{self._rival} say{"s" if self.other else ""} "{evidence.text}"; memory {accepts} it (prior '
            f"{margins.prior:.2f}) and the question {binds} it to {'the passages' if self.other else 'them'} "
            f"(binding {margins.binding:.2f}): margin {margin:.2f}, threshold {self.threshold:.2f}"
        )
        chosen = evidence if trusted is Strategy.EVIDENCE else memory
        return _verdict(chosen, chosen.origin, why, memory, evidence, fit, decision, scores=numbers)

    def _one_sided(self, memory: Candidate, evidence: Candidate, fit: Fit) -> Verdict:
        chosen = evidence if evidence.text else memory
        if not chosen.text:
            why = (
                f"neither memory nor {self._rival} gave an answer"
                if fit.kept
                else "there are no passages, and memory gave no answer"
            )
        elif not fit.kept:
            why = "there are no passages, so memory answers"
        elif not evidence.text:
            why = f"{self._rival} gave no answer, so memory answers"
        else:
            why = f"memory gave no answer, so {self._rival} answer{'s' if self.other else ''}"
        decision = Decision("one-sided", "a source without an answer loses", {}, chosen.origin.value)
        return _verdict(chosen, chosen.origin, why, memory, evidence, fit, decision)


def _verdict(
    chosen: Candidate,
    strategy: Strategy,
    why: str,
    memory: Candidate,
    evidence: Candidate,
    fit: Fit,
    *decisions: Decision,
    scores: dict[str, float] | None = None,
) -> Verdict:
    refuses = not chosen.text or declines(chosen.text)
    return Verdict(
        answer=None if refuses else chosen.text,
        strategy=Strategy.REFUSE if refuses else strategy,
        why=f"{why}; the chosen reply declines" if refuses and chosen.text else why,
        candidates=(memory, evidence) if fit.kept else (memory,),
        kept=fit.kept,
        dropped=fit.dropped,
        cuts=fit.cuts,
        scores=scores or {},
        decisions=decisions,
    )
