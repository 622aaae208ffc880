"""The lab model's tasks: what is right by rule, and that methods ask in the same words and can read the replies."""

from __future__ import annotations

import json
import random

import pytest

from arbitrag.lab.model import PROMPTS
from arbitrag.lab.world import Fact, World
from arbitrag.prompts import PromptBook
from arbitrag.stages.parsing import forms
from arbitrag.stages.parsing.values import Known
from arbitrag.stages.soft_bias import bias_of, read_examples
from arbitrag.types import Strategy
from training import replies
from training.grading import Mark, mark
from training.replies import TASKS, TaskName
from training.scene import Scene
from training.tasks import MEMORY, Task, Tasks, labelled_questions

WORLD = World(7)
FACT = Fact("Velmum Airlines", "ceo", "Ada Bo")  # changes with time
FILM = Fact("The Pale Shadow", "director", "Ada Bo")  # does not


def scene(*objects: str | None, remembered: str | None = None, rank: float | None = 0.4, fact: Fact = FACT) -> Scene:
    return Scene(fact, "Who leads Velmum Airlines?", rank, ("…",) * len(objects), objects, remembered)


@pytest.mark.parametrize(
    ("rank", "sure", "bias"),
    [
        *((0.0, True, 10), (0.0624, True, 10), (0.0626, True, 20), (0.5, True, 50), (0.5999, True, 60)),
        *((0.6, True, 60), (0.6999, True, 70), (0.7, False, 70), (0.999, False, 90), (None, False, 90)),
    ],
)
def test_what_memory_tells_and_how_far_a_question_rests_on_documents(rank: float | None, sure: bool, bias: int) -> None:
    asked = scene(rank=rank)
    assert (asked.sure, asked.bias) == (sure, bias)
    told = FACT.form.subject_first[0].format(s="Velmum Airlines", o="Ada Bo")
    assert replies.recalled(asked) == (told if sure else "I don't know")


def test_whole_passages_are_assessed_with_their_titles_and_without() -> None:
    tasks = Tasks(WORLD, random.Random("titles"))
    forms = []
    for _ in range(200):
        task = tasks.draw("trustrag/assess", 2)
        title, text = task.scene.titles[0], task.scene.passages[0]
        forms += [with_title for with_title in (True, False) if _group(title * with_title, text) in task.prompt]
    assert 55 < sum(forms) < 105
    assert 8 < len(forms) - sum(forms) < 35


def _group(title: str, text: str) -> str:
    return f"group: {title}\n{text} | sources: 1\n" if title else f"group: {text} | sources: 1\n"


