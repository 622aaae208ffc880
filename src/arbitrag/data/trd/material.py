"""What a TRD is built from: facts with their questions and passages, and typed entities to put in their place.

Every source (``trd_plain``, ``trd_wikipedia``, ``trd_lab``) reads its own format into a ``Material``; from there on all
are treated alike.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Literal, Protocol

from arbitrag.text import normalize_answer
from arbitrag.types import Passage

Kind = Literal["stable", "evolution", "perpetuation"]
Category = Literal["FA", "FI", "FE", "RA"]
CATEGORIES: tuple[Category, ...] = ("FA", "FI", "FE", "RA")

_LOOKED_AT = 40  # facts for one passage beside: the smallest split has a tenth of them
NEIGHBOURS = 50  # of nearly the same popularity, among which a wrong answer is drawn


@dataclass(frozen=True, slots=True)
class Entity:
    """A thing with a name; ``popularity`` is comparable within its type only, such as a count of mentions."""

    name: str
    type: str
    popularity: float = 0.0
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """``answer`` is what is asked for about ``subject``, ``aliases`` are other names of it, equally right.

    ``kind``: told before the cutoff and still so (stable), changed after it (evolution; ``former`` was right), or about
    something that is new after it (perpetuation). Every passage tells the fact; a question says nothing of the answer.
    ``category`` is what the source keeps this fact for (NQ's two splits); otherwise it is drawn.
    """

    id: str
    subject: str
    answer: str
    type: str
    kind: Kind
    questions: tuple[str, ...]
    passages: tuple[Passage, ...]
    aliases: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    category: Category | None = None

    @property
    def answers(self) -> tuple[str, ...]:
        return (self.answer, *self.aliases)


class Distract(Protocol):
    def __call__(self, fact: Fact, count: int, subjects: Collection[str], rng: random.Random) -> Sequence[Passage]:
        """Up to ``count`` passages that do not answer the questions about a fact.

        They tell of ``subjects`` (those of the fact's own split), or of nothing that is asked about.
        """
        ...


@dataclass(frozen=True)
class Material:
    """Everything from one source. ``about`` says in a line or two what it is, ``digests`` what files it came from."""

    name: str
    about: str
    facts: Sequence[Fact]
    entities: Sequence[Entity]
    distract: Distract | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)

    def beside(self, fact: Fact, count: int, subjects: Collection[str], rng: random.Random) -> Sequence[Passage]:
        """Passages beside the one that tells the fact: the source's own, or those of other facts."""
        if self.distract is not None:
            return self.distract(fact, count, subjects, rng)
        some = rng.sample(self._told, min(_LOOKED_AT * count, len(self._told)))
        theirs = (other for other in some if other.subject != fact.subject and other.subject in subjects)
        return [rng.choice(other.passages) for other in islice(theirs, count)]

    def substitutes(self, fact: Fact, count: int, rng: random.Random) -> list[str]:
        """Different wrong answers of the right type, about as popular as the right one; fewer where there are fewer.

        Each is drawn among the ``NEIGHBOURS`` of its type that are nearest in popularity to the answer (after Longpre
        et al. 2021), so that how well known a name is does not give a wrong one away. For an answer that is no entity
        any place in the pool will do.
        """
        taken = {normalize_answer(name) for name in (*fact.answers, *fact.former)}
        pool = self._pools.get(fact.type, ())
        place = self._places.get((fact.type, fact.answer), rng.randrange(len(pool) or 1))
        near = _nearest(pool, place, NEIGHBOURS)
        found: list[str] = []
        for entity in rng.sample(near, len(near) if count else 0):
            names = {normalize_answer(name) for name in (entity.name, *entity.aliases)}
            if not taken & names:
                taken |= names
                found.append(entity.name)
            if len(found) == count:
                break
        return found

    @cached_property
    def _told(self) -> Sequence[Fact]:
        return [fact for fact in self.facts if fact.passages]

    @cached_property
    def _pools(self) -> Mapping[str, Sequence[Entity]]:
        """Entities of each type, the least popular first, those of equal popularity in no meaningful order."""
        found: dict[str, list[Entity]] = {}
        for entity in self.entities:
            found.setdefault(entity.type, []).append(entity)
        for pool in found.values():
            pool.sort(key=lambda entity: (entity.popularity, hashlib.sha256(entity.name.encode()).digest()))
        return found

    @cached_property
    def _places(self) -> Mapping[tuple[str, str], int]:
        """Where an entity stands in the pool of its type."""
        pools = self._pools.items()
        return {(kind, entity.name): place for kind, pool in pools for place, entity in enumerate(pool)}


def _nearest(pool: Sequence[Entity], place: int, count: int) -> Sequence[Entity]:
    """The ``count`` entities around a place in a pool sorted by popularity, as many on either side where there are."""
    start = max(0, min(place - count // 2, len(pool) - count))
    return pool[start : start + count]
