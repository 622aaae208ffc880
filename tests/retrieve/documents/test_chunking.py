import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbitrag.retrieve.documents.chunking import Piece, cut, estimate_tokens, segments


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0.0),
        ("   \n ", 0.0),
        ("one two three", 3.9),  # 1.3 a word
        ("a" * 400, 100.0),  # never less than a quarter of the letters
        ("東京都は日本", 6.0),  # one a character without spaces
        ("Tokyo 東京", 3.3),
    ],
)
def test_tokens_are_estimated_from_words_letters_and_unspaced_characters(text: str, tokens: float) -> None:
    assert estimate_tokens(text) == pytest.approx(tokens)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One. ", "Two! ", "Three? ", "Four"]),
        ("Dr. Ada Brend met Mr. Oskar. They left.", ["Dr. Ada Brend met Mr. Oskar. ", "They left."]),
        ("See e.g. Smith, J. R. Talven et al. and No. 5.", ["See e.g. Smith, J. R. Talven et al. and No. 5."]),
        ("It cost 3.14 dollars in the U.S. market. Yes.", ["It cost 3.14 dollars in the U.S. market. ", "Yes."]),
        ("He waited ... then left. Done.", ["He waited ... ", "then left. ", "Done."]),
        ('She said "Go." Then he left.', ['She said "Go." ', "Then he left."]),
        ("(It ended.) So did he.", ["(It ended.) ", "So did he."]),
        ("彼は来た。「本当だ。」次に帰った！終わり", ["彼は来た。", "「本当だ。」", "次に帰った！", "終わり"]),
        ("no marks\n\nat all\n \nhere", ["no marks\n\n", "at all\n \n", "here"]),
        ("# Title\nText\n- one\n- two\n2. three", ["# Title\nText\n", "- one\n", "- two\n", "2. three"]),
        ("ends with mark.\n\nlower case paragraph", ["ends with mark.\n\n", "lower case paragraph"]),
        ("Prof.\n\nNew paragraph", ["Prof.\n\n", "New paragraph"]),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text: str, sentences: list[str]) -> None:
    assert list(segments([text])) == sentences


def test_passages_hold_whole_sentences_up_to_the_limit() -> None:
    sentence = "one two three four. "  # 5.2 tokens
    found = list(cut(sentence * 10, 16))  # three sentences are 15.6, four are over
    assert [piece.text.count("four.") for piece in found] == [3, 3, 3, 1]
    assert [piece.offset for piece in found] == [0, 60, 120, 180]


def test_a_small_tail_joins_the_passage_before() -> None:
    text = "w " * 30 + "end. " + "Tail."  # 40.3 and 1.3 tokens; an eighth of 41 is 5.1
    assert [piece.text for piece in cut(text, 41)] == [text]
    assert [piece.text for piece in cut("w " * 30 + "end. " + "w " * 4 + "tail.", 41)] == [
        "w " * 30 + "end.",
        "w w w w tail.",
    ]


def test_a_sentence_that_is_too_long_is_cut_at_words() -> None:
    found = list(cut(" ".join(f"w{number}" for number in range(100)), 26))
    assert [len(piece.text.split()) for piece in found] == [20] * 5
    assert found[1].text.startswith("w20 ")


def test_a_word_that_is_too_long_is_cut_at_characters() -> None:
    found = list(cut("x" * 1000, 64))
    assert [len(piece.text) for piece in found] == [256, 256, 256, 232]


def test_text_without_spaces_is_cut_by_characters() -> None:
    assert [len(piece.text) for piece in cut("東" * 99, 32)] == [32, 32, 35]  # the last 3 join


def test_lines_count_from_one_and_offsets_from_zero() -> None:
    text = "\n\n  One is the first line.\nTwo is the second line.\n\nThree is a new paragraph."
    assert list(cut(text, 10)) == [
        Piece("One is the first line.", 3, 4),
        Piece("Two is the second line.", 4, 27),
        Piece("Three is a new paragraph.", 6, 52),
    ]


def test_white_space_makes_no_passage() -> None:
    assert list(cut(" \n\t\n ", 16)) == []
    assert list(cut([], 16)) == []


def test_a_huge_line_streams_through() -> None:
    chunks = itertools.repeat("word " * 2000, 1000)  # ten million characters without a line end
    sizes = [len(piece.text) for piece in cut(chunks, 256)]
    assert sum(sizes) + len(sizes) == 10_000_000  # one space is lost at each cut
    assert max(sizes) <= 5 * 197 * 9 / 8


words = st.sampled_from(
    ["alpha", "Dr.", "e.g.", "end.", "Why?", "東京。", "\n\n", "\n- ", "x" * 90, "“quoted.”", "#", "…"]
)
texts = st.lists(words, max_size=60).map(" ".join) | st.text(max_size=200)


@given(texts, st.integers(1, 50))
def test_sentences_joined_are_the_text(text: str, size: int) -> None:
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    assert "".join(segments(chunks)) == text
    assert list(segments(chunks)) == list(segments([text]))


@given(texts, st.integers(16, 64))
def test_every_passage_is_a_slice_of_the_text(text: str, tokens: int) -> None:
    found = list(cut(text, tokens))
    for piece in found:
        assert text[piece.offset : piece.offset + len(piece.text)] == piece.text
        assert piece.line == text.count("\n", 0, piece.offset) + 1
        assert estimate_tokens(piece.text) <= tokens * 9 / 8 + 1e-6
    assert "".join("".join(piece.text.split()) for piece in found) == "".join(text.split())


def test_a_long_run_of_end_marks_is_looked_at_once() -> None:
    dots = "." * 200_000 + "x. End."  # quadratic in a pattern that begins anew at every mark
    assert "".join(piece.text for piece in cut(dots, 256)).replace(" ", "") == dots.replace(" ", "")
