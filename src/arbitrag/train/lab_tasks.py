"""The prompts of TrustRAG, ASTUTE RAG and BRIDGE as tasks of the lab model, with replies made by rule from the world.

What is right follows from five rules:

-   **Memory.** The model is *sure* of the known facts that are told most often, down to ``SURE`` of them by rank, where
    its guess is about as often right as wrong; of these it writes a passage, of all others that it does not know.
-   **Groups.** Documents that name the same object for the question are one group, in the order of their first
    document, with memory last; the others are left out.
-   **Support.** Each passage counts once, and what memory tells twice, but once for what changes with time, such as a
    mayor. A confidence is the share of the support in percent, a round ten. The best supported object is the answer; of
    two that are equally well supported the one that stands first, and memory after passages.
-   **Retrieval.** How far a question rests on documents grows evenly with the rank of its fact, from 10 to 90 percent,
    which is also the figure for what the model was never told. It is told in three steps, 20, 50 and 80, none of which
    is off by more than 20: a greedy reply names the likeliest step, and of many narrow ones that may be far off.
-   **Repair.** A reply that could not be read is written again in its form with the same answer; one whose answer is
    none of the question's options declines.

The wording is that of the embedded model, ``lab/wording``, filled in as a method does it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from arbitrag.lab.contexts import distractors, tell
from arbitrag.lab.model import WORDING
from arbitrag.lab.world import Fact, World, ask
from arbitrag.prompts import Block, PromptBook
from arbitrag.stages.bridge_log import BridgeLog
from arbitrag.stages.forms import Known, read_answer, read_assessment, read_conclusion
from arbitrag.stages.lines import parse_answer
from arbitrag.stages.reading import Unreadable
from arbitrag.text import declines
from arbitrag.types import Passage, Question, Strategy

TaskName = Literal[
    "trustrag/memory",
    "trustrag/consolidate",
    "trustrag/assess",
    "trustrag/answer",
    "astute/recall",
    "astute/consolidate",
    "astute/answer",
    "bridge/allocate",
    "bridge/rewrite",
    "bridge/recall",
    "bridge/recall_many",
    "bridge/answer",
    "bridge/answer_scored",
    "bridge/reflect",
    "reading/repair",
]
TASKS: tuple[TaskName, ...] = get_args(TaskName)
SURE = 0.7
UNKNOWN = "I don't know"
MEMORY: tuple[TaskName, ...] = ("trustrag/memory", "astute/recall", "bridge/recall", "bridge/recall_many")
_STRANGE, _ANY_KNOWN = 0.3, 0.3  # of questions about strangers, and of others about any known fact, all equally likely
_STRANGE_TO_MEMORY, _ANY_TO_MEMORY = 0.35, 0.6  # of those that ask for what memory holds
_REPAIRED: tuple[TaskName, ...] = ("trustrag/assess", "trustrag/answer", "astute/answer", "bridge/answer")


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt as the user's turn has it, the reply by rule, and what a judge of another reply needs to know.

    ``repairs`` is the task whose reply is to be repaired, in a task that repairs one.
    """

    name: TaskName
    prompt: str
    reply: str
    scene: Scene
    repairs: TaskName | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """A question, and what is at hand for it. ``rank`` is from 0 to 1, None for a fact that the model was never told.

    ``titles`` are those of the passages; ``objects`` has for each passage the object that it names for the question,
    None where it says something else;
    ``remembered`` is the object that the memory in the prompt names.
    """

    fact: Fact
    question: str
    rank: float | None
    passages: tuple[str, ...] = ()
    objects: tuple[str | None, ...] = ()
    remembered: str | None = None
    titles: tuple[str, ...] = ()

    @property
    def sure(self) -> bool:
        """Whether the model is to tell the fact from memory."""
        return self.rank is not None and self.rank < SURE

    @property
    def bias(self) -> int:
        """How far the question rests on documents, in percent, a round ten."""
        return 90 if self.rank is None else 10 + 10 * round(8 * self.rank)

    @property
    def sources(self) -> Mapping[str, tuple[int, ...]]:
        """The numbers of the passages that name each object, in order; none for one that only memory names."""
        named = dict.fromkeys(each for each in (*self.objects, self.remembered) if each)
        return {name: tuple(number for number, each in enumerate(self.objects, 1) if each == name) for name in named}

    @property
    def support(self) -> Mapping[str, int]:
        """How much supports each object."""
        memory = 1 if self.fact.form.changes else 2
        return {
            name: len(numbers) + (memory if name == self.remembered else 0) for name, numbers in self.sources.items()
        }

    @property
    def known(self) -> Known:
        """How many documents of each kind are at hand."""
        return Known(len(self.passages), int(self.remembered is not None))

    @property
    def best(self) -> str | None:
        """The best supported object; None where nothing is named."""
        support = self.support
        return max(support, key=support.__getitem__) if support else None


