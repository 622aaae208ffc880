"""Which files ``index`` takes, what it says of the others, and how their passages are cited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Command


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    for name in ("a.md", "b.txt", "notes/c.md", ".git/d.md", "node_modules/x/e.md", ".env", "p.png"):
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}")
    return tmp_path / "docs"


def test_what_is_left_out_is_said_with_the_way_to_take_it(documents: Path, tmp_path: Path, command: Command) -> None:
    target = tmp_path / "x.idx"
    result = command("index", documents, "-o", target)
    assert result.status == 0, result.err
    assert result.out.splitlines()[1:] == [
        "not a kind that is read: 1 .png",
        "left out by default: .git, node_modules, 1 hidden file",
        "to index one of these too, name it: --include '**' --include node_modules",
    ]
    result = command("index", documents, "-o", target, "--include", "**", "--include", ".git")
    assert "4 files (1 added, 3 unchanged)" in result.out
    assert "left out by default: node_modules, 1 hidden file" in result.out


def test_globs_choose_and_json_counts(documents: Path, tmp_path: Path, command: Command) -> None:
    arguments = ("--include", "*.md", "--include", "*.rst", "--exclude", "notes", "--json")
    result = command("index", documents, "-o", tmp_path / "x.idx", *arguments)
    report = json.loads(result.out)
    assert report["files"] == 1
    assert report["left_out"] == {
        "folders": {".git": 1, "node_modules": 1},
        "hidden_files": 1,
        "excluded": 1,
        "not_included": 2,
    }


def test_a_glob_that_can_match_nothing_is_one_line(documents: Path, tmp_path: Path, command: Command) -> None:
    result = command("index", documents, "-o", tmp_path / "x.idx", "--include", "/etc")
    assert result.status == 2
    assert result.err.startswith("UsageError: --include '/etc' matches nothing")
    assert not (tmp_path / "x.idx").exists()
