"""Passages into a token limit: the boundary on both sides, and what is said about the loss."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbitrag.truncation import Fit, fit
from arbitrag.types import Cut, Dropped, Passage

FRAME = 2  # tokens that a passage costs beside its text, as the prompt's fences do

ONE, TWO, THREE = Passage("a b c", id="1"), Passage("d e", id="2"), Passage("f g h i", id="3")  # 5, 4 and 6 tokens


def words(number: int, passage: Passage) -> int:
    return FRAME + len(passage.text.split())


def characters(number: int, passage: Passage) -> int:
    return FRAME + len(passage.text)


def dropped(*passages: Passage) -> tuple[Dropped, ...]:
    return tuple(Dropped(passage, "beyond the token limit", no_room=True) for passage in passages)


def cut(passage: Passage, text: str, kept: int, of: int) -> tuple[Passage, tuple[Cut, ...]]:
    return replace(passage, text=text), (Cut(passage.id, kept, of),)


FG, FG_CUT = cut(THREE, "f g", 4, 6)
A, A_CUT = cut(ONE, "a", 3, 5)


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (15, Fit((ONE, TWO, THREE))),  # exactly fits
        (100, Fit((ONE, TWO, THREE))),
        (14, Fit((ONE, TWO, replace(THREE, text="f g h")), (), (Cut("3", 5, 6),))),  # one token over
        (13, Fit((ONE, TWO, FG), (), FG_CUT)),
        (11, Fit((ONE, TWO), dropped(THREE))),  # its fences would fit, but no word of it
        (9, Fit((ONE, TWO), dropped(THREE))),
        (7, Fit((ONE,), dropped(TWO, THREE))),
        (3, Fit((A,), dropped(TWO, THREE), A_CUT)),  # what comes after a cut is dropped
        (2, Fit((), dropped(ONE, TWO, THREE))),
        (0, Fit((), dropped(ONE, TWO, THREE))),
        (-7, Fit((), dropped(ONE, TWO, THREE))),
    ],
)
def test_passages_fit_in_their_order(room: int, expected: Fit) -> None:
    assert fit((ONE, TWO, THREE), room, words) == expected


@pytest.mark.parametrize("blank", [" ", "\n", "\v", "\u2028", "\u3000", "\u200b", "\u00ad", "\u3164", "\U000e0041"])
@pytest.mark.parametrize(("blanks", "fits"), [(8 * 20 + 7, True), (8 * 21, False)])
def test_blanks_cost_a_token_for_every_eight_where_the_tokenizer_drops_them(
    blank: str, blanks: int, fits: bool
) -> None:
    passage = Passage(f"a{blank * blanks}b", id="1")
    found = fit((passage,), 20, lambda number, passage: 1)
    if fits:
        assert found == Fit((passage,))
    elif blank.isspace():  # cut after the last word that fits
        assert found == Fit((replace(passage, text="a"),), (), (Cut("1", 1, blanks // 8),))
    else:  # what is invisible belongs to its word, of which nothing is left
        assert found == Fit((), dropped(passage))


def test_nothing_fits_into_anything() -> None:
    assert fit((), 10, words) == Fit(())


def test_a_later_passage_does_not_slip_past_one_that_does_not_fit() -> None:
    assert fit((THREE, Passage("x", id="4")), 3, words).kept == (replace(THREE, text="f"),)
    assert fit((THREE, Passage("", id="4")), 2, words).kept == ()


def test_the_cut_keeps_the_bytes_before_it() -> None:
    passage = Passage("one  two\n\tthree four ", id="1")
    assert fit((passage,), FRAME + 3, words).kept[0].text == "one  two\n\tthree"


def test_the_number_of_a_passage_is_counted_too() -> None:
    seen: list[int] = []

    def count(number: int, passage: Passage) -> int:
        seen.append(number)
        return 1

    fit((ONE, TWO), 5, count)
    assert seen == [1, 2]


@pytest.mark.parametrize(
    ("text", "room", "kept"),
    [
        ("東京は日本の首都です。", 4, "東京は日"),  # Japanese
        ("北京是中华人民共和国的首都", 1, "北"),  # Chinese
        ("北京是中华人民共和国的首都", 0, None),
        ("使用iPhone手机", 5, "使用"),  # a Latin word among them stays whole
        ("使用iPhone手机", 8, "使用iPhone"),
        ("ที่นี่", 3, "ที่"),  # a Thai vowel and tone stay with their consonant
        ("ที่นี่", 5, "ที่"),
        ("서울은 한국의 수도", 5, "서울은"),  # Korean has spaces
        ("unbreakable", 5, None),
    ],
)
def test_scripts_without_spaces_are_cut_at_a_character(text: str, room: int, kept: str | None) -> None:
    found = fit((Passage(text, id="1"),), FRAME + room, characters)
    assert [passage.text for passage in found.kept] == ([] if kept is None else [kept])
    assert len(found.dropped) == (kept is None)


texts = st.text(st.sampled_from("ab \n東京ที่e\u0301"), max_size=30)


@given(st.lists(texts, max_size=6), st.integers(-3, 60), st.sampled_from([words, characters]))
def test_what_is_kept_never_exceeds_the_room_and_nothing_is_lost_unsaid(texts, room, count) -> None:  # type: ignore[no-untyped-def]
    passages = [Passage(text, id=str(number)) for number, text in enumerate(texts, 1)]
    found = fit(passages, room, count)
    assert sum(count(number, passage) for number, passage in enumerate(found.kept, 1)) <= max(room, 0)
    assert [p.id for p in found.kept] + [d.passage.id for d in found.dropped] == [p.id for p in passages]
    whole = len(found.kept) - len(found.cuts)
    assert list(found.kept[:whole]) == passages[:whole]
    for shortened, loss in zip(found.kept[whole:], found.cuts, strict=True):
        original = passages[whole]
        assert original.text.startswith(shortened.text)
        assert 0 < len(shortened.text) < len(original.text)
        assert loss.tokens_kept == count(whole + 1, shortened) <= loss.tokens == count(whole + 1, original)


def test_a_second_fit_adds_to_the_first() -> None:
    first = fit([ONE, TWO, THREE], 8, words)
    both = first.then(fit(first.kept, 3, words))
    assert first.cuts == (Cut("2", 3, 4),)
    assert [passage.text for passage in both.kept] == ["a"]
    assert both.cuts == (Cut("1", 3, 5),)
    assert [each.passage.id for each in both.dropped] == ["2", "3"]


def test_a_passage_cut_twice_is_measured_from_the_whole() -> None:
    first = fit([THREE], 5, words)
    assert first.then(fit(first.kept, 4, words)).cuts == (Cut("3", 4, 6),)
