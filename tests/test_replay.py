from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from arbitrag.errors import BackendError, ContextError, TraceError, UsageError
from arbitrag.kit import Kit, Limits
from arbitrag.llm.base import Price
from arbitrag.replay import decide_again, load_trace, replay, save_trace
from arbitrag.run import answer
from arbitrag.serialization import from_plain, to_plain
from arbitrag.testing import FixedRetriever, ScriptedLLM
from arbitrag.trace import Trace
from arbitrag.types import Need, Passage, Question, Strategy, Usage, Verdict

PASSAGES = tuple(Passage(f"passage {number} has eight words in it, really", id=f"p{number}") for number in range(3))
REPLIES = {"passages below": "Oskar Brend", "Question": "Mira Talven"}


def likelihoods(prompt: Any, text: str) -> float:
    """Memory rejects the evidence by 4, and its question does not bind it: margin -4."""
    alone = "passage" not in prompt.messages[1].text
    return -5.0 if alone and text == "Oskar Brend" else -1.0


def kit(**changes: Any) -> Kit:
    llm = ScriptedLLM(REPLIES, likelihoods, context_tokens=200, price=Price(1.0, 2.0))
    return Kit.of(llm, FixedRetriever(PASSAGES), **changes)


async def asked(method: str, **changes: Any) -> Verdict:
    return await answer("Who directed it?", method, kit(**changes))


def plainly(verdict: Verdict) -> dict[str, Any]:
    """A verdict without what a replay is meant to change: its cost, and the note that it is one."""
    return replace(verdict, usage=Usage(), notes=()).to_dict()


@pytest.mark.parametrize("method", ["direct", "rag", "trustmargin"])
async def test_with_the_same_settings_the_verdict_is_the_same(method: str, tmp_path: Path) -> None:
    first = await asked(method)
    save_trace(first.trace, tmp_path / "trace.json")
    again = await decide_again(load_trace(tmp_path / "trace.json"))
    assert plainly(again) == plainly(first)
    assert again.usage == Usage()
    assert again.notes == ("replayed from recorded calls of scripted; no model was asked",)
    assert again.trace == first.trace


async def test_the_threshold_flips_the_verdict_exactly_at_the_margin() -> None:
    first = await asked("trustmargin")
    assert first.strategy is Strategy.MEMORY
    assert first.scores["margin"] == -4.0
    at = await decide_again(first.trace, {"threshold": "-4.0"})
    below = await decide_again(first.trace, {"threshold": "-4.0001"})
    assert (at.answer, at.strategy) == ("Mira Talven", Strategy.MEMORY)
    assert (below.answer, below.strategy) == ("Oskar Brend", Strategy.EVIDENCE)
    assert below.notes == (
        "replayed with threshold -4.0001 (was -1.5) from recorded calls of scripted; no model was asked",
    )
    assert below.trace.settings["threshold"] == -4.0001
    assert (await decide_again(below.trace)).answer == "Oskar Brend"


def test_the_synchronous_door() -> None:
    import asyncio

    trace = asyncio.run(asked("trustmargin")).trace
    assert replay(trace, {"threshold": "-9"}).strategy is Strategy.EVIDENCE


async def test_the_synchronous_door_stays_shut_in_an_event_loop() -> None:
    with pytest.raises(UsageError, match="await decide_again"):
        replay((await asked("direct")).trace)


async def test_another_method_decides_on_the_same_calls() -> None:
    trace = (await asked("trustmargin")).trace
    rag, direct = await decide_again(trace, method="rag"), await decide_again(trace, method="direct")
    assert (rag.answer, rag.method, rag.strategy) == ("Oskar Brend", "rag", Strategy.EVIDENCE)
    assert (direct.answer, direct.method) == ("Mira Talven", "direct")
    assert "method rag (was trustmargin)" in rag.notes[0]


async def test_another_method_takes_over_the_settings_it_knows() -> None:
    from arbitrag.methods.trustmargin import TrustMargin

    first = await answer("Who directed it?", TrustMargin(k=2), kit())
    rag = await decide_again(first.trace, method="rag")
    assert [passage.id for passage in rag.kept] == ["p0", "p1"]


async def test_a_method_that_needs_more_than_was_recorded_says_what() -> None:
    trace = (await asked("rag")).trace
    with pytest.raises(TraceError, match=r"no prompt 'direct/answer'; this change needs the model again"):
        await decide_again(trace, method="trustmargin")


