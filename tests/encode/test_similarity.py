"""Three ways to compare two texts, by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from arbitrag.encode.base import Kind, unit_rows
from arbitrag.encode.hashed import HashEncoder
from arbitrag.encode.similarity import Heads, compare, late_interaction, shared_weight


def test_shared_weight_is_the_sum_of_products_over_common_tokens() -> None:
    assert shared_weight({"a": 0.5, "b": 0.2, "c": 9.0}, {"a": 0.4, "b": 0.1, "d": 9.0}) == pytest.approx(0.22)
    assert shared_weight({"a": 1.0}, {"b": 1.0}) == 0.0
    assert shared_weight({}, {"b": 1.0}) == 0.0


def test_late_interaction_is_the_mean_of_the_best() -> None:
    left = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    right = np.array([[1.0, 0.0], [0.8, 0.6]])
    nothing = np.empty((0, 2))
    table = late_interaction([left, nothing, right], [right, nothing, left])
    forth, back = (1.0 + 0.6 + 0.96) / 3, (1.0 + 0.96) / 2  # it is not symmetric
    assert table == pytest.approx(np.array([[forth, 0, 1.0], [0, 0, 0], [1.0, 0, back]]))
    assert late_interaction([], [right]).shape == (0, 1)
    assert late_interaction([left], [nothing]).tolist() == [[0.0]]


class Given:
    """The heads that it was given, by text."""

    name = identity = "given"
    width = 2

    def __init__(self, **heads: Heads) -> None:
        self.heads = heads

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        return np.array([self.heads[text].dense for text in texts])

    async def encode_heads(self, texts: Sequence[str], *, kind: Kind) -> list[Heads]:
        return [self.heads[text] for text in texts]

    async def aclose(self) -> None:
        pass


async def test_the_three_of_two_texts() -> None:
    left = Heads(np.array([0.6, 0.8]), {"x": 0.5}, np.array([[1.0, 0.0]]))
    right = Heads(np.array([0.8, 0.6]), {"x": 0.5, "y": 1.0}, np.array([[0.0, 1.0], [0.8, 0.6]]))
    found = await compare([("a", "b"), ("b", "a"), ("a", "b")], Given(a=left, b=right))
    assert found.heads["dense"] == pytest.approx((0.96, 0.96, 0.96))
    assert found.heads["sparse"] == pytest.approx((0.25, 0.25, 0.25))
    assert found.heads["multi"] == pytest.approx((0.8, (0.0 + 0.8) / 2, 0.8))


@pytest.mark.parametrize("bound", [1, 20, 1 << 24])
async def test_pairs_compared_together_come_out_as_each_alone(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arbitrag.encode.similarity._PRODUCTS", bound)
    rng = np.random.default_rng(1)
    rows = {name: unit_rows(rng.normal(size=(at, 3))) for at, name in enumerate("abcdef")}  # the first has none
    encoder = Given(**{name: Heads(np.zeros(3), {}, each) for name, each in rows.items()})
    pairs = [(left, right) for left in "abcd" for right in "ef"] + [("e", "a"), ("d", "b"), ("f", "b"), ("c", "c")]
    together = (await compare(pairs, encoder)).heads["multi"]
    alone = [(await compare([pair], encoder)).heads["multi"][0] for pair in pairs]
    by_hand = [(rows[a] @ rows[b].T).max(axis=1).mean() if len(rows[a]) and len(rows[b]) else 0.0 for a, b in pairs]
    assert together == pytest.approx(alone)
    assert together == pytest.approx(by_hand)


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
