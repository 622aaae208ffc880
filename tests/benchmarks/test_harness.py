"""Figures, bars and exit statuses of a benchmark (``benchmarks/harness/bench.py``)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest
from harness.bench import SKIPPED, Bench, alternate

Made = Callable[..., Bench]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Makes a benchmark with these options."""

    def make(*options: str) -> Bench:
        monkeypatch.setattr(sys, "argv", ["claim.py", *options])
        return Bench("claim", "A claim.")

    return make


def finished(bench: Bench) -> int:
    with pytest.raises(SystemExit) as ended:
        bench.finish(size=3)
    return int(str(ended.value.code))


@pytest.mark.parametrize(
    ("options", "status", "verdict"),
    [
        ((), 1, "bar ≤ 5: MISSED"),
        (("--quick",), 0, "bar ≤ 5: for the full size only"),
        (("--smoke",), 0, "bar ≤ 5: not judged"),
    ],
)
def test_a_bar_for_the_full_size_only(
    bench: Made, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], status: int, verdict: str
) -> None:
    made = bench(*options)
    made.figure("seconds", 5.1, unit="s", at_most=5, full_only=True)
    assert finished(made) == status
    assert capsys.readouterr().out.splitlines()[1] == f"  seconds  5.1 s  {verdict}"


@pytest.mark.parametrize(("value", "status"), [(1.9, 1), (2.0, 0), (3.0, 0), (3.1, 1)])
@pytest.mark.parametrize("option", [(), ("--quick",)])
def test_a_missed_bar_is_exit_status_1(bench: Made, option: tuple[str, ...], value: float, status: int) -> None:
    made = bench(*option)
    made.figure("good", 1)
    made.figure("recall", value, at_least=2, at_most=3)
    assert finished(made) == status


def test_ratio_and_difference_are_of_medians_over_rounds(bench: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made = bench("--json")
    made.ratio("ratio", [2.0, 9.0, 4.0], [1.0, 2.0, 8.0], at_most=2)
    made.difference("added", [2.0, 9.0, 4.0], [1.0, 2.0, 8.0], unit="ms", at_most=0.5)
    assert finished(made) == 1
    ratio, added = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    assert (ratio["value"], ratio["met"], ratio["judged"], ratio["rounds"]) == (4.0 / 2.0, True, True, 3)
    assert (added["value"], added["met"], added["judged"], added["rounds"]) == (1.0, False, True, 3)
    assert added["spread"] == [-4.0, 7.0]  # of three rounds each end is drawn often


def test_both_sides_run_by_turns() -> None:
    ran: list[str] = []
    first, second = alternate(lambda: ran.append("a"), lambda: ran.append("b"), rounds=2, warm_up=1)
    assert ran == ["a", "b"] * 3
    assert (len(first), len(second)) == (2, 2)


@pytest.mark.parametrize(("options", "size"), [((), 3), (("--quick",), 2), (("--smoke",), 1)])
def test_the_size_of_a_run(bench: Made, options: tuple[str, ...], size: int) -> None:
    assert bench(*options).pick(smoke=1, quick=2, full=3) == size
    assert bench(*options).pick(quick=2, full=3) == max(size, 2)


def test_what_cannot_run_here_is_skipped_with_its_reason(bench: Made, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench().skip("there is no server")
    assert ended.value.code == SKIPPED == 77
    assert capsys.readouterr().out == "claim: skipped, there is no server\n"
