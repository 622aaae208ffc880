"""Every script in ``benchmarks/`` stands in the table of docs/benchmarks.md, with the bars that ``--quick`` skips."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROW = re.compile(r"^\| `(\w+)` \|.*\|([^|]*)\|$", re.MULTILINE)


@pytest.fixture
def scripts(repository: Path) -> dict[str, str]:
    return {path.stem: path.read_text("utf-8") for path in (repository / "benchmarks").glob("[!_]*.py")}


@pytest.fixture
def rows(repository: Path) -> dict[str, str]:
    """The last cell of each script's row: its bars for the full size only."""
    section = (repository / "docs" / "benchmarks.md").read_text("utf-8").partition("## Arbitrag's own benchmarks")[2]
    return dict(_ROW.findall(section))


def test_every_benchmark_has_a_row(scripts: dict[str, str], rows: dict[str, str]) -> None:
    assert set(rows) == set(scripts)


def test_the_table_says_which_benchmarks_have_bars_for_the_full_size_only(
    scripts: dict[str, str], rows: dict[str, str]
) -> None:
    assert {name for name, cell in rows.items() if cell.strip()} == {
        name for name, text in scripts.items() if "full_only=True" in text
    }


def test_every_benchmark_has_the_options_of_all(scripts: dict[str, str]) -> None:
    assert [name for name, text in scripts.items() if f'Bench("{name}", __doc__' not in text] == []
