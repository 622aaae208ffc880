"""The prefix cache with arrays in place of keys and values: a block is the token ids that it stands for."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from arbitrag.llm.engine.prefix_cache import PrefixCache, common_prefix_length

TOKEN, LOGITS = 10, 25  # bytes


def cache_of(tokens: int) -> PrefixCache:
    return PrefixCache(
        tokens * TOKEN, token_bytes=TOKEN, logits_bytes=LOGITS, cut=lambda block, a, b: block[a:b].copy()
    )


def put(cache: PrefixCache, *ids: int, last_logits: Any = "logits") -> None:
    """Read a prompt as the engine does: look up what is there, compute the rest, cache it."""
    match = cache.match(ids)
    cache.insert(ids, match.length, np.array(ids[match.length :]), last_logits)
    cache.release(match)


def has(cache: PrefixCache, *ids: int) -> tuple[list[int], Any]:
    """The tokens found, and the logits."""
    match = cache.match(ids)
    cache.release(match)
    found = [int(id) for block in match.blocks for id in block]
    assert len(found) == match.length
    return found, match.last_logits


def test_a_shared_prefix_is_found() -> None:
    cache = cache_of(100)
    put(cache, 1, 2, 3, 4, last_logits="a")
    put(cache, 1, 2, 5, last_logits="b")
    assert has(cache, 1, 2, 3, 4) == ([1, 2, 3, 4], "a")
    assert has(cache, 1, 2, 5, 6) == ([1, 2, 5], "b")  # the logits are those of the last token found
    assert has(cache, 1, 2) == ([1, 2], None)
    assert has(cache, 1, 9) == ([1], None)
    assert has(cache, 2) == ([], None)
    assert has(cache) == ([], None)
    assert len(cache) == 5
    assert cache.bytes == 5 * TOKEN + 2 * LOGITS


def test_a_prompt_that_ends_within_another_gets_its_logits() -> None:
    cache = cache_of(100)
    put(cache, 1, 2, 3, last_logits="long")
    put(cache, 1, 2, last_logits="short")
    assert has(cache, 1, 2) == ([1, 2], "short")
    assert has(cache, 1, 2, 3) == ([1, 2, 3], "long")
    assert cache.bytes == 3 * TOKEN + 2 * LOGITS


def test_the_least_recently_used_is_evicted_first() -> None:
    cache = cache_of(15)  # each prompt takes 3 tokens and logits: 55 bytes of 150
    put(cache, 1, 1, 1)
    put(cache, 2, 2, 2)
    has(cache, 1, 1, 1)
    put(cache, 3, 3, 3)
    assert has(cache, 2, 2, 2)[0] == []
    assert has(cache, 1, 1, 1)[0] == [1, 1, 1]
    assert has(cache, 3, 3, 3)[0] == [3, 3, 3]


def test_leaves_are_evicted_before_their_parents() -> None:
    cache = cache_of(13)
    put(cache, 1, 2, 3)
    put(cache, 1, 2, 4)  # 4 tokens and two ends: 90 bytes of 130
    put(cache, 7, 7, 7, 7)  # 65 more
    found = [has(cache, 1, 2, 3)[0], has(cache, 1, 2, 4)[0]]
    assert found == [[1, 2], [1, 2, 4]]


def test_pinned_nodes_stay() -> None:
    cache = cache_of(6)
    put(cache, 1, 2, 3)
    used = cache.match([1, 2, 3])
    put(cache, 4, 5, 6, 7, 8, 9)
    assert has(cache, 1, 2, 3)[0] == [1, 2, 3]
    assert cache.bytes <= cache.capacity
    cache.release(used)
    put(cache, 4, 5, 6)
    assert has(cache, 1, 2, 3)[0] == []
    assert has(cache, 4, 5, 6)[0] == [4, 5, 6]


def test_a_pinned_node_can_be_split() -> None:
    cache = cache_of(100)
    put(cache, 1, 2, 3, 4)
    used = cache.match([1, 2, 3, 4])
    put(cache, 1, 2, 9)
    cache.clear()
    assert has(cache, 1, 2, 3, 4)[0] == [1, 2, 3, 4]
    assert has(cache, 1, 2, 9)[0] == [1, 2]
    cache.release(used)
    cache.clear()
    assert (cache.bytes, len(cache)) == (0, 0)


def test_a_prompt_that_is_too_long_is_cached_in_part() -> None:
    cache = cache_of(6)
    put(cache, *range(10))
    assert has(cache, *range(10))[0] == list(range(6))
    assert cache.bytes == 60


def test_logits_that_do_not_fit_are_not_cached() -> None:
    cache = cache_of(4)
    put(cache, 1, 2, 3)
    assert has(cache, 1, 2, 3) == ([1, 2, 3], None)


def test_without_capacity_nothing_is_cached() -> None:
    cache = cache_of(0)
    put(cache, 1, 2, 3)
    assert has(cache, 1, 2, 3) == ([], None)
    assert cache.bytes == 0


@pytest.mark.parametrize("capacity", [7, 40, 400])
def test_the_capacity_holds_and_the_contents_are_right(capacity: int) -> None:
    """10,000 requests in all; several matches are held at a time, as in a batch."""
    draw = random.Random(capacity)
    cache, held = cache_of(capacity), []
    for _ in range(3334):
        ids = [draw.randrange(3) for _ in range(draw.randrange(1, 12))]
        assert has(cache, *ids)[0] == ids[: len(has(cache, *ids)[0])]
        put(cache, *ids)
        assert cache.bytes <= cache.capacity
        held.append(cache.match(ids))
        if len(held) > 2:
            cache.release(held.pop(draw.randrange(3)))
    for match in held:
        cache.release(match)
    cache.clear()
    assert (cache.bytes, len(cache)) == (0, 0)


def test_common_prefix_length() -> None:
    assert common_prefix_length([1, 2, 3], [1, 2, 4]) == 2
    assert common_prefix_length([1, 2], (1, 2, 4)) == 2
    assert common_prefix_length([], [1]) == 0
