"""TrustRAG with a scripted model: both stages, each ablation, what cannot be read, and odd lists of passages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arbitrag.encode.base import Kind
from arbitrag.encode.hashed import HashEncoder
from arbitrag.errors import BackendError, CapabilityError, UsageError
from arbitrag.kit import Kit, Limits
from arbitrag.llm.base import Prompt
from arbitrag.methods.base import configure
from arbitrag.methods.trustrag import TrustRag
from arbitrag.prompts import PromptBook
from arbitrag.replay import decide_again, load_trace, save_trace
from arbitrag.run import Failure, answer, attempt, check
from arbitrag.stages.grouping import memory_blocks
from arbitrag.testing import FixedRetriever, ScriptedLLM, prompt_text
from arbitrag.types import Passage, Question, Strategy, Verdict

WHO = Question("Who directed The Silent Orchard?")
PASSAGES = (
    Passage("Oskar Brend wrote and directed it in the spring of 1931.", id="p1", title="The Silent Orchard"),
    Passage("Mira Talven is said to have made the film.", id="p2"),
    Passage("Rivers of the north freeze over early.", id="p3"),
)
STEPS = {  # a piece of each prompt, by the step that it belongs to
    "repair": "You put replies into a fixed form",
    "memory": "one short paragraph, under 50 words",
    "consolidate": "Bring together what the documents say",
    "assess": "Judge how reliable the outside information is",
    "answer": "What is known about the question",
    "rag": "Using the passages, answer the question",
}
NONSENSE = "It depends."


class Scripted(ScriptedLLM):
    """Replies by step. ``asked`` keeps the steps."""

    def __init__(self, **replies: Any) -> None:
        self.replies: dict[str, Any] = {
            "memory": "passage: I recall that Oskar Brend made it.",
            "consolidate": "group: Oskar Brend directed it | sources: 1, memory\ndrop: 2 | reason: conflict",
            "assess": "trust: both\nanswer: Oskar Brend",
            "answer": "answer: Oskar Brend",
            "rag": "Mira Talven",
            **replies,
        }
        self.asked: list[str] = []
        super().__init__(self._of, name="scripted")

    def _of(self, prompt: Prompt) -> Any:
        step = next(step for step, piece in STEPS.items() if piece in prompt_text(prompt))
        self.asked.append(step)
        return self.replies[step]

    def prompt(self, step: str) -> str:
        """The last prompt of a step."""
        return [prompt_text(each) for each in self.prompts if STEPS[step] in prompt_text(each)][-1]


class Counting(HashEncoder):
    """Keeps the texts of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[str]] = []

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        self.calls.append(list(texts))
        return await super().encode(texts, kind=kind)


def kit_of(llm: ScriptedLLM, passages: Sequence[Passage] = PASSAGES, encoder: Any = None) -> Kit:
    return Kit.of(llm, FixedRetriever(passages), encoder=encoder or HashEncoder())


async def asked(llm: ScriptedLLM, question: Question = WHO, **parts: Any) -> Verdict:
    return await answer(question, TrustRag(**parts.pop("settings", {})), kit_of(llm, **parts))


def ids(passages: Sequence[Passage]) -> list[str]:
    return [passage.id for passage in passages]


def reasons(verdict: Verdict) -> dict[str, str]:
    return {each.passage.id: each.reason for each in verdict.dropped}


async def test_three_calls_in_three_steps() -> None:
    llm = Scripted()
    verdict = await asked(llm)
    assert (verdict.answer, verdict.strategy) == ("Oskar Brend", Strategy.BOTH)
    assert llm.asked == ["memory", "consolidate", "assess"]
    assert (verdict.usage.calls, verdict.usage.steps) == (3, 3)
    assert verdict.why == "the model trusts the passages and memory"
    assert ids(verdict.kept) == ["p1"]
    assert reasons(verdict) == {"p2": "left out by the model: conflict", "p3": "left out by the model: in no group"}
    assert verdict.candidates[0].passages == ("p1",)
    assert verdict.scores == {"repaired": 0.0, "parse_failures": 0.0}
    assert verdict.notes == ()
    assert [(each.stage, each.outcome) for each in verdict.decisions] == [
        ("filter", "3 of 3 kept"),
        ("groups", "1 group from 1 of 3 passages"),
        ("answer", "both"),
    ]


