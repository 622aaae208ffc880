"""Every branch of BRIDGE's tree and its boundary, by hand; numbers are binary fractions, so that they are exact."""

from __future__ import annotations

import pytest

from arbitrag.methods.bridge.decision_tree import (
    REFLECT,
    Agreement,
    Outcome,
    decide,
    decide_with_steps,
    last_outcome,
    trust_terms,
)
from arbitrag.types import Decision, Strategy

BOTH, MEMORY, EVIDENCE, REFUSE = Strategy


@pytest.mark.parametrize(
    ("scores", "r_p", "g_p", "outcome"),
    [
        # consistency: S1 + S4 > 1, whatever else
        ((0.75, 0.0, 0.0, 0.5), 0.5, 0.5, BOTH),
        ((1.0, 0.0, 1.0, 0.0078125), 0.875, 0.125, BOTH),
        ((0.0, 0.0, 1.0, 1.0), 0.75, 0.25, EVIDENCE),  # exactly 1 is not consistent; T_ret 1.5
        ((0.5, 1.0, 0.0, 0.5), 0.25, 0.75, MEMORY),  # exactly 1; T_llm 1.5
        # T_ret < T_llm: memory when T_llm > 0.5
        ((0.0, 0.5, 0.5, 0.0), 0.25, 0.75, MEMORY),  # T_ret 0.25, T_llm 0.75
        ((0.0, 0.5, 0.5, 0.0), 0.25, 0.5, REFUSE),  # T_llm exactly alpha
        ((0.0, 0.25, 0.75, 0.0), 0.125, 0.875, REFUSE),  # T_ret 0.1875, T_llm 0.4375
        # T_ret >= T_llm, beta 1.125
        ((0.0, 0.25, 0.75, 0.0), 0.75, 0.25, EVIDENCE),  # T_ret exactly beta
        ((0.0, 0.5, 0.75, 0.0), 0.875, 0.125, REFLECT),  # T_ret 1.09375
        ((0.0, 0.5, 0.5, 0.0), 0.5, 0.5, REFLECT),  # T_ret = T_llm = alpha: equal goes to the evidence, and reflects
        ((0.0, 0.5, 0.0, 0.0), 0.75, 0.125, REFUSE),  # T_ret 0.375 >= T_llm 0.1875, below alpha
        ((0.0, 0.0, 0.0, 0.0), 1.0, 1.0, REFLECT),  # without an allocator and without any agreement: both are 1
    ],
)
def test_the_tree(scores: tuple[float, float, float, float], r_p: float, g_p: float, outcome: Outcome) -> None:
    assert decide(Agreement(*scores), r_p, g_p, alpha=0.5, beta=1.125) == outcome


def test_trust_by_hand() -> None:
    assert trust_terms(Agreement(0.1, 0.25, 0.75, 0.1), 0.75, 0.25) == (0.75 * (0.75 + 0.75), 0.25 * (0.25 + 0.25))


def test_the_path_names_every_check_with_its_numbers() -> None:
    outcome, (first, second, third) = decide_with_steps(Agreement(0.0, 0.25, 0.75, 0.0), 0.75, 0.25, 0.5, 1.125)
    assert outcome is EVIDENCE
    assert (first.stage, first.outcome) == ("consistency", "go on")
    assert first.inputs == {"s1": 0.0, "s2": 0.25, "s3": 0.75, "s4": 0.0}
    assert (second.stage, second.outcome) == ("confidence", "evidence")
    assert second.inputs == {"r_p": 0.75, "g_p": 0.25, "t_ret": 1.125, "t_llm": 0.125}
    assert (third.stage, third.outcome) == ("threshold", "evidence")
    assert third.inputs == {"t_ret": 1.125, "t_llm": 0.125, "alpha": 0.5, "beta": 1.125}


def test_consistency_ends_the_path() -> None:
    outcome, decisions = decide_with_steps(Agreement(1.0, 0.0, 0.0, 0.5), 0.5, 0.5, 0.5, 1.1)
    assert outcome is BOTH
    assert [(each.stage, each.outcome) for each in decisions] == [("consistency", "both")]


def test_the_paper_s_example_of_no_allocator() -> None:
    """With r_p = g_p = 1 the two trusts come to 2, so the larger is 1 or more."""
    t_ret, t_llm = trust_terms(Agreement(0.0, 0.3, 0.9, 0.0), 1.0, 1.0)
    assert t_ret + t_llm == pytest.approx(2.0)
    assert decide(Agreement(0.0, 0.3, 0.9, 0.0), 1.0, 1.0, 0.5, 1.1) is EVIDENCE


@pytest.mark.parametrize("last", [(1.0, 0.0, 0.0, 0.5), (0.0, 0.5, 0.5, 0.0), (0.0, 0.0, 1.0, 0.0)])
def test_the_last_outcome_is_found_among_the_decisions_of_several_rounds(
    last: tuple[float, float, float, float],
) -> None:
    _, first = decide_with_steps(Agreement(0.0, 0.5, 0.5, 0.0), 0.5, 0.5, 0.5, 1.125)  # reflects
    outcome, second = decide_with_steps(Agreement(*last), 0.5, 0.5, 0.5, 1.125)
    between = Decision("reflection", "", {}, "factual")
    assert last_outcome((*first, between, *second, between)) == outcome


def test_without_a_decision_of_the_tree_there_is_no_outcome() -> None:
    with pytest.raises(ValueError, match="no decision of the tree"):
        last_outcome([Decision("soft bias", "", {}, "memory")])
