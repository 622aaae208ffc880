"""Gates: decide before retrieval whether to answer from memory alone.

none          it never does                                                                          no call
likelihood    exp(mean log-probability of the tokens with which memory answers) >= least             1 call
allocator     BRIDGE's soft bias: the question rests on memory to ``least`` percent or more          2 calls at once

``likelihood`` stands in, under its own name, for the probe of hidden states with which CBDR asks the same: it needs
log-probabilities of what is written, which many an endpoint offers, and nothing trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from arbitrag.errors import BackendError, CapabilityError, UsageError
from arbitrag.kit import Kit, gather
from arbitrag.llm.base import Prompt
from arbitrag.stages.parsing.forms import LEAST_BIAS, MOST_BIAS
from arbitrag.stages.soft_bias import allocate, nearest_examples
from arbitrag.stages.structured import counts, notes
from arbitrag.text import clean_answer, final_answer
from arbitrag.types import Candidate, Decision, Need, Question, Strategy


@dataclass(frozen=True, slots=True)
class GateResult:
    """The decision of a gate. ``memory`` is the answer where memory is trusted, and retrieval is skipped then."""

    memory: Candidate | None = None
    decisions: tuple[Decision, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Gate(Protocol):
    name: ClassVar[str]
    needs: ClassVar[Need]

    async def prepare(self, kit: Kit) -> None:
        """Raises CapabilityError or DataError when the gate cannot work with this kit."""
        ...

    async def ask(self, question: Question, kit: Kit) -> GateResult: ...


@dataclass(frozen=True)
class NoGate:
    """Retrieve for every question."""

    name: ClassVar[str] = "none"
    needs: ClassVar[Need] = Need(0)

    async def prepare(self, kit: Kit) -> None:
        pass

    async def ask(self, question: Question, kit: Kit) -> GateResult:
        return GateResult()


@dataclass(frozen=True)
class LikelihoodGate:
    """Trust memory where it answers with tokens that are likely: their probabilities' geometric mean."""

    name: ClassVar[str] = "likelihood"
    needs: ClassVar[Need] = Need.GENERATE

    least: float = 0.95

    async def prepare(self, kit: Kit) -> None:
        try:
            await kit.llm.generate(Prompt.user("Hello"), max_tokens=1, logprobs=True)
        except BackendError as error:
            raise CapabilityError(
                f"the gate likelihood needs log-probabilities of what {kit.llm.backend.name} writes: {error}\n"
                "Take a gate that needs none (--set gate=allocator, or gate=none), or another model."
            ) from error

    async def ask(self, question: Question, kit: Kit) -> GateResult:
        reply = await kit.llm.generate(kit.llm.prompt("direct/answer", question=question), logprobs=True)
        likely = math.exp(sum(reply.logprobs) / len(reply.logprobs)) if reply.logprobs else 0.0
        text = final_answer(clean_answer(reply.text), question.options)
        trusts = text is not None and likely >= self.least
        rule = "memory answers, and exp(mean log-probability per token) >= least"
        decision = Decision("gate", rule, {"likelihood": likely, "least": self.least}, _outcome(trusts))
        memory = Candidate(text, Strategy.MEMORY) if trusts and text is not None else None
        return GateResult(memory, (decision,), {"gate": likely})


@dataclass(frozen=True)
class AllocatorGate:
    """Trust memory where the allocator's bias towards memory is high enough."""

    name: ClassVar[str] = "allocator"
    needs: ClassVar[Need] = Need.GENERATE | Need.ENCODE

    least: int = MOST_BIAS  # percent
    shots: int = 5
    examples: str = ""  # a file of labelled questions; without one those beside the prompts

    def __post_init__(self) -> None:
        if self.shots < 1 or not LEAST_BIAS <= self.least <= MOST_BIAS:
            raise UsageError(f"the gate allocator: shots is 1 or more, and least from {LEAST_BIAS} to {MOST_BIAS}")

    async def prepare(self, kit: Kit) -> None:
        await nearest_examples(kit, "any", 1, self.examples)

    async def ask(self, question: Question, kit: Kit) -> GateResult:
        prompt = kit.llm.prompt("direct/answer", question=question)
        allocated, reply = await gather(
            allocate(replace(question, options=()), kit, shots=self.shots, examples=self.examples),
            kit.llm.generate(prompt),
        )
        share = 0 if allocated.value is None else allocated.value.generation
        text = final_answer(clean_answer(reply.text), question.options)
        trusts = text is not None and share >= self.least
        rule = "memory answers, and the question rests on it to least percent or more"
        decision = Decision("gate", rule, {"generation": share, "least": self.least}, _outcome(trusts))
        memory = Candidate(text, Strategy.MEMORY) if trusts and text is not None else None
        return GateResult(memory, (decision,), {"gate": share / 100, **counts(allocated)}, notes(allocated))


def _outcome(trusts: bool) -> str:
    return Strategy.MEMORY.value if trusts else "look up"


GATES: Mapping[str, type[NoGate] | type[LikelihoodGate] | type[AllocatorGate]] = {
    gate.name: gate for gate in (NoGate, LikelihoodGate, AllocatorGate)
}
