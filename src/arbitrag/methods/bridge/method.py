"""BRIDGE: estimate what a question rests on, gather knowledge accordingly, and let a decision tree choose the source.

1. An allocator that sees labelled questions like this one says how far it rests on retrieval and on memory (r_p + g_p
   = 100 %); n sub-queries ask it anew; memory writes a passage (K_int), and the retriever finds k (K_ext).
2. The first ceil(r_p n) sub-queries go to the retriever, a passage each (K_ret); the first ceil(g_p n) are answered
   from memory (K_gen).
3. An encoder compares: S1 (K_int, K_ext), S2 (K_gen, K_int), S3 (K_ret, K_ext), S4 (K_gen, K_ret), each as
   0.2 sparse + 0.4 dense + 0.4 multi-vector. A tree (``decision_tree.py``) chooses both, memory, evidence or
   refuse, or to reflect: find the contradictions, write other sub-queries, go through 2 and 3 again, at most 3 times.
4. The answer is written from all knowledge, from K_int and K_gen, or from K_ext and K_ret.

Cost: 5 generations in 3 steps (4 in 2 for a refusal), and 2 in 2 more for each reflection; a reply that has to be put
into its form is another one.

Paper: Dai et al., "After Retrieval, Before Generation" (BRIDGE, ICL). Its repository could not be seen, so nothing is
compared with it. Choices and differences: what is independent is asked side by side; a head's agreement of two sources
is the mean of the best likenesses of their texts (the paper does not say how lists of texts are compared; ``match=
joined`` compares them as one text each); heads that the encoder lacks leave their weights to the others; a sub-query's
passage is the one of its first ``fetch`` that is nearest to it by the encoder, which is the first where passages are
searched by that encoder, as in the paper; an answer to a sub-query that declines is like nothing; sub-queries that
repeat one another are left out, and shares are taken of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from arbitrag.encode.similarity import normalised_weights
from arbitrag.errors import UsageError, unknown
from arbitrag.kit import Kit, gather
from arbitrag.methods.base import setting
from arbitrag.methods.bridge.collect import Sources, collect, list_token_limit
from arbitrag.methods.bridge.decision_tree import REFLECT, Outcome, decide_with_steps, trust_terms
from arbitrag.methods.bridge.knowledge_scores import MATCHES, KnowledgeScores, measure
from arbitrag.methods.bridge.log import BridgeLog
from arbitrag.stages.grouping import memory_blocks
from arbitrag.stages.parsing import forms
from arbitrag.stages.parsing.forms import Bias, Reflection
from arbitrag.stages.parsing.grammar import Parsed
from arbitrag.stages.soft_bias import UNBIASED, allocate, nearest_examples
from arbitrag.stages.structured import ask_structured
from arbitrag.types import Need, Question, Strategy, Verdict


@dataclass(frozen=True)
class Bridge:
    """Weigh memory and retrieval softly, gather from both, and decide by how far they agree."""

    name: ClassVar[str] = "bridge"
    needs: ClassVar[Need] = Need.GENERATE | Need.RETRIEVE | Need.ENCODE
    cost: ClassVar[str] = "5 answers in 3 steps, 2 more for each reflection"
    paper: ClassVar[str] = "BRIDGE (Dai et al.)"

    alpha: float = setting(0.5, "trust below this is a refusal: of T_llm up to it, of T_ret under it")
    beta: float = setting(1.1, "T_ret from which the passages are trusted; between alpha and beta it reflects")
    dense_weight: float = setting(0.4, "share of the dense head in every agreement")
    sparse_weight: float = setting(0.2, "share of the sparse head")
    multi_weight: float = setting(0.4, "share of the multi-vector head")
    n: int = setting(10, "sub-queries")
    k: int = setting(3, "passages that are looked up for the question itself")
    fetch: int = setting(5, "passages among which a sub-query's one is chosen")
    shots: int = setting(5, "labelled questions that the allocator sees")
    cycles: int = setting(3, "reflections at most")
    examples: str = setting("", "a file of labelled questions; empty: those beside the prompts")
    match: str = setting("best", "how lists of texts are compared: each with its best, or joined", MATCHES)
    allocator: bool = setting(True, "ask how far the question rests on either source; else both rest on 100 %")
    tree: bool = setting(True, "let the tree decide; else the model does, shown all knowledge and the numbers")

    def __post_init__(self) -> None:
        if min(self.n, self.k, self.fetch, self.shots) < 1 or self.cycles < 0:
            raise UsageError("bridge: n, k, fetch and shots are 1 or more, and cycles 0 or more")
        if min(self.weights.values()) < 0 or not any(self.weights.values()):
            raise UsageError(f"bridge: weights are 0 or more, and one of them is more; got {self.weights}")
        if self.match not in MATCHES:
            raise unknown("match of bridge", self.match, MATCHES)

    @property
    def weights(self) -> dict[str, float]:
        return {"dense": self.dense_weight, "sparse": self.sparse_weight, "multi": self.multi_weight}

    async def prepare(self, kit: Kit) -> None:
        """Read and encode the labelled questions, and see that a head of the encoder has a weight."""
        if self.allocator:
            await nearest_examples(kit, "any", 1, self.examples)
        heads = tuple((await kit.compare([("any", "any")])).heads)
        normalised_weights(self.weights, heads, kit.encoder.name if kit.encoder else "")

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        asked, log = replace(question, options=()), BridgeLog()
        allocated, rewritten, recalled, external = await gather(
            self._allocate(asked, kit),
            self._rewrite(asked, kit),
            ask_structured(kit.llm, "bridge/recall", forms.EVIDENCE, asked),
            kit.retrieve(asked, k=self.k),
        )
        bias = log.bias(allocated)
        queries = log.queries(log.read(rewritten), asked.text, self.n)
        internal = log.read(recalled) or ""

        for cycle in range(self.cycles + 1):
            collected = await collect(queries, bias, asked, kit, fetch=self.fetch)
            log.read(collected.generated)
            sources = Sources(internal, external, collected)
            measured = await measure(sources, self.weights, kit, match=self.match)
            outcome, why = self._decide(measured, bias, log)
            log.scores["reflections"] = float(cycle)
            if outcome != REFLECT:
                return await self._respond(question, sources, outcome, why, log, kit)
            if not sources.passages:
                return log.refusal("there are no passages that a reflection could look into")
            if cycle < self.cycles:
                reflection = log.read(await self._reflect(asked, sources, kit))
                if reflection is None:
                    return log.refusal("what the reflection wrote could not be read")
                queries = log.reflected(reflection, asked.text, self.n)
        return log.refusal(f"{self.cycles} reflections did not settle it: {why}")

    async def _rewrite(self, question: Question, kit: Kit) -> Parsed[tuple[str, ...]]:
        form, limit = forms.queries(self.n), list_token_limit(self.n, kit)
        return await ask_structured(kit.llm, "bridge/rewrite", form, question, max_tokens=limit, number=str(self.n))

    async def _allocate(self, question: Question, kit: Kit) -> Parsed[Bias]:
        if not self.allocator:
            return Parsed(UNBIASED, prompt="bridge/allocate")
        return await allocate(question, kit, shots=self.shots, examples=self.examples)

    def _decide(self, measured: KnowledgeScores, bias: Bias, log: BridgeLog) -> tuple[Outcome, str]:
        """Go through the tree, and say why in words; without a tree everything is trusted."""
        r_p, g_p, scores = bias.retrieval / 100, bias.generation / 100, measured.scores
        t_ret, t_llm = trust_terms(scores, r_p, g_p)
        log.measured(measured, self.weights)
        log.scores |= {"r_p": r_p, "g_p": g_p, "t_ret": t_ret, "t_llm": t_llm}
        if not self.tree:
            return Strategy.BOTH, "the model was shown all knowledge and the numbers, and decided itself"
        outcome, decisions = decide_with_steps(scores, r_p, g_p, self.alpha, self.beta)
        log.decisions += decisions
        if outcome is Strategy.BOTH:
            return outcome, f"memory and the passages agree (S1 {scores.s1:.2f} + S4 {scores.s4:.2f} > 1)"
        return outcome, f"T_ret {t_ret:.2f} and T_llm {t_llm:.2f}, with alpha {self.alpha:g} and beta {self.beta:g}"

    async def _reflect(self, question: Question, sources: Sources, kit: Kit) -> Parsed[Reflection]:
        prompt, form = "bridge/reflect", forms.reflection(self.n)
        fields: dict[str, Any] = {"memories": memory_blocks(sources.memories), "number": str(self.n)}
        room = list_token_limit(self.n, kit)
        fit = await kit.llm.fit(sources.passages, prompt, reply_tokens=room, question=question, **fields)
        return await ask_structured(kit.llm, prompt, form, question, max_tokens=room, passages=fit.kept, **fields)

    async def _respond(
        self, question: Question, sources: Sources, strategy: Strategy, why: str, log: BridgeLog, kit: Kit
    ) -> Verdict:
        """Write the answer from the sources that the strategy trusts."""
        if strategy is Strategy.REFUSE:
            return log.refusal(f"neither memory nor the passages can be trusted: {why}")
        texts = () if strategy is Strategy.EVIDENCE else sources.memories
        passages = () if strategy is Strategy.MEMORY else sources.passages
        if not texts and not passages:
            return log.refusal(f"{why}: that trusts {strategy.value}, which has no text")
        prompt = "bridge/answer" if self.tree else "bridge/answer_scored"
        fields: dict[str, Any] = {"memories": memory_blocks(texts)}
        if not self.tree:
            fields["scores"] = (log.score_block(),)
        fit = await kit.llm.fit(passages, prompt, question=question, **fields)
        form, limit = forms.answer(question.options), kit.limits.answer_tokens
        reply = await ask_structured(kit.llm, prompt, form, question, max_tokens=limit, passages=fit.kept, **fields)
        return log.verdict(log.read(reply), question, strategy, why, fit)
