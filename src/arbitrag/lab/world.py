"""An invented world with known truth: entities, facts, their frequency in training, and facts after the cutoff.

Everything follows from a version and a seed, and the same two give the same world to the last byte. Facts are shuffled
once; a quarter of them comes after the cutoff: everything about one entity in eight (the newcomers), some single facts,
and new objects of relations that change. The others were told before it, in the order of their rank, with a frequency
of ``1 / (rank + 200) ** 1.4``: some so often that a model must know them, most so rarely that it knows them by half.

What was added to a version later draws from streams of its own, so that a world in use never changes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal

from arbitrag.errors import UsageError, unknown
from arbitrag.lab.language import RELATIONS, Relation, relations_of
from arbitrag.lab.names import FIRST_YEAR, LAST_YEAR, Kind, Names

VERSION = 1
SEED = 7  # the world of the embedded model
CUTOFF = 2020  # the last year that reached the model's training
PRESENT = 2024

_COUNTS: Mapping[Kind, int] = {
    "person": 700,
    "city": 300,
    "country": 50,
    "company": 360,
    "film": 480,
    "book": 400,
    "team": 240,
    "university": 170,
}
_NEWCOMERS = 0.125  # of the entities
_HEAD, _FALL = 200, 1.4  # of the Zipf-like law: the first ranks are told about equally often, later ones ever less
_EARLIEST = 1960  # nothing is dated before this year, unless it happened then
_NEW_OBJECT = 0.4  # of invented facts whose object is not of the world either

Status = Literal["known", "outdated", "late"]


@dataclass(frozen=True, slots=True)
class Fact:
    """``relation`` of ``subject`` is ``object``; all three are names."""

    subject: str
    relation: str
    object: str

    @property
    def form(self) -> Relation:
        """How the relation is asked and told."""
        return RELATIONS[self.relation]


@dataclass(frozen=True, slots=True)
class Chain:
    """Two facts in a row: the object of the first is the subject of the second."""

    first: Fact
    second: Fact


def open_world(seed: int = SEED, version: int = VERSION) -> World:
    """The world of a seed; raises UsageError for a version that this package does not make."""
    if version != VERSION:
        raise UsageError(f"worlds of version {version} are not known here; this version of Arbitrag makes {VERSION}")
    return World(seed)


class World:
    """One world; immutable.

    ``known`` are the facts told before the cutoff, by rank; ``late`` those that came after it, the facts of
    ``newcomers`` among them. ``evolved`` maps a known fact whose object was replaced after the cutoff to the new one.
    ``names`` are the pools of names, ``entities`` the names in use, by type.
    """

    version = VERSION

    def __init__(self, seed: int = SEED) -> None:
        self.seed = seed
        self.names = Names(seed)
        rng = random.Random(f"world {VERSION} {seed}")
        self.entities: Mapping[Kind, Sequence[str]] = _entities(self.names, rng)
        self.kinds: Mapping[str, Kind] = {name: kind for kind, names in self.entities.items() for name in names}
        facts = self._facts(rng)
        self.newcomers = {name for name in sorted({fact.subject for fact in facts}) if rng.random() < _NEWCOMERS}
        early = [fact for fact in facts if fact.subject not in self.newcomers]
        late = [fact for fact in facts if fact.subject in self.newcomers]
        wanted = len(facts) // 4 - len(late)
        changing = [fact for fact in early if fact.form.changes][: wanted // 2]
        single, rest = _split(early, set(changing), wanted - len(changing))
        self.evolved = {fact: self._evolved(fact, rng) for fact in changing}
        self.late = [*late, *single]
        self.known = [*rest, *changing]
        rng.shuffle(self.known)
        self.rank = {fact: rank for rank, fact in enumerate(self.known)}
        self.exposures = [1 / (rank + _HEAD) ** _FALL for rank in range(len(self.known))]  # relative
        self._cumulative = list(accumulate(self.exposures))

    def sample_known(self, rng: random.Random) -> Fact:
        """A fact from before the cutoff, sampled by its frequency."""
        return rng.choices(self.known, cum_weights=self._cumulative)[0]

    def object_for(self, relation: str, rng: random.Random, avoid: Collection[str] = ()) -> str:
        """An object of the right type, all equally likely."""
        kind = RELATIONS[relation].object
        while True:
            name = self.names.make("year", rng) if kind == "year" else rng.choice(self.entities[kind])
            if name not in avoid:
                return name

    def stranger(self, kind: Kind, rng: random.Random) -> str:
        """A new name of this type that no entity of the world has."""
        while True:
            name = self.names.make(kind, rng)
            if name not in self.kinds:
                return name

    def invented(self, rng: random.Random, relation: str | None = None) -> Fact:
        """A fact about a stranger; its object may be a stranger, too."""
        form = RELATIONS[relation or rng.choice(list(RELATIONS))]
        name = self.object_for(form.name, rng)
        if form.object != "year" and rng.random() < _NEW_OBJECT:
            name = self.stranger(form.object, rng)
        return Fact(self.stranger(form.subject, rng), form.name, name)

    def quarter(self, fact: Fact) -> int:
        """The quarter of frequency of a known fact: 0 is told most often, 3 least."""
        return self.rank[fact] * 4 // len(self.known)

    def status(self, fact: Fact) -> Status:
        """Known and still so, known but outdated, or from after the cutoff; raises KeyError for none of these."""
        if fact in self.rank:
            return "outdated" if fact in self.evolved else "known"
        if fact in self.since:
            return "late"
        raise KeyError(fact)

    @cached_property
    def current(self) -> Sequence[Fact]:
        """What holds at present: every known fact in its newest form, and the late ones."""
        return [*(self.evolved.get(fact, fact) for fact in self.known), *self.late]

    @cached_property
    def _by_subject(self) -> Mapping[str, Sequence[Fact]]:
        found: dict[str, list[Fact]] = {}
        for fact in self.current:
            found.setdefault(fact.subject, []).append(fact)
        return found

    @cached_property
    def outdated(self) -> Mapping[Fact, Fact]:
        """Of a new fact, the one that it replaced."""
        return {new: old for old, new in self.evolved.items()}

    def about(self, subject: str) -> Sequence[Fact]:
        """The present facts about an entity, in the order of the relations."""
        order = list(RELATIONS)
        return sorted(self._by_subject.get(subject, ()), key=lambda fact: order.index(fact.relation))

    @cached_property
    def since(self) -> Mapping[Fact, int]:
        """The year from which each fact is told: up to CUTOFF for known ones, after it for those that came later."""
        rng = random.Random(f"dates {VERSION} {self.seed}")
        years: dict[Fact, int] = {}
        for fact in self.known:
            happened = int(fact.object) if fact.form.object == "year" else 0
            years[fact] = rng.randint(max(_EARLIEST, happened), CUTOFF)
        for fact in (*self.late, *self.evolved.values()):
            years[fact] = rng.randint(CUTOFF + 1, PRESENT)
        return years

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """Other names, each with the entity that bears it; no alias is the name of anything, or that of two."""
        return _aliases(self.entities, random.Random(f"aliases {VERSION} {self.seed}"))

    @cached_property
    def aliases_of(self) -> Mapping[str, Sequence[str]]:
        """The other names of an entity that has some."""
        found: dict[str, list[str]] = {}
        for alias, name in self.aliases.items():
            found.setdefault(name, []).append(alias)
        return found

    def find(self, name: str) -> str:
        """The entity of this name or alias; raises UsageError with the nearest name."""
        if name in self.kinds:
            return name
        if name in self.aliases:
            return self.aliases[name]
        folded = {known.casefold(): known for known in (*self.aliases, *self.kinds)}
        if (same := folded.get(name.casefold())) is not None:
            return self.aliases.get(same, same)
        error = unknown("entity", name, folded.values())
        guess = str(error).split(" Known: ")[0]  # the list of thousands helps nobody
        raise UsageError(f"{guess} See them: arbitrag lab world --seed {self.seed}")

    @cached_property
    def popularity(self) -> Mapping[str, float]:
        """How often an entity or a year is mentioned before the cutoff, relative to the others."""
        found = dict.fromkeys([*self.kinds, *(str(year) for year in range(FIRST_YEAR, LAST_YEAR + 1))], 0.0)
        for fact, exposure in zip(self.known, self.exposures, strict=True):
            found[fact.subject] += exposure
            found[fact.object] += exposure
        return found

    def substitute(self, fact: Fact, rng: random.Random, avoid: Collection[str] = ()) -> Fact:
        """The fact with a wrong object of the same type, the popular ones more often (after Longpre et al. 2021).

        It is neither the present object nor a former one, nor one of ``avoid``.
        """
        truths = {fact.object, *avoid}
        if fact in self.evolved:
            truths.add(self.evolved[fact].object)
        if fact in self.outdated:
            truths.add(self.outdated[fact].object)
        names, cumulative = self._objects[fact.form.object]
        while (wrong := rng.choices(names, cum_weights=cumulative)[0]) in truths:
            pass
        return Fact(fact.subject, fact.relation, wrong)

    @cached_property
    def _objects(self) -> Mapping[Kind, tuple[Sequence[str], Sequence[float]]]:
        """Names by type with cumulative popularity; one that is never mentioned counts as the rarest fact does."""
        pools: dict[Kind, Sequence[str]] = {**self.entities}
        pools["year"] = [str(year) for year in range(FIRST_YEAR, LAST_YEAR + 1)]
        least = self.exposures[-1]
        return {
            kind: (names, list(accumulate(self.popularity[name] + least for name in names)))
            for kind, names in pools.items()
        }

    @cached_property
    def chains(self) -> Sequence[Chain]:
        """Every pair of present facts that a question over two facts can join, in a fixed order."""
        return [
            Chain(first, second)
            for first in self.current
            for second in self.about(first.object)
            if second.object != first.subject
        ]

    def ask_chain(self, chain: Chain, rng: random.Random) -> str:
        """A question that names only the first subject: "Where was the director of The Silent Harbor born?\""""
        return chain.second.form.ask_of(chain.first.form.described.format(s=chain.first.subject), rng)

    def _facts(self, rng: random.Random) -> list[Fact]:
        """One fact for every entity and relation of its type, shuffled."""
        facts = [
            Fact(name, relation.name, self.object_for(relation.name, rng))
            for kind in sorted(self.entities)
            for name in self.entities[kind]
            for relation in relations_of(kind)
        ]
        rng.shuffle(facts)
        return facts

    def _evolved(self, fact: Fact, rng: random.Random) -> Fact:
        return Fact(fact.subject, fact.relation, self.object_for(fact.relation, rng, (fact.object,)))


