"""Questions about the lab's invented world, with passages of which it is known what they are worth.

The address is ``lab:questions``, with options such as ``lab:questions?count=500&kinds=known,late&mix=2,1,0``. Nothing
is read: the questions follow from the options, and equal options give equal sets. They are made here, with no terms of
anybody else. A made-up example of one, as a row of one's own file would say it::

    {"id": "q00001", "question": "Who directed The Silent Harbor?", "answers": [], "scenario": "REFUSE",
     "passages": ["Nobody but Ivo Brack directed The Silent Harbor."], "wrong_answer": "Ivo Brack",
     "poisoned": ["Nobody but Ivo Brack directed The Silent Harbor."], "group": "late/poisoned"}

The passages of a question are right (one tells the fact, or two tell both facts of a question in two hops), poisoned (a
wrong object stands in the place of the right one) or irrelevant (none answers); the others tell something else. What is
right to trust follows from that and from what the model knows:

===============  ==========  =============================
the facts are    passages    scenario
===============  ==========  =============================
known            right       BOTH
known            other       MEMORY
not known        right       EVIDENCE
not known        other       REFUSE, so there is no answer
known by half    any         none is stated
===============  ==========  =============================

Whether a fact is known is the world's word, and not a measurement of any model: told before the cutoff and still so, it
is known when it is in the most frequent ``quarters`` of those, and known by half in the others; a fact of after the
cutoff is not known. A model may have missed the one, and guess the other.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from arbitrag.data.mixtures import named
from arbitrag.data.options import Options
from arbitrag.errors import UsageError
from arbitrag.evaluate.questions import Item
from arbitrag.lab.contexts import distractors, fact_passage
from arbitrag.lab.questions import KINDS, LabQuestion, questions
from arbitrag.lab.world import SEED, Fact, World, open_world
from arbitrag.types import Passage, Question, Strategy

Context = Literal["right", "poisoned", "irrelevant"]
CONTEXTS: tuple[Context, ...] = get_args(Context)

_SCENARIOS: Mapping[tuple[bool, bool], Strategy] = {
    (True, True): Strategy.BOTH,
    (True, False): Strategy.MEMORY,
    (False, True): Strategy.EVIDENCE,
    (False, False): Strategy.REFUSE,
}


@dataclass(frozen=True)
class Lab(Options):
    """Which questions, and what comes with them.

    ``count`` questions, equally many of each of the ``kinds``, drawn by ``seed`` from the world ``world``; ``k``
    passages each, none with 0. ``mix`` is the proportion in which the questions of a kind get right, poisoned and
    irrelevant passages. ``quarters`` of the frequencies, from 1 to 4, count as known.
    """

    seed: int = 0
    count: int = 400
    kinds: tuple[str, ...] = KINDS
    world: int = SEED
    k: int = 5
    mix: tuple[float, ...] = (2.0, 1.0, 1.0)
    quarters: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.quarters <= 4:
            raise UsageError(f"quarters={self.quarters}; the frequencies have 1 to 4")
        if self.k < 0 or (self.k == 1 and "multi-hop" in self.kinds):
            raise UsageError(f"k={self.k}; give 0 for no passages, or 1 or more, and 2 or more for multi-hop questions")
        if len(self.mix) != len(CONTEXTS) or min(self.mix) < 0 or not sum(self.mix):
            raise UsageError(f"mix is a number for each of {', '.join(CONTEXTS)}, 0 or more and not all 0: mix=2,1,1")


def items(options: Lab) -> list[Item]:
    """The questions with their passages. Raises UsageError for an unknown kind, or more than the world has."""
    world = open_world(options.world)
    asked = questions(world, options.count, seed=options.seed, kinds=options.kinds)
    contexts = _contexts(asked, options)
    return [_item(world, options, each, contexts.get(each.id)) for each in asked]


def _contexts(asked: Sequence[LabQuestion], options: Lab) -> Mapping[str, Context]:
    """What passages each question gets, by its id: every kind of question in the proportions of the weights."""
    if not options.k:
        return {}
    found: dict[str, Context] = {}
    for kind in options.kinds:
        ids = [each.id for each in asked if each.kind == kind]
        shares = _shares(len(ids), dict(zip(CONTEXTS, options.mix, strict=True)))
        random.Random(f"contexts {options.world} {options.seed} {kind}").shuffle(shares)
        found |= dict(zip(ids, shares, strict=True))
    return found


def _shares(count: int, weights: Mapping[Context, float]) -> list[Context]:
    """``count`` names, each as often as its weight says; what is left by rounding goes to the largest remainders."""
    exact = {name: count * weight / sum(weights.values()) for name, weight in weights.items()}
    whole = {name: int(share) for name, share in exact.items()}
    by_rest = sorted(exact, key=lambda name: whole[name] - exact[name])
    for name in by_rest[: count - sum(whole.values())]:
        whole[name] += 1
    return [name for name, number in whole.items() for _ in range(number)]


def _item(world: World, options: Lab, asked: LabQuestion, context: Context | None) -> Item:
    question = partial(Item, Question(asked.question, id=asked.id))
    if context is None:
        return question(asked.answers, group=asked.kind)
    rng = random.Random(f"passages {options.world} {options.seed} {options.k} {asked.id} {context}")
    *first, last = asked.facts
    wrong = world.substitute(last, rng)
    told = {"right": asked.facts, "poisoned": (*first, wrong), "irrelevant": ()}[context]
    texts = [fact_passage(each, rng) for each in (*told, *_beside(world, asked.facts, options.k - len(told), rng))]
    passages = named([Passage(text) for text in texts])
    poisoned = passages[len(first) : len(told)] if context == "poisoned" else ()
    known = _known(world, asked.facts, options.quarters)
    scenario = None if known is None else _SCENARIOS[known, context == "right"]
    return question(
        () if scenario is Strategy.REFUSE else asked.answers,
        tuple(rng.sample(passages, len(passages))),
        scenario,
        (wrong.object, *world.aliases_of.get(wrong.object, ())) if context == "poisoned" else (),
        frozenset(passage.id for passage in poisoned),
        f"{asked.kind}/{context}",
    )


def _beside(world: World, facts: Sequence[Fact], count: int, rng: random.Random) -> list[Fact]:
    """Facts that answer no part of the question."""
    asked = {(fact.subject, fact.relation) for fact in facts}
    found: list[Fact] = []
    while len(found) < count:
        drawn = distractors(world, facts[-1], count - len(found), rng)
        found += [each for each in drawn if (each.subject, each.relation) not in asked]
    return found


def _known(world: World, facts: Sequence[Fact], quarters: int) -> bool | None:
    """Whether a model should know all of the facts, by the world's word; None for by half."""
    if any(world.status(fact) != "known" for fact in facts):
        return False
    return True if all(world.quarter(fact) < quarters for fact in facts) else None
