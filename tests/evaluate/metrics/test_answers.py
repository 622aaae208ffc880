"""Whether an answer is right: by hand, and against what the official scripts gave."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbitrag.errors import DataError
from arbitrag.evaluate.metrics.answers import (
    METRICS,
    exact_match,
    hotpot_f1,
    mentions,
    multiple_choice,
    substring_accuracy,
    token_f1,
)
from arbitrag.evaluate.questions import Item
from arbitrag.text import choose, vanishes
from arbitrag.types import Question

FUNCTIONS = [exact_match, token_f1, hotpot_f1, substring_accuracy]
texts = st.text(max_size=12) | st.lists(st.sampled_from(["a", "the", "$", "no", "x", "y.", " "])).map(" ".join)


@dataclass(frozen=True)
class Pair:
    """A recorded pair with the [EM, F1] of each script."""

    prediction: str
    golds: list[str]
    squad_2: list[float]
    squad_1: list[float] | None
    hotpot: list[float] | None

    @property
    def vanishing(self) -> bool:
        """Whether SQuAD's normalisation leaves nothing of a text that is not blank: where we differ on purpose."""
        return any(text.strip() and vanishes(text) for text in (self.prediction, *self.golds))

    @property
    def blank(self) -> bool:
        """Whether a gold answer is missing or blank, which only SQuAD 2.0 has a rule for."""
        return not self.golds or any(not gold.strip() for gold in self.golds)


@cache
def pairs() -> list[Pair]:
    lines = Path(__file__).with_name("squad_pairs.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [Pair(*(row if len(row) == 5 else [*row, row[2], row[2]])) for row in rows]


def test_how_many_pairs_were_recorded() -> None:
    assert len(pairs()) == 2600
    assert sum(pair.vanishing for pair in pairs()) == 197
    assert sum(pair.blank and not pair.vanishing for pair in pairs()) == 65
    assert sum(0 < pair.squad_2[1] < 1 for pair in pairs()) == 938  # not only all or nothing


def test_equal_to_squad_2_but_for_what_vanishes() -> None:
    for pair in pairs():
        if not pair.vanishing:
            assert [exact_match(pair.prediction, pair.golds), token_f1(pair.prediction, pair.golds)] == pair.squad_2, (
                pair
            )


def test_equal_to_squad_1_and_hotpot_where_there_is_a_gold_answer() -> None:
    told_apart = 0
    for pair in pairs():
        if not pair.vanishing and not pair.blank:
            em = exact_match(pair.prediction, pair.golds)
            assert [em, token_f1(pair.prediction, pair.golds)] == pair.squad_1, pair
            assert [em, hotpot_f1(pair.prediction, pair.golds)] == pair.hotpot, pair
            told_apart += pair.hotpot != pair.squad_1
    assert told_apart == 57


def test_what_vanishes_matches_exactly_or_not_at_all() -> None:
    different = 0
    for pair in (pair for pair in pairs() if pair.vanishing):
        em, f1 = exact_match(pair.prediction, pair.golds), token_f1(pair.prediction, pair.golds)
        different += [em, f1] != pair.squad_2
        if vanishes(pair.prediction):
            assert em == f1 == substring_accuracy(pair.prediction, pair.golds), pair
    assert different == 48


@pytest.mark.parametrize(
    ("prediction", "golds", "em", "f1", "hotpot", "substring"),
    [
        ("The Silent Orchard", ["silent orchard."], 1, 1, 1, 1),
        ("Orchard", ["Silent Orchard"], 0, 2 / 3, 2 / 3, 0),  # P 1, R 1/2
        ("it is Silent Orchard, yes", ["Silent Orchard"], 0, 4 / 7, 4 / 7, 1),  # P 2/5, R 1
        ("x x y", ["x x z"], 0, 2 / 3, 2 / 3, 0),  # repetition counts: 2 in common of 3 and 3
        ("x x", ["x"], 0, 2 / 3, 2 / 3, 1),
        ("Lyon", ["Paris", "Lyon", "Nice"], 1, 1, 1, 1),  # the best gold answer
        ("Lyon", ["Paris"], 0, 0, 0, 0),
        ("no one", ["no"], 0, 2 / 3, 0, 1),  # the rule of HotpotQA
        ("no", ["No."], 1, 1, 1, 1),
        ("in 2010", ["10"], 0, 0, 0, 1),  # characters, as published
        (None, ["Paris"], 0, 0, 0, 0),  # a refusal
        ("", ["Paris"], 0, 0, 0, 0),
        (None, [], 1, 1, 1, 1),  # there is no answer: refusing is right
        (None, ["", " "], 1, 1, 1, 1),
        ("", [], 1, 1, 1, 1),
        ("Paris", [], 0, 0, 0, 0),
        ("Paris", [""], 0, 0, 0, 0),
        ("", ["", "Paris"], 0, 0, 0, 0),  # a blank gold answer beside a real one is none
        ("the", ["The"], 1, 1, 1, 1),  # gold answers that would vanish
        ("a", ["The"], 0, 0, 0, 0),
        (None, ["The"], 0, 0, 0, 0),
        ("the a", ["The"], 0, 0, 0, 0),
        ("Theatre of the absurd", ["The"], 0, 0, 0, 0),
        ("C++", ["++"], 0, 0, 0, 0),
        ("$", ["$"], 1, 1, 1, 1),
    ],
)
def test_by_hand(
    prediction: str | None, golds: list[str], em: float, f1: float, hotpot: float, substring: float
) -> None:
    found = [metric(prediction, golds) for metric in FUNCTIONS]
    assert found == pytest.approx([em, f1, hotpot, substring], abs=1e-15)
    assert all(type(value) is float for value in found)


@given(texts, st.lists(texts, max_size=3))
def test_metrics_are_ordered_and_within_bounds(prediction: str, golds: list[str]) -> None:
    em, f1, hotpot, substring = (metric(prediction, golds) for metric in FUNCTIONS)
    assert 0 <= em <= hotpot <= f1 <= 1
    assert em <= substring <= 1


@given(texts.filter(lambda text: bool(text.strip())), st.lists(texts, max_size=3))
def test_a_gold_answer_is_right(gold: str, more: list[str]) -> None:
    assert [metric(gold, [*more, gold]) for metric in FUNCTIONS] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("prediction", "answers", "expected"),
    [
        ("It is Paris, not Lyon", ["Lyon"], True),
        ("Paris", ["Lyon", "Nice"], False),
        ("Paris", [], False),
        ("Paris", [""], False),
        (None, ["Paris"], False),
        (None, [], False),
        ("Theatre", ["the"], False),
    ],
)
def test_mentions(prediction: str | None, answers: list[str], expected: bool) -> None:
    assert mentions(prediction, answers) is expected


