"""Random inputs for everything that reads foreign text: a few hundred for each target of the fault suite."""

from __future__ import annotations

import random

import pytest
from fault_suite.fuzz import TARGETS, batch
from fault_suite.fuzz_inputs import text

_FEW = {"methods": 60, "traces": 80, "verdicts": 150}


@pytest.mark.parametrize("target", list(TARGETS))
def test_random_inputs_break_nothing(target: str) -> None:
    assert batch(target, seed=1, start=0, count=_FEW.get(target, 400)) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", list(TARGETS))
def test_more_random_inputs_break_nothing(target: str) -> None:
    assert batch(target, seed=2, start=0, count=10 * _FEW.get(target, 400)) == []


def test_inputs_hold_what_has_broken_parsers() -> None:
    made = "".join(text(random.Random(seed)) for seed in range(3000))
    for piece in ("\ud800", "İ", "ſ", "\u3164", "</passage>", "\x1b[2J", "\u202e", "answer"):
        assert piece in made
    assert max(len(text(random.Random(seed))) for seed in range(3000)) >= 20_000