async def test_a_change_that_needs_other_passages_says_so() -> None:
    trace = (await asked("trustmargin")).trace
    with pytest.raises(
        TraceError,
        match=r'no such retrieve call to the retriever \(query "Who .*", k 5, where \{\}\); this .* needs the model',
    ):
        await decide_again(trace, {"k": "5"})


async def test_what_was_cut_is_cut_again_without_a_tokenizer() -> None:
    first = await asked("rag", limits=Limits(context_tokens=20))
    assert first.cuts
    assert first.dropped
    again = await decide_again(first.trace)
    assert (again.kept, again.cuts, again.dropped) == (first.kept, first.cuts, first.dropped)


async def test_a_scorer_of_its_own_is_replayed() -> None:
    scorer = ScriptedLLM((), likelihoods, name="judge")
    writer = ScriptedLLM(REPLIES)
    first = await answer("Who?", "trustmargin", Kit.of(writer, FixedRetriever(PASSAGES), scorer=scorer))
    again = await decide_again(from_plain(Trace, json.loads(json.dumps(to_plain(first.trace)))))
    assert again.scores == first.scores
    assert {call.role for call in first.trace.calls} == {"llm", "scorer", "retriever"}


async def test_prompts_are_worded_as_they_were(tmp_path: Path) -> None:
    from arbitrag.prompts import PromptBook

    (tmp_path / "direct").mkdir()
    file = tmp_path / "direct" / "answer.txt"
    file.write_text("source: a test\nwording: a test\n---\n=== user\nQuestion, in short: {question}\n")
    first = await asked("direct", book=PromptBook.with_wording(tmp_path))
    file.unlink()
    assert (await decide_again(first.trace)).answer == first.answer


@dataclass(frozen=True)
class Twice:
    """Samples twice and joins the answers; a failure to retrieve is part of the answer."""

    name: ClassVar[str] = "twice"
    needs: ClassVar[Need] = Need.GENERATE
    cost: ClassVar[str] = "2 answers"
    paper: ClassVar[str] = "none"

    temperature: float = 1.0
    times: int = 2

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        prompt = kit.llm.prompt("direct/answer", question=question)
        replies = [await kit.llm.generate(prompt, temperature=self.temperature) for _ in range(self.times)]
        try:
            await kit.llm.score(prompt, ["x"])
            found = "scored"
        except BackendError as error:
            found = str(error)
        return Verdict(" ".join(reply.text for reply in replies), Strategy.MEMORY, found)


async def test_sampled_answers_come_back_in_their_order_and_are_not_invented() -> None:
    first = await answer("Who?", Twice(), Kit.of(ScriptedLLM(["one", "two"])))
    again = await decide_again(first.trace, method=Twice)
    assert (again.answer, again.why) == ("one two", "scripted was given no likelihoods")
    with pytest.raises(TraceError, match="no such generate call to the llm"):
        await decide_again(first.trace, {"times": "3"}, method=Twice)


async def test_greedy_answers_may_be_asked_for_again() -> None:
    first = await answer("Who?", Twice(temperature=0.0), Kit.of(ScriptedLLM(["one", "one"])))
    assert (await decide_again(first.trace, {"times": "3"}, method=Twice)).answer == "one one one"


@dataclass(frozen=True)
class Curious(Twice):
    """Asks the backend itself, past the recorder."""

    name: ClassVar[str] = "curious"

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        return Verdict(str(kit.llm.backend.count_tokens(question.text)), Strategy.MEMORY, "")


async def test_what_a_trace_cannot_hold_is_refused() -> None:
    with pytest.raises(TraceError, match=r"does not hold 'count_tokens' of scripted"):
        await decide_again((await asked("direct")).trace, method=Curious)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"treshold": "1"}, UsageError, "unknown option of trustmargin 'treshold'. Did you mean 'threshold'?"),
        ({"threshold": "high"}, UsageError, "threshold is a number; got 'high'"),
    ],
)
async def test_wrong_changes(changes: Mapping[str, str], error: type[Exception], message: str) -> None:
    trace = (await asked("trustmargin")).trace
    with pytest.raises(error, match=message.replace("?", r"\?")):
        await decide_again(trace, changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"treshold": 1}}, "sets 'treshold', which trustmargin does not have; did you mean 'threshold'?"),
        ({"settings": {"threshold": "x"}}, "'settings.threshold' is a string; expected a number"),
        ({"limits": {"context": 1}}, "'limits.context' is not known; did you mean 'context_tokens'?"),
    ],
)
async def test_a_trace_with_wrong_settings(change: dict[str, Any], message: str) -> None:
    trace = (await asked("trustmargin")).trace
    with pytest.raises(TraceError) as caught:
        await decide_again(replace(trace, **change))
    assert message in str(caught.value)


