"""The lab model's tasks: what is right by rule, and that methods ask in the same words and can read the replies."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial

import pytest

from arbitrag.lab.model import WORDING
from arbitrag.lab.world import Fact, World
from arbitrag.prompts import PromptBook
from arbitrag.stages.forms import (
    Known,
    read_answer,
    read_assessment,
    read_conclusion,
    read_consolidation,
    read_groups,
    read_passages,
)
from arbitrag.stages.lines import parse_answer
from arbitrag.stages.soft_bias import bias_of, parse_bias, read_examples
from arbitrag.stages.sub_queries import parse_answers, parse_evidence, parse_queries, parse_reflection
from arbitrag.train import lab_tasks
from arbitrag.train.lab_tasks import TASKS, Scene, TaskName, Tasks, labelled_questions
from arbitrag.types import Strategy

WORLD = World(7)
FACT = Fact("Velmum Airlines", "ceo", "Ada Bo")
ALL = frozenset(Strategy)


def scene(*objects: str | None, remembered: str | None = None, rank: float | None = 0.4) -> Scene:
    return Scene(FACT, "Who leads Velmum Airlines?", rank, ("…",) * len(objects), objects, remembered)


@pytest.mark.parametrize(
    ("rank", "sure", "bias"),
    [
        *((0.0, True, 10), (0.25, True, 30), (0.5, True, 70), (0.5499, True, 70), (0.55, False, 70)),
        *((0.75, False, 90), (None, False, 90)),
    ],
)
def test_what_memory_tells_and_how_far_a_question_rests_on_documents(rank: float | None, sure: bool, bias: int) -> None:
    asked = scene(rank=rank)
    assert (asked.sure, asked.bias) == (sure, bias)
    told = FACT.form.subject_first[0].format(s="Velmum Airlines", o="Ada Bo")
    assert lab_tasks.recalled(asked) == (told if sure else "I don't know")


@pytest.mark.parametrize(
    ("asked", "sources", "support", "best"),
    [
        (scene(None, "A", None, "B", "A"), {"A": (2, 5), "B": (4,)}, {"A": 2, "B": 1}, "A"),
        (scene("A", "B"), {"A": (1,), "B": (2,)}, {"A": 1, "B": 1}, "A"),
        (scene("A", remembered="B"), {"A": (1,), "B": ()}, {"A": 1, "B": 1}, "A"),
        (scene("A", remembered="B", rank=0.29), {"A": (1,), "B": ()}, {"A": 1, "B": 2}, "B"),
        (scene("A", "A", remembered="B", rank=0.29), {"A": (1, 2), "B": ()}, {"A": 2, "B": 2}, "A"),
        (scene("A", remembered="A"), {"A": (1,)}, {"A": 2}, "A"),
        (scene(None, None), {}, {}, None),
    ],
)
def test_groups_and_their_support(
    asked: Scene, sources: dict[str, tuple[int, ...]], support: dict[str, int], best: str | None
) -> None:
    assert (dict(asked.sources), dict(asked.support), asked.best) == (sources, support, best)
    assert list(asked.sources) == list(sources)


def test_replies() -> None:
    contested = scene("A", None, "B", "A", remembered="B", rank=0.1)
    assert lab_tasks.grouped(contested) == "group: A | sources: 1, 4\ngroup: B | sources: 3, memory"
    assert lab_tasks.consolidated(contested) == "group: B | sources: 3, memory\ndrop: 1, 4 | reason: conflict"
    assert lab_tasks.concluded(contested) == (
        "group: A | sources: 1, 4 | confidence: 40\ngroup: B | sources: 3, memory | confidence: 60\nanswer: B"
    )
    assert lab_tasks.assessed(contested) == "trust: both\nanswer: B"
    assert lab_tasks.contradiction(contested) == "contradiction: A or B\nkind: timeliness"
    nothing = scene(None)
    assert lab_tasks.grouped(nothing) == lab_tasks.consolidated(nothing) == "none"
    assert lab_tasks.concluded(nothing) == "answer: I don't know"
    assert lab_tasks.assessed(nothing) == "trust: neither\nanswer: I don't know"
    assert lab_tasks.contradiction(nothing) == "contradiction: none\nkind: completeness"
    assert lab_tasks.assessed(scene(None, remembered="B")) == "trust: memory\nanswer: B"
    assert lab_tasks.assessed(scene("A", remembered="B")) == "trust: external\nanswer: A"
    assert lab_tasks.concluded(scene("A")).startswith("group: A | sources: 1 | confidence: 90\n")


def test_other_questions_leave_out_the_one_that_was_asked() -> None:
    asked = Tasks(WORLD, random.Random(1)).scene_of(FACT)
    others = lab_tasks.other_questions(asked)
    assert len(others) == len(FACT.form.questions) - 1
    assert asked.question not in others
    assert all("Velmum Airlines" in each for each in others)


def reader(name: TaskName, asked: Scene) -> Callable[[str], object]:
    """The reader that the method uses on replies to this prompt."""
    known = Known(len(asked.passages), int(asked.remembered is not None))
    readers: dict[TaskName, Callable[[str], object]] = {
        "trustrag/memory": partial(read_passages, most=1),
        "trustrag/consolidate": partial(read_consolidation, known=known),
        "trustrag/assess": partial(read_assessment, possible=ALL),
        "trustrag/answer": read_answer,
        "astute/recall": partial(read_passages, most=3),
        "astute/consolidate": partial(read_groups, known=known),
        "astute/answer": partial(read_conclusion, known=known),
        "bridge/allocate": parse_bias,
        "bridge/rewrite": partial(parse_queries, most=10),
        "bridge/recall": parse_evidence,
        "bridge/answer": parse_answer,
        "bridge/answer_scored": parse_answer,
        "bridge/reflect": partial(parse_reflection, most=10),
    }
    return readers[name]


@pytest.mark.parametrize("name", TASKS)
def test_methods_can_read_every_reply(name: TaskName) -> None:
    tasks = Tasks(WORLD, random.Random(name))
    for count in (1, 2, 5, 9) * 15:
        task = tasks.draw(name, count)
        if name == "bridge/recall_many":
            count = len(task.reply.splitlines())
            assert len(parse_answers(task.reply, count)) == count
        else:
            reader(name, task.scene)(task.reply)


def test_what_is_read_is_what_was_meant() -> None:
    tasks = Tasks(WORLD, random.Random(5))
    declined = 0
    for _ in range(60):
        task = tasks.draw("astute/answer", 6)
        known = Known(6, int(task.scene.remembered is not None))
        conclusion = read_conclusion(task.reply, known)
        assert conclusion.answer == task.scene.best
        found = {group.text: (group.passages, bool(group.memory)) for group in conclusion.groups}
        assert found == {name: (numbers, name == task.scene.remembered) for name, numbers in task.scene.sources.items()}
        declined += conclusion.answer is None
    assert 0 < declined < 30


def test_prompts_show_the_passages_by_number_and_what_memory_tells() -> None:
    tasks = Tasks(WORLD, random.Random(2))
    for _ in range(40):
        task = tasks.draw("trustrag/consolidate", 4)
        lines = task.prompt.split("\n")
        assert lines[:4] == [f"{number}. {text}" for number, text in enumerate(task.scene.passages, 1)]
        assert lines[-1] == f"Consolidate: {task.scene.question}"
        memory = [line for line in lines if line.startswith("memory: ")]
        assert len(memory) == (task.scene.remembered is not None)
        assert all(str(task.scene.remembered) in line for line in memory)


def test_the_labelled_questions_beside_the_prompts_are_those_of_the_world() -> None:
    path = WORDING / "bridge" / "examples.jsonl"
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == labelled_questions(WORLD)
    biases = [bias_of(Strategy(each.metadata["strategy"])).retrieval for each in read_examples(path)]
    assert (biases.count(10), biases.count(90)) == (30, 30)


def test_every_task_has_its_wording() -> None:
    own = PromptBook((WORDING,))
    packaged = PromptBook()
    for name in TASKS:
        assert own.find(name).fields == packaged.find(name).fields
        assert own.find(name).headers["options"] == "hidden"
