"""A corpus of the world: documents to index, of any size, and beside them what only an evaluation may read.

A document is one passage with a title, a source and a date. Every present fact is told at least once. Beside them stand
aliases, outdated versions of facts that changed, copies (half of them word for word, half told again), poisons when
they are asked for, and passages about strangers up to the size. They are in random order, and nothing in a document
says which of these it is: that stands in the labels, a file of its own.

Documents are made one by one, so that a million of them need no more memory than their order does.
"""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, Literal

from arbitrag.errors import UsageError
from arbitrag.lab.contexts import fact_passage
from arbitrag.lab.language import RELATIONS
from arbitrag.lab.world import PRESENT, Fact, World
from arbitrag.storage.files import encoded, replacing
from arbitrag.types import Passage

VERSION = 1

Kind = Literal["fact", "alias", "outdated", "poison", "copy", "stranger"]

_SOURCES = ("almanac", "archive", "chronicle", "courier", "gazette", "register")
_ISSUES = 400
_EARLIEST = 1960
_WORD_FOR_WORD = 0.5  # of the copies


@dataclass(frozen=True)
class Recipe:
    """The sizes of a corpus: ``copies`` is a share of all documents, ``poisons`` of the present facts told wrongly."""

    size: int = 10_000
    seed: int = 0
    copies: float = 0.05
    outdated: bool = True
    poisons: float = 0.0


@dataclass(frozen=True, slots=True)
class Label:
    """What a document is, and the fact that it tells; an alias has the relation ``alias``."""

    id: str
    kind: Kind
    fact: Fact


@dataclass(frozen=True, slots=True)
class _Content:
    kind: Kind
    fact: Fact
    text: str
    years: tuple[int, int]  # first and last that it can be dated


class Corpus:
    """The documents of a world by a recipe; raises UsageError for a recipe that cannot be followed."""

    def __init__(self, world: World, recipe: Recipe) -> None:
        _check(recipe)
        self.world = world
        self.recipe = recipe
        self._name = f"corpus {VERSION} world {world.version} {world.seed} seed {recipe.seed}"
        self._present = list(world.current)
        self._aliases = list(world.aliases.items())
        self._outdated = list(world.evolved) if recipe.outdated else []
        rng = random.Random(f"{self._name} poisons")
        self._poisoned = rng.sample(self._present, round(recipe.poisons * len(self._present)))
        relations = list(RELATIONS.values())
        # Types with more names have more strangers, damped, so that none is told about again and again.
        self._shares = list(accumulate(world.names.count(relation.subject) ** 0.5 for relation in relations))
        self._relations = relations
        counts: dict[Kind, int] = {
            "fact": len(self._present),
            "alias": len(self._aliases),
            "outdated": len(self._outdated),
            "poison": len(self._poisoned),
            "copy": round(recipe.copies * recipe.size),
        }
        least = sum(counts.values())
        if recipe.size < least:
            raise UsageError(
                f"a corpus of {recipe.size:,} documents is too small: facts, aliases, outdated versions, copies and "
                f"poisons are {least:,}; ask for a larger one"
            )
        self.counts: dict[Kind, int] = {**counts, "stranger": recipe.size - least}

    def __iter__(self) -> Iterator[tuple[Passage, Label]]:
        order = array("l", range(self.recipe.size))
        random.Random(f"{self._name} order").shuffle(order)
        for position, number in enumerate(order, 1):
            content = self._content(number)
            rng = random.Random(f"{self._name} place {number}")
            year = rng.randint(*content.years)
            passage = Passage(
                content.text,
                id=f"p{position:07}",
                title=content.fact.subject,
                source=f"{rng.choice(_SOURCES)}/{rng.randrange(_ISSUES):03}",
                date=f"{year}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
            )
            yield passage, Label(passage.id, content.kind, content.fact)

    def _content(self, number: int) -> _Content:
        """Document ``number``, counted kind by kind; it is the same wherever it stands."""
        kind: Kind = "stranger"
        place = number
        for each, count in self.counts.items():
            if place < count:
                kind = each
                break
            place -= count
        rng = random.Random(f"{self._name} text {number}")
        if kind == "copy":
            return self._copy(rng)
        if kind == "alias":
            return self._alias(*self._aliases[place], rng)
        if kind == "stranger":
            fact = self._stranger(rng)
            return _Content(kind, fact, fact_passage(fact, rng), (_EARLIEST, PRESENT))
        true = {"fact": self._present, "outdated": self._outdated, "poison": self._poisoned}[kind][place]
        told = self.world.substitute(true, rng) if kind == "poison" else true
        return _Content(kind, told, fact_passage(told, rng), self._years(true))

    def _copy(self, rng: random.Random) -> _Content:
        """A present fact once more: the document that tells it, or told again, by its other name where it has one."""
        number = rng.randrange(len(self._present))
        original = self._content(number)
        if rng.random() < _WORD_FOR_WORD:
            return _Content("copy", original.fact, original.text, original.years)
        fact = original.fact
        name = next(iter(self.world.aliases_of.get(fact.subject, ())), fact.subject)
        return _Content("copy", fact, fact_passage(Fact(name, fact.relation, fact.object), rng), original.years)

    def _alias(self, alias: str, name: str, rng: random.Random) -> _Content:
        form = rng.choice(("{0} is also known as {1}.", "{1} is another name of {0}.", "Some say {1} and mean {0}."))
        return _Content("alias", Fact(name, "alias", alias), form.format(name, alias), (_EARLIEST, PRESENT))

    def _stranger(self, rng: random.Random) -> Fact:
        """A fact about a stranger, the same whenever that relation of that stranger comes up again."""
        relation = rng.choices(self._relations, cum_weights=self._shares)[0]
        subject = self.world.stranger(relation.subject, rng)
        fixed = random.Random(f"{self._name} stranger {relation.name} {subject}")
        return Fact(subject, relation.name, self.world.object_for(relation.name, fixed))

    def _years(self, fact: Fact) -> tuple[int, int]:
        """When a fact of the world can be told: from its first year until it is replaced, or to the present."""
        replaced = self.world.evolved.get(fact)
        return self.world.since[fact], self.world.since[replaced] - 1 if replaced else PRESENT


def write_corpus(
    corpus: Corpus,
    path: Path,
    *,
    labels: Path | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, note: None,
) -> None:
    """Write the documents, a JSON object per line, and the labels where they are wanted.

    Raises DataError when a file cannot be written; neither is left behind by half.
    """
    with ExitStack() as opened:
        documents = opened.enter_context(replacing(path))
        beside = opened.enter_context(replacing(labels)) if labels else None
        for done, (passage, label) in enumerate(corpus, 1):
            write_row(documents, document_row(passage))
            if beside:
                write_row(beside, label_row(label))
            if done % 1000 == 0:
                progress(done, corpus.recipe.size, "")


def document_row(passage: Passage) -> dict[str, str]:
    """A document as ``arbitrag index`` reads it."""
    return {name: getattr(passage, name) for name in ("id", "title", "text", "source", "date")}


def label_row(label: Label) -> dict[str, str]:
    fact = label.fact
    told = {"subject": fact.subject, "relation": fact.relation, "object": fact.object}
    return {"id": label.id, "kind": label.kind, **told}


def write_row(file: BinaryIO, row: object) -> None:
    file.write(encoded(json.dumps(row, ensure_ascii=False) + "\n"))


def _check(recipe: Recipe) -> None:
    for name, share in (("copies", recipe.copies), ("poisons", recipe.poisons)):
        if not 0 <= share <= 1:
            raise UsageError(f"{name} is {share:g}; it is a share from 0 to 1")
