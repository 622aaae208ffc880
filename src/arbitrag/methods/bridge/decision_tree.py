"""BRIDGE's maximum soft-bias decision tree: from four agreements and a bias to a strategy.

    consistency   S1 + S4 > (1 - S1) + (1 - S4)                      trust both
    confidence    T_ret = r_p [S3 + (1 - S2)],  T_llm = g_p [S2 + (1 - S3)]
    threshold     T_ret < T_llm:   memory when T_llm > alpha, else refuse
                  T_ret >= T_llm:  evidence when T_ret >= beta, refuse when T_ret < alpha, else reflect

The first line is S1 + S4 > 1. No model is asked, so that other thresholds can be tried on recorded numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from arbitrag.types import Decision, Strategy

REFLECT: Literal["reflect"] = "reflect"
Outcome = Strategy | Literal["reflect"]
CONSISTENCY, THRESHOLD = "consistency", "threshold"  # stages of the decisions that say where the tree leads

_CONSISTENT = "S1 + S4 > (1 - S1) + (1 - S4): memory and the passages agree"
_CONFIDENCE = "T_ret = r_p [S3 + (1 - S2)] and T_llm = g_p [S2 + (1 - S3)]: which is larger"
_MEMORY = "T_ret < T_llm: memory when T_llm > alpha, else refuse"
_EVIDENCE = "T_ret >= T_llm: evidence when T_ret >= beta, refuse when T_ret < alpha, else reflect"


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement scores of the sources, S1 to S4, from 0 to 1."""

    s1: float  # the passage from memory and the passages
    s2: float  # the answers to sub-queries and the passage from memory
    s3: float  # the passages of sub-queries and the passages
    s4: float  # the answers to sub-queries and the passages of sub-queries


def decide(scores: Agreement, r_p: float, g_p: float, alpha: float, beta: float) -> Outcome:
    """The strategy, or "reflect"; ``r_p`` and ``g_p`` are shares from 0 to 1."""
    return decide_with_steps(scores, r_p, g_p, alpha, beta)[0]


def decide_with_steps(
    scores: Agreement, r_p: float, g_p: float, alpha: float, beta: float
) -> tuple[Outcome, tuple[Decision, ...]]:
    """The strategy of ``decide``, and the checks that led to it, in order."""
    consistent = scores.s1 + scores.s4 > 1
    first = Decision(CONSISTENCY, _CONSISTENT, asdict(scores), Strategy.BOTH.value if consistent else "go on")
    if consistent:
        return Strategy.BOTH, (first,)

    t_ret, t_llm = trust_terms(scores, r_p, g_p)
    larger = "memory" if t_ret < t_llm else "evidence"
    second = Decision("confidence", _CONFIDENCE, {"r_p": r_p, "g_p": g_p, "t_ret": t_ret, "t_llm": t_llm}, larger)

    outcome: Outcome
    if t_ret < t_llm:
        rule = _MEMORY
        outcome = Strategy.MEMORY if t_llm > alpha else Strategy.REFUSE
    else:
        rule = _EVIDENCE
        outcome = Strategy.EVIDENCE if t_ret >= beta else Strategy.REFUSE if t_ret < alpha else REFLECT
    named = outcome.value if isinstance(outcome, Strategy) else outcome
    third = Decision(THRESHOLD, rule, {"t_ret": t_ret, "t_llm": t_llm, "alpha": alpha, "beta": beta}, named)
    return outcome, (first, second, third)


def trust_terms(scores: Agreement, r_p: float, g_p: float) -> tuple[float, float]:
    """T_ret and T_llm, the trust in retrieval and in memory."""
    return r_p * (scores.s3 + (1 - scores.s2)), g_p * (scores.s2 + (1 - scores.s3))


def last_outcome(decisions: Sequence[Decision]) -> Outcome:
    """Where the tree led in the last round of a verdict, out of its decisions. Raises ValueError without a round."""
    found = [each.outcome for each in decisions if each.stage in (CONSISTENCY, THRESHOLD)]
    if not found:
        raise ValueError("no decision of the tree was recorded")
    return REFLECT if found[-1] == REFLECT else Strategy(found[-1])
