"""The gates: at their thresholds, and what each does when the model declines or writes nonsense."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from arbitrag.encode.hashed import HashEncoder
from arbitrag.errors import CapabilityError, UsageError
from arbitrag.kit import Kit
from arbitrag.llm.base import Generation, Prompt, Sampling
from arbitrag.stages.gate import AllocatorGate, LikelihoodGate, NoGate
from arbitrag.testing import ScriptedLLM
from arbitrag.types import Question, Strategy

WHO = Question("Who directed The Silent Orchard?")


class Sure(ScriptedLLM):
    """Writes with the same probability for every token."""

    def __init__(self, reply: str, *probabilities: float) -> None:
        super().__init__(lambda prompt: reply)
        self.logprobs = tuple(math.log(each) for each in probabilities)

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        found = await super().generate(prompt, replace(sampling, logprobs=False))
        return replace(found, logprobs=self.logprobs) if sampling.logprobs else found


@pytest.mark.parametrize(
    ("reply", "probabilities", "trusts"),
    [
        ("Oskar Brend", (0.5, 0.5), True),  # exactly least
        ("Oskar Brend", (1.0, 0.25), True),  # the geometric mean is 0.5
        ("Oskar Brend", (1.0, 0.24), False),
        ("Oskar Brend", (0.4999, 0.5), False),
        ("I don't know", (1.0,), False),  # sure of nothing
        ("...", (1.0,), False),
        ("Oskar", (), False),
    ],
)
async def test_likely_tokens_are_trusted(reply: str, probabilities: tuple[float, ...], trusts: bool) -> None:
    kit = Kit.of(Sure(reply, *probabilities))
    gated = await LikelihoodGate(least=0.5).ask(WHO, kit)
    assert (gated.memory is not None) == trusts
    (decision,) = gated.decisions
    assert decision.outcome == ("memory" if trusts else "look up")
    expected = math.prod(probabilities) ** (1 / len(probabilities)) if probabilities else 0.0
    assert decision.inputs == {"likelihood": pytest.approx(expected), "least": 0.5}
    assert gated.scores == {"gate": pytest.approx(expected)}
    if gated.memory:
        assert (gated.memory.text, gated.memory.origin) == ("Oskar Brend", Strategy.MEMORY)


async def test_an_option_is_answered_in_its_words() -> None:
    question = Question(WHO.text, ("Mira Talven", "Oskar Brend", "I don't know"))
    gated = await LikelihoodGate().ask(question, Kit.of(Sure("(B)", 1.0)))
    assert gated.memory is not None
    assert gated.memory.text == "Oskar Brend"
    assert (await LikelihoodGate().ask(question, Kit.of(Sure("(C)", 1.0)))).memory is None


async def test_a_model_without_log_probabilities_is_refused_before_the_first_question() -> None:
    with pytest.raises(CapabilityError, match=r"the gate likelihood needs log-probabilities of what scripted writes"):
        await LikelihoodGate().prepare(Kit.of(ScriptedLLM(["x"])))
    await LikelihoodGate().prepare(Kit.of(Sure("x", 1.0)))


@pytest.mark.parametrize(
    ("bias", "memory", "least", "trusts"),
    [
        ("retrieval: 10\ngeneration: 90", "Oskar Brend", 90, True),
        ("retrieval: 11\ngeneration: 89", "Oskar Brend", 90, False),
        ("retrieval: 40\ngeneration: 60", "Oskar Brend", 60, True),
        ("retrieval: 10\ngeneration: 90", "Unknown", 90, False),
        ("It depends.", "Oskar Brend", 10, False),  # what cannot be read trusts nobody
    ],
)
async def test_a_question_that_rests_on_memory_is_left_to_it(bias: str, memory: str, least: int, trusts: bool) -> None:
    llm = ScriptedLLM({"You judge": bias, "fixed form": "nonsense", WHO.text: memory})
    kit = Kit.of(llm, encoder=HashEncoder())
    gate = AllocatorGate(least=least)
    await gate.prepare(kit)
    gated = await gate.ask(WHO, kit)
    assert (gated.memory is not None) == trusts
    unreadable = bias == "It depends."
    assert gated.scores["parse_failures"] == float(unreadable)
    assert len(gated.notes) == unreadable
    assert len(llm.prompts) == 2 + unreadable


async def test_no_gate_asks_nothing() -> None:
    gated = await NoGate().ask(WHO, Kit.of(ScriptedLLM()))
    assert (gated.memory, gated.decisions, gated.notes) == (None, (), ())


@pytest.mark.parametrize("settings", [{"least": 9}, {"least": 91}, {"shots": 0}])
def test_settings_that_cannot_be(settings: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="least from 10 to 90"):
        AllocatorGate(**settings)  # type: ignore[arg-type]