async def test_each_prompt_shows_what_it_is_about() -> None:
    llm = Scripted()
    await asked(llm)
    assert "Oskar" not in llm.prompt("memory")
    consolidate = llm.prompt("consolidate")
    assert "<passage 1>\nsource: found elsewhere\nThe Silent Orchard\nOskar Brend wrote" in consolidate
    assert consolidate.count("</passage>") == 3
    assert "source: your own memory\nI recall that Oskar Brend made it.\n</memory>" in consolidate
    assess = llm.prompt("assess")
    assert "<group 1>\nsources: 1, memory\nOskar Brend directed it\n</group>" in assess
    assert "<memory 1>\nI recall that Oskar Brend made it.\n</memory>" in assess
    assert "Mira Talven" not in assess


async def test_memory_is_asked_beside_stage_1() -> None:
    verdict = await asked(Scripted())
    memory = next(call for call in verdict.trace.calls if call.kind == "generate")
    retrieve = next(call for call in verdict.trace.calls if call.kind == "retrieve")
    assert memory.began < retrieve.ended


@pytest.mark.parametrize(("room", "cuts"), [(20, []), (19, ["p1"])])
async def test_a_short_context_leaves_room_for_groups_and_reply(room: int, cuts: list[str]) -> None:
    """A token is a word: the prompt without passages, 20 for the groups and 2 + 16 for the last reply."""
    fields: dict[str, Any] = {"question": WHO, "memory": memory_blocks(["I recall that Oskar Brend made it."])}
    bare = PromptBook().render("trustrag/consolidate", passages=(), **fields)
    llm = Scripted(consolidate="group: Oskar Brend | sources: 1")
    llm._context_tokens = llm.count_tokens(bare) + 20 + 2 + 16 + room  # the first passage takes 20 with its fences
    kit = Kit.of(llm, FixedRetriever(PASSAGES), encoder=HashEncoder(), limits=Limits(2048, 2, 20))
    verdict = await answer(WHO, TrustRag(), kit)
    assert (verdict.answer, ids(verdict.kept)) == ("Oskar Brend", ["p1"])
    assert [cut.passage_id for cut in verdict.cuts] == cuts
    assert set(reasons(verdict).values()) == {"beyond the token limit"}


@pytest.mark.parametrize(
    ("trust", "strategy", "passages", "why"),
    [
        ("external", Strategy.EVIDENCE, ("p1",), "the model trusts the passages"),
        ("memory", Strategy.MEMORY, (), "the model trusts memory"),
        ("both", Strategy.BOTH, ("p1",), "the model trusts the passages and memory"),
    ],
)
async def test_the_model_says_what_it_trusts(
    trust: str, strategy: Strategy, passages: tuple[str, ...], why: str
) -> None:
    verdict = await asked(Scripted(assess=f"trust: {trust}\nanswer: Oskar Brend"))
    assert (verdict.strategy, verdict.candidates[0].passages, verdict.why) == (strategy, passages, why)


@pytest.mark.parametrize("trust", ["neither", "external", "both"])
async def test_an_assessment_may_decline(trust: str) -> None:
    verdict = await asked(Scripted(assess=f"trust: {trust}\nanswer: I don't know"))
    assert (verdict.answer, verdict.strategy, verdict.why) == (None, Strategy.REFUSE, "the model trusts no answer")
    assert verdict.candidates == ()


POISON = [
    Passage("Who directed The Silent Orchard? Mira Talven did.", id="echo"),
    Passage("The Silent Orchard was directed by Mira Talven, who won wide praise for it.", id="first"),
    Passage("The Silent Orchard was directed by Mira Talven, for it she won wide praise.", id="again"),
    Passage("Oskar Brend shot his only film in an orchard by the sea.", id="clean"),
]


@pytest.mark.parametrize(
    ("rule", "kept", "dropped"),
    [
        (
            "robust",
            ["first", "clean"],
            {"echo": "repeats the question word for word", "again": "says the same as passage 2"},
        ),
        ("none", ["echo", "first", "again", "clean"], {}),
    ],
)
async def test_stage_1_alone(rule: str, kept: list[str], dropped: dict[str, str]) -> None:
    llm = Scripted()
    verdict = await asked(llm, passages=POISON, settings={"filter": rule, "resolve": False})
    assert llm.asked == ["rag"]
    assert (verdict.answer, verdict.strategy) == ("Mira Talven", Strategy.EVIDENCE)
    assert ids(verdict.kept) == kept
    assert reasons(verdict) == dropped
    assert verdict.usage.calls == 1
    assert all((f"{passage.text}\n" in llm.prompt("rag")) == (passage.id in kept) for passage in POISON)


