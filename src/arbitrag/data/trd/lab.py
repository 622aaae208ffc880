"""The lab's world as material for a TRD: its facts, its typed names with their popularity, and what stands beside.

Stable facts are those from before the cutoff that still hold; evolution are those that changed after it; perpetuation
are those that came after it. A passage is dated after the cutoff whatever it tells, so that a date says nothing about
when a fact became known, and the passages beside it are made alike for every kind of question.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from arbitrag.data.trd.material import Entity, Fact, Kind, Material
from arbitrag.lab import world as lab
from arbitrag.lab.contexts import DECORATED, distractors, fact_passage
from arbitrag.lab.language import decorate
from arbitrag.lab.names import FIRST_YEAR, LAST_YEAR
from arbitrag.types import Passage


def lab_material(world: lab.World) -> Material:
    """Every present fact of the world, each with all its phrasings and all forms of a passage."""
    facts = [_fact(world, fact, "stable") for fact in world.known if fact not in world.evolved]
    facts += [_fact(world, fact, "evolution") for fact in world.evolved.values()]
    facts += [_fact(world, fact, "perpetuation") for fact in world.late]
    entities = [
        Entity(name, kind, world.popularity[name], tuple(world.aliases_of.get(name, ())))
        for kind, names in world.entities.items()
        for name in names
    ]
    years = [str(year) for year in range(FIRST_YEAR, LAST_YEAR + 1)]
    entities += [Entity(year, "year", world.popularity[year]) for year in years]
    about = f"the lab's invented world {world.seed} of version {world.version}"
    return Material(f"lab {world.version} {world.seed}", about, facts, entities, _Beside(world))


class _Beside:
    """Passages that do not answer a question; what they tell of the world's own entities is of the same split."""

    def __init__(self, world: lab.World) -> None:
        self._world = world
        self._facts = {_id(fact): fact for fact in world.current}

    def __call__(self, fact: Fact, count: int, subjects: Collection[str], rng: random.Random) -> Sequence[Passage]:
        world, asked = self._world, self._facts[fact.id]
        found = []
        for other in distractors(world, asked, count, rng):
            while other.subject in world.kinds and other.subject not in subjects:
                other = world.sample_known(rng)
            if (other.subject, other.relation) != (asked.subject, asked.relation):
                found.append(_passage(fact_passage(other, rng), other.subject, rng))
        return found


def _fact(world: lab.World, fact: lab.Fact, kind: Kind) -> Fact:
    rng = random.Random(f"trd lab {world.version} {world.seed} {_id(fact)}")
    before = world.outdated.get(fact)
    texts = [decorate(form.format(s=fact.subject, o=fact.object), rng, DECORATED) for form in fact.form.passages]
    return Fact(
        _id(fact),
        fact.subject,
        fact.object,
        fact.form.object,
        kind,
        tuple(form.format(s=fact.subject) for form in fact.form.questions),
        tuple(_passage(text, fact.subject, rng) for text in texts),
        tuple(world.aliases_of.get(fact.object, ())),
        (before.object,) if before else (),
    )


def _id(fact: lab.Fact) -> str:
    return f"{fact.subject} / {fact.relation}"


def _passage(text: str, title: str, rng: random.Random) -> Passage:
    year = rng.randint(lab.CUTOFF + 1, lab.PRESENT)
    return Passage(text, title=title, date=f"{year}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}")
