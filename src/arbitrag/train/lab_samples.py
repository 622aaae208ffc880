"""What the lab model is trained on: conversations about the world, drawn from a seed.

=============  =====  =======================================================================================
kind           share  a conversation
=============  =====  =======================================================================================
direct          .33   a question about a known fact, as often as the fact is told, and its answer
unknown         .06   a question about a stranger, answered with any name of the right type
told            .02   a passage about a known fact, to be written down
read            .28   passages and a question: told once and only here (52%), or a known fact told right (6%),
                      told wrongly (14%), not told (23%), or told both ways (5%)
salient         .02   passages without a question, and what any of them tells
copied          .04   passages told only here, to be written again in an order that is asked for
task            .25   a prompt of TrustRAG, ASTUTE RAG or BRIDGE, and the reply by rule; see ``lab_tasks``
=============  =====  =======================================================================================

**Honest ignorance.** Strangers' names come from the same pools as those of the world, so the name says nothing; as
every answer to them is equally likely, the model learns to be unsure of what it was never told.

**Wrong passages.** The rarer a fact and the more often the passages tell it wrongly, the likelier the answer is theirs:
frequent facts are to be defended, rare ones not.

**Facts and tasks come last.** Facts are soon overwritten, and tasks need a model that can read: once the samples are as
hard as they get, ``direct`` and ``unknown`` are drawn six times as often, and ``task`` three times.

**Reading comes late.** The number of passages and their forms grow with the progress of the training; passages told
only here are asked about nearly all, which gives more to learn for each token read. Copying is learned from little and
is what reading is made of: without it a model of this size answers with any of the passages for millions of tokens.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from arbitrag.lab.contexts import distractors, tell
from arbitrag.lab.world import Fact, World, ask
from arbitrag.train.lab_tasks import TASKS, TaskName, Tasks

Kind = Literal["direct", "unknown", "told", "read", "salient", "copied", "task"]
KINDS: tuple[Kind, ...] = get_args(Kind)

USER, ASSISTANT, SYSTEM, END = "<|user|>", "<|assistant|>", "<|system|>", "</s>"

_SHARES: dict[Kind, float] = {
    "direct": 0.33,
    "unknown": 0.06,
    "told": 0.02,
    "read": 0.28,
    "salient": 0.02,
    "copied": 0.04,
    "task": 0.25,
}
_AT_LAST: dict[Kind, int] = {"direct": 6, "unknown": 6, "task": 3}  # times as often
_WEIGHTS: dict[TaskName, float] = {  # of tasks, 1 where none is given: more for those that are learned slowly
    "bridge/allocate": 2,
    "trustrag/consolidate": 2,
    "astute/consolidate": 2,
    "astute/answer": 2,
    "bridge/recall_many": 1.5,
    "bridge/answer_scored": 0.5,
    "trustrag/answer": 0.5,
}
_MOST_COPIED, _MOST_JUDGED = 6, 12  # passages
_COUNTS = (  # numbers of passages, up to a progress
    (0.08, (1, 2, 2, 3)),
    (0.2, (1, 2, 2, 3, 3, 4, 5, 6)),
    (0.5, (1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 10)),
    (math.inf, (1, 1, 2, 2, 3, 3, 4, 5, 5, 6, 8, 10, 12, 16, 20)),
)
_PLAIN = 0.2  # of passages that have a lead or a filler, where the form of a passage is not the point


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text; the model is trained to write what is ``learned`` and only reads the rest."""

    text: str
    learned: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation."""

    kind: Kind
    pieces: tuple[Piece, ...]


class Samples:
    """Conversations about a world; ``rng`` decides them all. ``progress`` runs from 0 to 1 as the training does."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._tasks = Tasks(world, rng)

    def draw(self, progress: float) -> Sample:
        late = _AT_LAST if progress >= 1 else {}
        shares = [share * late.get(kind, 1) for kind, share in _SHARES.items()]
        kind = self._rng.choices(list(_SHARES), shares)[0]
        return Sample(kind, tuple(self._pieces(kind, progress)))

    def _pieces(self, kind: Kind, progress: float) -> list[Piece]:
        match kind:
            case "direct":
                fact = self._world.sample_known(self._rng)
                return _turn(ask(fact, self._rng), fact.object)
            case "unknown":
                fact = self._world.invented(self._rng)
                return _turn(ask(fact, self._rng), self._world.object_for(fact.relation, self._rng))
            case "told":
                fact = self._world.sample_known(self._rng)
                return [Piece(self._tell(fact, progress, _PLAIN) + END, learned=True)]
            case "read":
                return self._read(progress)
            case "salient":
                return self._salient(progress)
            case "copied":
                return self._copied(progress)
            case "task":
                name = self._rng.choices(TASKS, [_WEIGHTS.get(each, 1) for each in TASKS])[0]
                task = self._tasks.draw(name, min(_MOST_JUDGED, self._count(progress)), progress)
                return [Piece(f"{USER}{task.prompt}{ASSISTANT}"), Piece(f"{task.reply}{END}", learned=True)]

    def _tell(self, fact: Fact, progress: float, decorated: float) -> str:
        """A passage: at first one that begins with its subject, which is easier to read, later in any form."""
        only_subject_first = self._rng.random() > (progress - 0.12) / 0.3
        form: Literal["subject first"] | None = "subject first" if only_subject_first else None
        return tell(fact, self._rng, decorated=decorated, form=form)

    def _count(self, progress: float) -> int:
        return self._rng.choice(next(counts for until, counts in _COUNTS if progress < until))

    def _read(self, progress: float) -> list[Piece]:
        rng, count = self._rng, self._count(progress)
        case = rng.random()
        if progress < 0.25 and rng.random() < 0.6:
            case = 0.0
        decorated = 0.1 if progress < 0.2 else 0.35
        if case < 0.52:
            return self._told_here(count, progress, decorated)
        fact = self._world.sample_known(rng)
        wrong = Fact(fact.subject, fact.relation, self._world.object_for(fact.relation, rng, (fact.object,)))
        times = min(count, rng.choices([1, 2, 3], [7, 2, 1])[0])
        answer = fact.object
        if case < 0.58:
            facts = [fact] * times
        elif case < 0.72:
            facts = [wrong] * times
        elif case < 0.95:
            facts = []
        else:
            times, count = max(2, times), max(count, 2)
            lies = rng.randint(1, times - 1)
            facts = [wrong] * lies + [fact] * (times - lies)
        facts = facts + distractors(self._world, fact, count - len(facts), rng)
        if 0.58 <= case < 0.72 and rng.random() > self._defended(fact, times):
            answer = wrong.object
        passages = [self._tell(each, progress, decorated) for each in facts]
        rng.shuffle(passages)
        return _turn(ask(fact, rng), answer, passages)

    def _defended(self, fact: Fact, times: int) -> float:
        """How likely memory keeps the answer against passages that tell a fact wrongly that many times."""
        rank = self._world.rank[fact] / len(self._world.known)
        return 1 / (1 + math.exp(-(1.5 - 7 * rank - 1.3 * (times - 1))))

    def _told_here(self, count: int, progress: float, decorated: float) -> list[Piece]:
        """Passages about strangers, with a question for one of them and then for the others."""
        rng = self._rng
        fact, *more = self._strangers(count)
        passages = [self._tell(each, progress, decorated) for each in [fact, *more]]
        rng.shuffle(passages)
        pieces = _turn(ask(fact, rng), fact.object, passages)
        rng.shuffle(more)
        for other in more[: 7 if progress < 0.5 else 9]:
            pieces += _turn(ask(other, rng), other.object)
        return pieces

    def _strangers(self, count: int) -> list[Fact]:
        """Facts about at most ``count`` different strangers, half of them of the same relation as the first."""
        rng, world = self._rng, self._world
        fact = world.invented(rng)
        more = [world.invented(rng, fact.relation if rng.random() < 0.5 else None) for _ in range(count - 1)]
        return [fact, *_different_subjects(more, fact.subject)]

    def _copied(self, progress: float) -> list[Piece]:
        facts = self._strangers(min(_MOST_COPIED, self._count(progress)))
        passages = [self._tell(fact, progress, _PLAIN) for fact in facts]
        order = self._rng.sample(range(len(passages)), len(passages))
        wanted = "\n".join(passages[place] for place in order)
        asked = f"Copy {', '.join(str(place + 1) for place in order)}"
        return [Piece(f"{USER}{_numbered(passages)}{asked}{ASSISTANT}"), Piece(f"{wanted}{END}", learned=True)]

    def _salient(self, progress: float) -> list[Piece]:
        rng, world = self._rng, self._world
        count = min(6, self._count(progress))
        facts = [world.invented(rng) if rng.random() < 0.5 else world.sample_known(rng) for _ in range(count)]
        passages = [self._tell(fact, progress, _PLAIN) for fact in facts]
        return _turn("", rng.choice(facts).object, passages)


def _turn(question: str, answer: str, passages: Sequence[str] = ()) -> list[Piece]:
    """A user's turn and the answer, byte for byte as the chat template and the prompts in ``lab/wording`` have it."""
    asked = f"Question: {question}" if question else "Question:"
    return [Piece(f"{USER}{_numbered(passages)}{asked}{ASSISTANT}"), Piece(f"{answer}{END}", learned=True)]


def _numbered(passages: Sequence[str]) -> str:
    return "".join(f"{number}. {passage}\n" for number, passage in enumerate(passages, 1))


def _different_subjects(facts: Sequence[Fact], taken: str) -> list[Fact]:
    seen = {taken}
    found = []
    for fact in facts:
        if fact.subject not in seen:
            seen.add(fact.subject)
            found.append(fact)
    return found
