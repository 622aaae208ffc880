"""Questions with their gold answers: what a run is measured on.

An ``Item`` keeps apart what a method may see (``question``, and ``passages`` through a retriever) and what only an
evaluation may: answers, the scenario, and what was planted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from arbitrag.errors import DataError
from arbitrag.serialization import to_plain
from arbitrag.types import Passage, Question, Strategy


@dataclass(frozen=True, slots=True)
class Item:
    """One question of a set.

    ``answers`` are equally right; there are none exactly when refusing is right (``scenario`` REFUSE) and no option
    says so. ``passages`` are the set's own, None where it brings none. ``scenario`` is the right strategy, where
    the set knows it. ``planted`` are the answers that an attack wants, ``poisoned`` the ids of the passages that it
    planted. ``group`` is a category of the set's own, such as a frequency or a hop count.
    """

    question: Question
    answers: tuple[str, ...]
    passages: tuple[Passage, ...] | None = None
    scenario: Strategy | None = None
    planted: tuple[str, ...] = ()
    poisoned: frozenset[str] = field(default_factory=frozenset)
    group: str = ""

    @property
    def id(self) -> str:
        return self.question.id

    @property
    def refusing_is_right(self) -> bool:
        return self.scenario is Strategy.REFUSE or not self.answers


@dataclass(frozen=True)
class QuestionSet:
    """A named set of items with different ids. Raises DataError for an empty one or for an id that comes twice."""

    name: str
    items: Sequence[Item]

    def __post_init__(self) -> None:
        if not self.items:
            raise DataError(f"the question set {self.name} is empty")
        seen: set[str] = set()
        for item in self.items:
            if item.id in seen:
                raise DataError(f"the question set {self.name} has the id {item.id!r} twice; ids must differ")
            seen.add(item.id)

    @cached_property
    def digest(self) -> str:
        """A short hash of everything in the set; two sets with the same one are the same."""
        found = hashlib.sha256()
        for item in self.items:
            found.update(json.dumps(plain_item(item), sort_keys=True).encode())
        return found.hexdigest()[:16]


def plain_item(item: Item) -> dict[str, Any]:
    """The item as JSON values; a frozenset has no order of its own."""
    return {f.name: to_plain(getattr(item, f.name)) for f in fields(item) if f.name != "poisoned"} | {
        "poisoned": sorted(item.poisoned)
    }
