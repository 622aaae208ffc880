"""Reciprocal rank fusion, computed by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np
import pytest

from arbitrag.errors import BackendError, UsageError
from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.retrieve.hybrid import HybridRetriever, fuse
from arbitrag.types import Passage


def named(*ids: str) -> list[Passage]:
    return [Passage(f"text {id}", id=id) for id in ids]


def test_the_formula() -> None:
    found = fuse([named("a", "b", "c"), named("c", "d", "a")])
    assert [(passage.id, passage.score) for passage in found] == [
        ("a", 1 / 61 + 1 / 63),
        ("c", 1 / 63 + 1 / 61),
        ("b", 1 / 62),
        ("d", 1 / 62),
    ]


def test_a_smaller_k0_favours_the_first_places() -> None:
    rankings = [named("a", "x", "b"), named("y", "z", "b")]
    assert fuse(rankings, k0=60)[0].id == "b"  # 2/63 > 1/61
    assert fuse(rankings, k0=0)[0].id == "a"  # 1 > 2/3


def test_without_ids_place_and_text_tell_passages_apart() -> None:
    left, right = Passage("same", source="x", offset=0), Passage("same", source="x", offset=9)
    assert [passage.score for passage in fuse([[left], [right, left]])] == [1 / 61 + 1 / 62, 1 / 61]


def test_a_repeated_passage_votes_once() -> None:
    assert [passage.score for passage in fuse([named("a", "a", "b")])] == [1 / 61, 1 / 63]


def test_the_embedding_comes_from_whichever_has_one() -> None:
    vector = np.ones(2, np.float32)
    bare, embedded = Passage("t", id="a", title="first"), Passage("t", id="a", title="second", embedding=vector)
    (found,) = fuse([[bare], [embedded]])
    assert found.title == "first"
    assert found.embedding is vector


class Recorder(FixedRetriever):
    """Notes what it is asked, and meets the other one on the way."""

    def __init__(self, passages: list[Passage], meeting: asyncio.Barrier) -> None:
        super().__init__(passages)
        self.asked: list[tuple[str, int, Mapping[str, str] | None]] = []
        self.closed = False
        self._meeting = meeting

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        self.asked.append((query, k, where))
        await self._meeting.wait()
        return await super().retrieve(query, k, where)

    async def aclose(self) -> None:
        self.closed = True


async def test_both_are_asked_side_by_side_for_enough() -> None:
    meeting = asyncio.Barrier(2)  # passes only when both are under way
    first, second = Recorder(named("a", "b"), meeting), Recorder(named("b", "c"), meeting)
    hybrid = HybridRetriever(first, second, k0=10, fetch=3)
    found = await hybrid.retrieve("q", 2)
    assert [(passage.id, passage.score) for passage in found] == [("b", 1 / 12 + 1 / 11), ("a", 1 / 11)]
    await hybrid.retrieve("q", 5, {"lang": "en"})
    assert first.asked == second.asked == [("q", 3, None), ("q", 5, {"lang": "en"})]
    assert hybrid.identity == f"rrf10x3({first.identity}, {second.identity})"
    await hybrid.aclose()
    assert (first.closed, second.closed) == (True, True)


async def test_an_error_of_one_is_raised() -> None:
    class Broken(FixedRetriever):
        async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
            raise BackendError("gone")

    with pytest.raises(BackendError, match="gone"):
        await HybridRetriever(FixedRetriever(named("a")), Broken(())).retrieve("q", 1)


@pytest.mark.parametrize("options", [{"k0": -1}, {"fetch": 0}])
def test_numbers_that_make_no_sense(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="k0 is at least 0 and fetch at least 1"):
        HybridRetriever(FixedRetriever(()), FixedRetriever(()), **options)
