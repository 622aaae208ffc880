"""Passages as a method gets them: nothing about one says where it stood in the file or that it was planted."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from arbitrag.data.options import Options
from arbitrag.errors import UsageError
from arbitrag.types import Passage

_ID_LENGTH = 12


def named(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """The passages, each called by a hash of what it says; of equal ones the second is called otherwise than the first.

    A name such as "poison-1", or the place in the list, would tell a method what only an evaluation may know.
    """
    seen: Counter[str] = Counter()
    found = []
    for passage in passages:
        said = "\x00".join((passage.title, passage.text, passage.source, passage.date))
        found.append(replace(passage, id=_hash(f"{said}\x00{seen[said]}")))
        seen[said] += 1
    return tuple(found)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_LENGTH]


@dataclass(frozen=True)
class Mixture(Options):
    """How many passages a question comes with (``k``), and how many of these are ``poisoned``.

    Clean ones are the first of their list, which is in the order of their search; which of the poisoned ones come, and
    where each passage stands, is drawn for each question by ``seed``; more poisoned ones are the fewer and others.

    Raises UsageError for numbers that no question could have.
    """

    always = ("poisoned", "k")

    poisoned: int = 1
    k: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.k >= 1 and 0 <= self.poisoned <= self.k):
            raise UsageError(
                f"poisoned={self.poisoned} of k={self.k} passages; give k from 1, and poisoned from 0 to k"
            )

    def of(self, clean: Sequence[Passage], poison: Sequence[Passage], question: str) -> Mixed:
        """The passages for a question, called by its id; raises ValueError where there are too few."""
        wanted = self.k - self.poisoned
        if len(clean) < wanted:
            raise ValueError(
                f"poisoned={self.poisoned}&k={self.k} takes {wanted} clean passages; here are {len(clean)}"
            )
        if len(poison) < self.poisoned:
            raise ValueError(f"poisoned={self.poisoned} takes as many poisoned passages; here are {len(poison)}")
        drawn = random.Random(f"poison {self.seed} {question}").sample(list(poison), len(poison))[: self.poisoned]
        places = random.Random(f"places {self.seed} {question}").sample(range(self.k), self.k)
        found = named([*drawn, *clean[:wanted]])
        placed = dict(zip(places, found, strict=True))
        return Mixed(
            tuple(placed[place] for place in range(self.k)),
            frozenset(passage.id for passage in found[: self.poisoned]),
        )


@dataclass(frozen=True, slots=True)
class Mixed:
    """Passages in the order in which a method gets them, and the ids of the poisoned ones."""

    passages: tuple[Passage, ...]
    poisoned: frozenset[str]