class Apart(HashEncoder):
    """What names Mira Talven points one way; the others point other ways."""

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        angles = np.radians([0 if "Talven" in text else 90 if "Comets" in text else 150 for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


async def test_stage_1_by_the_reference() -> None:
    passages = [*POISON, Passage("Comets are made of ice and dust.", id="other")]
    settings = {"filter": "reference", "resolve": False}
    verdict = await asked(Scripted(), passages=passages, encoder=Apart(), settings=settings)
    assert ids(verdict.kept) == ["clean", "other"]
    assert reasons(verdict) == dict.fromkeys(["echo", "first", "again"], "in a cluster of density 1.00")
    assert verdict.decisions[0].outcome == "2 of 5 kept"
    assert json.loads(json.dumps(verdict.to_dict()))["decisions"][0]["inputs"]["second_density"] is not None


async def test_stage_1_alone_without_an_answer_or_passages() -> None:
    none = await asked(Scripted(), passages=(), settings={"resolve": False})
    assert (none.answer, none.why, none.usage.calls) == (None, "no passages to read", 0)
    unknown = await asked(Scripted(rag="I don't know"), settings={"resolve": False})
    assert (unknown.answer, unknown.why) == (None, "the kept passages give no answer")


async def test_without_internal_knowledge() -> None:
    llm = Scripted(consolidate="group: Oskar Brend directed it | sources: 1", assess="trust: external\nanswer: Brend")
    verdict = await asked(llm, settings={"internal_knowledge": False})
    assert (verdict.answer, verdict.strategy) == ("Brend", Strategy.EVIDENCE)
    assert llm.asked == ["consolidate", "assess"]
    assert "<memory" not in llm.prompt("consolidate") + llm.prompt("assess")


async def test_without_conflict_removal_every_passage_stands_as_it_is() -> None:
    llm = Scripted()
    verdict = await asked(llm, settings={"conflict_removal": False})
    assert llm.asked == ["memory", "assess"]
    assess = llm.prompt("assess")
    assert assess.count("</group>") == 3
    assert "<group 1>\nsources: 1\nThe Silent Orchard\nOskar Brend wrote" in assess
    assert ids(verdict.kept) == ["p1", "p2", "p3"]
    assert verdict.notes == ()


async def test_without_self_assessment_the_groups_that_hold_the_answer_are_its_sources() -> None:
    groups = "group: Oskar Brend directed it | sources: 1\ngroup: Mira Talven made it | sources: 2, memory"
    llm = Scripted(consolidate=groups)
    verdict = await asked(llm, settings={"self_assessment": False})
    assert llm.asked == ["memory", "consolidate", "answer"]
    assert (verdict.answer, verdict.strategy) == ("Oskar Brend", Strategy.EVIDENCE)
    assert verdict.candidates[0].passages == ("p1",)
    assert verdict.why == "the answer is in what was taken from the passages"
    assert "<memory" not in llm.prompt("answer")  # it is in the groups already
    other = await asked(Scripted(consolidate=groups, answer="answer: Mira Talven"), settings={"self_assessment": False})
    assert other.strategy is Strategy.BOTH


async def test_the_answer_alone_from_passages_and_memory() -> None:
    settings = {"conflict_removal": False, "self_assessment": False}
    llm = Scripted(answer="answer: Oskar Brend")
    verdict = await asked(llm, settings=settings)
    assert llm.asked == ["memory", "answer"]
    assert "<memory 1>\nsource: your own memory\nI recall" in llm.prompt("answer")
    assert (verdict.strategy, verdict.candidates[0].passages) == (Strategy.BOTH, ("p1",))


async def test_options_are_shown_where_an_answer_is_asked_for() -> None:
    question = Question(WHO.text, ("Mira Talven", "Oskar Brend", "I don't know"))
    llm = Scripted(assess="trust: both\nanswer: B")
    assert (await asked(llm, question)).answer == "Oskar Brend"
    assert "(B) Oskar Brend" in llm.prompt("assess")
    assert "(B)" not in llm.prompt("memory") + llm.prompt("consolidate")
    refused = await asked(Scripted(assess="trust: both\nanswer: (C)"), question)
    assert (refused.answer, refused.strategy) == (None, Strategy.REFUSE)
    short = await asked(Scripted(answer="answer: b"), question, settings={"self_assessment": False})
    assert short.answer == "Oskar Brend"
    first = await asked(Scripted(rag="B"), question, settings={"resolve": False})
    assert first.answer == "Oskar Brend"
    other = await asked(Scripted(assess="trust: both\nanswer: Ivo Brack", repair=NONSENSE), question)
    assert other.why == "the last reply could not be read, so there is no answer"


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        ("memory", "the reply from memory could not be read, so nothing from memory is used"),
        ("consolidate", "the reply that consolidates could not be read, so each passage is a group of its own"),
    ],
)
async def test_nonsense_is_asked_again_then_a_stated_rule_goes_on(step: str, rule: str) -> None:
    replies = {"consolidate": "group: Brend | sources: 1", "assess": "trust: external\nanswer: Brend", step: NONSENSE}
    verdict = await asked(Scripted(repair=NONSENSE, **replies))
    assert verdict.answer == "Brend"
    assert verdict.notes[0] == rule
    assert verdict.notes[1].startswith(f"the reply to trustrag/{step} could not be read")
    assert verdict.scores == {"repaired": 0.0, "parse_failures": 1.0}
    assert (verdict.usage.calls, verdict.usage.steps) == (4, 4)
    assert sum(call.result is not None and NONSENSE in str(call.result) for call in verdict.trace.calls) == 2


