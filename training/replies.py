"""Replies to the prompts of TrustRAG, ASTUTE RAG and BRIDGE, made by rule, and how the methods read them.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar, get_args

from arbitrag.lab.model import PROMPTS
from arbitrag.lab.world import Fact
from arbitrag.prompts import PromptBook
from arbitrag.stages.parsing import forms
from arbitrag.stages.parsing.grammar import Form, ParseError
from arbitrag.stages.parsing.values import answer_or_none
from arbitrag.types import Strategy
from training.scene import Scene

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
T = TypeVar("T")
TASKS: tuple[TaskName, ...] = get_args(TaskName)
UNKNOWN = "I don't know"


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
    return "\n".join(f"group: {name} | sources: {sources_of(scene, name)}" for name in scene.sources) or "none"


def consolidated(scene: Scene) -> str:
    """The groups with the best support among the passages' and memory's, and the passages that contradict them."""
    kept = best_supported(scene)
    lines = [f"group: {name} | sources: {sources_of(scene, name)}" for name in kept]
    against = sorted(number for name in scene.sources if name not in kept for number in scene.sources[name])
    if against:
        lines.append(f"drop: {', '.join(map(str, against))} | reason: conflict")
    return "\n".join(lines) or "none"


def best_supported(scene: Scene) -> list[str]:
    """The objects that no other has more support than."""
    support = scene.support
    best = max(support.values(), default=0)
    return [name for name in support if support[name] == best]


def concluded(scene: Scene) -> str:
    """Groups with confidences, and the answer."""
    support = scene.support
    total = sum(support.values())
    lines = [
        f"group: {name} | sources: {sources_of(scene, name)} | confidence: {_confidence(support[name], total)}"
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
    except ParseError as error:
        return str(error)
    raise ValueError(f"the reply to {name} can be read: {reply}")


def read_final(
    name: TaskName, scene: Scene, reply: str, options: Sequence[str] = ()
) -> tuple[Strategy | None, str | None]:
    """Whom a last reply says to trust, where its form has that, and its answer, None where it declines.

    Raises ParseError as the method does, and ValueError for a task whose reply does not end a method.
    """
    match name:
        case "trustrag/assess":
            assessment = read(name, forms.assessment(frozenset(Strategy), options), reply)
            return assessment.strategy, assessment.answer
        case "astute/answer":
            return None, read(name, forms.conclusion(scene.known, options), reply).answer
        case "trustrag/answer" | "bridge/answer" | "bridge/answer_scored":
            return None, answer_or_none(read(name, forms.answer(options), reply))
        case _:
            raise ValueError(f"the reply to {name} is not the last of a method")


def read(name: TaskName, form: Form[T], reply: str) -> T:
    """What the method that asks the prompt called ``name`` reads from the reply; raises ParseError as it does."""
    parsed = form.parse(reply, PromptBook((PROMPTS,)).find(name).form).value
    assert parsed is not None
    return parsed


def contradiction(scene: Scene) -> str:
    """The first two objects that are named, and what kind of contradiction that is."""
    named = list(scene.sources)
    if len(named) < 2:
        return "contradiction: none\nkind: completeness"
    return f"contradiction: {named[0]} or {named[1]}\nkind: {'timeliness' if scene.fact.form.changes else 'factual'}"


def _confidence(support: int, total: int) -> int:
    return max(10, min(90, 10 * round(10 * support / total)))


def sources_of(scene: Scene, name: str) -> str:
    """Who names an object: the numbers of passages, and ``memory``."""
    return ", ".join([*map(str, scene.sources[name]), *(["memory"] if name == scene.remembered else [])])