def ask(fact: Fact, rng: random.Random) -> str:
    """A question for the object of a fact."""
    return fact.form.ask(fact.subject, rng)


def _entities(names: Names, rng: random.Random) -> dict[Kind, list[str]]:
    entities: dict[Kind, list[str]] = {}
    borne: set[str] = set()
    for kind, count in _COUNTS.items():
        if kind in ("city", "country"):
            found = rng.sample(names.cities if kind == "city" else names.countries, count)
            borne.update(found)
        else:
            found = []
            while len(found) < count:
                name = names.make(kind, rng)
                if name not in borne:
                    borne.add(name)
                    found.append(name)
        entities[kind] = found
    return entities


def _split(facts: Sequence[Fact], without: set[Fact], count: int) -> tuple[list[Fact], list[Fact]]:
    """The first ``count`` facts that are not in ``without``, and the others that are not."""
    rest = [fact for fact in facts if fact not in without]
    return rest[:count], rest[count:]


_ALIASES: Mapping[str, Callable[[str], str]] = {
    "person": lambda name: f"{name[0]}. {name.split()[-1]}",
    "city": lambda name: f"{name} City",
    "country": lambda name: f"Republic of {name}",
    "company": lambda name: name.split()[0],
    "film": lambda name: name.removeprefix("The "),
    "book": lambda name: "The {1} {0}".format(*name.split(" of ")),
    "team": lambda name: name.split()[0],
    "university": lambda name: f"University of {name.removesuffix(' University')}",
}


def _aliases(entities: Mapping[Kind, Sequence[str]], rng: random.Random) -> dict[str, str]:
    """Every second entity's other name, where it can mean nothing else."""
    borne = {name for names in entities.values() for name in names}
    bearers: dict[str, list[str]] = {}
    for kind, names in entities.items():
        for name in names:
            bearers.setdefault(_ALIASES[kind](name), []).append(name)
    return {
        alias: names[0]
        for alias, names in bearers.items()
        if rng.random() < 0.5 and len(names) == 1 and alias not in borne
    }