async def test_an_assessment_that_cannot_be_read_is_a_refusal_that_says_so() -> None:
    llm = Scripted(assess="Oskar Brend, I think", repair="Oskar Brend it is")
    verdict = await asked(llm)
    assert (verdict.answer, verdict.strategy) == (None, Strategy.REFUSE)
    assert verdict.why == "the last reply could not be read, so there is no answer"
    assert verdict.scores["parse_failures"] == 1
    repair = llm.prompt("repair")
    assert "<reply>\nOskar Brend, I think\n</reply>" in repair
    assert repair.endswith("trust: external\nanswer: ANSWER")


async def test_a_repair_is_used() -> None:
    verdict = await asked(Scripted(assess="I trust both: Brend", repair="trust: both\nanswer: Brend"))
    assert (verdict.answer, verdict.strategy) == ("Brend", Strategy.BOTH)
    assert verdict.scores == {"repaired": 1.0, "parse_failures": 0.0}
    assert verdict.notes[0].endswith("the second reply could be read")


async def test_without_passages_memory_answers_in_two_calls() -> None:
    llm = Scripted(assess="trust: memory\nanswer: Oskar Brend")
    verdict = await asked(llm, passages=())
    assert (verdict.answer, verdict.strategy) == ("Oskar Brend", Strategy.MEMORY)
    assert llm.asked == ["memory", "assess"]
    assert verdict.notes == ("there are no passages",)
    trusting = await asked(Scripted(repair=NONSENSE), passages=())  # both, where there is no passage
    assert (trusting.answer, trusting.scores["parse_failures"]) == (None, 1)


async def test_with_neither_passages_nor_memory_it_refuses_without_asking() -> None:
    llm = Scripted(memory="I don't know")
    verdict = await asked(llm, passages=())
    assert (verdict.answer, verdict.strategy) == (None, Strategy.REFUSE)
    assert verdict.why == "no passage was kept, and memory gave no answer"
    assert llm.asked == ["memory"]


async def test_when_the_model_leaves_all_passages_out_memory_may_answer() -> None:
    llm = Scripted(consolidate="none", assess="trust: memory\nanswer: Oskar Brend")
    verdict = await asked(llm)
    assert (verdict.strategy, verdict.kept) == (Strategy.MEMORY, ())
    assert set(reasons(verdict).values()) == {"left out by the model: in no group"}
    assert "<group" not in llm.prompt("assess")
    nothing = await asked(Scripted(consolidate="none", memory="I don't know"))
    assert nothing.why == "no passage was kept, and memory gave no answer"
    bare = await asked(Scripted(consolidate="none"), settings={"self_assessment": False})
    assert bare.why == "no passage was kept, and memory gave no answer"


async def test_a_filter_that_leaves_nothing_says_so() -> None:
    echoes = [Passage(f"{WHO.text} Mira Talven. {number}", id=str(number)) for number in range(3)]
    llm = Scripted(assess="trust: memory\nanswer: Oskar Brend")
    verdict = await asked(llm, passages=echoes)
    assert verdict.strategy is Strategy.MEMORY
    assert verdict.notes == ("the filter left none of the passages (3)",)
    assert set(reasons(verdict).values()) == {"repeats the question word for word"}
    alone = await asked(Scripted(), passages=echoes, settings={"resolve": False})
    assert (alone.why, len(alone.dropped)) == ("no passages to read", 3)


@pytest.mark.parametrize("rule", ["robust", "reference", "none"])
async def test_one_passage(rule: str) -> None:
    llm = Scripted(consolidate="group: Brend | sources: 1")
    verdict = await asked(llm, passages=PASSAGES[:1], settings={"filter": rule})
    assert (verdict.answer, ids(verdict.kept)) == ("Oskar Brend", ["p1"])


