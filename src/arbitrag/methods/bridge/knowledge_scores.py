"""Agreement of four sources of knowledge: similarities by an encoder's heads, weighted into S1 to S4.

A source is a list of texts. The agreement of two, for one head, is the mean over the texts of the first of its best
likeness in the second, cut to 0 … 1; a text that is empty is like nothing, and so is a source without texts. With
``match`` joined the texts of a source are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add

from arbitrag.encode.base import encoded_text
from arbitrag.encode.similarity import HEADS, Weights, normalised_weights
from arbitrag.kit import Kit
from arbitrag.methods.bridge.collect import Sources
from arbitrag.methods.bridge.decision_tree import Agreement
from arbitrag.types import Decision

STAGE = "agreement"  # of the decisions that hold the numbers of a round
MATCHES = ("best", "joined")

Texts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnowledgeScores:
    """One round: the agreements of every head that the encoder has, and their sum by the normalised weights."""

    encoder: str
    by_head: Mapping[str, Agreement]
    shares: Mapping[str, float]
    scores: Agreement

    @property
    def numbers(self) -> dict[str, float]:
        """The agreements of the heads by name, ``s1_dense`` and so on: enough to weigh them anew."""
        return {f"{name}_{head}": value for head, each in self.by_head.items() for name, value in asdict(each).items()}

    @property
    def decision(self) -> Decision:
        outcome = ", ".join(f"{name.upper()} {value:.3f}" for name, value in asdict(self.scores).items())
        return Decision(STAGE, f"how far the sources agree: {self.formula}", self.numbers, outcome)

    @property
    def formula(self) -> str:
        """The weighted sum of the heads, such as ``0.2 sparse + 0.4 dense``."""
        return " + ".join(f"{share:.2g} {HEADS[head]}" for head, share in self.shares.items())


async def measure(sources: Sources, weights: Weights, kit: Kit, *, match: str = "best") -> KnowledgeScores:
    """Compare the sources: one request to the encoder. Raises CapabilityError when no head of it has a weight."""
    compared = compared_texts(sources, match)
    pairs = list(dict.fromkeys((a, b) for lefts, rights in compared for a in lefts for b in rights if a and b))
    found = await kit.compare(pairs, sources.passages)
    by_head = {
        head: Agreement(
            *(agreement(lefts, rights, dict(zip(pairs, values, strict=True))) for lefts, rights in compared)
        )
        for head, values in found.heads.items()
    }
    encoder = kit.encoder.name if kit.encoder else ""
    used = normalised_weights(weights, tuple(by_head), encoder)
    return KnowledgeScores(encoder, by_head, used, weighed(by_head, used))


def compared_texts(sources: Sources, match: str) -> tuple[tuple[Texts, Texts], ...]:
    """The texts that S1, S2, S3 and S4 compare."""
    internal: Texts = (sources.internal,)
    external: Texts = tuple(encoded_text(passage) for passage in sources.external)
    generated: Texts = sources.collected.answers
    retrieved: Texts = tuple(encoded_text(passage) for passage in sources.collected.retrieved)
    if match == "joined":
        external, generated, retrieved = (
            ("\n".join(text for text in texts if text),) for texts in (external, generated, retrieved)
        )
    return (internal, external), (generated, internal), (retrieved, external), (generated, retrieved)


def agreement(lefts: Sequence[str], rights: Sequence[str], likeness: Mapping[tuple[str, str], float]) -> float:
    """The mean of the best likenesses; a pair that is not there has none."""
    if not lefts or not rights:
        return 0.0
    best = [max(likeness.get((left, right), 0.0) for right in rights) for left in lefts]
    return sum(min(max(each, 0.0), 1.0) for each in best) / len(best)


def weighed(by_head: Mapping[str, Agreement], shares: Weights) -> Agreement:
    """The agreements of the heads in one, by shares that come to 1; added in order, as ``evaluate.tune`` does."""
    rows = [(share, asdict(by_head[head])) for head, share in shares.items()]
    names = ("s1", "s2", "s3", "s4")
    return Agreement(**{name: reduce(add, (share * row[name] for share, row in rows)) for name in names})


def recorded(decisions: Sequence[Decision]) -> list[dict[str, Agreement]]:
    """The agreements by head of every round that a verdict decided, out of its decisions, for other weights."""
    rounds = [decision.inputs for decision in decisions if decision.stage == STAGE]
    return [
        {head: Agreement(*(inputs[f"s{n}_{head}"] for n in range(1, 5))) for head in HEADS if f"s1_{head}" in inputs}
        for inputs in rounds
    ]
