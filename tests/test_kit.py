"""What a method may ask: prompts in the model's wording, limits, fitted passages, and a record of it all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbitrag.errors import BackendError, CapabilityError, ContextError, UsageError
from arbitrag.kit import Kit, Limits
from arbitrag.llm.base import Distributions, Inspection, Prompt, Tokens
from arbitrag.prompts import PromptBook
from arbitrag.testing import FixedRetriever, ScriptedLLM, prompt_text
from arbitrag.types import Passage, Question

PASSAGES = (Passage("a b c", id="1"), Passage("d e", id="2"), Passage("f g h i", id="3"))
WHO = Question("Who?")


def kit_of(llm: ScriptedLLM, context: int = 2048, answer: int = 32) -> Kit:
    return Kit.of(llm, FixedRetriever(PASSAGES), limits=Limits(context, answer))


def wording(folder: Path, text: str) -> PromptBook:
    (folder / "rag").mkdir()
    (folder / "rag/answer.txt").write_text(f"source: s\nwording: w\n---\n{text}", encoding="utf-8")
    return PromptBook.with_wording(folder)


async def test_generate_keeps_the_limit_and_changes_go_to_the_sampling() -> None:
    kit = kit_of(ScriptedLLM(["one two three", "one two three"]), answer=2)
    prompt = Prompt.user("x")
    assert (await kit.llm.generate(prompt)).text == "one two"
    assert (await kit.llm.generate(prompt, max_tokens=1, temperature=0.5)).text == "one"
    first, second = (call.request["sampling"] for call in kit.recorder.calls)
    assert first == {**first, "max_tokens": 2, "temperature": 0.0}
    assert second == {**second, "max_tokens": 1, "temperature": 0.5}
    with pytest.raises(TypeError, match="warmth"):
        await kit.llm.generate(prompt, warmth=1)


async def test_scores_come_in_the_order_asked() -> None:
    kit = kit_of(ScriptedLLM(likelihoods={"a": -1.0, "b": -2.5}))
    assert (await kit.scorer.score(Prompt.user("x"), ("b", "a"))).means == (-2.5, -1.0)
    assert kit.recorder.calls[0].request["continuations"] == ["b", "a"]
    assert kit.recorder.calls[0].request["prompt"]["messages"] == [{"role": "user", "text": "x"}]


async def test_insides_are_asked_and_recorded() -> None:
    class Open(ScriptedLLM):
        async def inspect(self, prompt: Prompt, layers: Sequence[int]) -> Inspection:
            return Inspection({layer: np.full(2, layer, np.float32) for layer in layers}, Tokens(prompt_tokens=3))

        async def next_token(self, prompts: Sequence[Prompt]) -> Distributions:
            return Distributions(np.zeros((len(prompts), 4), np.float32), Tokens(prompt_tokens=5))

    kit = kit_of(Open())
    states = (await kit.llm.inspect(Prompt.user("x"), [0, 2])).states
    assert {layer: state.tolist() for layer, state in states.items()} == {0: [0, 0], 2: [2, 2]}
    assert (await kit.llm.next_token([Prompt.user("x"), Prompt.user("y")])).logprobs.shape == (2, 4)
    assert [(call.kind, call.prompt_tokens) for call in kit.recorder.calls] == [("inspect", 3), ("next_token", 5)]
    assert kit.recorder.calls[0].request["layers"] == [0, 2]


async def test_a_model_that_has_no_insides_says_so() -> None:
    kit = kit_of(ScriptedLLM())
    with pytest.raises(BackendError, match="no insides"):
        await kit.llm.inspect(Prompt.user("x"), [0])
    assert kit.recorder.calls[0].error.startswith("BackendError")


async def test_the_prompt_files_that_were_used_are_kept_by_role() -> None:
    kit = Kit.of(ScriptedLLM(), scorer=ScriptedLLM())
    kit.llm.prompt("direct/answer", question=WHO)
    kit.scorer.prompt("trustmargin/passages_only", passages=())
    used = kit.recorder.prompts
    assert {role: set(files) for role, files in used.items()} == {
        "llm": {"direct/answer"},
        "scorer": {"trustmargin/passages_only"},
    }


async def test_a_backend_brings_its_wording_and_a_given_book_replaces_it(tmp_path: Path) -> None:
    (tmp_path / "direct").mkdir()
    text = "source: s\nwording: w\nlead: space\n---\n=== text\nQ: {question} A:\n"
    (tmp_path / "direct/answer.txt").write_text(text, encoding="utf-8")
    llm = ScriptedLLM()
    llm.wording = tmp_path
    assert Kit.of(llm).llm.prompt("direct/answer", question=WHO) == Prompt(text="Q: Who? A:", lead=" ")
    own = Kit.of(llm, book=PromptBook()).llm.prompt("direct/answer", question=WHO)
    assert own.messages[-1].text == "Question: Who?\nAnswer:"


async def test_a_wording_goes_before_the_one_that_a_backend_brings(tmp_path: Path) -> None:
    head = "source: s\nwording: w\n---\n=== text\n"
    files = {
        "mine/direct/answer.txt": "mine {question}",
        "its/direct/answer.txt": "its {question}",
        "its/rag/answer.txt": "its {passages}{question}\n=== passage\n{text}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(f"{head}{text}\n", encoding="utf-8")
    llm = ScriptedLLM()
    llm.wording = tmp_path / "its"
    model = Kit.of(llm, wording=tmp_path / "mine").llm
    assert model.prompt("direct/answer", question=WHO).text == "mine Who?"
    assert model.prompt("rag/answer", question=WHO, passages=()).text == "its Who?"


async def test_passages_are_retrieved_best_first_and_recorded() -> None:
    kit = kit_of(ScriptedLLM())
    assert await kit.retrieve(WHO, k=2) == PASSAGES[:2]
    assert await kit.retrieve("other words", k=9) == PASSAGES
    first, second = kit.recorder.calls
    assert (first.kind, dict(first.request)["query"], dict(first.request)["k"]) == ("retrieve", "Who?", 2)
    assert second.request["query"] == "other words"
    assert [passage["id"] for passage in first.result] == ["1", "2"]


@pytest.mark.parametrize("k", [0, -1])
async def test_fewer_than_one_passage_is_refused(k: int) -> None:
    with pytest.raises(UsageError, match=f"k is {k}"):
        await kit_of(ScriptedLLM()).retrieve(WHO, k=k)


async def test_without_a_retriever_there_is_nothing_to_retrieve_from() -> None:
    with pytest.raises(CapabilityError, match="--index"):
        await Kit.of(ScriptedLLM()).retrieve(WHO, k=1)


def test_without_a_scorer_the_model_scores_for_itself() -> None:
    llm, other = ScriptedLLM(), ScriptedLLM(name="other")
    alone, pair = Kit.of(llm), Kit.of(llm, scorer=other)
    assert alone.scorer.backend is alone.llm.backend is llm
    assert (alone.scorer.role, pair.scorer.role) == ("llm", "scorer")
    assert pair.scorer.backend is other


def test_a_recording_kit_has_the_same_parts_and_a_fresh_record() -> None:
    kit = kit_of(ScriptedLLM())
    kit.llm.prompt("direct/answer", question=WHO)
    fresh = kit.recording()
    assert fresh.recorder is fresh.llm.recorder is fresh.scorer.recorder
    assert fresh.recorder is not kit.recorder
    assert (fresh.recorder.calls, fresh.recorder.prompts) == ([], {})
    assert fresh.llm.backend is kit.llm.backend
    assert fresh.retriever is kit.retriever


async def test_closing_a_kit_closes_each_part_once() -> None:
    closed: list[str] = []

    class Closing(ScriptedLLM):
        async def aclose(self) -> None:
            closed.append(self.name)

    await Kit.of(Closing(name="a")).aclose()
    assert closed == ["a"]
    await Kit.of(Closing(name="a"), FixedRetriever([]), scorer=Closing(name="b")).aclose()
    assert sorted(closed) == ["a", "a", "b"]


# The form of a passage costs 2 words, the prompt around them 3: "Read", the question, "Answer:".
FORM = "=== user\nRead {passages}{question} Answer:\n=== passage\n# {number} {text}\n"


@pytest.mark.parametrize(
    ("window", "context", "kept", "cut"),
    [
        (None, 100, ["a b c", "d e", "f g h i"], False),
        (None, 15, ["a b c", "d e", "f g h i"], False),
        (None, 14, ["a b c", "d e", "f g h"], True),
        (None, 2, [], False),
        (22, 100, ["a b c", "d e", "f g h i"], False),  # 3 for the prompt, 15 for the passages, 4 for the answer
        (21, 100, ["a b c", "d e", "f g h"], True),
        (22, 14, ["a b c", "d e", "f g h"], True),  # the run's limit is the narrower one
        (7, 100, [], False),  # the question and its answer, and nothing else
    ],
)
async def test_passages_fit_into_the_limit_and_the_window(
    tmp_path: Path, window: int | None, context: int, kept: list[str], cut: bool
) -> None:
    llm = ScriptedLLM(context_tokens=window)
    kit = Kit.of(llm, limits=Limits(context, 4), book=wording(tmp_path, FORM))
    found = await kit.llm.fit(PASSAGES, "rag/answer", question=WHO)
    assert [passage.text for passage in found.kept] == kept
    assert bool(found.cuts) is cut
    assert len(found.kept) + len(found.dropped) == 3


async def test_a_question_beyond_the_window_is_refused(tmp_path: Path) -> None:
    kit = Kit.of(ScriptedLLM(context_tokens=6), limits=Limits(100, 4), book=wording(tmp_path, FORM))
    with pytest.raises(ContextError, match="the question takes 3 tokens and an answer up to 4, but scripted reads 6"):
        await kit.llm.fit(PASSAGES, "rag/answer", question=WHO)


class Greedy(ScriptedLLM):
    """Counts more in a whole than in its pieces, as tokenizers may at the seams."""

    def __init__(self, surplus: int, window: int) -> None:
        super().__init__(context_tokens=window)
        self.surplus = surplus

    def count_tokens(self, text: Prompt | str) -> int:
        if isinstance(text, str):
            return super().count_tokens(text)
        whole = prompt_text(text)
        return super().count_tokens(text) + self.surplus * whole.count("#")


@given(st.integers(0, 9), st.integers(7, 60), st.integers(0, 40))
async def test_fitting_ends_within_the_window_whatever_the_seams_cost(surplus: int, window: int, context: int) -> None:
    llm = Greedy(surplus, window)
    folder = Path(__file__).parent / "wordings" / "plain"
    kit = Kit.of(llm, limits=Limits(context, 4), book=PromptBook.with_wording(folder))
    found = await kit.llm.fit(PASSAGES, "rag/answer", question=WHO)
    prompt = kit.llm.prompt("rag/answer", question=WHO, passages=found.kept)
    assert llm.count_tokens(prompt) + 4 <= window
    whole = [passage for passage in found.kept if passage in PASSAGES]
    assert tuple(whole) == PASSAGES[: len(whole)]
    if surplus == 0:
        one_more = PASSAGES[: len(whole) + 1]
        tokens = llm.count_tokens(kit.llm.prompt("rag/answer", question=WHO, passages=one_more))
        assert len(whole) == 3 or tokens + 4 > window or tokens - 3 > context


def test_limits_are_equal_for_model_and_scorer() -> None:
    kit = Kit.of(ScriptedLLM(), scorer=ScriptedLLM(), limits=Limits(10, 20))
    assert kit.llm.limits == kit.scorer.limits == kit.limits == Limits(10, 20)


async def test_given_passages_stand_in_place_of_what_would_be_found() -> None:
    kit = kit_of(ScriptedLLM())
    given = kit.with_passages(PASSAGES[::-1])
    assert await given.retrieve("anything", k=2) == (PASSAGES[2], PASSAGES[1])
    assert await kit.with_passages(()).retrieve(WHO, k=2) == ()
    assert await kit.retrieve(WHO, k=1) == PASSAGES[:1]
    assert given.recorder is kit.recorder
    assert len(kit.recorder.calls) == 1  # what is given is not looked up
    with pytest.raises(UsageError):
        await given.retrieve(WHO, k=0)