async def test_a_damaged_result_is_named() -> None:
    trace = (await asked("direct")).trace
    (call,) = trace.calls
    with pytest.raises(TraceError, match="the result of a generate call in the trace is damaged"):
        await decide_again(replace(trace, calls=(replace(call, result=["?"]),)))


@pytest.mark.parametrize("logprobs", [[], [None], ["-1"], [0.5], [1e308, 1e308]])
async def test_likelihoods_that_have_no_mean_are_damage(logprobs: list[object]) -> None:
    trace = (await asked("trustmargin")).trace
    scored = [{"text": text, "logprobs": logprobs} for text in ("a", "b")]
    calls = tuple(replace(call, result=scored) if call.kind == "score" else call for call in trace.calls)
    assert calls != trace.calls
    with pytest.raises(TraceError, match="the result of a score call in the trace is damaged: a likelihood is a list"):
        await decide_again(replace(trace, calls=calls))


async def test_recorded_failures_are_raised_again() -> None:
    trace = (await asked("direct")).trace
    (call,) = trace.calls
    for text, kind, message in [
        ("ContextError: too long", ContextError, "too long"),
        ("BackendError: down", BackendError, "down"),
        ("OSError: odd", BackendError, "OSError: odd"),
    ]:
        with pytest.raises(kind, match=f"^{message}$"):
            await decide_again(replace(trace, calls=(replace(call, result=None, error=text),)))


def damaged(**changes: Any) -> str:
    whole = to_plain(Trace(Question("q"), "direct", {}, "a", "a", "", {}, {}))
    return json.dumps({**whole, **changes})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not a trace: not valid JSON"),
        (damaged()[:-20], "is not a trace: not valid JSON"),
        ("[1, 2]", "is not a trace; make one with: arbitrag ask"),
        ('{"answer": "x"}', "is not a trace; make one with: arbitrag ask"),
        (damaged(format=3), "has trace format 3; this Arbitrag reads format 2"),
        (damaged(llmm="x"), "is not a trace: 'llmm' is not known; did you mean 'llm'?"),
        (damaged(calls=[{"kind": "guess"}]), "'calls[0].role' is missing"),
        (damaged(calls=[{"kind": "guess", "role": "", "model": "", "request": {}}]), "'calls[0].kind' is 'guess'"),
        (damaged(question={"text": 1}), "'question.text' is a whole number; expected a string"),
        (b"\xff\xfe\x00", "not valid JSON ('utf-8' codec"),
    ],
)
def test_files_that_are_no_traces(content: str | bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TraceError) as caught:
        load_trace(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file or directory"):
        load_trace(tmp_path / "nothing.json")


async def test_a_trace_survives_its_file(tmp_path: Path) -> None:
    trace = (await asked("trustmargin")).trace
    save_trace(trace, tmp_path / "trace.json")
    assert to_plain(load_trace(tmp_path / "trace.json")) == to_plain(trace)


@pytest.mark.filterwarnings("error")
def test_a_trace_without_the_second_prompt_leaves_no_call_unawaited(tmp_path: Path) -> None:
    model = ScriptedLLM(lambda _: "Paris", lambda prompt, text: -1.0)
    kit = Kit.of(model, FixedRetriever([Passage("The capital is Paris.", id="a")]))
    trace = asyncio.run(answer("Who?", "trustmargin", kit)).trace
    without = {name: text for name, text in trace.prompts["llm"].items() if name != "rag/answer"}
    with pytest.raises(TraceError, match="no prompt 'rag/answer'"):
        replay(replace(trace, prompts={"llm": without}))
    gc.collect()


def test_a_generation_that_is_no_text_is_damage() -> None:
    kit = Kit.of(ScriptedLLM(["Paris"]))
    trace = asyncio.run(answer("Who?", "direct", kit)).trace
    (call,) = trace.calls
    with pytest.raises(TraceError, match="the result of a generate call in the trace is damaged"):
        replay(replace(trace, calls=(replace(call, result={**call.result, "text": 5}),)))
