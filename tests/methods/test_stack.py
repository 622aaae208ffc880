"""The pipeline: what each part hands to the next, what the verdict tells of all of them, and what cannot be joined."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from arbitrag.encode.hashed import HashEncoder
from arbitrag.errors import BackendError, CapabilityError, TraceError, UsageError
from arbitrag.kit import Kit
from arbitrag.llm.base import Generation, Prompt, Sampling
from arbitrag.methods import METHODS
from arbitrag.methods.base import configure
from arbitrag.methods.stack import Stack
from arbitrag.replay import decide_again
from arbitrag.run import answer, check
from arbitrag.testing import FixedRetriever, ScriptedLLM, prompt_text
from arbitrag.types import Passage, Question, Strategy, Verdict

if TYPE_CHECKING:
    from tests.conftest import Command

WHO = Question("Who directed The Silent Orchard?")
ECHO = Passage("Who directed The Silent Orchard? It was Ivo Brack.", id="echo")
GOOD = Passage("The Silent Orchard was directed by Oskar Brend.", id="good")
OTHER = Passage("The harbour of Olm is deep.", id="other")
FAR = Passage("Bread is baked at night.", id="far")
PASSAGES = (OTHER, ECHO, FAR, GOOD)


class Sure(ScriptedLLM):
    """Memory says Mira with probability 1; the passages say Oskar; both are equally likely. Replies take a while."""

    def __init__(self, **replies: str) -> None:
        said = {"<passage 1>": "Oskar Brend", WHO.text: "Mira", "Hello": "Hello", **replies}
        super().__init__({"You judge": "retrieval: 60\ngeneration: 40", **said}, lambda prompt, text: -1.0)

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        await asyncio.sleep(0.01)
        found = await super().generate(prompt, replace(sampling, logprobs=False))
        return replace(found, logprobs=(0.0,)) if sampling.logprobs else found


def kit_of(llm: ScriptedLLM, passages: Sequence[Passage] = PASSAGES) -> Kit:
    return Kit.of(llm, FixedRetriever(passages), encoder=HashEncoder())


async def asked(llm: ScriptedLLM | None = None, passages: Sequence[Passage] = PASSAGES, **parts: Any) -> Verdict:
    return await answer(WHO, Stack(**parts), kit_of(llm or Sure(), passages))


def stages(verdict: Verdict) -> list[str]:
    return [each.stage for each in verdict.decisions]


async def test_every_part_hands_on_to_the_next_and_the_verdict_tells_of_all() -> None:
    llm = Sure()
    verdict = await asked(llm, gate="allocator", rerank="encoder", refusal="number of=margin least=-1", k=2)
    assert (verdict.answer, verdict.strategy) == ("Oskar Brend", Strategy.EVIDENCE)
    assert stages(verdict) == ["gate", "filter", "rerank", "margin", "refusal"]
    assert [each.outcome for each in verdict.decisions] == [
        "look up",
        "3 of 4 kept",
        "2 of 3 kept",
        "evidence",
        "the answer stands",
    ]
    assert [each.id for each in verdict.kept] == ["good", "other"]
    assert {each.passage.id: each.reason for each in verdict.dropped} == {
        "far": "not among the first 2",
        "echo": "repeats the question word for word",
    }
    assert verdict.scores["gate"] == 0.4
    assert verdict.scores["margin"] == 0.0
    assert verdict.method == "stack"
    assert not any("Ivo Brack" in prompt_text(prompt) for prompt in llm.prompts)


async def test_a_gate_that_trusts_memory_looks_nothing_up() -> None:
    verdict = await asked(gate="likelihood least=1.0", refusal="agreement")
    assert (verdict.answer, verdict.strategy) == ("Mira", Strategy.MEMORY)
    assert verdict.why == "the gate trusts memory, so nothing was retrieved"
    assert stages(verdict) == ["gate"]
    assert (verdict.usage.calls, verdict.usage.steps) == (1, 1)
    assert not [call for call in verdict.trace.calls if call.kind == "retrieve"]


async def test_a_refusal_is_the_last_word() -> None:
    verdict = await asked(refusal="agreement")
    assert (verdict.answer, verdict.strategy) == (None, Strategy.REFUSE)
    assert verdict.why.startswith('"Oskar Brend" is refused: only evidence is trusted, but this rule requires both (')
    assert [each.text for each in verdict.candidates] == ["Mira", "Oskar Brend"]
    agreed = await asked(Sure(**{"<passage 1>": "Mira"}), refusal="agreement")
    assert (agreed.answer, agreed.strategy) == ("Mira", Strategy.BOTH)


async def test_passages_that_the_arbiter_does_not_read_are_told_too() -> None:
    verdict = await asked(arbiter="rag k=1", filter="none")
    assert [each.id for each in verdict.kept] == ["other"]
    assert [(each.passage.id, each.reason) for each in verdict.dropped] == [
        (each, "not read by rag") for each in ("echo", "far", "good")
    ]
    nameless = [Passage(" ".join(["word"] * 30)), Passage("second")]
    kit = replace(kit_of(Sure(), nameless), limits=replace(kit_of(Sure()).limits, context_tokens=20))
    kit = replace(kit, llm=replace(kit.llm, limits=kit.limits), scorer=replace(kit.scorer, limits=kit.limits))
    cut = await answer(WHO, Stack(filter="none", arbiter="rag"), kit)
    assert len(cut.kept) == len(cut.cuts) == 1
    assert [(each.passage.text, each.reason) for each in cut.dropped] == [("second", "beyond the token limit")]


@pytest.mark.parametrize("arbiter", [*METHODS, "trustmargin candidate=astute", "trustmargin candidate='rag k=2'"])
async def test_any_method_may_be_the_arbiter_and_sees_only_what_is_left(arbiter: str) -> None:
    llm = Sure()
    verdict = await asked(llm, arbiter=arbiter, rerank="encoder", k=2)
    assert {each.id for each in verdict.kept} <= {"good", "other"}
    told = [*verdict.kept, *(each.passage for each in verdict.dropped)]
    assert {each.id for each in told} == {"good", "other", "far", "echo"}
    assert "filter" in stages(verdict)
    assert not any("Ivo Brack" in prompt_text(prompt) for prompt in llm.prompts)
    searched = [call for call in verdict.trace.calls if call.kind == "retrieve" and call.role == "retriever"]
    assert [call.request["query"] for call in searched] == [WHO.text]


BRIDGE = {
    "You ask a question anew": "1. Whose film is The Silent Orchard?",
    "You write down what you remember": "evidence: The Silent Orchard was directed by Oskar Brend.",
    "You answer questions from memory": "1. The Silent Orchard was directed by Oskar Brend.",
    "from the material that you are given": "answer: Oskar Brend",
}


async def test_a_gate_and_the_longest_arbiter_come_to_four_steps() -> None:
    llm = Sure()
    llm._replies = {**BRIDGE, **llm._replies}  # type: ignore[dict-item]
    verdict = await asked(llm, gate="allocator", rerank="heads", arbiter="bridge k=1", refusal="agreement")
    assert (verdict.answer, verdict.strategy) == ("Oskar Brend", Strategy.BOTH)
    assert verdict.scores["parse_failures"] == 0
    assert stages(verdict) == ["gate", "filter", "rerank", "soft bias", "agreement", "consistency", "refusal"]
    assert verdict.usage.steps == 4


@pytest.mark.parametrize("passages", [(), (ECHO,), (GOOD,), (GOOD, GOOD, GOOD), tuple(500 * [OTHER])])
async def test_none_one_equal_and_many_passages(passages: tuple[Passage, ...]) -> None:
    verdict = await asked(passages=passages, rerank="heads")
    honest = [each for each in passages if each is not ECHO]
    assert (verdict.answer, len(verdict.kept)) == (("Oskar Brend", 1) if honest else ("Mira", 0))
    assert len(verdict.kept) + len(verdict.dropped) == min(len(passages), 20)
    assert verdict.notes == (("the filter kept none of the passages",) if passages and not honest else ())


async def test_options_reach_the_arbiter_and_the_gate() -> None:
    question = Question(WHO.text, ("Mira Talven", "Oskar Brend", "I don't know"))
    for parts, reply, expected in (
        (Stack(arbiter="rag"), "(B)", "Oskar Brend"),
        (Stack(arbiter="rag"), "C", None),
        (Stack(gate="likelihood"), "A.", "Mira Talven"),
        (Stack(arbiter="trustmargin candidate='rag k=2'"), "(B)", "Oskar Brend"),
    ):
        llm = Sure(**{"<passage 1>": reply, WHO.text: reply})
        verdict = await answer(question, parts, kit_of(llm))
        assert verdict.answer == expected
        assert verdict.strategy is not Strategy.REFUSE or expected is None


async def test_a_replay_takes_another_refusal_and_refuses_another_filter() -> None:
    verdict = await asked(refusal="number of=margin least=1")
    assert verdict.strategy is Strategy.REFUSE
    again = await decide_again(verdict.trace, {"refusal": "number of=margin least=0"})
    assert (again.answer, again.usage.calls) == ("Oskar Brend", 0)
    memory = await decide_again(verdict.trace, {"refusal": "none", "arbiter": "trustmargin threshold=2"})
    assert (memory.answer, memory.strategy) == ("Mira", Strategy.MEMORY)
    with pytest.raises(TraceError, match="needs the model again"):
        await decide_again(verdict.trace, {"filter": "none"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gate": "likelyhood"}, r"unknown gate 'likelyhood'\. Did you mean 'likelihood'"),
        ({"filter": "robst"}, r"unknown filter 'robst'\. Did you mean 'robust'"),
        ({"rerank": "head"}, r"unknown rerank 'head'\. Did you mean 'heads'"),
        ({"refusal": "numbr"}, r"unknown refusal 'numbr'\. Did you mean 'number'"),
        ({"refusal": "number"}, "the refusal number needs the number's name"),
        ({"arbiter": "trustmagin"}, r"unknown method 'trustmagin'\. Did you mean 'trustmargin'"),
        ({"arbiter": "trustmargin k=x"}, "trustmargin: k is a whole number"),
        ({"gate": "likelihood most=1"}, "unknown option of likelihood 'most'"),
        ({"filter": "robust similar=2"}, "similar is a cosine from 0 to 1; got 2"),
        ({"gate": ""}, "unknown gate ''"),
        ({"k": "0"}, "fetch and k are 1 or more; got fetch=20, k=0"),
    ],
)
def test_parts_that_there_are_not(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        configure(Stack, options)


async def test_what_the_parts_need_is_asked_for_before_the_first_question() -> None:
    silent = ScriptedLLM(["x"])
    with pytest.raises(CapabilityError, match="stack needs generate and score; scripted offers generate"):
        await check(Stack(), kit_of(silent))
    await check(Stack(arbiter="rag"), kit_of(silent))
    bare = Kit.of(Sure(), FixedRetriever(PASSAGES))
    for parts in (Stack(), Stack(filter="none", rerank="heads"), Stack(filter="none", gate="allocator")):
        with pytest.raises(CapabilityError, match="stack compares texts, and there is no encoder"):
            await check(parts, bare)
    await check(Stack(filter="none"), bare)
    with pytest.raises(CapabilityError, match="the gate likelihood needs log-probabilities"):
        await check(Stack(gate="likelihood", arbiter="rag"), kit_of(silent))


async def test_a_call_that_fails_is_one_error() -> None:
    llm = Sure(**{"<passage 1>": BackendError("the endpoint went away")})  # type: ignore[arg-type]
    with pytest.raises(BackendError, match="the endpoint went away"):
        await asked(llm)


def test_the_command_line_takes_parts_with_their_options(command: Command) -> None:
    words = ("ask", "In what year was The Winter Desert first shown?", "--llm", "lab", "--index", "lab")
    chosen = ("--method", "stack", "--set", "filter=robust")
    ran = command(
        *words, *chosen, "--set", "arbiter=trustmargin threshold=-9", "--set", "refusal=number of=margin least=99"
    )
    assert ran.status == 0
    assert "is below 99" in " ".join(ran.out.split())
    assert "trusted: neither" in ran.out
    wrong = command(*words, *chosen, "--set", "gate=probe")
    assert wrong.status == 2
    assert wrong.err.startswith("UsageError: unknown gate 'probe'. Known: allocator, likelihood, none.")
    assert "stack" in command("methods").out
