"""The scripts in ``benchmarks/``: their table in docs/benchmarks.md, and the command that runs all of them."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
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


def test_the_command_prints_a_line_for_each(repository: Path) -> None:
    command = [sys.executable, str(repository / "benchmarks"), "--smoke", "html_text"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"html_text +\d+\.\d s +\d+\.\d CPU s  passed\n", ran.stdout)


@pytest.mark.parametrize(
    ("program", "passed", "said"),
    [
        ("import sys; print(sys.argv[1])", True, "passed"),
        (
            "import sys; print('one: skipped, there is no server'); sys.exit(77)",
            True,
            "one: skipped, there is no server",
        ),
        ("import sys; sys.exit('it broke')", False, "FAILED"),
    ],
)
def test_a_benchmark_that_fails_is_told_from_one_that_is_skipped(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], program: str, passed: bool, said: str
) -> None:
    script = tmp_path / "one.py"
    script.write_text(program)
    runs = runpy.run_path(str(repository / "benchmarks" / "__main__.py"))["runs"]
    assert runs(script, "--smoke") is passed
    printed = capsys.readouterr()
    assert printed.out.rstrip().endswith(said)
    assert ("it broke" in printed.err) is not passed
