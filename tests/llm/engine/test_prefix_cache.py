"""The prefix store with arrays in place of keys and values: a block is the token ids that it stands for."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from arbitrag.llm.engine.prefix_cache import PrefixStore, common_length

TOKEN, LOGITS = 10, 25  # bytes


def store_of(tokens: int) -> PrefixStore:
    return PrefixStore(
        tokens * TOKEN, token_bytes=TOKEN, logits_bytes=LOGITS, cut=lambda block, a, b: block[a:b].copy()
    )


def put(store: PrefixStore, *ids: int, last: Any = "logits") -> None:
    """Read a prompt as the engine does: look up what is there, compute the rest, store it."""
    match = store.match(ids)
    store.insert(ids, match.length, np.array(ids[match.length :]), last)
    store.release(match)


def has(store: PrefixStore, *ids: int) -> tuple[list[int], Any]:
    """The tokens found, and the logits."""
    match = store.match(ids)
    store.release(match)
    found = [int(id) for block in match.blocks for id in block]
    assert len(found) == match.length
    return found, match.last


def test_what_begins_alike_is_found() -> None:
    store = store_of(100)
    put(store, 1, 2, 3, 4, last="a")
    put(store, 1, 2, 5, last="b")
    assert has(store, 1, 2, 3, 4) == ([1, 2, 3, 4], "a")
    assert has(store, 1, 2, 5, 6) == ([1, 2, 5], "b")  # the logits are those of the last token found
    assert has(store, 1, 2) == ([1, 2], None)
    assert has(store, 1, 9) == ([1], None)
    assert has(store, 2) == ([], None)
    assert has(store) == ([], None)
    assert len(store) == 5
    assert store.bytes == 5 * TOKEN + 2 * LOGITS


def test_a_prompt_that_ends_within_another_gets_its_logits() -> None:
    store = store_of(100)
    put(store, 1, 2, 3, last="long")
    put(store, 1, 2, last="short")
    assert has(store, 1, 2) == ([1, 2], "short")
    assert has(store, 1, 2, 3) == ([1, 2, 3], "long")
    assert store.bytes == 3 * TOKEN + 2 * LOGITS


def test_what_was_not_used_for_longest_goes_first() -> None:
    store = store_of(15)  # each prompt takes 3 tokens and logits: 55 bytes of 150
    put(store, 1, 1, 1)
    put(store, 2, 2, 2)
    has(store, 1, 1, 1)
    put(store, 3, 3, 3)
    assert has(store, 2, 2, 2)[0] == []
    assert has(store, 1, 1, 1)[0] == [1, 1, 1]
    assert has(store, 3, 3, 3)[0] == [3, 3, 3]


def test_the_ends_of_the_tree_go_before_what_they_share() -> None:
    store = store_of(13)
    put(store, 1, 2, 3)
    put(store, 1, 2, 4)  # 4 tokens and two ends: 90 bytes of 130
    put(store, 7, 7, 7, 7)  # 65 more
    found = [has(store, 1, 2, 3)[0], has(store, 1, 2, 4)[0]]
    assert found == [[1, 2], [1, 2, 4]]


def test_what_is_in_use_stays() -> None:
    store = store_of(6)
    put(store, 1, 2, 3)
    used = store.match([1, 2, 3])
    put(store, 4, 5, 6, 7, 8, 9)
    assert has(store, 1, 2, 3)[0] == [1, 2, 3]
    assert store.bytes <= store.bound
    store.release(used)
    put(store, 4, 5, 6)
    assert has(store, 1, 2, 3)[0] == []
    assert has(store, 4, 5, 6)[0] == [4, 5, 6]


def test_a_part_in_use_can_be_split() -> None:
    store = store_of(100)
    put(store, 1, 2, 3, 4)
    used = store.match([1, 2, 3, 4])
    put(store, 1, 2, 9)
    store.clear()
    assert has(store, 1, 2, 3, 4)[0] == [1, 2, 3, 4]
    assert has(store, 1, 2, 9)[0] == [1, 2]
    store.release(used)
    store.clear()
    assert (store.bytes, len(store)) == (0, 0)


def test_of_a_prompt_that_is_too_long_the_beginning_is_kept() -> None:
    store = store_of(6)
    put(store, *range(10))
    assert has(store, *range(10))[0] == list(range(6))
    assert store.bytes == 60


def test_logits_that_do_not_fit_are_left_out() -> None:
    store = store_of(4)
    put(store, 1, 2, 3)
    assert has(store, 1, 2, 3) == ([1, 2, 3], None)


def test_without_room_nothing_is_kept() -> None:
    store = store_of(0)
    put(store, 1, 2, 3)
    assert has(store, 1, 2, 3) == ([], None)
    assert store.bytes == 0


@pytest.mark.parametrize("bound", [7, 40, 400])
def test_the_bound_holds_and_the_contents_are_right(bound: int) -> None:
    """10,000 requests in all; several matches are held at a time, as in a batch."""
    draw = random.Random(bound)
    store, held = store_of(bound), []
    for _ in range(3334):
        ids = [draw.randrange(3) for _ in range(draw.randrange(1, 12))]
        assert has(store, *ids)[0] == ids[: len(has(store, *ids)[0])]
        put(store, *ids)
        assert store.bytes <= store.bound
        held.append(store.match(ids))
        if len(held) > 2:
            store.release(held.pop(draw.randrange(3)))
    for match in held:
        store.release(match)
    store.clear()
    assert (store.bytes, len(store)) == (0, 0)


def test_common_length() -> None:
    assert common_length([1, 2, 3], [1, 2, 4]) == 2
    assert common_length([1, 2], (1, 2, 4)) == 2
    assert common_length([], [1]) == 0
