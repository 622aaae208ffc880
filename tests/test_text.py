"""The text rules that set a measurement, and what may reach a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbitrag.text import agree, clean_answer, declines, final_answer, normalize_answer, one_line, printable, vanishes

words = st.lists(
    st.sampled_from(["a", "an", "the", "The", "x", "ß", "İ", "Σ", "$", "’", "-", " ", "\n", "A.", "中"])
).map("".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Beatles", "beatles"),
        ("  An   apple, a day! ", "apple day"),
        ("U.S.A.", "usa"),
        ("Theatre", "theatre"),  # an article inside a word stays
        ("1,234", "1234"),
        ("well-known", "wellknown"),
        ("Zürich", "zürich"),
        ("中文。", "中文。"),  # SQuAD's rule knows ASCII punctuation only
        ("The", "the"),  # would vanish: kept, so that it can be matched
        ("A", "a"),
        ("$", "$"),
        ("C++", "c"),
        ("++", "++"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_normalize_answer(text: str, expected: str) -> None:
    assert normalize_answer(text) == expected


@given(st.text() | words)
def test_normalizing_twice_changes_nothing(text: str) -> None:
    once = normalize_answer(text)
    assert normalize_answer(once) == once


@given(st.text() | words)
def test_only_white_space_normalizes_to_nothing(text: str) -> None:
    assert (normalize_answer(text) == "") == (text.strip() == "")


@pytest.mark.parametrize(
    ("text", "gone"),
    [("The", True), ("an, a", True), ("$", True), ("", True), (" \n", True), ("C++", False), ("Theatre", False)],
)
def test_what_vanishes_by_the_rule_of_squad(text: str, gone: bool) -> None:
    assert vanishes(text) is gone


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("The Silent Orchard", "silent orchard.", True),
        ("Mira Talven", "Mira  Talven", True),
        ("Mira Talven", "Talven", False),
        ("The", "A", False),  # both would vanish
        ("$", "#", False),
        ("", "", True),
        ("", "the", False),
    ],
)
def test_agree(left: str, right: str, same: bool) -> None:
    assert agree(left, right) is same


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Paris", "Paris"),
        ("  Paris.\n", "Paris"),
        ("Answer: Paris", "Paris"),
        ("answer - Paris", "Paris"),
        ("FINAL ANSWER: 'Paris'.", "Paris"),
        ("The answer is Paris.", "Paris"),
        ("The answer is: Paris", "Paris"),
        ("Answer: The answer is Paris", "Paris"),
        ("Answer:\nParis\nLyon", "Paris"),
        ("Paris\nBecause it is the capital.", "Paris"),
        ('"Paris."', "Paris"),
        ("`Paris`", "Paris"),
        ("Based on the passages, the answer is Paris.", "Paris"),
        ("It is the capital of France.\nFinal answer: Paris", "Paris"),
        ("Question: Which?\nAnswer: Paris", "Paris"),
        ("Paris\nQuestion: And of Italy?\nAnswer: Rome", "Paris"),  # the model went on by itself
        ("Paris is the answer:", "Paris is the answer:"),
        ("The answer isolated", "The answer isolated"),
        ("Answering machine", "Answering machine"),
        ("U.S.", "U.S"),  # one final stop goes, as in the reference
        ("$", "$"),
        ("...", ""),
        ("---", ""),
        ("…", ""),
        ("Answer:", ""),
        ("", ""),
        (" \n\n ", ""),
    ],
)
def test_clean_answer(reply: str, expected: str) -> None:
    assert clean_answer(reply) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("<think>It is in Europe.\n</think>\n\nParis.", "Paris"),
        ("\n<Thinking>hm</Thinking>Answer: Paris", "Paris"),
        ("<think>the answer is London, or", ""),  # cut off before it came to an answer
        ("<think></think>", ""),
        ("<reasoning>a</think>b</reasoning>Paris", "Paris"),
        (
            "Paris <think>or London</think>",
            "Paris <think>or London</think>",
        ),  # not at the beginning: text like any other
        ("<thinker>Paris", "<thinker>Paris"),
    ],
)
def test_thoughts_are_no_part_of_an_answer(reply: str, expected: str) -> None:
    assert clean_answer(reply) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("I don't know.", True),
        ("I don’t know", True),
        ("UNKNOWN", True),
        ("Not sure", True),
        ("I don't know, perhaps Paris", False),
        ("Paris", False),
        ("", False),
    ],
)
def test_declines(answer: str, expected: bool) -> None:
    assert declines(answer) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred", "\\u001b[31mred"),
        ("over\rwritten", "over\\u000dwritten"),
        ("\x9b31m", "\\u009b31m"),
        ("abc\u202etxt.exe", "abc\\u202etxt.exe"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("two\u2028lines", "two\\u2028lines"),
        ("name\udcff.md", "name\\udcff.md"),
        ("hidden\U000e0041", "hidden\\U000e0041"),
        ("[red]no markup here[/]", "[red]no markup here[/]"),
        ("Zürich 中文 👩‍👩‍👧 שלום", "Zürich 中文 👩‍👩‍👧 שלום"),
    ],
)
def test_printable(text: str, expected: str) -> None:
    assert printable(text) == expected


any_text = st.text(st.characters(categories=None))  # lone surrogates too


@given(any_text)
def test_printable_text_has_no_control_or_direction_characters(text: str) -> None:
    shown = printable(text)
    assert not [c for c in shown if c not in "\t\n" and unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert not [
        c
        for c in shown
        if unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    ]
    shown.encode()
    assert printable(shown) == shown


@given(any_text, st.integers(1, 30))
def test_one_line_is_one_line_of_at_most_the_width(text: str, width: int) -> None:
    line = one_line(text, width)
    assert len(line) <= width
    assert len(line.splitlines()) <= 1


def test_one_line_shortens_with_an_ellipsis() -> None:
    assert one_line("one\ntwo   three", 80) == "one two three"
    assert one_line("exactly ten", 11) == "exactly ten"
    assert one_line("exactly tenx", 11) == "exactly te…"
    assert one_line("ends with a space here", 10) == "ends with…"


def test_a_reply_of_much_space_is_read_once() -> None:
    assert clean_answer("the answer is" + " " * 200_000 + "\nQuestion: next") == ""


OPTIONS = ("red", "blue", "I don't know")


@pytest.mark.parametrize(
    ("answer", "options", "settled"),
    [
        ("blue", OPTIONS, "blue"),
        ("(B) blue", OPTIONS, "blue"),
        ("b", OPTIONS, "blue"),
        ("It is the red one", OPTIONS, "red"),
        ("C", OPTIONS, None),
        ("(C) I don’t know", OPTIONS, None),
        ("green", OPTIONS, "green"),
        ("B", (), "B"),
        ("I don't know.", (), None),
        ("", (), None),
    ],
)
def test_what_an_answer_comes_to(answer: str, options: tuple[str, ...], settled: str | None) -> None:
    assert final_answer(answer, options) == settled