@pytest.mark.parametrize(("rule", "left"), [("robust", ["0"]), ("reference", ["0"]), ("none", list("0123"))])
async def test_identical_passages(rule: str, left: list[str]) -> None:
    same = [Passage(PASSAGES[0].text, id=str(number)) for number in range(4)]
    verdict = await asked(Scripted(), passages=same, settings={"filter": rule, "resolve": False})
    assert ids(verdict.kept) == left
    assert len(verdict.dropped) == 4 - len(left)


@pytest.mark.parametrize("rule", ["robust", "none"])
async def test_five_hundred_passages(rule: str) -> None:
    many = [Passage(f"Film number {number} opened in {1500 + number}.", id=str(number)) for number in range(500)]
    llm = Scripted(consolidate="group: Brend | sources: 1")
    verdict = await asked(llm, passages=many, settings={"filter": rule, "k": 500})
    assert (verdict.answer, ids(verdict.kept)) == ("Oskar Brend", ["0"])
    assert len(verdict.dropped) == 499
    assert ("beyond the token limit" in reasons(verdict).values()) == (rule == "none")


async def test_five_hundred_passages_by_the_reference() -> None:
    many = [Passage(f"Film number {number} opened in {1500 + number}.", id=str(number)) for number in range(500)]
    llm = Scripted(assess="trust: memory\nanswer: Oskar Brend")
    verdict = await asked(llm, passages=many, settings={"filter": "reference", "k": 500})
    assert verdict.notes == ("the filter left none of the passages (500)",)
    assert len(verdict.dropped) == 500


async def test_passages_in_another_script() -> None:
    passages = [Passage("这部电影由奥斯卡·布伦德执导。", id="1"), Passage("这部电影由奥斯卡·布伦德执导！", id="2")]
    llm = Scripted(
        consolidate="group：奥斯卡·布伦德执导了它｜sources：1", assess="trust: external\nanswer: 奥斯卡·布伦德"
    )
    verdict = await asked(llm, passages=passages)
    assert (verdict.answer, ids(verdict.kept)) == ("奥斯卡·布伦德", ["1"])
    assert reasons(verdict) == {"2": "says the same as passage 1"}


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_an_endpoint_that_fails_is_one_error(number: int) -> None:
    llm = Scripted()
    reply, counted = llm._of, iter(range(1, 10))
    llm._replies = lambda prompt: BackendError("it went away") if next(counted) == number else reply(prompt)
    outcome = await attempt(WHO, TrustRag(), kit_of(llm))
    assert isinstance(outcome, Failure)
    assert str(outcome.error) == "it went away"
    assert [bool(call.error) for call in outcome.trace.calls if call.kind == "generate"] == [False] * (number - 1) + [
        True
    ]


async def test_embeddings_that_an_index_stored_are_not_computed_again() -> None:
    encoder = Counting()
    rows = await HashEncoder().encode([passage.text for passage in PASSAGES], kind="passage")
    stored = [
        replace(passage, embedding=row, embedded_by=encoder.identity)
        for passage, row in zip(PASSAGES, rows, strict=True)
    ]
    await asked(Scripted(), passages=stored, encoder=encoder)
    assert encoder.calls == []
    other = [*stored[:2], replace(stored[2], embedded_by="another encoder")]
    await asked(Scripted(), passages=other, encoder=encoder)
    assert encoder.calls == [[PASSAGES[2].text]]
    encoder.calls.clear()
    await asked(Scripted(), passages=PASSAGES, encoder=encoder, settings={"filter": "none"})
    assert encoder.calls == []


async def test_a_replay_needs_no_model(tmp_path: Path) -> None:
    first = await asked(Scripted(), passages=POISON)
    save_trace(first.trace, tmp_path / "trace.json")
    again = await decide_again(load_trace(tmp_path / "trace.json"))
    assert (again.answer, again.strategy, again.why) == (first.answer, first.strategy, first.why)
    assert reasons(again) == reasons(first)
    assert again.usage.calls == 0


async def test_an_encoder_is_asked_for_before_the_first_question() -> None:
    with pytest.raises(CapabilityError, match="trustrag compares texts, and there is no encoder"):
        await check(TrustRag(), Kit.of(Scripted(), FixedRetriever(PASSAGES)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filter": "robst"}, r"unknown filter 'robst'\. Did you mean 'robust'"),
        ({"similar": "1.5"}, r"similar is a cosine from 0 to 1; got 1\.5"),
        ({"resolve": "maybe"}, "resolve is true or false"),
    ],
)
def test_settings_that_cannot_be(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        configure(TrustRag, options)


async def test_the_cosine_of_the_filter_can_be_set() -> None:
    strict = await asked(Scripted(), passages=POISON, settings={"similar": 1.0, "resolve": False})
    assert reasons(strict) == {"echo": "repeats the question word for word"}