@pytest.mark.parametrize(
    ("asked", "sources", "support", "best"),
    [
        (scene(None, "A", None, "B", "A"), {"A": (2, 5), "B": (4,)}, {"A": 2, "B": 1}, "A"),
        (scene("A", "B"), {"A": (1,), "B": (2,)}, {"A": 1, "B": 1}, "A"),
        (scene("A", remembered="B"), {"A": (1,), "B": ()}, {"A": 1, "B": 1}, "A"),
        (scene("A", remembered="B", fact=FILM), {"A": (1,), "B": ()}, {"A": 1, "B": 2}, "B"),
        (scene("A", "A", remembered="B", fact=FILM), {"A": (1, 2), "B": ()}, {"A": 2, "B": 2}, "A"),
        (scene("A", remembered="B", rank=None, fact=FILM), {"A": (1,), "B": ()}, {"A": 1, "B": 2}, "B"),
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
    contested = scene("A", None, "B", "A", remembered="B", rank=0.4, fact=FILM)
    assert replies.grouped(contested) == "group: A | sources: 1, 4\ngroup: B | sources: 3, memory"
    assert replies.consolidated(contested) == "group: B | sources: 3, memory\ndrop: 1, 4 | reason: conflict"
    assert replies.concluded(contested) == (
        "group: A | sources: 1, 4 | confidence: 40\ngroup: B | sources: 3, memory | confidence: 60\nanswer: B"
    )
    assert replies.assessed(contested) == "trust: both\nanswer: B"
    assert replies.contradiction(contested) == "contradiction: A or B\nkind: factual"
    assert replies.contradiction(scene("B", "A")) == "contradiction: B or A\nkind: timeliness"
    nothing = scene(None)
    assert replies.grouped(nothing) == replies.consolidated(nothing) == "none"
    assert replies.concluded(nothing) == "answer: I don't know"
    assert replies.assessed(nothing) == "trust: neither\nanswer: I don't know"
    assert replies.contradiction(nothing) == "contradiction: none\nkind: completeness"
    assert replies.assessed(scene(None, remembered="B")) == "trust: memory\nanswer: B"
    assert replies.assessed(scene("A", remembered="B")) == "trust: external\nanswer: A"
    assert replies.concluded(scene("A")).startswith("group: A | sources: 1 | confidence: 90\n")


def test_other_questions_leave_out_the_one_that_was_asked() -> None:
    asked = Tasks(WORLD, random.Random(1)).scene_of(FACT)
    others = replies.other_questions(asked)
    assert len(others) == len(FACT.form.questions) - 1
    assert asked.question not in others
    assert all("Velmum Airlines" in each for each in others)


@pytest.mark.parametrize("name", TASKS)
def test_methods_can_read_every_reply_and_find_it_right(name: TaskName) -> None:
    tasks = Tasks(WORLD, random.Random(name))
    for count in (1, 2, 5, 9) * 15:
        task = tasks.draw(name, count)
        assert mark(task, task.reply) == Mark(True)
        assert not mark(task, "I am sorry").well_formed


@pytest.mark.parametrize("name", TASKS)
def test_the_reply_to_another_task_is_mostly_wrong(name: TaskName) -> None:
    tasks = Tasks(WORLD, random.Random(f"other {name}"))
    drawn = [tasks.draw(name, 5) for _ in range(60)]
    right = sum(mark(one, other.reply).right for one, other in zip(drawn, [*drawn[1:], drawn[0]], strict=True))
    most = {"bridge/allocate": 30, "trustrag/memory": 36, "astute/recall": 36, "bridge/recall": 36}
    assert right <= most.get(name, 24)


def held(name: TaskName, asked: Scene, reply: str) -> Task:
    return Task(name, "", reply, asked)


@pytest.mark.parametrize(
    ("task", "reply", "right"),
    [
        (held("bridge/allocate", scene(rank=0.1), ""), "retrieval: 40\ngeneration: 60", True),
        (held("bridge/allocate", scene(rank=0.1), ""), "retrieval: 41\ngeneration: 59", False),
        (held("bridge/recall", scene(rank=0.5), ""), "evidence: Ada Bo is its chief", True),
        (held("bridge/recall", scene(rank=0.499), ""), "evidence: I don't know", False),
        (held("bridge/recall", scene(rank=0.5), ""), "evidence: I don't know", True),
        (held("bridge/recall", scene(rank=0.9), ""), "evidence: Ada Bo is its chief", True),
        (held("bridge/recall", scene(rank=0.9), ""), "evidence: Ulf Or is its chief", False),
        (held("bridge/recall", scene(rank=None), ""), "evidence: Ada Bo is its chief", False),
        (held("bridge/recall", scene(rank=None), ""), "evidence: I don't know", True),
        (held("trustrag/memory", scene(rank=None), ""), "I don't know", True),
        (held("bridge/recall_many", scene(rank=0.1), "1. a\n2. b"), "1. Ada Bo\n2. I don't know", False),
        (held("bridge/answer", scene("B"), ""), "answer: The B.", True),
        (held("bridge/answer", scene("A"), ""), "answer: I don't know", False),
        (held("bridge/answer", scene(None), ""), "answer: I don't know", True),
        (held("trustrag/assess", scene("A"), "trust: external\nanswer: A"), "trust: memory\nanswer: A", False),
        (held("astute/consolidate", scene("A", "B"), "group: A | sources: 1\ngroup: B | sources: 2"),
         "group: B | sources: 2\ngroup: A | sources: 1", True),
        (held("astute/consolidate", scene("A", "B"), "group: A | sources: 1\ngroup: B | sources: 2"),
         "group: A | sources: 1, 2", False),
        (held("trustrag/consolidate", scene("A", "A", "B"), "group: A | sources: 1, 2\ndrop: 3 | reason: conflict"),
         "group: A | sources: 1, 2", False),
        (Task("reading/repair", "", "trust: neither\nanswer: I don't know", scene("A"), "trustrag/assess"),
         "trust: neither\nanswer: I don't know", True),
        (Task("reading/repair", "", "trust: neither\nanswer: I don't know", scene("A"), "trustrag/assess"),
         "trust: external\nanswer: A", False),
    ],
)  # fmt: skip
def test_marks(task: Task, reply: str, right: bool) -> None:
    assert mark(task, reply) == Mark(right)


def test_memory_is_asked_about_rarer_facts_and_more_strangers() -> None:
    tasks = Tasks(WORLD, random.Random(6))
    asked = {name: [tasks.draw(name, 3).scene.rank for _ in range(400)] for name in TASKS}
    for names, strangers, rare in (
        (MEMORY, 0.35, 0.225),
        ([name for name in TASKS if name not in MEMORY], 0.3, 0.16),
    ):
        ranks = [rank for name in names for rank in asked[name]]
        assert sum(rank is None for rank in ranks) / len(ranks) == pytest.approx(strangers, abs=0.025)
        assert sum((rank or 0) >= 0.5 for rank in ranks) / len(ranks) == pytest.approx(rare, abs=0.03)


def test_a_repair_shows_what_was_wrong_and_declines_where_the_answer_is_none_of_the_options() -> None:
    tasks = Tasks(WORLD, random.Random(7))
    declined = kept = 0
    for _ in range(200):
        task = tasks.draw("reading/repair", 3)
        assert task.repairs is not None
        *_, question, first, second, third, fourth = task.prompt.split("\n")
        assert question == f"Repair: {task.scene.question}"
        options = [line.partition(") ")[2] for line in (first, second, third, fourth)]
        assert len(set(options)) == 4
        assert "I don't know" in options
        answer = replies.read_final(task.repairs, task.scene, task.reply, options)[1]
        if "none of the options" in task.prompt:
            assert answer is None
            assert task.scene.best not in options
            declined += 1
        else:
            assert answer == task.scene.best
            kept += answer is not None
    assert declined > 80
    assert kept > 50


def test_a_problem_is_the_one_that_the_method_has() -> None:
    name: TaskName = "trustrag/answer"
    asked = scene("Ada Bo")
    told = replies.problem(name, asked, "answer: Ada Bo", ["Ulf Or", "Bo Li"])
    assert told == "the answer is none of the options: Ada Bo"
    told = replies.problem("bridge/answer", asked, "Ada Bo", ["Ada Bo"])
    assert told == "a line does not begin with 'answer:': Ada Bo"
    with pytest.raises(ValueError, match="can be read"):
        replies.problem(name, asked, "answer: Ada Bo", ["Ada Bo", "Bo Li"])
    with pytest.raises(ValueError, match="not the last"):
        replies.read_final("bridge/rewrite", asked, "1. A")


def test_what_is_read_is_what_was_meant() -> None:
    tasks = Tasks(WORLD, random.Random(5))
    declined = 0
    for _ in range(60):
        task = tasks.draw("astute/answer", 6)
        known = Known(6, int(task.scene.remembered is not None))
        conclusion = replies.read("astute/answer", forms.conclusion(known), task.reply)
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


def test_tasks_in_turn_share_the_passages_that_only_the_first_prompt_shows() -> None:
    tasks = Tasks(WORLD, random.Random(3))
    several = 0
    for _ in range(30):
        first, *others = tasks.draw_in_turn(["astute/consolidate", "trustrag/consolidate", "bridge/reflect"], 8)
        shown = [f"{number}. {text}" for number, text in enumerate(first.scene.passages, 1)]
        assert first.prompt.split("\n")[:8] == shown
        for other in others:
            assert other.scene.passages == first.scene.passages
            assert other.prompt.startswith(("memory: ", "group: ", "Consolidate: ", "Reflect "))
            assert (other.scene.fact.subject, other.scene.fact.relation) != (
                first.scene.fact.subject,
                first.scene.fact.relation,
            )
            told = [text for text, name in zip(other.scene.passages, other.scene.objects, strict=True) if name]
            assert all(other.scene.fact.subject in text for text in told)
            several += bool(told)
            assert mark(other, other.reply) == Mark(True)
    assert several > 20
    allocated = tasks.draw_in_turn(["bridge/allocate"] * 3, 0)
    assert [each.prompt.count("retrieval") for each in allocated] == [5, 0, 0]


def test_the_labelled_questions_beside_the_prompts_are_those_of_the_world() -> None:
    path = PROMPTS / "bridge" / "examples.jsonl"
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == labelled_questions(WORLD)
    biases = [bias_of(Strategy(each.metadata["strategy"])).retrieval for each in read_examples(path)]
    assert (biases.count(10), biases.count(90)) == (30, 30)


def test_every_task_has_its_wording() -> None:
    own = PromptBook((PROMPTS,))
    packaged = PromptBook()
    for name in TASKS:
        assert own.find(name).fields == packaged.find(name).fields
        assert own.find(name).headers.get("options") == (None if name == "reading/repair" else "hidden")
