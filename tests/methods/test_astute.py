"""ASTUTE RAG with a scripted model: passages from memory, iterations, groups, orders, and what cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from arbitrag.errors import BackendError, UsageError
from arbitrag.kit import Kit, Limits
from arbitrag.llm.base import Prompt
from arbitrag.methods.astute import AstuteRag
from arbitrag.methods.base import configure
from arbitrag.replay import decide_again, load_trace, save_trace
from arbitrag.run import Failure, answer, attempt
from arbitrag.testing import FixedRetriever, ScriptedLLM, prompt_text
from arbitrag.types import Candidate, Passage, Question, Strategy, Verdict

WHO = Question("Who directed The Silent Orchard?")
PASSAGES = (
    Passage("Oskar Brend wrote and directed it in 1931.", id="p1", title="The Silent Orchard", score=3.0),
    Passage("Mira Talven is said to have made the film.", id="p2", score=2.0),
    Passage("Rivers of the north freeze over early.", id="p3", score=1.0),
)
STEPS = {  # a piece of each prompt, by the step that it belongs to
    "repair": "You put replies into a fixed form",
    "recall": "Write at most",
    "consolidate": "You consolidate documents for a question",
    "answer": "Choose the answer that is best supported",
}
GROUPS = (
    "group: Oskar Brend | sources: 1, memory | confidence: 85\n"
    "group: Mira Talven | sources: 2 | confidence: 10\n"
    "answer: Oskar Brend"
)
NONSENSE = "It depends."


class Scripted(ScriptedLLM):
    """Replies by step; a list is used up in its order. ``asked`` keeps the steps."""

    def __init__(self, **replies: Any) -> None:
        self.replies: dict[str, Any] = {
            "recall": "passage: I recall that Oskar Brend made it.",
            "consolidate": "group: Oskar Brend directed it | sources: 1, memory",
            "answer": GROUPS,
            **replies,
        }
        self.asked: list[str] = []
        super().__init__(self._of, name="scripted")

    def _of(self, prompt: Prompt) -> Any:
        step = next(step for step, piece in STEPS.items() if piece in prompt_text(prompt))
        self.asked.append(step)
        reply = self.replies[step]
        return reply.pop(0) if isinstance(reply, list) else reply

    def prompt(self, step: str) -> str:
        """The last prompt of a step."""
        return [prompt_text(each) for each in self.prompts if STEPS[step] in prompt_text(each)][-1]


async def asked(llm: ScriptedLLM, question: Question = WHO, **parts: Any) -> Verdict:
    method = AstuteRag(**parts.get("settings", {}))
    kit = Kit.of(llm, FixedRetriever(parts.get("passages", PASSAGES)), limits=parts.get("limits", Limits()))
    return await answer(question, method, kit)


def ids(passages: Sequence[Passage]) -> list[str]:
    return [passage.id for passage in passages]


def reasons(verdict: Verdict) -> dict[str, str]:
    return {each.passage.id: each.reason for each in verdict.dropped}


async def test_two_calls_with_groups_sources_and_confidences_in_the_verdict() -> None:
    llm = Scripted()
    verdict = await asked(llm)
    assert (verdict.answer, verdict.strategy) == ("Oskar Brend", Strategy.BOTH)
    assert llm.asked == ["recall", "answer"]
    assert (verdict.usage.calls, verdict.usage.steps) == (2, 2)
    assert verdict.why == "the best supported of 2 groups of documents rests on memory and passages together"
    assert verdict.candidates == (
        Candidate("Oskar Brend", Strategy.BOTH, ("p1",)),
        Candidate("Mira Talven", Strategy.EVIDENCE, ("p2",)),
    )
    groups, chosen = verdict.decisions
    assert groups.inputs == {
        "group_1": {"text": "Oskar Brend", "sources": "1, memory", "passages": ["p1"], "confidence": 85},
        "group_2": {"text": "Mira Talven", "sources": "2", "passages": ["p2"], "confidence": 10},
    }
    assert groups.outcome == "2 groups from 2 of 3 passages"
    assert (chosen.inputs["chosen"], chosen.outcome) == ("Oskar Brend", "both")
    assert ids(verdict.kept) == ["p1", "p2"]
    assert reasons(verdict) == {"p3": "left out by the model: in no group"}
    assert verdict.scores == {"repaired": 0.0, "parse_failures": 0.0}
    assert verdict.notes == ()


async def test_memory_is_asked_beside_the_search() -> None:
    verdict = await asked(Scripted())
    memory = next(call for call in verdict.trace.calls if call.kind == "generate")
    retrieve = next(call for call in verdict.trace.calls if call.kind == "retrieve")
    assert memory.began < retrieve.ended


async def test_sources_are_labelled_in_the_prompts() -> None:
    llm = Scripted()
    await asked(llm)
    assert "Write at most 1 passages" in llm.prompt("recall")
    assert "Oskar" not in llm.prompt("recall")
    last = llm.prompt("answer")
    assert "<passage 1>\nsource: found elsewhere\nThe Silent Orchard\nOskar Brend wrote" in last
    assert "<memory 1>\nsource: your own memory\nI recall that Oskar Brend made it.\n</memory>" in last
    assert "<group" not in last


@pytest.mark.parametrize(
    ("sources", "strategy", "said"),
    [
        ("memory", Strategy.MEMORY, "memory alone"),
        ("1, 2", Strategy.EVIDENCE, "passages alone"),
        ("3, memory 1", Strategy.BOTH, "memory and passages together"),
    ],
)
async def test_the_strategy_is_that_of_the_chosen_sources(sources: str, strategy: Strategy, said: str) -> None:
    reply = f"group: Oskar Brend | sources: {sources} | confidence: 60\nanswer: Oskar Brend"
    verdict = await asked(Scripted(answer=reply))
    assert verdict.strategy is strategy
    assert verdict.why == f"the best supported of 1 group of documents rests on {said}"


async def test_it_may_decline() -> None:
    verdict = await asked(Scripted(answer=GROUPS.replace("answer: Oskar Brend", "answer: I don't know")))
    assert (verdict.answer, verdict.strategy) == (None, Strategy.REFUSE)
    assert verdict.why == "none of 2 groups of documents supports an answer"
    assert len(verdict.candidates) == 2


async def test_without_passages_of_its_own_it_is_one_call() -> None:
    llm = Scripted(answer="group: Brend | sources: 1 | confidence: 60\nanswer: Brend")
    verdict = await asked(llm, settings={"own_passages": 0})
    assert llm.asked == ["answer"]
    assert (verdict.answer, verdict.strategy, verdict.usage.calls) == ("Brend", Strategy.EVIDENCE, 1)
    assert "<memory" not in llm.prompt("answer")


async def test_several_passages_of_its_own() -> None:
    llm = Scripted(
        recall="passage: Brend made it.\npassage: It opened in 1931.",
        answer="group: Brend | sources: memory 2 | confidence: 60\nanswer: Brend",
    )
    verdict = await asked(llm, settings={"own_passages": 3})
    assert "Write at most 3 passages" in llm.prompt("recall")
    assert "<memory 2>\nsource: your own memory\nIt opened in 1931.\n</memory>" in llm.prompt("answer")
    assert verdict.strategy is Strategy.MEMORY
    too_many = await asked(Scripted(recall="passage: a\npassage: b", repair="passage: a"))
    assert too_many.scores["repaired"] == 1
    assert "(there are two lines 'passage:')" in too_many.notes[0]


async def test_each_iteration_reads_the_documents_and_the_groups_before() -> None:
    seconds = ["group: first view | sources: 1", "group: second view | sources: 2, memory"]
    llm = Scripted(consolidate=list(seconds))
    verdict = await asked(llm, settings={"iterations": 3})
    assert llm.asked == ["recall", "consolidate", "consolidate", "answer"]
    assert (verdict.usage.calls, verdict.usage.steps) == (4, 4)
    assert "<group 1>\nsources: 1\nfirst view\n</group>" in llm.prompt("consolidate")
    last = llm.prompt("answer")
    assert "<group 1>\nsources: 2, memory\nsecond view\n</group>" in last
    assert "first view" not in last
    assert last.count("</passage>") == 3
    assert verdict.decisions[-1].inputs["iterations"] == 3


async def test_a_consolidation_may_leave_nothing() -> None:
    llm = Scripted(consolidate="none")
    assert (await asked(llm, settings={"iterations": 2})).answer == "Oskar Brend"
    assert "<group" not in llm.prompt("answer")


@pytest.mark.parametrize(
    ("order", "places"),
    [
        ("retrieved", ["p1", "p2", "p3"]),
        ("descending", ["p1", "p2", "p3"]),
        ("ascending", ["p3", "p2", "p1"]),
        ("ping-pong-top", ["p1", "p3", "p2"]),
        ("ping-pong-bottom", ["p2", "p3", "p1"]),
    ],
)
async def test_the_order_of_passages(order: str, places: list[str]) -> None:
    llm = Scripted(answer="group: x | sources: 1, 2, 3 | confidence: 5\nanswer: x")
    verdict = await asked(llm, settings={"passage_order": order})
    assert ids(verdict.kept) == places
    found = {passage.text: passage.id for passage in PASSAGES}
    assert [found[line] for line in llm.prompt("answer").splitlines() if line in found] == places


async def test_the_random_order_is_decided_by_seed_and_question() -> None:
    reply = "group: x | sources: 1, 2, 3 | confidence: 5\nanswer: x"
    orders = set()
    for seed in range(12):
        settings = {"passage_order": "random", "seed": seed}
        first, again = [ids((await asked(Scripted(answer=reply), settings=settings)).kept) for _ in range(2)]
        assert first == again
        orders.add(tuple(first))
    assert len(orders) > 2


async def test_options_are_shown_where_an_answer_is_asked_for() -> None:
    question = Question(WHO.text, ("Mira Talven", "Oskar Brend", "I don't know"))
    llm = Scripted(answer=GROUPS.replace("answer: Oskar Brend", "answer: (B)"))
    verdict = await asked(llm, question, settings={"iterations": 2})
    assert (verdict.answer, verdict.strategy) == ("Oskar Brend", Strategy.BOTH)
    assert "(B) Oskar Brend" in llm.prompt("answer")
    assert "(B)" not in llm.prompt("recall") + llm.prompt("consolidate")
    refused = await asked(Scripted(answer=GROUPS.replace("answer: Oskar Brend", "answer: C")), question)
    assert (refused.answer, refused.strategy) == (None, Strategy.REFUSE)


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        ("recall", "the reply from memory could not be read, so nothing from memory is used"),
        ("consolidate", "the reply that consolidates could not be read, so the previous groups are kept"),
    ],
)
async def test_nonsense_is_asked_again_then_a_stated_rule_goes_on(step: str, rule: str) -> None:
    reply = "group: Brend | sources: 1 | confidence: 60\nanswer: Brend"
    llm = Scripted(repair=NONSENSE, answer=reply, **{step: NONSENSE})
    llm.replies["consolidate"] = "group: Brend | sources: 1" if step == "recall" else NONSENSE
    verdict = await asked(llm, settings={"iterations": 2})
    assert verdict.answer == "Brend"
    assert verdict.notes[0] == rule
    assert verdict.notes[1].startswith(f"the reply to astute/{step} could not be read")
    assert verdict.scores == {"repaired": 0.0, "parse_failures": 1.0}
    assert verdict.usage.calls == 4
    assert sum(call.result is not None and NONSENSE in str(call.result) for call in verdict.trace.calls) == 2


async def test_a_consolidation_that_cannot_be_read_leaves_the_one_before() -> None:
    llm = Scripted(consolidate=["group: first view | sources: 1", NONSENSE], repair=NONSENSE)
    await asked(llm, settings={"iterations": 3})
    assert "first view" in llm.prompt("answer")


async def test_a_last_reply_that_cannot_be_read_is_a_refusal_that_says_so() -> None:
    llm = Scripted(answer="<ANSWER> Oskar Brend </ANSWER>", repair="Oskar Brend it is")
    verdict = await asked(llm)
    assert (verdict.answer, verdict.strategy) == (None, Strategy.REFUSE)
    assert verdict.why == "the last reply could not be read, so there is no answer"
    assert verdict.scores["parse_failures"] == 1
    assert ids(verdict.kept) == ["p1", "p2", "p3"]
    assert "‹ANSWER> Oskar Brend ‹/ANSWER>" in llm.prompt("repair")


async def test_a_repair_is_used() -> None:
    verdict = await asked(Scripted(answer="Oskar Brend, 85%", repair=GROUPS))
    assert (verdict.answer, verdict.strategy) == ("Oskar Brend", Strategy.BOTH)
    assert verdict.scores == {"repaired": 1.0, "parse_failures": 0.0}
    assert (verdict.usage.calls, verdict.usage.steps) == (3, 3)


async def test_without_passages_memory_answers() -> None:
    llm = Scripted(answer="group: Brend | sources: memory | confidence: 60\nanswer: Brend")
    verdict = await asked(llm, passages=())
    assert (verdict.answer, verdict.strategy) == ("Brend", Strategy.MEMORY)
    assert verdict.notes == ("there are no passages",)


@pytest.mark.parametrize("settings", [{}, {"own_passages": 0}])
async def test_with_neither_passages_nor_memory_it_refuses_without_asking(settings: dict[str, int]) -> None:
    llm = Scripted(recall="I don't know")
    verdict = await asked(llm, passages=(), settings=settings)
    assert (verdict.answer, verdict.strategy) == (None, Strategy.REFUSE)
    assert verdict.why == "there are no passages, and memory offers none"
    assert "answer" not in llm.asked


async def test_one_passage_identical_ones_and_five_hundred() -> None:
    reply = "group: Brend | sources: 1 | confidence: 60\nanswer: Brend"
    one = await asked(Scripted(answer=reply), passages=PASSAGES[:1])
    assert (one.answer, ids(one.kept)) == ("Brend", ["p1"])
    same = [Passage("Brend made it.", id=str(number)) for number in range(4)]
    alike = await asked(Scripted(answer=reply.replace("1 |", "1, 2, 3, 4 |")), passages=same)
    assert ids(alike.kept) == list("0123")
    many = [Passage(f"Film number {number} opened late.", id=str(number)) for number in range(500)]
    limits = Limits(context_tokens=110)  # ten passages of 11 words with their fences
    lots = await asked(Scripted(answer=reply), passages=many, settings={"k": 500}, limits=limits)
    assert (lots.answer, ids(lots.kept), len(lots.dropped)) == ("Brend", ["0"], 499)
    assert list(reasons(lots).values()).count("beyond the token limit") == 490


async def test_passages_in_another_script() -> None:
    reply = "group：奥斯卡·布伦德｜sources：1，memory｜confidence：70\nanswer：奥斯卡·布伦德"
    verdict = await asked(Scripted(answer=reply), passages=[Passage("这部电影由奥斯卡·布伦德执导。", id="1")])
    assert (verdict.answer, verdict.strategy) == ("奥斯卡·布伦德", Strategy.BOTH)


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_an_endpoint_that_fails_is_one_error(number: int) -> None:
    llm = Scripted()
    reply, counted = llm._of, iter(range(1, 10))
    llm._replies = lambda prompt: BackendError("it went away") if next(counted) == number else reply(prompt)
    outcome = await attempt(WHO, AstuteRag(iterations=2), Kit.of(llm, FixedRetriever(PASSAGES)))
    assert isinstance(outcome, Failure)
    assert str(outcome.error) == "it went away"
    assert sum(bool(call.error) for call in outcome.trace.calls) == 1


async def test_a_replay_needs_no_model(tmp_path: Path) -> None:
    first = await asked(Scripted(), settings={"iterations": 2, "passage_order": "random"})
    save_trace(first.trace, tmp_path / "trace.json")
    again = await decide_again(load_trace(tmp_path / "trace.json"))
    assert (again.answer, again.candidates, again.kept) == (first.answer, first.candidates, first.kept)
    assert again.usage.calls == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"own_passages": "-1"}, "own_passages is 0 or more and iterations 1 or more"),
        ({"iterations": "0"}, "got own_passages=1, iterations=0"),
        ({"passage_order": "ping-pong"}, "unknown passage order 'ping-pong'"),
        ({"iterations": "1.5"}, "iterations is a whole number"),
    ],
)
def test_settings_that_cannot_be(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        configure(AstuteRag, options)
