"""Questions of the lab with their passages: what is right to trust follows from both."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from arbitrag.data import open_set
from arbitrag.data.lab import Lab, items
from arbitrag.errors import UsageError
from arbitrag.lab.questions import LabQuestion, questions
from arbitrag.lab.world import open_world
from arbitrag.types import Strategy

COUNT = 240


def asked(count: int = COUNT) -> list[LabQuestion]:
    return questions(open_world(), count, seed=0)


def test_the_scenario_follows_from_the_world_and_the_passages() -> None:
    world = open_world()
    seen: Counter[tuple[str, str, Strategy | None]] = Counter()
    for item, source in zip(items(Lab(count=COUNT)), asked(), strict=True):
        kind, context = item.group.split("/")
        statuses = {world.status(fact) for fact in source.facts}
        quarters = [world.quarter(fact) for fact in source.facts if fact in world.rank]
        expected: Strategy | None
        if statuses != {"known"}:
            expected = Strategy.EVIDENCE if context == "right" else Strategy.REFUSE
        elif max(quarters) < 2:
            expected = Strategy.BOTH if context == "right" else Strategy.MEMORY
        else:
            expected = None
        assert (item.id, item.question.text, kind, item.scenario) == (source.id, source.question, source.kind, expected)
        assert item.answers == (() if expected is Strategy.REFUSE else source.answers)
        seen[kind, context, item.scenario] += 1
    assert {scenario for _, _, scenario in seen} == {*Strategy, None}
    assert {scenario for kind, _, scenario in seen if kind in ("late", "evolved")} == {
        Strategy.EVIDENCE,
        Strategy.REFUSE,
    }


def test_the_passages_say_what_their_kind_promises() -> None:
    world = open_world()
    for item, source in zip(items(Lab(count=COUNT)), asked(), strict=True):
        context = item.group.split("/")[1]
        texts = [passage.text for passage in item.passages or ()]
        assert len(texts) == len(set(texts)) == 5
        tells = [[text for text in texts if f.subject in text and f.object in text] for f in source.facts]
        planted = [passage.text for passage in item.passages or () if passage.id in item.poisoned]
        if context == "right":
            assert all(tells)
            assert (item.planted, planted) == ((), [])
        elif context == "poisoned":
            assert all(tells[:-1])
            assert len(planted) == 1
            assert source.facts[-1].subject in planted[0]
            assert item.planted[0] in planted[0]
            assert item.planted[0] not in source.answers
            assert item.planted[1:] == tuple(world.aliases_of.get(item.planted[0], ()))
        else:
            assert (item.planted, planted) == ((), [])


def test_the_proportions_hold_in_every_kind() -> None:
    counts = Counter(item.group for item in items(Lab(count=43, kinds=("late", "known"), mix=(3.0, 1.0, 0.0))))
    # 22 known: 16.5 and 5.5, the half goes to the first; 21 late: 15.75 and 5.25
    assert counts == {"known/right": 17, "known/poisoned": 5, "late/right": 16, "late/poisoned": 5}


def test_what_counts_as_known() -> None:
    shares = [
        Counter(item.scenario is not None for item in items(Lab(count=200, kinds=("known",), quarters=quarters)))[True]
        for quarters in (1, 2, 3, 4)
    ]
    assert shares == sorted(shares)
    assert shares[-1] == 200
    assert 30 < shares[0] < 70  # a quarter of them, 50, is expected


def test_equal_options_give_equal_sets() -> None:
    digests = {
        address: open_set(address).digest
        for address in (
            "lab:questions?count=40",
            "lab:questions?seed=0&count=40",
            "lab:questions?seed=1&count=40",
            "lab:questions?count=40&k=4",
            "lab:questions?count=40&world=8",
        )
    }
    assert len(set(digests.values())) == 4
    assert digests["lab:questions?count=40"] == digests["lab:questions?seed=0&count=40"]


def test_other_passages_come_with_the_same_questions() -> None:
    texts = [
        [item.question for item in open_set(f"lab:questions?count=40&{more}").items] for more in ("k=5", "mix=0,1,0")
    ]
    assert texts[0] == texts[1]


def test_the_right_passage_stands_everywhere() -> None:
    places: Counter[int] = Counter()
    world = open_world()
    for item in items(Lab(count=500, kinds=("late",), mix=(0.0, 1.0, 0.0))):
        places.update(place for place, passage in enumerate(item.passages or ()) if passage.id in item.poisoned)
    assert len(world.late) >= 500
    assert set(places) == set(range(5))
    assert all(60 < count < 140 for count in places.values())  # 100 are expected, with a standard deviation of 8.9


def test_without_passages_nothing_is_said_of_what_to_trust() -> None:
    found = open_set("lab:questions?count=8&k=0")
    assert found.name == "lab:questions?count=8&k=0"
    assert {(item.passages, item.scenario) for item in found.items} == {(None, None)}
    assert all(item.answers for item in found.items)
    assert {item.group for item in found.items} == {"known", "evolved", "late", "multi-hop"}


def test_a_limit_and_a_draw() -> None:
    whole = [item.id for item in open_set("lab:questions?count=20").items]
    assert [item.id for item in open_set("lab:questions?count=20", limit=5).items] == whole[:5]
    chosen = [item.id for item in open_set("lab:questions?count=20", limit=5, seed=1).items]
    assert chosen == [whole[place] for place in sorted(random.Random("questions 1").sample(range(20), 5))]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("lab:question", r"the lab has no set 'lab:question'; one is lab:questions\?count=500"),
        ("lab:questions?count=0", "0 questions of 4 kinds were asked for"),
        ("lab:questions?kinds=knwn", r"unknown kind of question 'knwn'\. Did you mean 'known'\?"),
        ("lab:questions?k=1", "k=1; give 0 for no passages, .* 2 or more for multi-hop"),
        ("lab:questions?k=-1&kinds=late", "k=-1; give 0 for no passages"),
        ("lab:questions?mix=1,2", "mix is a number for each of right, poisoned, irrelevant"),
        ("lab:questions?mix=1,2,x", "mix is a number; got 'x'"),
        ("lab:questions?mix=1,-2,1", "mix is a number for each"),
        ("lab:questions?mix=0,0,0", "mix is a number for each"),
        ("lab:questions?quarters=5", "quarters=5; the frequencies have 1 to 4"),
        ("lab:questions?poisoned=1", r"unknown option of lab:questions 'poisoned'"),
    ],
)
def test_an_address_that_is_wrong(address: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_set(address)
