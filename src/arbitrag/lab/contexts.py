"""Passages for a question of the world: one that states a fact, and distractors."""

from __future__ import annotations

import random
from collections.abc import Sequence

from arbitrag.lab.language import PassageForm, decorate, relations_of
from arbitrag.lab.world import Fact, World

DECORATED = 0.35  # of passages that have a lead or a filler


def fact_passage(
    fact: Fact, rng: random.Random, *, decorated: float = DECORATED, form: PassageForm | None = None
) -> str:
    """A passage that states the fact, in any form or in one of a kind; see ``language``."""
    forms: Sequence[str] = fact.form.passages if form is None else fact.form.forms(form)
    return decorate(rng.choice(forms).format(s=fact.subject, o=fact.object), rng, decorated)


def distractors(world: World, fact: Fact, count: int, rng: random.Random) -> list[Fact]:
    """Facts that do not answer the question for ``fact``, from near to far.

    A quarter tells another relation of the same subject, where there is one; a third the same relation of a stranger;
    a quarter something that is known of somebody else; the others anything about strangers. What is told is not always
    true of the world.
    """
    found = []
    for _ in range(count):
        kind = rng.random()
        other: Fact | None = None
        if kind < 0.25:
            relations = [each.name for each in relations_of(fact.form.subject) if each.name != fact.relation]
            if relations:
                relation = rng.choice(relations)
                other = Fact(fact.subject, relation, world.object_for(relation, rng))
            else:
                other = world.invented(rng, fact.relation)
        elif kind < 0.6:
            other = world.invented(rng, fact.relation)
        elif kind < 0.85:
            other = world.sample_known(rng)
            if other.subject == fact.subject:
                other = None
        found.append(other or world.invented(rng))
    return found
