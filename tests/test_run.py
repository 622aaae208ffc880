"""Answering one question and many: checks before the first, a trace for each, order, failures, cancelling."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import arbitrag
from arbitrag import Kit, Passage, Question, Strategy, Verdict
from arbitrag.errors import BackendError, CapabilityError, UsageError
from arbitrag.kit import Limits
from arbitrag.llm.base import Capabilities, Generation, Price, Prompt, Sampling
from arbitrag.methods.direct import Direct
from arbitrag.methods.trustmargin import TrustMargin
from arbitrag.run import Failure, answer, answer_all, ask, check, open_kit
from arbitrag.serialization import to_plain
from arbitrag.testing import FixedRetriever, ScriptedLLM, prompt_text
from arbitrag.types import Need

PASSAGES = [Passage("Oskar Brend directed it.", id="1")]


def likelihood(prompt: Prompt, text: str) -> float:
    return 0.0


class Slow(ScriptedLLM):
    """Answers with the question's number; waits where it is told; counts how many wait at once."""

    def __init__(self, waits: dict[int, asyncio.Event] | None = None, fails: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.waits, self.fails = waits or {}, fails
        self.started: list[int] = []
        self.cancelled: list[int] = []
        self.active = self.most = 0

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        number = int(prompt_text(prompt).rsplit("number ", 1)[1].split("?")[0])
        self.started.append(number)
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            if number in self.waits:
                await self.waits[number].wait()
            else:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        finally:
            self.active -= 1
        if number in self.fails:
            raise BackendError(f"no answer to {number}")
        return Generation(f"answer {number}", "stop")


async def until(condition: Callable[[], bool]) -> None:
    """Let the other tasks run until the condition holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came about")


def questions(count: int) -> list[Question]:
    return [Question(f"What is number {number}?", id=str(number)) for number in range(count)]


async def test_a_verdict_carries_its_question_method_cost_and_trace() -> None:
    llm = ScriptedLLM({"<passage 1>": "Oskar", "": "Mira"}, likelihood, name="m")
    kit = Kit.of(llm, FixedRetriever(PASSAGES), limits=Limits(500, 9))
    question = Question("Who directed it?", id="q7")
    verdict = await answer(question, TrustMargin(threshold=-1.0), kit)
    trace = verdict.trace
    assert (verdict.question, verdict.method, trace.question, trace.method) == (
        question,
        "trustmargin",
        question,
        "trustmargin",
    )
    assert trace.settings == {"weight": 0.5, "threshold": -1.0, "k": 20, "candidate": "rag"}
    assert (trace.llm, trace.scorer, trace.retriever) == ("m", "m", "1 given passages")
    assert trace.limits == {"context_tokens": 500, "answer_tokens": 9, "writing_tokens": 256}
    assert set(trace.prompts["llm"]) == {"direct/answer", "rag/answer", "trustmargin/passages_only"}
    assert [call.kind for call in trace.calls] == ["retrieve", "fit", "generate", "generate", "score", "score", "score"]
    assert verdict.usage.prompt_tokens == sum(call.prompt_tokens for call in trace.calls) > 0
    assert trace.decisions == verdict.decisions
    assert trace.arbitrag == arbitrag.__version__
    assert kit.recorder.calls == []
    json.dumps(to_plain(trace))


@pytest.mark.parametrize("text", ["", "  \n"])
async def test_an_empty_question_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="the question is empty"):
        await answer(text, "direct", Kit.of(ScriptedLLM(["x"])))


async def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown method 'dirct'"):
        await answer("Who?", "dirct", Kit.of(ScriptedLLM(["x"])))


async def test_a_model_without_likelihoods_is_refused_before_the_first_call() -> None:
    llm = ScriptedLLM(["x"])
    with pytest.raises(CapabilityError) as caught:
        await answer("Who?", "trustmargin", Kit.of(llm, FixedRetriever(PASSAGES)))
    assert str(caught.value) == (
        "trustmargin needs generate and score; scripted offers generate.\n"
        "Give it a scorer (--scorer hf:MODEL), serve the model with vLLM, or take a method that runs here: "
        "astute, direct or rag\nWhat each needs, and what runs: arbitrag methods --llm scripted"
    )
    assert llm.prompts == []


async def test_the_refusal_says_how_it_was_found_out() -> None:
    class Probed(ScriptedLLM):
        async def capabilities(self) -> Capabilities:
            return Capabilities(
                Need.GENERATE,
                evidence=("context: not told", line := "score: echo and logprobs came back empty"),
                refused={Need.SCORE: (line,)},
            )

    with pytest.raises(
        CapabilityError, match=r"offers generate\.\n  score: echo and logprobs came back empty\nGive it a scorer"
    ):
        await check(TrustMargin(), Kit.of(Probed(), FixedRetriever(PASSAGES)))


async def test_no_passages_to_retrieve_from_is_refused() -> None:
    with pytest.raises(CapabilityError, match="rag needs passages, and there is nothing to retrieve from"):
        await answer("Who?", "rag", Kit.of(ScriptedLLM(["x"])))


@pytest.mark.parametrize(
    ("llm_scores", "scorer_scores", "fine"), [(0, 1, True), (1, 1, True), (1, 0, False), (0, 0, False)]
)
async def test_likelihoods_are_asked_of_the_scorer_alone(llm_scores: int, scorer_scores: int, fine: bool) -> None:
    llm = ScriptedLLM(["x"], likelihood if llm_scores else None)
    scorer = ScriptedLLM((), likelihood if scorer_scores else None, name="judge")
    kit = Kit.of(llm, FixedRetriever(PASSAGES), scorer=scorer)
    if fine:
        await check(TrustMargin(), kit)
    else:
        with pytest.raises(CapabilityError, match="scripted with the scorer judge offers generate"):
            await check(TrustMargin(), kit)


async def test_a_method_that_needs_insides_is_told_to_run_in_process() -> None:
    class Inside(Direct):
        needs = Need.GENERATE | Need.INSPECT

    with pytest.raises(CapabilityError, match="Run the model in process"):
        await check(Inside(), Kit.of(ScriptedLLM()))


async def test_many_questions_are_answered_in_order_within_the_bound() -> None:
    llm = Slow()
    found = [verdict async for verdict in answer_all(questions(40), Direct(), Kit.of(llm), concurrency=5)]
    assert [verdict.answer for verdict in found if not isinstance(verdict, Failure)] == [
        f"answer {n}" for n in range(40)
    ]
    assert llm.most == 5


async def test_a_slow_question_does_not_hold_up_the_others() -> None:
    release = asyncio.Event()
    llm = Slow({0: release})
    stream = answer_all(questions(12), "direct", Kit.of(llm), concurrency=2)
    first = asyncio.ensure_future(anext(stream))
    for _ in range(200):
        await asyncio.sleep(0)
    assert llm.started == list(range(8))  # four per place, and no more are taken ahead
    release.set()
    assert (await first).question.id == "0"
    assert [verdict.question.id async for verdict in stream] == [str(number) for number in range(1, 12)]


async def test_questions_are_taken_as_they_are_needed() -> None:
    taken: list[int] = []

    def source() -> Iterator[Question]:
        for number, question in enumerate(questions(1000)):
            taken.append(number)
            yield question

    stream = answer_all(source(), Direct(), Kit.of(Slow()), concurrency=3)
    await anext(stream)
    assert len(taken) == 13
    await stream.aclose()  # type: ignore[attr-defined]


async def test_a_failed_question_is_a_row_and_the_others_go_on() -> None:
    asked = [*questions(3), Question("", id="empty")]
    found = [row async for row in answer_all(asked, Direct(), Kit.of(Slow(fails=(1,))), concurrency=2)]
    assert [row.question.id for row in found] == ["0", "1", "2", "empty"]
    assert [type(row) for row in found] == [type(found[0]), Failure, type(found[0]), Failure]
    failures = [row for row in found if isinstance(row, Failure)]
    assert [str(failure.error) for failure in failures] == ["no answer to 1", "the question is empty"]


async def test_nothing_is_asked_when_the_kit_lacks_something() -> None:
    with pytest.raises(CapabilityError):
        await anext(answer_all(questions(2), TrustMargin(), Kit.of(ScriptedLLM(), FixedRetriever(PASSAGES))))


async def test_a_concurrency_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="the concurrency is 0"):
        await anext(answer_all(questions(2), Direct(), Kit.of(ScriptedLLM()), concurrency=0))


async def test_closing_early_cancels_what_is_running() -> None:
    never = asyncio.Event()
    llm = Slow({1: never, 2: never})
    stream = answer_all(questions(9), Direct(), Kit.of(llm), concurrency=3)
    assert (await anext(stream)).question.id == "0"
    await until(lambda: {1, 2} <= set(llm.started))
    await stream.aclose()  # type: ignore[attr-defined]
    assert {1, 2} <= set(llm.cancelled)
    assert llm.active == 0


async def test_cancelling_the_reader_cancels_the_calls() -> None:
    never = asyncio.Event()
    llm = Slow({0: never, 1: never})

    async def read() -> None:
        async for _ in answer_all(questions(2), Direct(), Kit.of(llm)):
            pass

    reader = asyncio.create_task(read())
    await until(lambda: len(llm.started) == 2)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert sorted(llm.cancelled) == [0, 1]


@pytest.mark.parametrize(("debug", "told"), [("", False), ("1", True)])
async def test_a_fault_fails_its_question_and_the_others_go_on(
    debug: str, told: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Faulty(Slow):
        async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
            written = await super().generate(prompt, sampling)
            if "answer 1" in written.text:
                raise ZeroDivisionError("what nobody foresaw")
            return written

    monkeypatch.setenv("ARBITRAG_DEBUG", debug)
    first, fault, last = [row async for row in answer_all(questions(3), Direct(), Kit.of(Faulty()))]
    assert isinstance(first, Verdict)
    assert isinstance(last, Verdict)
    assert isinstance(fault, Failure)
    assert repr(fault.error) == "ZeroDivisionError('what nobody foresaw')"
    assert [call.error for call in fault.trace.calls] == ["ZeroDivisionError: what nobody foresaw"]
    assert ("Traceback (most recent call last)" in capsys.readouterr().err) == told


async def test_a_fault_is_raised_where_one_question_is_asked() -> None:
    class Faulty(ScriptedLLM):
        async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await answer("Who?", "direct", Kit.of(Faulty()))


async def test_a_method_that_answers_with_something_else_fails_its_question() -> None:
    class Strange(Direct):
        async def answer(self, question: Question, kit: Kit) -> Verdict:
            return {"answer": "Paris"}  # type: ignore[return-value]

    (row,) = [row async for row in answer_all(questions(1), Strange(), Kit.of(Slow()))]
    assert isinstance(row, Failure)
    assert isinstance(row.error, TypeError | AttributeError)


async def test_a_call_that_a_method_gives_up_fails_its_question() -> None:
    class GivesUp(Direct):
        async def answer(self, question: Question, kit: Kit) -> Verdict:
            raise asyncio.CancelledError

    (row,) = [row async for row in answer_all(questions(1), GivesUp(), Kit.of(Slow()))]
    assert isinstance(row, Failure)
    assert str(row.error) == "the method gave up a call that nobody had cancelled"


async def test_what_a_server_reports_in_error_stands_in_the_notes_once() -> None:
    class Doubtful(ScriptedLLM):
        async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
            return replace(await super().generate(prompt, sampling), doubt="-5 tokens")

    kit = Kit.of(Doubtful(["one", "two"], likelihoods=likelihood), FixedRetriever(PASSAGES))
    verdict = await answer("Who?", "trustmargin", kit)
    assert verdict.notes.count("-5 tokens") == 1
    assert sum(call.doubt == "-5 tokens" for call in verdict.trace.calls) > 1


async def test_a_failed_call_cancels_those_beside_it() -> None:
    class Half(ScriptedLLM):
        cancelled = 0

        async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
            if "<passage 1>" in prompt_text(prompt):
                raise BackendError("down")
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
            raise AssertionError

    llm = Half(likelihoods=likelihood)
    with pytest.raises(BackendError, match="down"):
        await answer("Who?", "trustmargin", Kit.of(llm, FixedRetriever(PASSAGES)))
    assert llm.cancelled == 1


async def test_concurrent_questions_do_not_mix_their_traces() -> None:
    kit = Kit.of(Slow())
    async for verdict in answer_all(questions(20), Direct(), kit, concurrency=7):
        assert not isinstance(verdict, Failure)
        (call,) = verdict.trace.calls
        assert verdict.question.text in json.dumps(call.request)
        assert call.result["text"] == verdict.answer == f"answer {verdict.question.id}"
        assert (call.began, call.ended) == (1, 2)
        assert verdict.usage.calls == verdict.usage.steps == 1


async def test_open_kit_leaves_what_it_was_given_open() -> None:
    closed: list[str] = []

    class Closing(ScriptedLLM):
        async def aclose(self) -> None:
            closed.append(self.name)

    llm, scorer = Closing(["x"]), Closing(name="judge")
    async with open_kit(llm, passages=PASSAGES, scorer=scorer, limits=Limits(100, 5)) as kit:
        assert (kit.llm.backend, kit.scorer.backend) == (llm, scorer)
        assert kit.limits == Limits(100, 5)
        assert await kit.retrieve("x", 1) == tuple(PASSAGES)
    assert closed == []


@pytest.mark.parametrize(
    "parts",
    [
        {"index": "docs.idx", "passages": PASSAGES},
        {"index": "docs.idx", "retriever": FixedRetriever(PASSAGES)},
        {"passages": PASSAGES, "retriever": FixedRetriever(PASSAGES)},
    ],
)
async def test_open_kit_takes_one_source_of_passages(parts: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="give an index, passages or a retriever, not several"):
        async with open_kit(ScriptedLLM(), **parts):  # type: ignore[arg-type]
            pass


async def test_open_kit_refuses_a_wording_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="folder of prompts"):
        async with open_kit(ScriptedLLM(), wording=tmp_path / "nowhere"):
            pass


def test_ask_is_the_synchronous_door() -> None:
    llm = ScriptedLLM({"<passage 1>": "Mira.", "": "mira"}, likelihood)
    verdict = ask("Who?", "trustmargin", llm=llm, passages=PASSAGES)
    assert (verdict.answer, verdict.strategy) == ("Mira", Strategy.BOTH)


async def test_ask_inside_an_event_loop_names_the_way() -> None:
    with pytest.raises(UsageError, match=r"await arbitrag\.answer"):
        ask("Who?", llm=ScriptedLLM(["x"]))


class Part(ScriptedLLM):
    """Says when it is closed."""

    def __init__(self, name: str, closed: list[str]) -> None:
        super().__init__({"": "x"}, likelihood, name=name)
        self.closed = closed

    async def aclose(self) -> None:
        self.closed.append(self.name)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was closed, while addresses open parts that say so."""
    names: list[str] = []

    class Passages(FixedRetriever):
        async def aclose(self) -> None:
            names.append("index")

    monkeypatch.setattr("arbitrag.run.open_llm", lambda address: Part(address, names))
    monkeypatch.setattr("arbitrag.retrieve.open_index", lambda path, **how: Passages(PASSAGES))
    return names


async def test_open_kit_closes_what_it_opened(closed: list[str]) -> None:
    async with open_kit("hf:a", index="docs.idx", scorer="hf:b", price=Price(1.0, 2.0)) as kit:
        assert (kit.llm.backend.name, kit.scorer.backend.name) == ("hf:a", "hf:b")
        assert (kit.llm.backend.price, kit.scorer.backend.price) == (Price(1.0, 2.0), None)
        assert closed == []
    assert sorted(closed) == ["hf:a", "hf:b", "index"]


async def test_open_kit_closes_what_it_opened_when_the_work_fails(closed: list[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_kit("hf:a", index="docs.idx"):
            raise ZeroDivisionError
    assert sorted(closed) == ["hf:a", "index"]


async def test_open_kit_takes_wording_and_a_cache(closed: list[str], tmp_path: Path) -> None:
    (tmp_path / "direct").mkdir()
    text = "source: s\nwording: w\n---\n=== user\nQ: {question}\n"
    (tmp_path / "direct" / "answer.txt").write_text(text, encoding="utf-8")
    async with open_kit("hf:a", wording=tmp_path, cache=tmp_path / "cache") as kit:
        first, again = [await answer("Who?", "direct", kit) for _ in range(2)]
        assert first.trace.calls[0].request["prompt"]["messages"] == [{"role": "user", "text": "Q: Who?"}]
        assert [verdict.trace.calls[0].cached for verdict in (first, again)] == [False, True]
        assert first.answer == again.answer == "x"
    assert closed == ["hf:a"]


async def test_a_failed_question_keeps_its_calls() -> None:
    kit = Kit.of(ScriptedLLM([BackendError("the server said 500")]))
    (failure,) = [outcome async for outcome in answer_all([Question("Who?")], "direct", kit)]
    assert isinstance(failure, Failure)
    assert [call.error for call in failure.trace.calls] == ["BackendError: the server said 500"]
    assert failure.trace.method == "direct"


async def test_a_price_goes_with_an_address() -> None:
    with pytest.raises(UsageError, match="passed in has its own"):
        async with open_kit(ScriptedLLM(), price=Price(1, 2)):
            pass
