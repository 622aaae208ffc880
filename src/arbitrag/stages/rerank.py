"""Rerankers: order passages by a score, and keep the first ``k``.

none       the order in which they came
encoder    by the cosine of question and passage; vectors that an index stored are not computed again
heads      by the three heads of an encoder such as BGE-M3, weighed; missing ones leave their weight to the others
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Protocol

from arbitrag.encode.base import encoded_text
from arbitrag.encode.similarity import normalised_weights
from arbitrag.errors import UsageError
from arbitrag.kit import Kit
from arbitrag.types import Decision, Dropped, Need, Passage, Question


@dataclass(frozen=True, slots=True)
class RerankResult:
    """The passages ``kept`` in their new order, and the dropped rest."""

    kept: tuple[Passage, ...]
    dropped: tuple[Dropped, ...] = ()
    decisions: tuple[Decision, ...] = ()


class Rerank(Protocol):
    name: ClassVar[str]
    needs: ClassVar[Need]

    async def prepare(self, kit: Kit) -> None:
        """Raises CapabilityError when the encoder lacks what is weighed."""
        ...

    async def top(self, question: Question, passages: Sequence[Passage], k: int, kit: Kit) -> RerankResult: ...


@dataclass(frozen=True)
class NoRerank:
    """Keep the first ``k`` passages in the given order."""

    name: ClassVar[str] = "none"
    needs: ClassVar[Need] = Need(0)

    async def prepare(self, kit: Kit) -> None:
        pass

    async def top(self, question: Question, passages: Sequence[Passage], k: int, kit: Kit) -> RerankResult:
        return RerankResult(tuple(passages[:k]), _beyond(passages[k:], k))


@dataclass(frozen=True)
class EncoderRerank:
    """Rerank by the cosine of question and passage."""

    name: ClassVar[str] = "encoder"
    needs: ClassVar[Need] = Need.ENCODE

    async def prepare(self, kit: Kit) -> None:
        pass

    async def top(self, question: Question, passages: Sequence[Passage], k: int, kit: Kit) -> RerankResult:
        if not passages:
            return RerankResult(())
        (asked,) = await kit.embed_queries([question.text])
        scores = (await kit.embed(passages) @ asked).tolist()
        return _ranked(passages, scores, k, "the cosine of question and passage")


@dataclass(frozen=True)
class HeadsRerank:
    """Rerank by dense, sparse and multi-vector similarity of question and passage."""

    name: ClassVar[str] = "heads"
    needs: ClassVar[Need] = Need.ENCODE

    dense: float = 0.4
    sparse: float = 0.2
    multi: float = 0.4

    def __post_init__(self) -> None:
        weights = asdict(self)
        if min(weights.values()) < 0 or not any(weights.values()):
            raise UsageError(f"the rerank heads: weights are 0 or more, and one of them is more; got {weights}")

    async def prepare(self, kit: Kit) -> None:
        await self._scores([("any", "any")], (), kit)

    async def top(self, question: Question, passages: Sequence[Passage], k: int, kit: Kit) -> RerankResult:
        if not passages:
            return RerankResult(())
        pairs = [(question.text, encoded_text(passage)) for passage in passages]
        scores, told = await self._scores(pairs, passages, kit)
        return _ranked(passages, scores, k, f"question and passage by {told}")

    async def _scores(
        self, pairs: Sequence[tuple[str, str]], passages: Sequence[Passage], kit: Kit
    ) -> tuple[list[float], str]:
        found = (await kit.compare(pairs, passages)).heads
        weights = normalised_weights(asdict(self), tuple(found), kit.encoder.name if kit.encoder else "")
        scores = [sum(share * found[head][row] for head, share in weights.items()) for row in range(len(pairs))]
        return scores, " + ".join(f"{share:.2g} {head}" for head, share in weights.items())


def _ranked(passages: Sequence[Passage], scores: Sequence[float], k: int, rule: str) -> RerankResult:
    """The ``k`` passages with the highest scores; equal ones stay in their order."""
    rounded = [round(score, 6) for score in scores]  # the last bits depend on the machine
    order = sorted(range(len(passages)), key=lambda row: -rounded[row])
    inputs = {"order": [row + 1 for row in order], "scores": [rounded[row] for row in order]}
    kept = tuple(passages[row] for row in order[:k])
    decision = Decision("rerank", rule, inputs, f"{len(kept)} of {len(passages)} kept")
    return RerankResult(kept, _beyond([passages[row] for row in order[k:]], k), (decision,))


def _beyond(passages: Sequence[Passage], k: int) -> tuple[Dropped, ...]:
    return tuple(Dropped(passage, f"not among the first {k}") for passage in passages)


RERANKS: Mapping[str, type[NoRerank] | type[EncoderRerank] | type[HeadsRerank]] = {
    rerank.name: rerank for rerank in (NoRerank, EncoderRerank, HeadsRerank)
}
