"""The world: the same bytes from a seed, and what holds in it."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable

import pytest

from arbitrag.errors import UsageError
from arbitrag.lab.contexts import distractors, fact_passage
from arbitrag.lab.language import FILLERS, LEADS, RELATIONS, decorate, relations_of, relations_to
from arbitrag.lab.names import KINDS, Kind, Names
from arbitrag.lab.world import CUTOFF, PRESENT, Chain, Fact, World, ask, open_world

WORLD = World(7)


def sha(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def row(fact: Fact) -> str:
    return f"{fact.subject}|{fact.relation}|{fact.object}"


# The embedded model knows this world. When one of these changes, it fits no longer: raise VERSION instead.
def test_world_7_is_what_it_always_was() -> None:
    assert (len(WORLD.known), sha(map(row, WORLD.known))) == (
        3617,
        "1df8a99b2a22ef4b229449eb3c6fda27173a243f4c434d43b654e5b7c5b2d577",
    )
    assert (len(WORLD.late), sha(map(row, WORLD.late))) == (
        823,
        "22d95e1c7846685c023f6f88b0773bacd95d48e7ad1a9d59e414ce1b612faec7",
    )
    evolved = sorted(f"{row(old)}|{new.object}" for old, new in WORLD.evolved.items())
    assert (len(evolved), sha(evolved)) == (287, "e9f712bc67673ffebd219d12fb6fb3482fcb3d0638b89936763081bb9e5dd6b3")
    names = [f"{kind}:{name}" for kind, found in WORLD.entities.items() for name in found]
    assert (len(names), sha(names)) == (2700, "3d080c3db28455878515d9d959eba7dfb63804ed6101d355ed620e90962f81d8")


def test_what_was_added_to_it_is_what_it_always_was() -> None:
    assert sha(f"{row(fact)}|{year}" for fact, year in WORLD.since.items()) == SINCE
    assert sha(f"{alias}|{name}" for alias, name in WORLD.aliases.items()) == ALIASES
    assert sha(f"{row(chain.first)}|{row(chain.second)}" for chain in WORLD.chains) == CHAINS


SINCE = "501b003aa343646ccc6d212da33c7b6b24bd6c427051f5f85732dc8461d37a23"
ALIASES = "972dd9d13aff68897ad1c0c9b0f8ee1c8f2d8ff2b0eaa242ff9ab840b2a1349b"
CHAINS = "931e70787f524eb2ae092d90a830b5e360158dadb6d98999f56d40ebba42cdc3"


def test_another_process_with_another_hash_seed_makes_the_same_world() -> None:
    code = (
        "import hashlib; from arbitrag.lab.world import World; w = World(3);"
        "print(hashlib.sha256(repr((w.known, w.late, w.evolved, w.chains, w.since, w.aliases)).encode()).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_seeds_make_different_worlds() -> None:
    other = World(8)
    assert not set(other.kinds) & set(WORLD.kinds) - {name for name in WORLD.kinds if name.startswith("The ")}
    assert len(other.known) + len(other.late) == 4440


def test_a_quarter_comes_after_the_cutoff() -> None:
    facts = [*WORLD.known, *WORLD.late]
    assert len(facts) == len(set(facts)) == len(WORLD.rank) + len(WORLD.late) == 4440
    assert len(WORLD.late) + len(WORLD.evolved) == 4440 // 4
    assert all(fact in WORLD.rank and fact.form.changes for fact in WORLD.evolved)
    assert all(
        (old.subject, old.relation) == (new.subject, new.relation) and old.object != new.object
        for old, new in WORLD.evolved.items()
    )
    assert {fact.subject for fact in WORLD.known} & WORLD.newcomers == set()
    assert {fact.subject for fact in WORLD.late} > WORLD.newcomers


def test_objects_are_of_the_right_type() -> None:
    for fact in WORLD.current:
        assert WORLD.kinds[fact.subject] == fact.form.subject
        assert WORLD.names.fits(fact.form.object, fact.object)
        assert fact.form.object == "year" or fact.object in WORLD.entities[fact.form.object]


def test_what_is_true_at_present() -> None:
    old, new = next(iter(WORLD.evolved.items()))
    assert new in WORLD.about(old.subject)
    assert old not in WORLD.about(old.subject)
    assert WORLD.outdated[new] == old
    assert [fact.relation for fact in WORLD.about(WORLD.entities["company"][0])] == ["ceo", "headquarters", "founded"]
    assert list(WORLD.about("Nobody")) == []


def test_the_status_and_quarter_of_a_fact() -> None:
    old, new = next(iter(WORLD.evolved.items()))
    steady = next(fact for fact in WORLD.known if fact not in WORLD.evolved)
    assert [WORLD.status(fact) for fact in (steady, old, new, WORLD.late[0])] == ["known", "outdated", "late", "late"]
    with pytest.raises(KeyError):
        WORLD.status(Fact("Nobody", "ceo", "Nothing"))
    last = len(WORLD.known) - 1
    assert [WORLD.quarter(WORLD.known[rank]) for rank in (0, last // 4, last // 4 + 1, last)] == [0, 0, 1, 3]


def test_frequent_facts_are_told_as_often_as_their_rank_says() -> None:
    rng = random.Random(0)
    drawn = Counter(WORLD.rank[WORLD.sample_known(rng)] < 100 for _ in range(4000))
    # the integral of (rank + 200) ** -1.4 over the first hundred, by that over all 3,617: .0180 / .0832
    expected = sum(WORLD.exposures[:100]) / sum(WORLD.exposures)
    assert expected == pytest.approx(0.216, abs=0.003)
    assert drawn[True] / 4000 == pytest.approx(expected, abs=0.03)


def test_every_fact_has_a_year() -> None:
    assert len(WORLD.since) == 4440 + len(WORLD.evolved)
    assert all(1960 <= WORLD.since[fact] <= CUTOFF for fact in WORLD.known)
    assert all(CUTOFF < WORLD.since[fact] <= PRESENT for fact in [*WORLD.late, *WORLD.evolved.values()])
    assert all(WORLD.since[fact] >= int(fact.object) for fact in WORLD.known if fact.form.object == "year")


def test_an_alias_means_one_thing() -> None:
    assert not set(WORLD.aliases) & set(WORLD.kinds)
    assert all(WORLD.find(alias) == name for alias, name in list(WORLD.aliases.items())[::50])
    kinds = {WORLD.kinds[name] for name in WORLD.aliases.values()}
    assert kinds == set(WORLD.entities)
    alias, name = next(iter(WORLD.aliases.items()))
    assert WORLD.aliases_of[name] == [alias]
    assert WORLD.find(name.upper()) == WORLD.find(alias.lower()) == name


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    name = WORLD.entities["university"][0]
    with pytest.raises(UsageError) as refused:
        WORLD.find(name[:-1])
    assert str(refused.value) == (
        f"unknown entity '{name[:-1]}'. Did you mean '{name}'? See them: arbitrag lab world --seed 7"
    )


def test_an_unknown_version_is_refused() -> None:
    assert open_world(7, 1).known == WORLD.known
    with pytest.raises(UsageError, match="worlds of version 2 are not known here; this version of Arbitrag makes 1"):
        open_world(7, 2)


def test_a_substitute_is_of_the_same_type_and_popular_ones_come_more_often() -> None:
    rng = random.Random(0)
    fact = next(fact for fact in WORLD.known if fact.form.object == "person" and fact not in WORLD.evolved)
    wrong = Counter(WORLD.substitute(fact, rng).object for _ in range(3000))
    assert set(wrong) <= set(WORLD.entities["person"]) - {fact.object}
    people = [name for name in WORLD.entities["person"] if name != fact.object]
    shares = {name: WORLD.popularity[name] + WORLD.exposures[-1] for name in people}
    top = max(people, key=lambda name: shares[name])
    assert wrong[top] / 3000 == pytest.approx(shares[top] / sum(shares.values()), abs=0.02)
    assert wrong[top] > 3000 / len(people)


def test_a_substitute_is_no_object_of_any_time() -> None:
    rng = random.Random(0)
    old, new = next(iter(WORLD.evolved.items()))
    cities = WORLD.entities[old.form.object]
    for fact in (old, new):
        assert not {WORLD.substitute(fact, rng).object for _ in range(500)} & {old.object, new.object}
    capital = next(fact for fact in WORLD.known if fact.relation == "capital")
    others = [city for city in WORLD.entities["city"] if city not in ("", capital.object)]
    assert WORLD.substitute(capital, rng, avoid=others[1:]).object == others[0]
    released = next(fact for fact in WORLD.known if fact.relation == "release")
    assert 1900 <= int(WORLD.substitute(released, rng).object) <= 2019
    assert cities


def test_a_chain_joins_two_facts_in_one_question() -> None:
    assert all(chain.first.object == chain.second.subject for chain in WORLD.chains)
    assert all(chain.second.object != chain.first.subject for chain in WORLD.chains)
    assert {chain.second.relation for chain in WORLD.chains} == {"birthplace", "country", "mayor", "capital"}
    chain = Chain(Fact("The Silent Harbor", "director", "Mira Bo"), Fact("Mira Bo", "birthplace", "Kasus"))
    asked = {WORLD.ask_chain(chain, random.Random(seed)) for seed in range(40)}
    assert asked == {
        "Where was the director of The Silent Harbor born?",
        "In which city was the director of The Silent Harbor born?",
        "What is the birthplace of the director of The Silent Harbor?",
        "Which city does the director of The Silent Harbor come from?",
    }
    mayor = Chain(Fact("Mira Bo", "birthplace", "Kasus"), Fact("Kasus", "mayor", "Oskar Brend"))
    assert {WORLD.ask_chain(mayor, random.Random(seed)) for seed in range(40)} == {
        "Who is the mayor of the birthplace of Mira Bo?",
        "Which person serves as mayor of the birthplace of Mira Bo?",
    }


def test_strangers_bear_no_name_of_the_world_but_are_made_of_the_same_words() -> None:
    rng = random.Random(0)
    words = set(WORLD.names.words())
    for _ in range(300):
        fact = WORLD.invented(rng)
        assert fact.subject not in WORLD.kinds
        assert WORLD.names.fits(fact.form.subject, fact.subject)
        assert WORLD.names.fits(fact.form.object, fact.object)
        assert set(fact.subject.replace("The ", "").replace(" of ", " ").split()) <= words
    assert WORLD.invented(rng, "capital").relation == "capital"


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("year", "1900", "1899"),
        ("year", "2019", "2020"),
        ("year", "1950", "١٩٥٠"),
        ("film", "The Silent Harbor", "Silent Harbor"),
        ("film", "The Pale Wolf", "The Wolf"),
    ],
)
def test_a_name_fits_its_type(kind: Kind, good: str, bad: str) -> None:
    assert WORLD.names.fits(kind, good)
    assert not WORLD.names.fits(kind, bad)


def test_names_fit_the_type_that_they_were_made_for_and_no_other() -> None:
    names = Names(1)
    rng = random.Random(0)
    for kind in KINDS:
        for _ in range(20):
            name = names.make(kind, rng)
            assert [other for other in KINDS if names.fits(other, name)] == [kind]
    assert names.count("person") == 160 * 320
    assert (names.count("year"), names.count("university"), names.count("country")) == (120, 700, 80)
    with pytest.raises(ValueError, match="no names of the type 'planet'"):
        names.make("planet", rng)  # type: ignore[arg-type]


def test_every_relation_can_be_asked_and_told_in_many_ways() -> None:
    assert len(RELATIONS) == 13
    for relation in RELATIONS.values():
        assert len(set(relation.questions)) == 4
        assert len(set(relation.passages)) == 6
        assert all(form.count("{s}") == 1 for form in (*relation.questions, relation.described))
        assert all(form.count("{s}") == form.count("{o}") == 1 for form in relation.passages)
        assert all(form.index("{s}") < form.index("{o}") for form in relation.forms("subject first"))
        assert all(form.index("{o}") < form.index("{s}") for form in relation.forms("object first"))
    assert [relation.name for relation in relations_of("company")] == ["ceo", "headquarters", "founded"]
    assert [relation.name for relation in relations_to("country")] == ["country"]
    assert RELATIONS["director"].forms("entry") == ("{s} – director: {o}.",)


def test_a_passage_may_have_a_lead_or_a_filler() -> None:
    def shown(sentence: str, decorated: float) -> set[str]:
        return {decorate(sentence, random.Random(seed), decorated) for seed in range(400)}

    assert shown("X is Y.", 0.0) == {"X is Y."}
    beside = {f"X is Y. {filler}" for filler in FILLERS} | {f"{filler} X is Y." for filler in FILLERS}
    assert shown("X is Y.", 1.0) == beside | {f"{lead} X is Y." for lead in LEADS}
    assert all(not text.startswith(LEADS) for text in shown("The X is Y.", 1.0))


def test_asking_and_telling() -> None:
    fact = Fact("Kasus Motors", "ceo", "Mira Bo")
    rng = random.Random(0)
    assert {ask(fact, rng) for _ in range(100)} == {form.format(s=fact.subject) for form in fact.form.questions}
    plain = {fact_passage(fact, rng, decorated=0.0, form="object first") for _ in range(100)}
    assert plain == {"Mira Bo is the CEO of Kasus Motors.", "Mira Bo leads Kasus Motors."}


def test_distractors_do_not_answer() -> None:
    rng = random.Random(0)
    fact = WORLD.known[0]
    found = distractors(WORLD, fact, 400, rng)
    assert not any((other.subject, other.relation) == (fact.subject, fact.relation) for other in found)
    assert sum(other in WORLD.rank for other in found) / 400 == pytest.approx(0.25, abs=0.06)
    film = next(fact for fact in WORLD.known if fact.relation == "director")
    near = [other for other in distractors(WORLD, film, 400, rng) if other.subject == film.subject]
    assert {other.relation for other in near} == {"release"}
    assert len(near) / 400 == pytest.approx(0.25, abs=0.06)
