"""TrustMargin: let the model's own likelihoods choose between the answer from memory and the one from the passages.

    prior   = l(r | q) - l(d | q)                                     does memory already accept r?
    binding = [l(r | q, P) - l(r | P)] - [l(d | q, P) - l(d | P)]     does the question tie r to P?

The evidence wins when ``prior + weight * binding > threshold``; l is the mean log-probability per answer token, d the
answer from memory (the paper's y_D) and r the one from the passages (y_R).

Cost: 2 generations, and 6 scorings when the answers differ; 2 steps on the critical path. All passage prompts begin
alike, so that a backend with a prefix store reads the passages once.

Paper: arXiv 2606.08397. Reference: mojixu/TrustMargin@c32b114 src/trustmargin.py. Differences: answers that agree are
not scored, and the passages' wording of them is given; a source that offers no text loses without scoring (the
reference gives it a likelihood of -1e9, with the same outcome); an answer that only says it does not know becomes a
refusal when it is chosen; a reply ends where the model goes on to ask itself a question; likelihoods are not rounded;
passages are cut at a word, with their fences counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from arbitrag.kit import Kit, gather
from arbitrag.stages.fit import Fit
from arbitrag.text import agree, as_option, clean_answer, declines
from arbitrag.types import Candidate, Decision, Need, Question, Strategy, Verdict

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

    weight: float = 0.5  # lambda
    threshold: float = -1.5  # tau
    k: int = 20

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        fit = await kit.fit(await kit.retrieve(question, k=self.k), "rag/answer", question=question)
        memory, evidence = await self._candidates(question, fit, kit)

        if not evidence.text or not memory.text:
            return self._one_sided(memory, evidence, fit)
        if agree(memory.text, evidence.text):
            equal = Decision("agreement", "the normalised answers are equal", {}, "both")
            return _verdict(evidence, Strategy.BOTH, "memory and the passages agree", memory, evidence, fit, equal)

        likelihoods = await self._score(question, fit, memory.text, evidence.text, kit)
        margins = Margins.of(**likelihoods)
        return self.decide(margins, memory, evidence, fit, likelihoods)

    async def _candidates(self, question: Question, fit: Fit, kit: Kit) -> tuple[Candidate, Candidate]:
        """The answer from memory and the one from the passages (without text when there are none)."""
        asked = [kit.llm.generate(kit.llm.prompt("direct/answer", question=question))]
        if fit.kept:
            asked.append(kit.llm.generate(kit.llm.prompt("rag/answer", question=question, passages=fit.kept)))
        texts = [as_option(clean_answer(reply.text), question.options) for reply in await gather(*asked)]
        read = tuple(passage.id for passage in fit.kept)
        return (
            Candidate(texts[0], Strategy.MEMORY),
            Candidate(texts[1] if fit.kept else "", Strategy.EVIDENCE, read),
        )

    async def _score(self, question: Question, fit: Fit, d: str, r: str, kit: Kit) -> dict[str, float]:
        """The six mean log-probabilities, by the names that ``Margins.of`` takes."""
        scorer, answers = kit.scorer, (d, r)
        q, qp, p = await gather(
            scorer.score(scorer.prompt("direct/answer", question=question), answers),
            scorer.score(scorer.prompt("rag/answer", question=question, passages=fit.kept), answers),
            scorer.score(scorer.prompt("trustmargin/passages_only", passages=fit.kept), answers),
        )
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
        decision = Decision("margin", _RULE, inputs, trusted.value)
        accepts = "does not reject" if margins.prior > self.threshold else "rejects"
        binds = "binds" if margins.binding > 0 else "does not bind"
        why = (
            f'the passages say "{evidence.text}"; memory {accepts} it (prior {margins.prior:.2f}) and the question '
            f"{binds} it to them (binding {margins.binding:.2f}): margin {margin:.2f}, threshold {self.threshold:.2f}"
        )
        chosen = evidence if trusted is Strategy.EVIDENCE else memory
        return _verdict(chosen, trusted, why, memory, evidence, fit, decision, scores=numbers)

    def _one_sided(self, memory: Candidate, evidence: Candidate, fit: Fit) -> Verdict:
        chosen = evidence if evidence.text else memory
        if not chosen.text:
            why = (
                "neither memory nor the passages gave an answer"
                if fit.kept
                else "there are no passages, and memory gave no answer"
            )
        elif not fit.kept:
            why = "there are no passages, so memory answers"
        elif not evidence.text:
            why = "the passages gave no answer, so memory answers"
        else:
            why = "memory gave no answer, so the passages answer"
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
        why=f"{why}; what was chosen only says that the answer is not known" if refuses and chosen.text else why,
        candidates=(memory, evidence) if fit.kept else (memory,),
        kept=fit.kept,
        dropped=fit.dropped,
        cuts=fit.cuts,
        scores=scores or {},
        decisions=decisions,
    )
