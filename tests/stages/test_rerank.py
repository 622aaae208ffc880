"""Passages in another order: by hand, with ties, with stored vectors, and with heads that are not there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from arbitrag.encode.base import Kind
from arbitrag.encode.similarity import Heads
from arbitrag.errors import CapabilityError, UsageError
from arbitrag.kit import Kit
from arbitrag.stages.rerank import EncoderRerank, HeadsRerank, NoRerank
from arbitrag.testing import ScriptedLLM
from arbitrag.types import Passage, Question

WHO = Question("who?")
LIKENESS = {"a": 0.6, "b": 0.8, "c": 0.6, "d": 1.0}  # of each passage and the question, by hand
PASSAGES = tuple(Passage(text, id=text) for text in LIKENESS)


class Known:
    """One head; the question is (1, 0)."""

    name = identity = "known"
    width = 2

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        self.texts += texts
        cosines = [LIKENESS.get(text, 1.0) for text in texts]
        return np.array([(cosine, math.sqrt(1 - cosine**2)) for cosine in cosines], np.float32)

    async def aclose(self) -> None:
        pass


class Three(Known):
    """Two more heads: sparse finds c alone, and multi is always 0.5."""

    async def encode_heads(self, texts: Sequence[str], *, kind: Kind) -> list[Heads]:
        dense = await self.encode(texts, kind=kind)
        return [
            Heads(row, {"t": 1.0} if text in ("c", WHO.text) else {}, np.array([[math.sqrt(0.5)]]))
            for text, row in zip(texts, dense, strict=True)
        ]


def kit_of(encoder: Any) -> Kit:
    return Kit.of(ScriptedLLM(), encoder=encoder)


def ids(passages: Sequence[Passage]) -> str:
    return "".join(each.id for each in passages)


async def test_without_a_rule_the_first_stay() -> None:
    ranked = await NoRerank().top(WHO, PASSAGES, 3, kit_of(None))
    assert (ids(ranked.kept), ranked.decisions) == ("abc", ())
    assert [(each.passage.id, each.reason) for each in ranked.dropped] == [("d", "not among the first 3")]


async def test_by_the_encoder_equal_ones_stay_in_their_order() -> None:
    ranked = await EncoderRerank().top(WHO, PASSAGES, 3, kit_of(Known()))
    assert ids(ranked.kept) == "dba"
    assert [each.passage.id for each in ranked.dropped] == ["c"]
    (decision,) = ranked.decisions
    assert decision.inputs == {"order": [4, 2, 1, 3], "scores": pytest.approx([1.0, 0.8, 0.6, 0.6])}
    assert decision.outcome == "3 of 4 kept"


async def test_stored_vectors_are_not_made_again() -> None:
    stored = [Passage("x", id="x", embedding=np.array([0.0, 1.0]), embedded_by="known"), PASSAGES[0]]
    for rerank in (EncoderRerank(), HeadsRerank()):
        encoder = Known()
        assert ids((await rerank.top(WHO, stored, 9, kit_of(encoder))).kept) == "ax"
        assert encoder.texts == ["who?", "a"]


@pytest.mark.parametrize(
    ("rerank", "order", "first"),
    [
        (HeadsRerank(), "cdba", 0.4 * 0.6 + 0.2 + 0.4 * 0.5),
        (HeadsRerank(sparse=0.0), "dbac", 0.5 * 1.0 + 0.5 * 0.5),
        (HeadsRerank(dense=0.0, multi=0.0), "cabd", 1.0),
    ],
)
async def test_three_heads_are_weighed(rerank: HeadsRerank, order: str, first: float) -> None:
    ranked = await rerank.top(WHO, PASSAGES, 4, kit_of(Three()))
    assert ids(ranked.kept) == order
    assert ranked.decisions[0].inputs["scores"][0] == pytest.approx(first)


async def test_missing_heads_leave_their_weight_to_the_others_unless_none_is_left() -> None:
    ranked = await HeadsRerank().top(WHO, PASSAGES, 4, kit_of(Known()))
    assert ids(ranked.kept) == "dbac"
    assert ranked.decisions[0].rule == "question and passage by 1 dense"
    with pytest.raises(CapabilityError, match="the weights are for the heads sparse; the encoder known has dense"):
        await HeadsRerank(dense=0.0, multi=0.0).prepare(kit_of(Known()))
    with pytest.raises(UsageError, match="weights are 0 or more"):
        HeadsRerank(dense=0.0, sparse=0.0, multi=0.0)


@pytest.mark.parametrize("rerank", [NoRerank(), EncoderRerank(), HeadsRerank()])
async def test_no_passages_stay_none(rerank: NoRerank | EncoderRerank | HeadsRerank) -> None:
    encoder = Known()
    ranked = await rerank.top(WHO, (), 3, kit_of(encoder))
    assert (ranked.kept, ranked.dropped, encoder.texts) == ((), (), [])
