"""Collect passages and answers from memory for the sub-queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arbitrag.kit import Kit, gather
from arbitrag.prompts import Block
from arbitrag.stages.parsing import forms
from arbitrag.stages.parsing.grammar import Parsed
from arbitrag.stages.structured import ask_structured
from arbitrag.types import Passage, Question, distinct_passages


@dataclass(frozen=True, slots=True)
class Collected:
    """``generated`` (K_gen) in the order of the queries, ``retrieved`` (K_ret) without repetitions."""

    queries: tuple[str, ...]
    generated: Parsed[tuple[str, ...]]
    retrieved: tuple[Passage, ...]

    @property
    def answers(self) -> tuple[str, ...]:
        """Nothing where memory declines, or where its reply could not be read."""
        return self.generated.value_or(())


async def collect(queries: tuple[str, ...], bias: forms.Bias, question: Question, kit: Kit, *, fetch: int) -> Collected:
    """Retrieve and answer from memory concurrently: 1 model call."""
    asked = queries[: bias.generated(len(queries))]
    numbered = [Block("query", {"number": str(number), "text": text}) for number, text in enumerate(asked, 1)]
    form, limit = forms.answers(len(asked)), list_token_limit(len(asked), kit)
    generated, retrieved = await gather(
        ask_structured(kit.llm, "bridge/recall_many", form, question, max_tokens=limit, queries=numbered),
        search(queries[: bias.retrieved(len(queries))], kit, fetch=fetch),
    )
    return Collected(queries, generated, retrieved)


def list_token_limit(lines: int, kit: Kit) -> int:
    """The token limit for a list of short texts: the writing limit, or the answer limit times ``lines`` if larger."""
    return max(kit.limits.writing_tokens, lines * kit.limits.answer_tokens)


async def search(queries: Sequence[str], kit: Kit, *, fetch: int) -> tuple[Passage, ...]:
    """For each query the passage that is nearest to it by the encoder, of the first ``fetch``; each passage once."""
    found = await gather(*(kit.retrieve(query, k=fetch) for query in queries))
    if any(len(passages) > 1 for passages in found):
        known = list(distinct_passages(passage for passages in found for passage in passages))
        places = {passage.identity: place for place, passage in enumerate(known)}
        vectors, asked = await kit.embed(known), await kit.embed_queries(queries)
        likeness = (asked @ vectors.T).round(6)  # the last bits depend on the machine; (queries, passages)
        found = [
            (max(passages, key=lambda passage: likeness[row, places[passage.identity]]),) if passages else ()
            for row, passages in enumerate(found)
        ]
    return distinct_passages(passage for passages in found for passage in passages)


@dataclass(frozen=True, slots=True)
class Sources:
    """The four sources of one round: memory's own passage (K_int, empty where it declines), the passages of the
    question (K_ext), and what the sub-queries brought (K_gen and K_ret)."""

    internal: str
    external: tuple[Passage, ...]
    collected: Collected

    @property
    def memories(self) -> tuple[str, ...]:
        """What memory wrote, each text once."""
        return tuple(dict.fromkeys(text for text in (self.internal, *self.collected.answers) if text))

    @property
    def passages(self) -> tuple[Passage, ...]:
        """What was retrieved, each passage once."""
        return distinct_passages((*self.external, *self.collected.retrieved))
