"""TrustMargin's rule, its margins by hand, and what it asks of whom."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import arbitrag
from arbitrag import Kit, Passage, Strategy, Verdict
from arbitrag.encode.hashed import HashEncoder
from arbitrag.errors import BackendError, CapabilityError, UsageError
from arbitrag.llm.base import Generation, Prompt, Sampling
from arbitrag.methods import METHODS
from arbitrag.methods.trustmargin import Margins, TrustMargin
from arbitrag.replay import decide_again
from arbitrag.run import answer
from arbitrag.testing import FixedRetriever, ScriptedLLM, prompt_text
from arbitrag.truncation import Fit
from arbitrag.types import Candidate, Decision, Dropped, Need, Question

WHO = "Who directed The Silent Orchard?"
PASSAGES = (Passage("The Silent Orchard was directed by Oskar Brend.", id="7"), Passage("Other.", id="9"))
MEMORY, EVIDENCE = Candidate("Mira", Strategy.MEMORY), Candidate("Oskar", Strategy.EVIDENCE)


@pytest.mark.parametrize(
    ("prior", "binding", "strategy"),
    [
        (-1.0, 0.0, Strategy.EVIDENCE),  # mild doubt: the evidence wins
        (-4.0, 0.0, Strategy.MEMORY),  # memory is sure: it wins
        (-4.0, 6.0, Strategy.EVIDENCE),  # sure, but the passages bind the question to r
        (-1.5, 0.0, Strategy.MEMORY),  # exactly at the threshold memory keeps it
        (-2.5, 2.0, Strategy.MEMORY),  # exactly at it, with binding
        (-1.4999999, 0.0, Strategy.EVIDENCE),
        (-1.0, -1.0, Strategy.MEMORY),  # the passages say it of something else
    ],
)
def test_the_margin_decides(prior: float, binding: float, strategy: Strategy) -> None:
    verdict = TrustMargin().decide(Margins(prior, binding), MEMORY, EVIDENCE, Fit(PASSAGES), {})
    assert verdict.strategy is strategy
    assert verdict.answer == ("Oskar" if strategy is Strategy.EVIDENCE else "Mira")
    assert verdict.scores == {"prior": prior, "binding": binding, "margin": prior + 0.5 * binding}


@pytest.mark.parametrize(
    ("method", "strategy"),
    [
        (TrustMargin(threshold=-5.0), Strategy.EVIDENCE),
        (TrustMargin(threshold=-1.0), Strategy.MEMORY),
        (TrustMargin(weight=0.0), Strategy.MEMORY),  # prior only
        (TrustMargin(weight=1.0), Strategy.EVIDENCE),
        (TrustMargin(threshold=float("inf")), Strategy.MEMORY),
        (TrustMargin(threshold=float("-inf")), Strategy.EVIDENCE),
    ],
)
def test_the_hyper_parameters_count(method: TrustMargin, strategy: Strategy) -> None:
    verdict = method.decide(Margins(prior=-2.0, binding=1.0), MEMORY, EVIDENCE, Fit(PASSAGES), {})
    assert verdict.strategy is strategy


def test_margins_by_hand() -> None:
    margins = Margins.of(q_d=-0.5, q_r=-4.75, qp_d=-3.0, qp_r=-0.25, p_d=-3.5, p_r=-1.0)
    assert margins.prior == -4.75 - -0.5 == -4.25
    assert margins.binding == (-0.25 - -1.0) - (-3.0 - -3.5) == 0.25


# Likelihoods by view and answer: the question alone, with the passages, and the passages alone.
TABLE = {
    ("q", "Mira"): -0.5,
    ("q", "Oskar"): -4.75,
    ("qp", "Mira"): -3.0,
    ("qp", "Oskar"): -0.25,
    ("p", "Mira"): -3.5,
    ("p", "Oskar"): -1.0,
}


def view(prompt: Prompt) -> str:
    text = prompt_text(prompt)
    if "<passage 1>" not in text:
        return "q"
    return "qp" if WHO in text else "p"


def judge(prompt: Prompt, text: str) -> float:
    return TABLE[view(prompt), text]


def replies(memory: str, evidence: str) -> dict[str, str]:
    return {"<passage 1>": evidence, WHO: memory}


async def ask(
    llm: ScriptedLLM, *, scorer: ScriptedLLM | None = None, passages: tuple[Passage, ...] = PASSAGES
) -> Verdict:
    return await arbitrag.answer(WHO, TrustMargin(), Kit.of(llm, FixedRetriever(passages), scorer=scorer))


async def test_two_answers_and_six_scorings_in_two_steps() -> None:
    llm = ScriptedLLM(replies("Mira.", "Answer: Oskar"), judge)
    verdict = await ask(llm)
    assert (verdict.answer, verdict.strategy) == ("Mira", Strategy.MEMORY)
    assert verdict.scores == {"prior": -4.25, "binding": 0.25, "margin": -4.125}
    assert [(candidate.text, candidate.origin) for candidate in verdict.candidates] == [
        ("Mira", Strategy.MEMORY),
        ("Oskar", Strategy.EVIDENCE),
    ]
    assert verdict.candidates[1].passages == ("7", "9")
    assert (verdict.usage.generations, verdict.usage.scorings) == (2, 6)
    assert (verdict.usage.calls, verdict.usage.steps) == (5, 2)
    assert sorted(view(prompt) for prompt in llm.prompts) == ["p", "q", "q", "qp", "qp"]
    (decision,) = verdict.decisions
    expected = {f"{seen}_{'d' if text == 'Mira' else 'r'}": value for (seen, text), value in TABLE.items()}
    assert decision.inputs == {**expected, **verdict.scores, "weight": 0.5, "threshold": -1.5}
    assert decision.outcome == "memory"
    assert verdict.why == (
        'the passages say "Oskar"; memory rejects it (prior -4.25) and the question binds it to them '
        "(binding 0.25): margin -4.12, threshold -1.50"
    )


async def test_another_scorer_gets_exactly_the_scorings() -> None:
    llm, scorer = ScriptedLLM(replies("Mira", "Oskar")), ScriptedLLM(likelihoods=judge, name="scorer")
    verdict = await ask(llm, scorer=scorer)
    assert (verdict.answer, verdict.scores["margin"]) == ("Mira", -4.125)
    assert [view(prompt) for prompt in llm.prompts] == ["q", "qp"]
    assert sorted(view(prompt) for prompt in scorer.prompts) == ["p", "q", "qp"]
    roles = [(call.kind, call.role, call.model) for call in verdict.trace.calls if call.kind in ("generate", "score")]
    assert roles == 2 * [("generate", "llm", "scripted")] + 3 * [("score", "scorer", "scorer")]
    assert verdict.trace.scorer == "scorer"


@pytest.mark.parametrize(("memory", "evidence"), [("Mira", "Mira"), ("the Mira.", "MIRA!"), ("The", "the")])
async def test_answers_that_agree_are_not_scored(memory: str, evidence: str) -> None:
    llm = ScriptedLLM(replies(memory, evidence), judge)
    verdict = await ask(llm)
    assert verdict.strategy is Strategy.BOTH
    assert (verdict.usage.generations, verdict.usage.scorings, verdict.usage.steps) == (2, 0, 1)
    assert len(llm.prompts) == 2
    assert verdict.decisions[0].stage == "agreement"


@pytest.mark.parametrize(
    ("memory", "evidence", "answer", "strategy", "why"),
    [
        ("", "Oskar", "Oskar", Strategy.EVIDENCE, "memory gave no answer, so the passages answer"),
        ("Mira", "\n", "Mira", Strategy.MEMORY, "the passages gave no answer, so memory answers"),
        ("Mira", "...", "Mira", Strategy.MEMORY, "the passages gave no answer, so memory answers"),
        ("", "", None, Strategy.REFUSE, "neither memory nor the passages gave an answer"),
        ("", "I don't know", None, Strategy.REFUSE, None),
    ],
)
async def test_a_source_without_an_answer_loses_unscored(
    memory: str, evidence: str, answer: str | None, strategy: Strategy, why: str | None
) -> None:
    verdict = await ask(ScriptedLLM(replies(memory, evidence), judge))
    assert (verdict.answer, verdict.strategy) == (answer, strategy)
    assert why in (None, verdict.why)
    assert verdict.usage.scorings == 0


@pytest.mark.parametrize(("reply", "answer"), [("Mira", "Mira"), ("", None), ("Unknown", None)])
async def test_without_passages_memory_answers_alone(reply: str, answer: str | None) -> None:
    verdict = await ask(ScriptedLLM([reply], judge), passages=())
    assert verdict.answer == answer
    assert verdict.why.startswith("there are no passages")
    assert len(verdict.candidates) == 1
    assert (verdict.usage.generations, verdict.usage.scorings) == (1, 0)


async def test_a_chosen_answer_that_only_declines_is_a_refusal() -> None:
    sure_of_nothing = ScriptedLLM(
        replies("I don't know", "Oskar"), lambda prompt, text: -9.0 if text == "Oskar" else 0.0
    )
    verdict = await ask(sure_of_nothing)
    assert (verdict.answer, verdict.strategy) == (None, Strategy.REFUSE)
    assert verdict.why.endswith("; the chosen reply declines")
    assert verdict.usage.scorings == 6


async def test_a_failed_scoring_is_an_error_not_a_number() -> None:
    def fails(prompt: Prompt, text: str) -> float:
        raise BackendError("the server cut the connection")

    with pytest.raises(BackendError, match="cut the connection"):
        await ask(ScriptedLLM(replies("Mira", "Oskar"), fails))


@dataclass(frozen=True)
class Said:
    """Says ``text`` by its strategy, and keeps the first ``kept`` passages."""

    name: ClassVar[str] = "said"
    needs: ClassVar[Need] = Need.GENERATE | Need.RETRIEVE | Need.ENCODE
    cost: ClassVar[str] = "1 answer"
    paper: ClassVar[str] = "none"

    text: str = "Oskar"
    strategy: str = "evidence"
    kept: int = 1

    async def prepare(self, kit: Kit) -> None:
        if self.text == "broken":
            raise UsageError("said cannot be prepared")

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        found = await kit.retrieve(question, k=2)
        await kit.llm.generate(Prompt.user("<passage 1>"))
        dropped = tuple(Dropped(each, "not liked") for each in found[self.kept :])
        return Verdict(
            self.text or None,
            Strategy(self.strategy),
            "so it is",
            kept=found[: self.kept],
            dropped=dropped,
            scores={"liked": 1.0},
            decisions=(Decision("liking", "by taste", {}, "yes"),),
            notes=("a matter of taste",),
        )


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "said", f"{__name__}:Said")


class Slow(ScriptedLLM):
    """Takes longer than looking something up, so that what is asked side by side is under way side by side."""

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        await asyncio.sleep(0.01)
        return await super().generate(prompt, sampling)


async def against(candidate: str, *, encoder: Any = True, **settings: float) -> Verdict:
    kit = Kit.of(
        Slow(replies("Mira", "Oskar"), judge), FixedRetriever(PASSAGES), encoder=HashEncoder() if encoder else None
    )
    return await answer(WHO, TrustMargin(candidate=candidate, **settings), kit)  # type: ignore[arg-type]


@pytest.mark.usefixtures("said")
async def test_another_method_s_answer_is_held_against_memory_by_the_passages_that_it_kept() -> None:
    verdict = await against("said")
    assert (verdict.answer, verdict.strategy) == ("Mira", Strategy.MEMORY)
    assert [(each.text, each.origin, each.passages) for each in verdict.candidates] == [
        ("Mira", Strategy.MEMORY, ()),
        ("Oskar", Strategy.EVIDENCE, ("7",)),
    ]
    assert [each.id for each in verdict.kept] == ["7"]
    assert [(each.passage.id, each.reason) for each in verdict.dropped] == [("9", "not liked")]
    assert verdict.scores == {"liked": 1.0, "prior": -4.25, "binding": 0.25, "margin": -4.125}
    assert verdict.why == (
        'said says "Oskar"; memory rejects it (prior -4.25) and the question binds it to the passages '
        "(binding 0.25): margin -4.12, threshold -1.50"
    )
    assert verdict.notes == ("said says: Oskar (so it is)", "a matter of taste")
    assert [each.stage for each in verdict.decisions] == ["liking", "margin"]
    assert (verdict.usage.generations, verdict.usage.scorings, verdict.usage.steps) == (2, 6, 2)
    again = await decide_again(verdict.trace, {"threshold": "-5"})
    assert (again.answer, again.strategy) == ("Oskar", Strategy.EVIDENCE)


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(
    ("candidate", "answer", "strategy", "why", "kept"),
    [
        ("said strategy=both", "Oskar", Strategy.BOTH, 'said says "Oskar"', 1),
        (
            "said strategy=memory kept=0",
            "Oskar",
            Strategy.MEMORY,
            'said says "Oskar"',
            2,
        ),  # scored by what is retrieved
        ("said text=mira strategy=evidence", "mira", Strategy.BOTH, "memory and said agree", 1),
        ("said text=mira strategy=memory", "mira", Strategy.MEMORY, "memory and said agree", 1),
        ("said text= strategy=refuse", "Mira", Strategy.MEMORY, "said gave no answer, so memory answers", 1),
    ],
)
async def test_its_answer_keeps_the_strategy_that_it_had(
    candidate: str, answer: str, strategy: Strategy, why: str, kept: int
) -> None:
    verdict = await against(candidate, threshold=-5.0)
    assert (verdict.answer, verdict.strategy, len(verdict.kept)) == (answer, strategy, kept)
    assert verdict.why.startswith(why)


@pytest.mark.usefixtures("said")
async def test_what_the_other_method_needs_is_needed() -> None:
    with pytest.raises(CapabilityError, match="trustmargin compares texts, and there is no encoder"):
        await against("said", encoder=None)
    with pytest.raises(UsageError, match="said cannot be prepared"):
        await against("said text=broken")


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        ("direct", "trustmargin: direct reads no passages"),
        ("rga", r"unknown method 'rga'\. Did you mean 'rag'"),
        ("rag k=two", "rag: k is a whole number; got 'two'"),
        ("rag k", "behind a name stand settings such as threshold=-1.0; got 'k'"),
        ('rag "k', "a method is a name and settings behind it"),
        ("", "unknown method ''"),
    ],
)
def test_a_candidate_that_cannot_be(candidate: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TrustMargin(candidate=candidate)


async def test_a_candidate_with_settings_is_no_longer_the_plain_one() -> None:
    verdict = await against("rag k=1")
    assert [each.id for each in verdict.kept] == ["7"]
    assert verdict.scores["margin"] == -4.125
    assert verdict.notes[0] == "rag says: Oskar (the answer is from the passages alone)"
