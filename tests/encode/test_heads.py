"""Three ways to compare two texts, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from arbitrag.encode.hashed import HashEncoder
from arbitrag.encode.heads import Heads, compare, late_interaction, shared_weight, similarities


def test_shared_weight_is_the_sum_of_products_over_common_tokens() -> None:
    assert shared_weight({"a": 0.5, "b": 0.2, "c": 9.0}, {"a": 0.4, "b": 0.1, "d": 9.0}) == pytest.approx(0.22)
    assert shared_weight({"a": 1.0}, {"b": 1.0}) == 0.0
    assert shared_weight({}, {"b": 1.0}) == 0.0


def test_late_interaction_is_the_mean_of_the_best() -> None:
    left = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    right = np.array([[1.0, 0.0], [0.8, 0.6]])
    assert late_interaction(left, right) == pytest.approx((1.0 + 0.6 + 0.96) / 3)
    assert late_interaction(right, left) == pytest.approx((1.0 + 0.96) / 2)  # it is not symmetric
    assert late_interaction(np.empty((0, 2)), right) == 0.0
    assert late_interaction(left, np.empty((0, 2))) == 0.0


def test_the_three_of_two_texts() -> None:
    left = Heads(np.array([0.6, 0.8]), {"x": 0.5}, np.array([[1.0, 0.0]]))
    right = Heads(np.array([0.8, 0.6]), {"x": 0.5, "y": 1.0}, np.array([[0.0, 1.0], [0.8, 0.6]]))
    assert similarities(left, right) == {
        "dense": pytest.approx(0.96),
        "sparse": pytest.approx(0.25),
        "multi": pytest.approx(0.8),
    }


async def test_the_heads_of_the_hash_encoder_by_hand() -> None:
    ((heads,),) = [await HashEncoder().encode_heads(["the Orchard, the orchard"], kind="passage")]
    the, orchard = (1 + math.log(2)) * 0.25, 1 + math.log(2)  # weights of words of 3 and of 7 letters, twice each
    length = math.hypot(the, orchard)
    assert heads.sparse == {"the": pytest.approx(the / length), "orchard": pytest.approx(orchard / length)}
    assert heads.multi.shape == (1, 256)  # "the" is too short to be looked for
    (alone,) = await HashEncoder().encode(["orchard"], kind="passage")
    np.testing.assert_allclose(heads.multi[0], alone, atol=1e-6)
    (dense,) = await HashEncoder().encode(["the Orchard, the orchard"], kind="passage")
    np.testing.assert_allclose(heads.dense, dense, atol=1e-6)


async def test_short_words_are_looked_for_when_there_are_no_others_and_nothing_has_no_heads() -> None:
    short, nothing = await HashEncoder().encode_heads(["it is", "..."], kind="passage")
    assert short.multi.shape == (2, 256)
    assert nothing.multi.shape == (0, 256)
    assert nothing.sparse == {}
    assert not nothing.dense.any()


async def test_a_text_is_like_itself_in_every_head_and_unlike_another() -> None:
    found = await compare(
        [("Mira Talven wrote it", "Mira Talven wrote it"), ("Mira Talven wrote it", "harbour lights"), ("", "x")],
        HashEncoder(),
    )
    for head in ("dense", "sparse", "multi"):
        same, other, empty = found.heads[head]
        assert same == pytest.approx(1.0)
        assert abs(other) < 0.3
        assert empty == 0.0
