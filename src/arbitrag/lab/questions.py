"""Questions about the world, with the gold answers in separate rows.

==========  ==================================================================================================
kind        what is asked for
==========  ==================================================================================================
known       a fact from before the cutoff that still holds
evolved     a fact whose object changed after the cutoff; the new one is right
late        a fact that came after the cutoff
multi-hop   two facts in a row; only the first subject is named
==========  ==================================================================================================
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from arbitrag.errors import UsageError, unknown
from arbitrag.lab.world import Chain, Fact, World, ask

VERSION = 1

Kind = Literal["known", "evolved", "late", "multi-hop"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class LabQuestion:
    """A question and what an evaluation needs to know of it; ``answers`` are equally right.

    ``outdated`` is what was right before the cutoff, where that was something else.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    kind: Kind
    facts: tuple[Fact, ...]
    outdated: str | None = None


def questions(world: World, count: int, *, seed: int = 0, kinds: Sequence[str] = KINDS) -> list[LabQuestion]:
    """``count`` different questions, equally many of each kind, in random order.

    Raises UsageError for an unknown kind, or for more questions than the world has of one.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise unknown("kind of question", kind, KINDS)
    if count < 1 or not kinds:
        raise UsageError(f"{count} questions of {len(kinds)} kinds were asked for; give 1 or more of both")
    chosen = [kind for kind in KINDS if kind in kinds]
    found = []
    for number, kind in enumerate(chosen):
        share = count // len(chosen) + (number < count % len(chosen))
        found += _of_kind(world, kind, share, random.Random(_stream(world, seed, kind)))
    random.Random(_stream(world, seed, "order")).shuffle(found)
    return [
        LabQuestion(f"q{number:05}", each.question, each.answers, each.kind, each.facts, each.outdated)
        for number, each in enumerate(found, 1)
    ]


def question_row(question: LabQuestion) -> dict[str, Any]:
    """What a method may see."""
    return {"id": question.id, "question": question.question}


def gold_row(question: LabQuestion, world: World) -> dict[str, Any]:
    """What an evaluation reads: the answers, the facts with their years, and how often the first was told.

    ``quarter`` is that of the frequency before the cutoff, from 0 for the most frequent, null after the cutoff.
    """
    first = question.facts[0]
    before = world.outdated.get(first, first)
    return {
        **question_row(question),
        "answers": list(question.answers),
        "kind": question.kind,
        "outdated": question.outdated,
        "quarter": world.quarter(before) if before in world.rank else None,
        "facts": [
            {"subject": fact.subject, "relation": fact.relation, "object": fact.object, "since": world.since[fact]}
            for fact in question.facts
        ],
    }


def _stream(world: World, seed: int, what: str) -> str:
    return f"questions {VERSION} world {world.version} {world.seed} seed {seed} {what}"


def _of_kind(world: World, kind: Kind, count: int, rng: random.Random) -> list[LabQuestion]:
    sources: Mapping[Kind, Callable[[], Sequence[Fact | Chain]]] = {
        "known": lambda: [fact for fact in world.known if fact not in world.evolved],
        "evolved": lambda: list(world.evolved.values()),
        "late": lambda: world.late,
        "multi-hop": lambda: world.chains,
    }
    there = sources[kind]()
    if count > len(there):
        raise UsageError(
            f"{count:,} questions of the kind {kind} were asked for; world {world.seed} has {len(there):,}; "
            "ask for fewer"
        )
    return [_question(world, kind, each, rng) for each in rng.sample(there, count)]


def _question(world: World, kind: Kind, source: Fact | Chain, rng: random.Random) -> LabQuestion:
    facts: tuple[Fact, ...]
    if isinstance(source, Chain):
        facts, text = (source.first, source.second), world.ask_chain(source, rng)
    else:
        facts, text = (source,), ask(source, rng)
    last = facts[-1].object
    before = world.outdated.get(source) if isinstance(source, Fact) else None
    answers = (last, *world.aliases_of.get(last, ()))
    return LabQuestion("", text, answers, kind, facts, before.object if before else None)