CITIES = ("Paris", "Lyon", "New York", "York", "I don't know")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("paris.", 0),
        ("B", 1),
        ("b", 1),
        ("b)", 1),
        ("(B)", 1),
        ("**B**", 1),
        ("B. Lyon", 1),
        ("Option B: Lyon", 1),
        ("Answer C", 2),
        ("B) Paris", None),  # says two things
        ("Z", None),  # no such option
        ("It is Lyon", 1),
        ("It is New York.", 2),  # and not also York
        ("York or New York", 2),
        ("Paris or Lyon", None),
        ("A town called Lyon", 1),  # an article, no letter
        ("Lyonnais", None),  # whole words
        ("I don't know", 4),
        ("Berlin", None),
        ("", None),
    ],
)
def test_choose(reply: str, expected: int | None) -> None:
    assert choose(reply, CITIES) == expected


def test_the_text_of_an_option_comes_before_its_letter() -> None:
    assert choose("B", ("B", "A")) == 0
    assert choose("C. elegans", ("E. coli", "C. elegans", "S. cerevisiae")) == 1
    assert choose("Sun", ("The Sun", "Sun")) == 0  # the same answer twice
    assert choose("B", ()) is None


@pytest.mark.parametrize(
    ("prediction", "golds", "expected"),
    [
        ("B", ["Lyon"], 1),
        ("Lyon", ["lyon"], 1),
        ("A", ["Lyon"], 0),
        ("who knows", ["Lyon"], 0),
        ("Lyon", ["Lugdunum", "Lyon"], 1),  # of several names one is an option
        (None, ["Lyon"], 0),
        (None, ["I don't know"], 1),  # the option that a refusal chooses
        ("I don't know", ["I don't know"], 1),
        (None, [], 1),
        (" ", [], 1),
        ("Lyon", [], 0),
    ],
)
def test_multiple_choice(prediction: str | None, golds: list[str], expected: float) -> None:
    assert multiple_choice(prediction, golds, CITIES) == expected


def test_options_without_the_gold_answer_are_a_fault_of_the_data() -> None:
    with pytest.raises(DataError, match=r"^no option is the gold answer 'Rome'\. Options: Paris \| Lyon$"):
        multiple_choice("Paris", ["Rome"], ("Paris", "Lyon"))
    with pytest.raises(DataError, match=r"Options: none$"):
        multiple_choice("Paris", ["Paris"], ())


def test_the_page_lists_every_metric(repository: Path) -> None:
    page = (repository / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    table = "\n".join(f"| `{each.name}` | {each.title} | {each.description} |" for each in METRICS.values())
    assert f"\n{table}\n\n" in page


def test_a_metric_scores_by_the_gold_answers_or_by_the_options() -> None:
    item = Item(Question("Who?", ("Mira Talven", "Oskar Brend")), ("Mira Talven",))
    found = {name: metric("It was Mira Talven", item) for name, metric in METRICS.items()}
    assert found == {"em": 0.0, "f1": 2 / 3, "hotpot_f1": 2 / 3, "contains": 1.0, "choice": 1.0}
    refusable = Item(Question("Why?"), ())
    assert {METRICS[name](None, refusable) for name in METRICS} == {1.0}
