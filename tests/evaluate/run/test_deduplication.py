"""What several systems ask alike of an encoder is computed once for a question, and by all the heads that it has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from runner_parts import Numbers

from arbitrag.encode.base import Encoder, Kind
from arbitrag.encode.hashed import HashEncoder
from arbitrag.encode.lazy import LazyEncoder
from arbitrag.encode.similarity import Heads, MultiHead
from arbitrag.errors import BackendError
from arbitrag.evaluate.run.deduplication import Deduplication
from arbitrag.kit import Kit
from arbitrag.types import Passage

TWO = (Passage("a river", id="1"), Passage("a tower", id="2"))


class OneHead:
    """Counts what it is asked; ``down`` lets the next call fail."""

    name, identity, width = "one", "one:1", 2

    def __init__(self) -> None:
        self.asked: list[tuple[Kind, tuple[str, ...]]] = []
        self.down = False
        self.closed = False

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        self.asked.append((kind, tuple(texts)))
        await asyncio.sleep(0)
        if self.down:
            self.down = False
            raise BackendError("down")
        return np.array([[1.0, 0.0] if "river" in text else [0.6, 0.8] for text in texts], np.float32)

    async def aclose(self) -> None:
        self.closed = True


class ThreeHeads(HashEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.heads = 0

    async def encode_heads(self, texts: Sequence[str], *, kind: Kind) -> list[Heads]:
        self.heads += 1
        return await super().encode_heads(texts, kind=kind)


class Opens(LazyEncoder):
    """Opens to a given encoder."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__("later", encoder.identity, 256)
        self._real = encoder

    async def opened(self) -> Encoder:
        return self._real


def kits(encoder: Encoder, count: int = 2) -> list[Kit]:
    """Those of several systems for one question."""
    kit, deduplication = Kit.of(Numbers(), encoder=encoder), Deduplication()
    return [deduplication.kit(kit).recording() for _ in range(count)]


async def test_equal_passages_are_encoded_once() -> None:
    encoder = OneHead()
    first, second = kits(encoder)
    rows = await asyncio.gather(first.embed(TWO), second.embed(TWO))
    assert encoder.asked == [("passage", ("a river", "a tower"))]
    assert all(np.allclose(each, [[1.0, 0.0], [0.6, 0.8]]) for each in rows)
    assert [len(kit.recorder.calls) for kit in (first, second)] == [1, 1]
    await second.embed(TWO[:1])
    assert encoder.asked[1:] == [("passage", ("a river",))]


async def test_another_question_begins_anew() -> None:
    encoder = OneHead()
    for _ in range(2):
        (kit,) = kits(encoder, 1)
        await kit.embed(TWO)
    assert len(encoder.asked) == 2


async def test_queries_are_not_kept() -> None:
    encoder = OneHead()
    for kit in kits(encoder):
        await kit.embed_queries(["a river"])
    assert encoder.asked == [("query", ("a river",))] * 2


async def test_who_waited_for_a_failure_tries_for_itself() -> None:
    encoder = OneHead()
    encoder.down = True
    first, second = kits(encoder)
    found = await asyncio.gather(first.embed(TWO), second.embed(TWO), return_exceptions=True)
    assert [type(each) for each in found] == [BackendError, np.ndarray]
    assert len(encoder.asked) == 2


@pytest.mark.parametrize("later", [False, True])
async def test_all_heads_are_compared_and_computed_once(later: bool) -> None:
    encoder = ThreeHeads()
    pairs = [("a river", "the river bank")]
    alone = await Kit.of(Numbers(), encoder=encoder).compare(pairs)
    first, second = kits(Opens(encoder) if later else encoder)
    found = await asyncio.gather(first.compare(pairs), second.compare(pairs))
    assert list(found) == [alone, alone]
    assert alone.heads.keys() == {"dense", "sparse", "multi"}
    assert encoder.heads == 2  # one of them was alone


async def test_one_head_stays_one() -> None:
    (kit,) = kits(OneHead(), 1)
    assert not isinstance(kit.encoder, MultiHead)
    heads = (await kit.compare([("a river", "a tower")])).heads
    assert list(heads) == ["dense"]
    assert heads["dense"] == pytest.approx((0.6,))


async def test_an_encoder_that_is_opened_later_encodes_and_is_closed_by_its_owner() -> None:
    encoder = OneHead()
    (kit,) = kits(Opens(encoder), 1)
    assert kit.encoder is not None
    assert (kit.encoder.name, kit.encoder.identity, kit.encoder.width) == ("later", "one:1", 256)
    assert (await kit.embed(TWO)).shape == (2, 2)
    await kit.encoder.aclose()
    assert not encoder.closed
