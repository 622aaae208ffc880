"""What docs/benchmarks.md shows can be typed as it stands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arbitrag.data.reading import open_source

if TYPE_CHECKING:
    from tests.conftest import Command


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs" / "benchmarks.md").read_text(encoding="utf-8")


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
    assert "When was Solvond Labs founded?" in printed["bench show"]


def test_the_example_of_a_row_is_a_good_one(page: str, tmp_path: Path) -> None:
    (block,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (tmp_path / "row.jsonl").write_text(json.dumps(json.loads(block)) + "\n")
    (row,) = open_source(tmp_path / "row.jsonl").rows()
    assert row.problems == ()
    assert row.item is not None
    assert len(row.item.poisoned) == 1
