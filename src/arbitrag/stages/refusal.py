"""Refusal rules: turn an uncertain answer into a refusal, from its verdict alone, without a model call.

none         the verdict stands
agreement    only what memory and the passages say alike is an answer
number       a number among the scores, such as TrustMargin's ``margin`` or BRIDGE's ``t_ret``, has to be ``least``
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from arbitrag.errors import UsageError
from arbitrag.types import Decision, Strategy, Verdict


class Refusal(Protocol):
    name: ClassVar[str]

    def apply(self, verdict: Verdict) -> Verdict: ...


@dataclass(frozen=True)
class NoRefusal:
    """Keep every answer."""

    name: ClassVar[str] = "none"

    def apply(self, verdict: Verdict) -> Verdict:
        return verdict


@dataclass(frozen=True)
class AgreementRefusal:
    """Refuse an answer unless both memory and passages are trusted."""

    name: ClassVar[str] = "agreement"

    def apply(self, verdict: Verdict) -> Verdict:
        if verdict.answer is None:
            return verdict
        stands = verdict.strategy is Strategy.BOTH
        decision = Decision("refusal", "both are trusted", {"trusted": verdict.strategy.value}, _outcome(stands))
        why = f"only {verdict.strategy.value} is trusted, but this rule requires both"
        return _with_decision(verdict, decision, stands, why)


@dataclass(frozen=True)
class NumberRefusal:
    """Refuse when a number of the verdict is below ``least``; where it has no such number it stands, and says so."""

    name: ClassVar[str] = "number"

    of: str = ""
    least: float = 0.0

    def __post_init__(self) -> None:
        if not self.of:
            raise UsageError("the refusal number needs the number's name, such as: number of=margin least=-3")

    def apply(self, verdict: Verdict) -> Verdict:
        if verdict.answer is None:
            return verdict
        if self.of not in verdict.scores:
            numbers = ", ".join(verdict.scores) or "none"
            note = f"the refusal asks for the number '{self.of}', which the verdict does not have (it has: {numbers})"
            return replace(verdict, notes=(*verdict.notes, f"{note}; the answer stands"))
        number = verdict.scores[self.of]
        stands = number >= self.least
        inputs = {self.of: number, "least": self.least}
        decision = Decision("refusal", f"{self.of} >= least", inputs, _outcome(stands))
        return _with_decision(verdict, decision, stands, f"{self.of} {number:.2f} is below {self.least:g}")


def _outcome(stands: bool) -> str:
    return "the answer stands" if stands else Strategy.REFUSE.value


def _with_decision(verdict: Verdict, decision: Decision, stands: bool, why: str) -> Verdict:
    verdict = replace(verdict, decisions=(*verdict.decisions, decision))
    if stands:
        return verdict
    why = f'"{verdict.answer}" is refused: {why} ({verdict.why})'
    return replace(verdict, answer=None, strategy=Strategy.REFUSE, why=why)


REFUSALS: Mapping[str, type[NoRefusal] | type[AgreementRefusal] | type[NumberRefusal]] = {
    refusal.name: refusal for refusal in (NoRefusal, AgreementRefusal, NumberRefusal)
}
