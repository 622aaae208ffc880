"""The encoder without a model: the same everywhere, and near where words or spelling are."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys

import numpy as np
import pytest

from arbitrag.encode import hashed, open_encoder
from arbitrag.encode.base import unit_rows
from arbitrag.encode.hashed import HashEncoder

TEXTS = ["The silent orchard was directed by Mira Talven", "", "Straße 北京市 naïve", "a"]


async def test_rows_are_unit_vectors_and_zero_without_words() -> None:
    vectors = await HashEncoder().encode([*TEXTS, "?! …"], kind="passage")
    assert vectors.shape == (5, 256)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 0, 1, 1, 0], atol=1e-6)


async def test_the_formula_by_hand() -> None:
    def signs(feature: str) -> np.ndarray:
        bits = np.unpackbits(np.frombuffer(hashlib.blake2b(feature.encode(), digest_size=32).digest(), np.uint8))
        return bits.astype(np.float64) * 2 - 1

    def direction(word: str, grams: list[str]) -> np.ndarray:
        spelling = sum((signs(gram) for gram in grams), np.zeros(256))
        return np.asarray(np.sqrt(0.5) * signs(word) + np.sqrt(0.5 / len(grams)) * spelling)

    cat = direction("cat", ["<ca", "cat", "at>"])
    is_ = direction("is", ["<is", "is>"])
    expected = (1 + np.log(2)) * 0.25 * cat + (2 / 6) ** 2 * is_
    expected /= np.linalg.norm(expected)
    (found,) = await HashEncoder().encode(["Cat IS cat"], kind="query")
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_another_process_gives_the_same_bits() -> None:
    code = (
        "import asyncio, sys; from arbitrag.encode.hashed import HashEncoder;"
        f"sys.stdout.write(asyncio.run(HashEncoder().encode({TEXTS!r}, kind='query')).round(6).tobytes().hex())"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    here = asyncio.run(HashEncoder().encode(TEXTS, kind="query")).round(6)
    assert there == here.tobytes().hex()


async def test_shared_words_then_shared_spelling_make_texts_near() -> None:
    query, same, inflected, function_words, other = await HashEncoder().encode(
        [
            "who directed the silent orchard",
            "the silent orchard was directed by Mira Talven",
            "silently, orchards are directing",
            "the one who was by the",
            "parliament adopted another budget yesterday",
        ],
        kind="query",
    )
    assert query @ same > 0.6
    assert query @ same > query @ inflected > query @ function_words
    assert 0.2 < query @ inflected < 0.6
    assert abs(query @ other) < 0.25


async def test_company_does_not_change_a_vector() -> None:
    encoder = HashEncoder()
    alone = await encoder.encode(["orchard gate"], kind="passage")
    many = await encoder.encode([*(f"word{n} orchard" for n in range(300)), "orchard gate"], kind="passage")
    np.testing.assert_allclose(many[-1], alone[0], atol=1e-6)


async def test_a_full_table_of_words_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashed, "_KEPT_WORDS", 4)
    encoder = HashEncoder()
    first = await encoder.encode(["alpha beta gamma"], kind="passage")
    await encoder.encode(["delta epsilon zeta"], kind="passage")
    assert set(encoder._rows) == {"delta", "epsilon", "zeta"}
    again = await encoder.encode(["alpha beta gamma"], kind="passage")
    np.testing.assert_array_equal(first, again)


async def test_half_of_a_surrogate_pair_and_a_huge_word_are_just_words() -> None:
    vectors = await HashEncoder().encode(["a\ud800b", "x" * 100_000], kind="passage")
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


async def test_open_encoder_opens_it() -> None:
    encoder = open_encoder("hash")
    assert (encoder.name, encoder.identity, encoder.width) == ("hash", "hash:256:1", 256)
    assert (await encoder.encode([], kind="query")).shape == (0, 256)
    await encoder.aclose()


def test_unit_rows_leaves_zeros() -> None:
    np.testing.assert_array_equal(
        unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])), np.array([[0.6, 0.8], [0, 0]], np.float32)
    )
