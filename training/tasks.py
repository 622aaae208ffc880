"""The prompts of TrustRAG, ASTUTE RAG and BRIDGE as tasks of the lab model, with replies made by rule from the world.

``training.replies`` has the rules. The wording is that of the embedded model (``lab/embedded/prompts``), filled as a
method does it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from arbitrag.lab.contexts import distractors, fact_passage
from arbitrag.lab.model import PROMPTS
from arbitrag.lab.world import Fact, World, ask
from arbitrag.methods.bridge.log import BridgeLog
from arbitrag.prompts import Block, PromptBook
from arbitrag.types import Passage, Question, Strategy
from training.replies import (
    TASKS,
    UNKNOWN,
    TaskName,
    assessed,
    best_supported,
    concluded,
    consolidated,
    contradiction,
    declined,
    grouped,
    numbered,
    other_questions,
    problem,
    recalled,
    sentence,
    sources_of,
)
from training.scene import Scene

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
class _Part:
    """A question with what memory says of it, and what the passages tell for it."""

    scene: Scene
    told: Sequence[Fact]


class Tasks:
    """Tasks about a world; ``rng`` decides them all."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._files = {name: PromptBook((PROMPTS,)).find(name) for name in TASKS}

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
        return fact_passage(fact, self._rng, decorated=0.2 * progress, form="subject first" if easy else None)

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
                return {"passages": passages, "memories": memory, "scores": (scores.score_block(),)}, reply
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
        return [_block("group", text=name, sources=sources_of(scene, name)) for name in chosen]

    def _kept(self, scene: Scene) -> list[Block]:
        """What TrustRAG's last prompt shows: the best groups, every group of passages, or the passages themselves,
        with their titles or without."""
        case = self._rng.random()
        if case < 0.3:
            return self._groups(scene, best_supported(scene))
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


def _objects(fact: Fact, told: Sequence[Fact]) -> tuple[str | None, ...]:
    """For each of what is told, the object that it names for the question about ``fact``."""
    return tuple(
        each.object if (each.subject, each.relation) == (fact.subject, fact.relation) else None for each in told
    )


def _block(form: str, **values: str) -> Block:
    return Block(form, values)
