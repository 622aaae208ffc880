"""Questions of a TRD before any model was asked: options, passages, and their corruption.

For every category there is a line of drafts, drawn in a random order that a seed decides. A fact may be asked in
several phrasings; the first phrasing of every fact comes before the second of any, so that no fact is used twice where
there are others.

=====  =====================  ==============================================================================
code   facts                  passages
=====  =====================  ==============================================================================
FA     stable                 tell the fact
FI     stable                 tell it with a wrong name of the right type in the place of the right one
FE     changed or new         tell the new fact
RA     changed or new         tell it with a wrong name, as in FI
=====  =====================  ==============================================================================

Stable facts are shared out 1 to 3 between FA and FI, the others 1 to 1 between FE and RA, by their questions: a second
phrasing of a fact goes to the other category. The wrong name of a corrupted passage is one of the options.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from arbitrag.data.mixtures import named
from arbitrag.data.trd.material import CATEGORIES, Category, Fact, Material
from arbitrag.text import normalize_answer
from arbitrag.types import Passage, Question

UNKNOWN = "I don't know"  # the fourth option

SPLITS: Mapping[str, float] = {"train": 0.8, "validation": 0.1, "test": 0.1}
_FA_SHARE = 4  # one stable question in so many is FA, the others FI

# Why a draft is removed before a model is asked.
TWICE = "the same question is asked about another fact"
NAMED = "the question names an answer"
FEW_OPTIONS = "fewer than two wrong names of its type"
NOT_TOLD = "no passage with the answer"
FEW_PASSAGES = "too few passages to put beside it"
STILL_TOLD = "the right answer is still in its passages"


@dataclass(frozen=True)
class Recipe:
    """How a set is built.

    ``size`` is wanted (all that can be had in the shares of the categories where it is None); ``passages`` stand with
    every question, of which ``telling`` tell its fact; ``phrasings`` of a fact may be asked. ``show_options``: the
    models that validate see the options. Everything random follows from ``seed``.
    """

    size: int | None = None
    seed: int = 0
    passages: int = 1
    telling: int = 1
    phrasings: int = 1
    show_options: bool = True


@dataclass(frozen=True, slots=True)
class Draft:
    """A question as it will stand in the set. ``wrong`` is the name that corrupted passages tell, else empty."""

    id: str
    category: Category
    fact: Fact
    split: str
    question: Question
    passages: tuple[Passage, ...]
    wrong: str = ""
    corrupted: frozenset[str] = frozenset()


class Drafts:
    """The drafts of a material by a recipe; ``removed`` counts, by category and reason, those that were dropped."""

    def __init__(self, material: Material, recipe: Recipe) -> None:
        self.material = material
        self.recipe = recipe
        self.removed: dict[Category, Counter[str]] = {category: Counter() for category in CATEGORIES}

    def of(self, category: Category) -> Iterator[Draft]:
        """Drafts of a category, made one by one."""
        for fact, turn, phrasing in self._turns(category):
            found = self._draft(category, fact, turn, phrasing)
            if isinstance(found, Draft):
                yield found
            else:
                self.removed[category][found] += 1

    def most(self, category: Category) -> int:
        """How many drafts there can be of a category; some of them may turn out not to be one."""
        return sum(1 for _ in self._turns(category))

    @cached_property
    def split_of(self) -> Mapping[str, str]:
        """The split of every subject: all facts about one stand in the same, each split near its share of the facts."""
        counts = Counter(fact.subject for fact in self.material.facts)
        subjects = sorted(counts)
        random.Random(f"{self._name} splits").shuffle(subjects)
        sizes: Counter[str] = Counter()
        found = {}
        for subject in subjects:
            furthest = min(SPLITS, key=lambda split: sizes[split] / SPLITS[split])
            sizes[furthest] += counts[subject]
            found[subject] = furthest
        return found

    @cached_property
    def subjects_of(self) -> Mapping[str, Collection[str]]:
        """The subjects of every split."""
        found: dict[str, set[str]] = {split: set() for split in SPLITS}
        for subject, split in self.split_of.items():
            found[split].add(subject)
        return found

    @property
    def _name(self) -> str:
        return f"trd {self.material.name} {self.recipe.seed}"

    def _turns(self, category: Category) -> Iterator[tuple[Fact, int, str]]:
        """Fact, turn and question: every fact's first phrasing, then every fact's second, and so on."""
        for turn in range(self.recipe.phrasings):
            for number, (fact, phrasings) in enumerate(self._shuffled):
                if turn < len(phrasings) and (fact.category or _drawn(fact, number, turn)) == category:
                    yield fact, turn, phrasings[turn]

    @cached_property
    def _shuffled(self) -> Sequence[tuple[Fact, Sequence[str]]]:
        """The facts in random order, and the phrasings of each in random order."""
        rng = random.Random(f"{self._name} order")
        stable = [fact for fact in self.material.facts if fact.kind == "stable"]
        later = [fact for fact in self.material.facts if fact.kind != "stable"]
        found = []
        for facts in (stable, later):
            for fact in rng.sample(facts, len(facts)):
                found.append((fact, rng.sample(fact.questions, len(fact.questions))))
        return found

    @cached_property
    def _ambiguous(self) -> Collection[str]:
        """Questions, normalised, that are asked about more than one fact."""
        asked = Counter(
            text for fact in self.material.facts for text in {normalize_answer(each) for each in fact.questions}
        )
        return {text for text, count in asked.items() if count > 1}

    def _draft(self, category: Category, fact: Fact, turn: int, text: str) -> Draft | str:
        """A draft, or why there is none."""
        rng = random.Random(f"{self._name} {fact.id} {turn}")
        if normalize_answer(text) in self._ambiguous:
            return TWICE
        if any(mentions(text, name) for name in (*fact.answers, *fact.former)):
            return NAMED
        wrong = _wrong_options(self.material, fact, rng)
        if len(wrong) < 2:
            return FEW_OPTIONS
        told = self._told(fact, turn, rng)
        if not told:
            return NOT_TOLD
        corrupt = category in ("FI", "RA")
        if corrupt:
            told = [_corrupted(passage, fact, wrong[0]) for passage in told]
        wanted = self.recipe.passages - len(told)
        beside = self._beside(fact, wanted, (*fact.answers, *wrong), rng)
        if len(beside) < wanted:
            return FEW_PASSAGES
        if corrupt and any(mentions(each.text, name) for each in told for name in fact.answers):
            return STILL_TOLD
        options = [fact.answer, *wrong, UNKNOWN]
        rng.shuffle(options)
        marked = [(passage, True) for passage in told] + [(passage, False) for passage in beside]
        rng.shuffle(marked)
        passages = named([passage for passage, _ in marked])
        telling = {passage.id for passage, (_, tells) in zip(passages, marked, strict=True) if tells}
        return Draft(
            _id(self._name, fact, turn),
            category,
            fact,
            self.split_of[fact.subject],
            Question(text, tuple(options), _id(self._name, fact, turn)),
            passages,
            wrong[0] if corrupt else "",
            frozenset(telling) if corrupt else frozenset(),
        )

    def _told(self, fact: Fact, turn: int, rng: random.Random) -> list[Passage]:
        """Passages that tell the fact, others for every phrasing as far as there are any."""
        there = [each for each in fact.passages if any(mentions(each.text, name) for name in fact.answers)]
        random.Random(f"{self._name} {fact.id} passages").shuffle(there)
        count = min(self.recipe.telling, len(there))
        first = turn * count
        return [there[(first + number) % len(there)] for number in range(count)]

    def _beside(self, fact: Fact, wanted: int, names: Sequence[str], rng: random.Random) -> list[Passage]:
        """Passages without any of the names, so that the options stand only where they are told on purpose."""
        subjects = self.subjects_of[self.split_of[fact.subject]]
        there = self.material.beside(fact, 2 * wanted, subjects, rng) if wanted else ()
        return [each for each in there if not any(mentions(each.text, name) for name in names)][:wanted]


def mentions(text: str, name: str) -> bool:
    """Whether the name stands in the text as whole words, whatever the case."""
    return bool(name) and name.casefold() in text.casefold() and _pattern(name).search(text) is not None


@lru_cache(maxsize=10_000)
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)


def _drawn(fact: Fact, number: int, turn: int) -> Category:
    if fact.kind == "stable":
        return "FA" if (number + turn) % _FA_SHARE == 0 else "FI"
    return "FE" if (number + turn) % 2 == 0 else "RA"


def _wrong_options(material: Material, fact: Fact, rng: random.Random) -> list[str]:
    """Two wrong names: a substitute, and what was right before, or a second substitute."""
    former = list(fact.former[:1])
    return [*material.substitutes(fact, 2 - len(former), rng), *former]


def _corrupted(passage: Passage, fact: Fact, wrong: str) -> Passage:
    """The passage with a wrong name wherever the right one stands, the longest form of it first."""
    text, title = passage.text, passage.title
    for name in sorted(fact.answers, key=len, reverse=True):
        text = _pattern(name).sub(lambda _: wrong, text)
        title = _pattern(name).sub(lambda _: wrong, title)
    return replace(passage, text=text, title=title)


def _id(name: str, fact: Fact, turn: int) -> str:
    """The first part is that of the fact, so that questions about one can be told to belong together."""
    letters = "0123456789abcdef"
    first, second = random.Random(f"{name} id {fact.id}"), random.Random(f"{name} id {fact.id} {turn}")
    return f"{''.join(first.choices(letters, k=10))}-{''.join(second.choices(letters, k=4))}"