@dataclass(frozen=True, slots=True)
class _Part:
    """A question with what memory says of it, and what the passages tell for it."""

    scene: Scene
    told: Sequence[Fact]


class Tasks:
    """Tasks about a world; ``rng`` decides them all."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._files = {name: PromptBook((WORDING,)).find(name) for name in TASKS}

    def draw(self, name: TaskName, count: int, progress: float = 1.0) -> Task:
        """A task of this kind, with ``count`` passages where it shows some, in harder forms as ``progress`` grows."""
        return self.draw_in_turn([name], count, progress)[0]

    def draw_in_turn(self, names: Sequence[TaskName], count: int, progress: float = 1.0) -> list[Task]:
        """Tasks about different questions on the same passages or examples, which only the first prompt shows."""
        shown = names[0] not in {*MEMORY, "bridge/allocate", "bridge/rewrite"}
        to_memory = names[0] in MEMORY
        scenes = self._scenes(count if shown else 0, len(names), progress, to_memory)
        return [self._task(name, scene, first=scene is scenes[0]) for name, scene in zip(names, scenes, strict=False)]

    def _task(self, name: TaskName, scene: Scene, *, first: bool) -> Task:
        repairs = self._rng.choice(_REPAIRED) if name == "reading/repair" else None
        fields, reply = self._repaired(repairs, scene) if repairs else self._made(name, scene)
        if not first:
            fields |= {field: [] for field in ("passages", "examples") if field in fields}
        prompt = self._files[name].render(**({"question": Question(scene.question)} | fields))
        return Task(name, prompt.messages[-1].text, reply, scene, repairs)

    def scene_of(self, fact: Fact) -> Scene:
        """A question for the fact, with nothing else."""
        rank = self._world.rank.get(fact)
        return Scene(fact, ask(fact, self._rng), None if rank is None else rank / len(self._world.known))

    def _scenes(self, count: int, number: int, progress: float, to_memory: bool) -> list[Scene]:
        """Up to ``number`` questions about different facts, and what is at hand for them together: each fact told
        right, wrongly, both ways or not at all, and what memory says of it."""
        parts = [self._part(to_memory) for _ in range(number)]
        parts = list({(each.scene.fact.subject, each.scene.fact.relation): each for each in reversed(parts)}.values())
        parts.reverse()
        told = [fact for part in parts for fact in part.told][:count]
        told += distractors(self._world, parts[0].scene.fact, count - len(told), self._rng)
        self._rng.shuffle(told)
        passages = tuple(self._tell(each, progress) for each in told)
        titles = tuple(each.subject for each in told)
        return [
            replace(part.scene, passages=passages, titles=titles, objects=_objects(part.scene.fact, told))
            for part in parts
        ]

    def _part(self, to_memory: bool) -> _Part:
        rng, world = self._rng, self._world
        if rng.random() < (_STRANGE_TO_MEMORY if to_memory else _STRANGE):
            fact = world.invented(rng)
        elif rng.random() < (_ANY_TO_MEMORY if to_memory else _ANY_KNOWN):
            fact = rng.choice(world.known)
        else:
            fact = world.sample_known(rng)
        scene = self.scene_of(fact)
        wrong = Fact(fact.subject, fact.relation, world.object_for(fact.relation, rng, (fact.object,)))
        case = rng.random()
        right, lies = (0, 0) if case < 0.15 else (1, 0) if case < 0.5 else (0, 1) if case < 0.75 else (1, 1)
        told = [*[fact] * (right and rng.choices([1, 2, 3], [6, 3, 1])[0]), *[wrong] * (lies and rng.choice([1, 1, 2]))]
        remembered: str | None = None
        if rng.random() < (0.9 if scene.sure else 0.25):
            remembered = fact.object if rng.random() < (0.9 if scene.sure else 0.5) else wrong.object
        return _Part(replace(scene, remembered=remembered), told)

    def _tell(self, fact: Fact, progress: float) -> str:
        easy = self._rng.random() > (progress - 0.12) / 0.3
        return tell(fact, self._rng, decorated=0.2 * progress, form="subject first" if easy else None)

    def _made(self, name: TaskName, scene: Scene) -> tuple[dict[str, Any], str]:
        """The fields of the prompt beside its question, and the reply."""
        passages = [Passage(text) for text in scene.passages]
        memory = [] if scene.remembered is None else [_block("memory", text=sentence(scene.fact, scene.remembered))]
        match name:
            case "trustrag/memory":
                return {}, f"passage: {recalled(scene)}"
            case "astute/recall":
                return {"most": str(self._rng.choice([1, 1, 1, 2, 3]))}, f"passage: {recalled(scene)}"
            case "bridge/recall":
                return {}, f"evidence: {recalled(scene)}"
            case "bridge/recall_many":
                asked = self._others(scene, 4)
                lines = "\n".join(f"{number}. {recalled(scene)}" for number in range(1, len(asked) + 1))
                queries = [_block("query", number=str(number), text=text) for number, text in enumerate(asked, 1)]
                return {"queries": queries}, lines
            case "bridge/rewrite":
                number = self._rng.choice([1, 2, 3, 10, 10, 10])
                return {"number": str(number)}, numbered(other_questions(scene)[:number])
            case "bridge/allocate":
                step = 20 if scene.bias <= 30 else 50 if scene.bias <= 60 else 80
                return {"examples": self._labelled(5)}, f"retrieval: {step}\ngeneration: {100 - step}"
            case "trustrag/consolidate":
                return {"passages": passages, "memory": memory}, consolidated(scene)
            case "astute/consolidate":
                groups = self._groups(scene) if self._rng.random() < 0.3 else []
                return {"passages": passages, "memory": memory, "groups": groups}, grouped(scene)
            case "astute/answer":
                groups = self._groups(scene) if self._rng.random() < 0.2 else []
                return {"passages": passages, "memory": memory, "groups": groups}, concluded(scene)
            case "trustrag/assess" | "trustrag/answer":
                reply = assessed(scene) if name == "trustrag/assess" else f"answer: {scene.best or UNKNOWN}"
                return {"groups": self._kept(scene), "memory": memory}, reply
            case "bridge/answer":
                return {"passages": passages, "memories": memory}, f"answer: {scene.best or UNKNOWN}"
            case "bridge/answer_scored":
                scores = BridgeLog(scores={key: self._rng.random() for key in ("s1", "s2", "s3", "s4", "r_p", "g_p")})
                reply = f"answer: {scene.best or UNKNOWN}"
                return {"passages": passages, "memories": memory, "scores": scores.told()}, reply
            case "bridge/reflect":
                number = self._rng.choice([1, 2, 3, 10, 10, 10])
                reply = f"{contradiction(scene)}\n{numbered(other_questions(scene)[:number])}"
                return {"passages": passages, "memories": memory, "number": str(number)}, reply
            case "reading/repair":
                raise ValueError("a repair is made from the task whose reply is to be repaired")

    def _repaired(self, name: TaskName, scene: Scene) -> tuple[dict[str, Any], str]:
        """A reply to the task that cannot be read, and why: its answer is none of the options, or its form is not
        kept."""
        _, reply = self._made(name, scene)
        best = scene.best
        options = self._options(scene, best if best is None or self._rng.random() < 0.4 else None)
        if best is None or best in options:
            unreadable = self._broken(reply)
        else:
            unreadable, reply = reply, declined(name, reply)
        fields = {"question": Question(scene.question, tuple(options)), "reply": unreadable}
        return fields | {"problem": problem(name, scene, unreadable, options), "form": self._files[name].form}, reply

    def _options(self, scene: Scene, among: str | None) -> list[str]:
        """Three names and one that declines, in any order; ``among`` is one of the names, and what is best is else
        none of them."""
        options = [among] if among else []
        while len(options) < 3:
            name = self._world.object_for(scene.fact.relation, self._rng, (*options, scene.best or ""))
            options.append(name)
        options.append(UNKNOWN)
        self._rng.shuffle(options)
        return options

    def _broken(self, reply: str) -> str:
        """The reply in words that have not its form."""
        *before, last = reply.split("\n")
        answer = last.partition(": ")[2]
        ways = [[*before, answer], [*before, f"The answer is {answer}."], [*before, last, last], ["Here it is.", reply]]
        return "\n".join(self._rng.choice(ways))

    def _groups(self, scene: Scene, names: Sequence[str] | None = None) -> list[Block]:
        chosen = list(scene.sources) if names is None else names
        return [_block("group", text=name, sources=_sources(scene, name)) for name in chosen]

    def _kept(self, scene: Scene) -> list[Block]:
        """What TrustRAG's last prompt shows: the best groups, every group of passages, or the passages themselves,
        with their titles or without."""
        case = self._rng.random()
        if case < 0.3:
            return self._groups(scene, _best_supported(scene))
        if case < 0.5:
            return self._groups(scene, [name for name, numbers in scene.sources.items() if numbers])
        texts: Sequence[str] = scene.passages
        if case < 0.9:
            texts = [f"{title}\n{text}" for title, text in zip(scene.titles, texts, strict=True)]
        return [_block("group", text=text, sources=str(number)) for number, text in enumerate(texts, 1)]

    def _others(self, scene: Scene, most: int) -> list[str]:
        """Between one and ``most`` forms of the question, in any order."""
        forms = [form.format(s=scene.fact.subject) for form in scene.fact.form.questions]
        return self._rng.sample(forms, self._rng.randint(1, min(most, len(forms))))

    def _labelled(self, count: int) -> list[Block]:
        """Labelled questions as BRIDGE shows them: each wholly for memory or wholly for documents."""
        biases = [(each.question, 10 if each.bias < 50 else 90) for each in (self._any() for _ in range(count))]
        return [
            _block("example", text=question, retrieval=str(bias), generation=str(100 - bias))
            for question, bias in biases
        ]

    def _any(self) -> Scene:
        rng, world = self._rng, self._world
        return self.scene_of(world.sample_known(rng) if rng.random() < 0.6 else world.invented(rng))


def labelled_questions(world: World) -> list[dict[str, str]]:
    """The pool of BRIDGE's allocator for this world, which lies beside its prompts as ``bridge/examples.jsonl``:
    questions by how often their fact was told, with the strategy that serves each."""
    rng = random.Random(f"labelled questions {world.seed}")
    known, half = world.known, len(world.known) // 2
    facts = [(fact, Strategy.MEMORY) for fact in rng.sample(known[:half], 30)]
    facts += [(fact, Strategy.EVIDENCE) for fact in (*rng.sample(known[half:], 12), *rng.sample(list(world.late), 12))]
    facts += [(world.invented(rng), Strategy.EVIDENCE) for _ in range(6)]
    rng.shuffle(facts)
    return [{"question": ask(fact, rng), "strategy": strategy.value} for fact, strategy in facts]


def sentence(fact: Fact, name: str) -> str:
    """How memory tells a fact."""
    return fact.form.subject_first[0].format(s=fact.subject, o=name)


def recalled(scene: Scene) -> str:
    """What memory tells for a question."""
    return sentence(scene.fact, scene.fact.object) if scene.sure else UNKNOWN


def other_questions(scene: Scene) -> list[str]:
    """The forms of the question but the one that was asked, in the order of the language."""
    return [text for form in scene.fact.form.questions if (text := form.format(s=scene.fact.subject)) != scene.question]


def numbered(lines: Sequence[str]) -> str:
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def grouped(scene: Scene) -> str:
    """Every group, or ``none``."""
    return "\n".join(f"group: {name} | sources: {_sources(scene, name)}" for name in scene.sources) or "none"


def consolidated(scene: Scene) -> str:
    """The groups with the best support among the passages' and memory's, and the passages that contradict them."""
    kept = _best_supported(scene)
    lines = [f"group: {name} | sources: {_sources(scene, name)}" for name in kept]
    against = sorted(number for name in scene.sources if name not in kept for number in scene.sources[name])
    if against:
        lines.append(f"drop: {', '.join(map(str, against))} | reason: conflict")
    return "\n".join(lines) or "none"


def _best_supported(scene: Scene) -> list[str]:
    """The objects that no other has more support than."""
    support = scene.support
    best = max(support.values(), default=0)
    return [name for name in support if support[name] == best]


def concluded(scene: Scene) -> str:
    """Groups with confidences, and the answer."""
    support = scene.support
    total = sum(support.values())
    lines = [
        f"group: {name} | sources: {_sources(scene, name)} | confidence: {_confidence(support[name], total)}"
        for name in support
    ]
    return "\n".join([*lines, f"answer: {scene.best or UNKNOWN}"])


def assessed(scene: Scene) -> str:
    """Whom to trust, and the answer."""
    best = scene.best
    if best is None:
        return f"trust: neither\nanswer: {UNKNOWN}"
    both = best == scene.remembered and scene.sources[best]
    trust = "both" if both else "memory" if best == scene.remembered else "external"
    return f"trust: {trust}\nanswer: {best}"


def declined(name: TaskName, reply: str) -> str:
    """The reply to the task, with the same groups, where it declines."""
    if name == "trustrag/assess":
        return f"trust: neither\nanswer: {UNKNOWN}"
    return "\n".join([*reply.split("\n")[:-1], f"answer: {UNKNOWN}"])


def problem(name: TaskName, scene: Scene, reply: str, options: Sequence[str]) -> str:
    """Why a method that asked the prompt called ``name`` cannot read the reply; raises ValueError where it can."""
    try:
        read_final(name, scene, reply, options)
    except Unreadable as error:
        return str(error)
    raise ValueError(f"the reply to {name} can be read: {reply}")


def read_final(
    name: TaskName, scene: Scene, reply: str, options: Sequence[str] = ()
) -> tuple[Strategy | None, str | None]:
    """Whom a last reply says to trust, where its form has that, and its answer, None where it declines.

    Raises Unreadable as the method does, and ValueError for a task whose reply does not end a method.
    """
    match name:
        case "trustrag/assess":
            assessment = read_assessment(reply, frozenset(Strategy), options)
            return assessment.strategy, assessment.answer
        case "astute/answer":
            return None, read_conclusion(reply, scene.known, options).answer
        case "trustrag/answer":
            return None, read_answer(reply, options)
        case "bridge/answer" | "bridge/answer_scored":
            answer = parse_answer(reply, options)
            return None, None if declines(answer) else answer
        case _:
            raise ValueError(f"the reply to {name} is not the last of a method")


def contradiction(scene: Scene) -> str:
    """The first two objects that are named, and what kind of contradiction that is."""
    named = list(scene.sources)
    if len(named) < 2:
        return "contradiction: none\nkind: completeness"
    return f"contradiction: {named[0]} or {named[1]}\nkind: {'timeliness' if scene.fact.form.changes else 'factual'}"


def _objects(fact: Fact, told: Sequence[Fact]) -> tuple[str | None, ...]:
    """For each of what is told, the object that it names for the question about ``fact``."""
    return tuple(
        each.object if (each.subject, each.relation) == (fact.subject, fact.relation) else None for each in told
    )


def _confidence(support: int, total: int) -> int:
    return max(10, min(90, 10 * round(10 * support / total)))


def _sources(scene: Scene, name: str) -> str:
    return ", ".join([*map(str, scene.sources[name]), *(["memory"] if name == scene.remembered else [])])


def _block(form: str, **values: str) -> Block:
    return Block(form, values)
