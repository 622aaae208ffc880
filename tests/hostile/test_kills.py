"""SIGKILL at random moments: what was acknowledged stays, and the next run ends with what an undisturbed one has."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fault_suite.kills import Kills, index_kills, run_kills


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_runs_that_are_killed_lose_nothing(tmp_path: Path, seed: int) -> None:
    kills = Kills()
    run_kills(kills, tmp_path / "run", random.Random(seed), 2, 80, lambda done, total, what: None)
    assert kills.problems == []
    assert kills.killed >= 2


@pytest.mark.slow
def test_an_index_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    kills = Kills()
    index_kills(kills, tmp_path / "index", random.Random(1), 2, 400, lambda done, total, what: None)
    assert kills.problems == []
    assert kills.killed >= 2
