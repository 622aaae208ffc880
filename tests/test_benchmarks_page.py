"""What docs/benchmarks.md shows can be typed as it stands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import needs
import pytest

from arbitrag.data.reading import open_source

if TYPE_CHECKING:
    from tests.conftest import Command


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs" / "benchmarks.md").read_text(encoding="utf-8")


@needs.bash
def test_from_a_jsonl_and_documents_to_a_table_in_five_commands(
    page: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, typed = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)[:2]
    monkeypatch.chdir(tmp_path)
    subprocess.run(["bash", "-e", "-c", made], check=True, capture_output=True)
    lines = typed.splitlines()
    assert len(lines) == 5
    printed = {}
    for line in lines:
        words = shlex.split(line)
        assert words[0] == "arbitrag"
        ran = command(*words[1:])
        assert ran.status == 0, ran.err
        printed[" ".join(words[1:3])] = ran.out + ran.err
    assert "mine: JSON lines, 2 good rows, 0 bad" in printed["data check"]
    assert printed["bench run"].startswith("6 rows made, 0 failed")
    for method in ("direct", "rag", "trustmargin"):
        assert method in printed["bench report"]
        assert method in printed["bench show"]
    assert "no row yet" not in printed["bench report"] + printed["bench show"]
    assert "When was Bronwot Airlines founded?" in printed["bench show"]


@pytest.mark.parametrize("verb", ["run", "retry", "report", "show", "diff"])
def test_every_option_is_on_the_page(page: str, command: Command, verb: str) -> None:
    typed = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", command("bench", verb, "--help").out, re.MULTILINE)) - {
        "--help"
    }
    assert "--json" in typed
    assert [option for option in typed if f"`{option}" not in page and f" {option} " not in page] == []


@needs.bash
def test_what_is_shown_is_what_is_printed(
    page: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as it is neither the model's nor the clock's."""
    made, typed = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)[:2]
    (shown,) = re.findall(r"^```\n(docs.idx: .*?)^```", page, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    subprocess.run(["bash", "-e", "-c", made], check=True, capture_output=True)
    ran = [command(*shlex.split(line)[1:]) for line in typed.splitlines()]
    printed = "\n".join(each.out + each.err for each in ran).splitlines()
    changing = re.compile(r"\d\.\d|\d/s|Answer|Memory|Evidence|Why|to them|: right|: wrong")
    lines = [line for line in shown.splitlines() if not changing.search(line)]
    assert len(lines) > 20
    assert [line for line in lines if line not in printed] == []


def test_the_example_of_a_row_is_a_good_one(page: str, tmp_path: Path) -> None:
    (block,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (tmp_path / "row.jsonl").write_text(json.dumps(json.loads(block)) + "\n")
    (row,) = open_source(tmp_path / "row.jsonl").rows()
    assert row.problems == ()
    assert row.item is not None
    assert len(row.item.poisoned) == 1
