"""Training samples of the lab model: conversations about the world, drawn from a seed.

=============  =====  =======================================================================================
kind           share  a conversation
=============  =====  =======================================================================================
direct          .04   a question about a known fact, as often as the fact is told, and its answer
unknown         .06   a question about a stranger, answered with any name of the right type
told            .02   a passage about a known fact, to be written down
read            .45   passages and a question: told once and only here (45%), or a known fact told right (5%),
                      told wrongly (12%), not told (33%), or told both ways (5%); then further questions
salient         .02   passages without a question, and what any of them tells
copied          .02   passages told only here, to be written again in an order that is asked for
task            .39   a prompt of TrustRAG, ASTUTE RAG or BRIDGE, and the reply by rule; see ``tasks``
=============  =====  =======================================================================================

**Honest ignorance.** Strangers' names come from the same pools as those of the world, so the name says nothing; as
every answer to them is equally likely, the model learns to be unsure of what it was never told.

**Wrong passages.** The rarer a fact and the more often the passages tell it wrongly, the likelier the answer is theirs:
frequent facts are to be defended, rare ones not.

**One reading, many questions.** Passages cost most of the tokens, so they are asked about several times: for what they
tell, for known facts that they do not tell, and for the numbers of the passages that tell something; and a task on
passages is followed by others.

**Memory that declines.** Several questions to memory are asked in a row, a third of them about strangers, and most of
the others about any known fact, however rare.

**Tasks come last.** They need a model that can read: once the samples are as hard as they get, ``task`` is drawn more
often, ``read`` and ``direct`` less.

**Reading comes late.** The number of passages and their forms grow with the progress of the training. Copying is
learned from little and is what reading is made of: without it a model of this size answers with any of the passages for
millions of tokens. Passages that begin with their object are the hardest to read and drawn more often.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from arbitrag.lab.contexts import distractors, fact_passage
from arbitrag.lab.language import PassageForm
from arbitrag.lab.world import Fact, World, ask
from training.replies import TASKS, TaskName
from training.tasks import MEMORY, Tasks

Kind = Literal["direct", "unknown", "told", "read", "salient", "copied", "task"]
KINDS: tuple[Kind, ...] = get_args(Kind)

USER, ASSISTANT, SYSTEM, END = "<|user|>", "<|assistant|>", "<|system|>", "</s>"

_SHARES: dict[Kind, float] = {
    "direct": 0.04,
    "unknown": 0.06,
    "told": 0.02,
    "read": 0.45,
    "salient": 0.02,
    "copied": 0.02,
    "task": 0.39,
}
_AT_LAST: dict[Kind, float] = {"direct": 0.7, "read": 0.5, "task": 1.6}  # times as often
_WEIGHTS: dict[TaskName, float] = {  # of tasks, 1 where none is given: more for those that are learned slowly
    "trustrag/consolidate": 5,
    "trustrag/assess": 2.5,
    "astute/consolidate": 2,
    "astute/answer": 1.5,
    "bridge/reflect": 8,
    "bridge/allocate": 4.5,
    "trustrag/memory": 2.5,
    "astute/recall": 2.5,
    "bridge/recall": 2.5,
    "bridge/recall_many": 4,
    "reading/repair": 2.5,
    "bridge/answer": 0.7,
    "bridge/answer_scored": 0.7,
    "trustrag/answer": 0.6,
    "bridge/rewrite": 0.5,
}
_ON_PASSAGES: tuple[TaskName, ...] = ("trustrag/consolidate", "astute/consolidate", "astute/answer", "bridge/reflect")
_MOST_COPIED, _MOST_JUDGED = 6, 12  # passages
_COUNTS = (  # numbers of passages, up to a progress
    (0.08, (1, 2, 2, 3)),
    (0.2, (1, 2, 2, 3, 3, 4, 5, 6)),
    (0.5, (1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 10)),
    (math.inf, (1, 1, 2, 2, 3, 3, 4, 5, 5, 6, 8, 10, 12, 16, 20)),
)
_MOST_TURNS = 9  # on one reading
_OBJECT_FIRST = 0.25  # of passages, beside those that happen to be
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
        self._true = {(fact.subject, fact.relation): fact for fact in world.known}

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
                return self._task(progress)

    def _tell(self, fact: Fact, progress: float, decorated: float) -> str:
        """A passage: at first one that begins with its subject, which is easier to read, later in any form."""
        only_subject_first = self._rng.random() > (progress - 0.12) / 0.3
        form: PassageForm | None = "subject first" if only_subject_first else None
        if form is None and self._rng.random() < _OBJECT_FIRST:
            form = "object first"
        return fact_passage(fact, self._rng, decorated=decorated, form=form)

    def _count(self, progress: float) -> int:
        return self._rng.choice(next(counts for until, counts in _COUNTS if progress < until))

    def _task(self, progress: float) -> list[Piece]:
        name = self._rng.choices(TASKS, [_WEIGHTS.get(each, 1) for each in TASKS])[0]
        names = [name]
        if name in _ON_PASSAGES:
            names += self._rng.choices(_ON_PASSAGES, k=self._rng.randint(0, 3))
        if name == "bridge/allocate" or name in MEMORY:
            names *= self._rng.randint(1, 5)
        tasks = self._tasks.draw_in_turn(names, min(_MOST_JUDGED, self._count(progress)), progress)
        return [piece for task in tasks for piece in _said(task.prompt, task.reply)]

    def _read(self, progress: float) -> list[Piece]:
        rng, count = self._rng, self._count(progress)
        case = rng.random()
        if progress < 0.25 and rng.random() < 0.6:
            case = 0.0
        decorated = 0.1 if progress < 0.2 else 0.35
        if case < 0.45:
            fact, *more = self._strangers(count)
            facts = [fact, *more] if rng.random() < 0.4 else [fact, *distractors(self._world, fact, count - 1, rng)]
            answer = fact.object
        else:
            fact = self._world.sample_known(rng)
            told, answer = self._told(fact, case, count)
            facts = told + distractors(self._world, fact, max(0, count - len(told)), rng)
        rng.shuffle(facts)
        pieces = _turn(ask(fact, rng), answer, [self._tell(each, progress, decorated) for each in facts])
        for question, reply in self._further(fact, facts):
            pieces += _said(question, reply)
        return pieces

    def _told(self, fact: Fact, case: float, count: int) -> tuple[list[Fact], str]:
        """What passages tell about a known fact, and what is to be answered."""
        rng = self._rng
        wrong = Fact(fact.subject, fact.relation, self._world.object_for(fact.relation, rng, (fact.object,)))
        times = min(count, rng.choices([1, 2, 3], [7, 2, 1])[0])
        if case < 0.5:
            return [fact] * times, fact.object
        if case < 0.62:
            believed = rng.random() > self._defended(fact, times)
            return [wrong] * times, wrong.object if believed else fact.object
        if case < 0.95:
            return [], fact.object
        times = max(2, times)
        lies = rng.randint(1, times - 1)
        return [wrong] * lies + [fact] * (times - lies), fact.object

    def _further(self, first: Fact, facts: Sequence[Fact]) -> list[tuple[str, str]]:
        """More questions on the same passages, with their replies: for what is told, for known facts that are not, and
        for the numbers of the passages that tell something."""
        rng = self._rng
        told: dict[tuple[str, str], list[int]] = {}
        objects: dict[tuple[str, str], set[str]] = {}
        for number, fact in enumerate(facts, 1):
            key = fact.subject, fact.relation
            told.setdefault(key, []).append(number)
            objects.setdefault(key, {self._true[key].object} if key in self._true else set()).add(fact.object)
        clear = {key: fact for fact in facts if len(objects[key := (fact.subject, fact.relation)]) == 1}
        clear.pop((first.subject, first.relation), None)
        turns = [(f"Question: {ask(fact, rng)}", fact.object) for fact in clear.values()]
        for fact in (first, *clear.values()):
            if fact is first or rng.random() < 0.4:
                turns.append((f"Sources: {ask(fact, rng)}", _listed(told.get((fact.subject, fact.relation), []))))
        rng.shuffle(turns)
        del turns[_MOST_TURNS:]
        fact = self._world.sample_known(rng)
        if rng.random() < 0.4 and (fact.subject, fact.relation) not in told:
            turns.append((f"Question: {ask(fact, rng)}", fact.object))
        rng.shuffle(turns)
        return turns

    def _defended(self, fact: Fact, times: int) -> float:
        """How likely memory keeps the answer against passages that tell a fact wrongly that many times."""
        rank = self._world.rank[fact] / len(self._world.known)
        return 1 / (1 + math.exp(-(1.5 - 7 * rank - 1.3 * (times - 1))))

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
        return _said(f"{_numbered(passages)}Copy {_listed([place + 1 for place in order])}", wanted)

    def _salient(self, progress: float) -> list[Piece]:
        rng, world = self._rng, self._world
        count = min(6, self._count(progress))
        facts = [world.invented(rng) if rng.random() < 0.5 else world.sample_known(rng) for _ in range(count)]
        passages = [self._tell(fact, progress, _PLAIN) for fact in facts]
        return _turn("", rng.choice(facts).object, passages)


def identity(world: World) -> str:
    """A digest of how samples are drawn: it changes with the mixture, the forms and the rules."""
    samples = Samples(world, random.Random("identity"))
    drawn = [repr(samples.draw(number / 60)) for number in range(61)]
    return hashlib.blake2b("\n".join(drawn).encode(), digest_size=8).hexdigest()


def _turn(question: str, answer: str, passages: Sequence[str] = ()) -> list[Piece]:
    """A user's turn and the answer, byte for byte as the chat template and the embedded model's prompts have it."""
    asked = f"Question: {question}" if question else "Question:"
    return _said(f"{_numbered(passages)}{asked}", answer)


def _said(prompt: str, reply: str) -> list[Piece]:
    return [Piece(f"{USER}{prompt}{ASSISTANT}"), Piece(f"{reply}{END}", learned=True)]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


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
