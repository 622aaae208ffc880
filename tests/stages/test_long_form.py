"""The long form: what is cited is what was read, and what was decided stays decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arbitrag import Kit, answer, answer_all
from arbitrag.cli.verdict import render
from arbitrag.errors import BackendError
from arbitrag.kit import Limits
from arbitrag.lab.model import demo_cases, demo_kit, open_lab
from arbitrag.llm.base import Prompt
from arbitrag.replay import decide_again, load_trace, save_trace
from arbitrag.stages.long_form import checked
from arbitrag.testing import FixedRetriever, ScriptedLLM, ScriptedServer
from arbitrag.testing.llm import prompt_text
from arbitrag.types import LongAnswer, Passage, Question, Sentence, Strategy, Verdict

if TYPE_CHECKING:
    from tests.conftest import Command

PASSAGES = (
    Passage("Mira Talven directed The Silent Orchard.", id="a", source="films/a.md"),
    Passage("The Silent Orchard came out in 1987.", id="b", source="films/b.md"),
)
LONG = "The film was directed by Mira Talven [1]. It came out in 1987. [2] It won nothing [7]. Everybody liked it."


def writer(long: str = LONG, short: str = "Mira Talven") -> ScriptedLLM:
    def reply(prompt: Prompt) -> str:
        return long if "one to four sentences" in prompt_text(prompt) else short

    return ScriptedLLM(reply)


def kit(llm: ScriptedLLM, **settings: object) -> Kit:
    return Kit.of(llm, FixedRetriever(PASSAGES), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reply", "passages", "sentences", "removed"),
    [
        ("Oslo [1].", 1, [("Oslo [1].", (1,))], 0),
        ("Oslo [1]. Bergen [2].", 1, [("Oslo [1].", (1,)), ("Bergen.", ())], 1),
        ("Oslo. [1] Bergen. [2]", 2, [("Oslo. [1]", (1,)), ("Bergen. [2]", (2,))], 0),
        ("Oslo [1, 3; 2].", 2, [("Oslo [1][2].", (1, 2))], 1),
        ("Oslo [1][1].", 1, [("Oslo [1][1].", (1, 1))], 0),
        ("Oslo [0].", 3, [("Oslo.", ())], 1),
        ("Oslo [9999] won.", 3, [("Oslo won.", ())], 1),
        ("In [sic] Oslo [a1].", 3, [("In [sic] Oslo [a1].", ())], 0),
        ("<think>[1] hm</think>Oslo.", 1, [("Oslo.", ())], 0),
        ("Dr. Ask won in 1.5 hours [1].", 1, [("Dr. Ask won in 1.5 hours [1].", (1,))], 0),
    ],
)
def test_a_citation_is_of_a_passage_that_was_read(
    reply: str, passages: int, sentences: list[tuple[str, tuple[int, ...]]], removed: int
) -> None:
    told = tuple(Sentence(text, cites) for text, cites in sentences)
    assert checked(reply, passages) == LongAnswer(" ".join(each.text for each in told), told, removed)


@pytest.mark.parametrize("reply", ["", "  \n", "I don't know.", "<think>so"])
def test_nothing_written_is_no_long_answer(reply: str) -> None:
    assert checked(reply, 3) is None


def test_of_a_reply_that_was_cut_the_last_sentence_goes() -> None:
    assert checked("Oslo won [1]. Then Ber", 1, whole=False) == checked("Oslo won [1].", 1)
    assert checked("Oslo won and", 1, whole=False) == LongAnswer("Oslo won and", (Sentence("Oslo won and"),))


def test_a_long_text_of_brackets_is_read_in_linear_steps() -> None:
    assert checked("[" * 100_000 + "[1,1" * 100_000, 1) is not None


async def test_rag_is_written_out_with_its_citations() -> None:
    llm = writer()
    verdict = await answer("Who directed The Silent Orchard?", "rag", kit(llm), form="long")
    assert (verdict.answer, verdict.strategy) == ("Mira Talven", Strategy.EVIDENCE)
    assert verdict.long is not None
    assert verdict.long.text == (
        "The film was directed by Mira Talven [1]. It came out in 1987. [2] It won nothing. Everybody liked it."
    )
    assert [each.cites for each in verdict.long.sentences] == [(1,), (2,), (), ()]
    assert verdict.long.removed == 1
    assert verdict.notes[-2:] == (
        "citations of no passage that was read, taken out: 1",
        "2 of 4 sentences cite no passage, the first: It won nothing.",
    )
    assert (verdict.usage.generations, verdict.usage.steps) == (2, 2)
    asked = [call.request["sampling"]["max_tokens"] for call in verdict.trace.calls if call.kind == "generate"]
    assert asked == [32, 256]


async def test_the_short_form_asks_for_nothing_more() -> None:
    verdict = await answer("Who directed The Silent Orchard?", "rag", kit(writer()))
    assert (verdict.long, verdict.usage.generations, verdict.trace.form) == (None, 1, "short")


async def test_the_limit_is_that_of_writing() -> None:
    verdict = await answer("Who?", "rag", kit(writer(), limits=Limits(writing_tokens=9)), form="long")
    sampling = [call.request["sampling"] for call in verdict.trace.calls if call.kind == "generate"][-1]
    assert sampling["max_tokens"] == 9


async def test_an_answer_from_memory_cites_nothing_and_says_so() -> None:
    verdict = await answer("Who?", "direct", kit(writer("Mira Talven directed it [1].")), form="long")
    assert verdict.long is not None
    assert (verdict.long.text, verdict.long.removed) == ("Mira Talven directed it.", 1)
    assert "the long answer is from memory: no passage is cited" in verdict.notes
    prompts = [call for call in verdict.trace.calls if call.kind == "generate"]
    assert "passage" not in json.dumps(prompts[-1].request)


async def test_a_refusal_stays_one_and_costs_nothing_more() -> None:
    verdict = await answer("Who?", "rag", kit(writer(short="I don't know")), form="long")
    assert (verdict.answer, verdict.long, verdict.usage.generations) == (None, None, 1)
    assert verdict.notes[-1] == "nothing was written out: there is no answer"


async def test_what_contradicts_the_short_answer_is_said() -> None:
    verdict = await answer("Who?", "rag", kit(writer("Oskar Brend directed it [1].")), form="long")
    assert verdict.notes[-1] == "the long answer does not contain the short one"


async def test_it_is_replayed_and_another_answer_was_not_written_out(tmp_path: Path) -> None:
    verdict = await answer("Who directed The Silent Orchard?", "rag", kit(writer()), form="long")
    save_trace(verdict.trace, tmp_path / "trace.json")
    again = await decide_again(load_trace(tmp_path / "trace.json"))
    assert again.long == verdict.long


async def test_an_answer_that_another_setting_gives_was_not_written_out() -> None:
    case, llm = demo_cases()[2], open_lab()
    try:
        asked = await answer(case.question, "trustmargin", demo_kit(llm, case.passages), form="long")
    finally:
        await llm.aclose()
    assert (asked.strategy, asked.long is not None) == (Strategy.MEMORY, True)
    other = await decide_again(asked.trace, {"threshold": "-30"})
    assert (other.strategy, other.long) == (Strategy.EVIDENCE, None)
    assert "this answer was not written out; that needs the model again" in other.notes


async def test_many_are_written_out_and_a_failure_is_one() -> None:
    def reply(prompt: Prompt) -> str:
        text = prompt_text(prompt)
        if "one to four sentences" in text and "Q2" in text:
            raise BackendError("it broke")
        return "Yes, so it is [1]." if "one to four sentences" in text else "so it is"

    outcomes = [each async for each in answer_all(_questions(), "rag", kit(ScriptedLLM(reply)), form="long")]
    assert isinstance(outcomes[0], Verdict)
    assert outcomes[0].long == LongAnswer("Yes, so it is [1].", (Sentence("Yes, so it is [1].", (1,)),))
    assert str(getattr(outcomes[1], "error", "")) == "it broke"


def _questions() -> list[Question]:
    return [Question("Q1", id="1"), Question("Q2", id="2")]


def test_a_verdict_shows_it_with_what_it_cites_first() -> None:
    long = LongAnswer("So it is [2].", (Sentence("So it is [2].", (2,)),))
    verdict = Verdict("so", Strategy.EVIDENCE, "why", kept=PASSAGES, long=long)
    lines = render(verdict, 60).split("\n")
    assert lines[2] == "In full   So it is [2]."
    assert lines[3] == "Passages  2 read   [2] films/b.md   [1] films/a.md"


def test_ask_writes_it_out(command: Command, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"text": "Mira Talven directed it.", "source": "a.md"}\n')

    def reply(prompt: Prompt) -> str:
        return "It was Mira Talven [1]." if "one to four sentences" in prompt_text(prompt) else "Mira Talven"

    with ScriptedServer(reply) as server:
        asked = ("ask", "Who directed it?", "--llm", f"openai:scripted@{server.base_url}", "--method", "rag")
        typed = (*asked, "--passages", tmp_path / "p.jsonl")
        told = json.loads(command(*typed, "--answer", "long", "--json").out)
        assert (told["answer"], told["long"]["text"]) == ("Mira Talven", "It was Mira Talven [1].")
        assert "In full   It was Mira Talven [1].\n" in command(*typed, "--answer", "long").out
        assert json.loads(command(*typed, "--json").out)["long"] is None
        ran = command(*typed, "--answer", "longer")
        assert (ran.status, "'short', 'long'" in ran.err) == (2, True)


def test_the_lab_can_be_asked_for_it(command: Command) -> None:
    question = "By whom was The Stolen Desert directed?"
    ran = command("ask", question, "--llm", "lab", "--index", "lab", "--answer", "long", "--json")
    assert ran.status == 0, ran.err
    assert json.loads(ran.out)["long"]["sentences"]


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("It is so [[99]7].", "It is so [7]."),  # what is left is a mark of its own, and 7 was read
        ("It is so [[99]8].", "It is so."),
        ("It is so [9[99]7].", "It is so."),
        ("It is so " + "[" * 9 + "99" + "]8" * 9 + ".", None),  # too deep to be meant
    ],
)
def test_what_is_taken_out_leaves_no_mark_of_a_passage_that_was_not_read(reply: str, text: str | None) -> None:
    found = checked(reply, 7)
    assert found is not None
    assert text is None or found.text == text
    assert all(1 <= number <= 7 for sentence in found.sentences for number in sentence.cites)
    assert "[8]" not in found.text
