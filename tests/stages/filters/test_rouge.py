"""ROUGE-L, by hand and as the package ``rouge_score`` gives it."""

from __future__ import annotations

import pytest

from arbitrag.stages.filters.rouge import ascii_words, rouge_l, words


@pytest.mark.parametrize(
    ("one", "other", "f1"),
    [
        ("the cat sat on the mat", "the cat lay on a mat", 4 / 6),  # the cat on mat
        ("a b c d", "d c b a", 1 / 4),
        ("running runs", "run ran", 1 / 2),  # run
        ("one two three four five six seven", "one three five seven nine", 2 * 4 / 12),
        ("Oskar Brend directed The Silent Orchard in 1931.", "The Silent Orchard was directed by Oskar Brend.", 3 / 8),
        ("Ünal läuft", "unal läuft", 0.6666666666666666),  # ASCII alone: nal l uft, unal l uft
        ("same words", "Same, WORDS!", 1.0),
        ("", "a", 0.0),
        ("", "", 0.0),
        ("天气很好", "天气很好", 0.0),  # no ASCII word at all
    ],
)
def test_pairs_as_the_reference_scores_them(one: str, other: str, f1: float) -> None:
    scores = rouge_l([ascii_words(one), ascii_words(other)])
    assert scores[0, 1] == scores[1, 0] == pytest.approx(f1, abs=1e-15)


def test_every_pair_at_once_equals_pair_by_pair() -> None:
    texts = [ascii_words(text) for text in ("a b c d e", "b d f", "", "e d c b a", "x y")]
    scores = rouge_l(texts)
    assert scores.shape == (5, 5)
    for row, one in enumerate(texts):
        for column, other in enumerate(texts):
            assert scores[row, column] == rouge_l([one, other])[0, 1]
    assert rouge_l([]).shape == (0, 0)


def test_more_different_words_than_a_plane_of_characters_holds() -> None:
    many = [f"w{number}" for number in range(70_000)]
    assert rouge_l([many, many])[0, 1] == 1.0


def test_words_of_any_script() -> None:
    assert words("Ünal läuft Straßen") == ["ünal", "läuft", "strassen"]
    assert words("The films") == ["the", "film"]
    assert words("北京 2024年") == ["北", "京", "2024", "年"]
    assert words("ＡＢＣＤ") == ["abcd"]
    assert ascii_words("Ünal's films, 1931") == ["nal", "s", "film", "1931"]
