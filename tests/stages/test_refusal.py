"""What becomes a refusal, at the boundary and beside it."""

from __future__ import annotations

import pytest

from arbitrag.errors import UsageError
from arbitrag.stages.refusal import AgreementRefusal, NoRefusal, NumberRefusal
from arbitrag.types import Strategy, Verdict

SAID = Verdict("Oskar", Strategy.EVIDENCE, "the passages say so", scores={"margin": -1.5})
NOTHING = Verdict(None, Strategy.REFUSE, "nothing is known", scores={"margin": -9.0})


@pytest.mark.parametrize(("least", "answer"), [(-1.5, "Oskar"), (-1.49, None), (-2.0, "Oskar")])
def test_a_number_has_to_reach_its_least(least: float, answer: str | None) -> None:
    verdict = NumberRefusal(of="margin", least=least).apply(SAID)
    assert verdict.answer == answer
    (decision,) = verdict.decisions
    assert decision.inputs == {"margin": -1.5, "least": least}
    assert decision.outcome == ("the answer stands" if answer else "refuse")
    if answer is None:
        assert verdict.strategy is Strategy.REFUSE
        assert verdict.why == '"Oskar" is refused: margin -1.50 is below -1.49 (the passages say so)'


def test_a_number_that_is_not_there_is_told() -> None:
    verdict = NumberRefusal(of="margni", least=5.0).apply(SAID)
    assert verdict.answer == "Oskar"
    assert verdict.notes == (
        "the refusal asks for the number 'margni', which the verdict does not have (it has: margin); the answer stands",
    )
    with pytest.raises(UsageError, match="needs the number's name"):
        NumberRefusal()


@pytest.mark.parametrize(
    ("strategy", "answer"), [(Strategy.BOTH, "Oskar"), (Strategy.EVIDENCE, None), (Strategy.MEMORY, None)]
)
def test_agreement_asks_for_both(strategy: Strategy, answer: str | None) -> None:
    verdict = AgreementRefusal().apply(Verdict("Oskar", strategy, "so"))
    assert verdict.answer == answer
    assert verdict.decisions[0].inputs == {"trusted": strategy.value}


@pytest.mark.parametrize("refusal", [NoRefusal(), AgreementRefusal(), NumberRefusal(of="margin")])
def test_a_refusal_stays_as_it_is(refusal: NoRefusal | AgreementRefusal | NumberRefusal) -> None:
    assert refusal.apply(NOTHING) == NOTHING


def test_without_a_rule_everything_stands() -> None:
    assert NoRefusal().apply(SAID) == SAID
