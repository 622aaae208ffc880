"""Every example runs as it stands, and prints what it says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from arbitrag.lab.model import demo_cases

TRUTHS = [re.escape(case.truth) for case in demo_cases()]

PRINTS = {
    "ask.py": r"Nulbot\nStrategy\.(BOTH|MEMORY)\n.+\nmemory says Nulbot\nevidence says .+\n(\S+\.md\n)+",
    "batch.py": r"q1 Nulbot\nq2 failed: the question is empty\nq3 .+\n",
    "bench_own.py": r"direct: [01] of 1 right\nrag k=5: 1 of 1 right\n",
    "own_index.py": r"1 added, 1 passages\nShupeo Cicul from bronwot\.md:1\n",
    "own_method.py": r"Nulbot memory\n",
    "own_passages.py": r"Which .+\? -> Shupeo Cicul\nWhen .+\? -> 1987\n",
    "replay.py": (
        rf"threshold -1\.5: {TRUTHS[2]} \(memory\), 0 model calls\n"
        rf"threshold -30: (?!{TRUTHS[2]}).+ \(evidence\), 0 model calls\n"
    ),
    "scripted_model.py": "passed\n",
}


def test_every_example_is_here(repository: Path) -> None:
    assert {path.name for path in (repository / "examples").glob("*.py")} == PRINTS.keys()


@pytest.mark.parametrize("name", PRINTS)
def test_an_example(name: str, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = repository / "examples" / name
    runpy.run_path(str(path), run_name="__main__")
    assert re.fullmatch(PRINTS[name], capsys.readouterr().out)
    assert 10 <= len(path.read_text().splitlines()) <= 30
