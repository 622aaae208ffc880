"""Links, pipes and devices that somebody planted in an index: an update follows and opens none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import needs
import pytest

from arbitrag.errors import IndexFileError
from arbitrag.retrieve import open_index, update_index

NAMES = [
    "index.json",
    "index.json.tmp",
    "writer.pid",
    "files.sqlite",
    "files.sqlite-journal",
    "bm25",
    "bm25/meta.json",
    "bm25/.tantivy-writer.lock",
    "bm25/.tantivy-meta.lock",
    "vectors",
    "vectors/vectors.json",
    "vectors/1-vectors.bin",
    "vectors/1-sums.bin",
    "vectors/1-keys.bin",
    "vectors/1-tags.bin",
]


@pytest.fixture
def idx(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("hello world")
    update_index(tmp_path / "docs", tmp_path / "x.idx", encoder="hash")
    (tmp_path / "docs" / "b.txt").write_text("hello again")
    return tmp_path / "x.idx"


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["same", "victim", "dangling", "pipe"])
@needs.links
@needs.pipes
def test_nothing_is_written_through_it(idx: Path, tmp_path: Path, name: str, kind: str) -> None:
    path, victim = idx / name, tmp_path / "victim"
    if kind == "same" and path.exists():  # what the link leads to is what an index has there
        path.rename(victim)
    else:
        victim.write_text("precious")
        remove(path)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "made" if kind == "dangling" else victim)
    before = {each: each.read_bytes() for each in [victim, *victim.rglob("*")] if each.is_file()}
    with pytest.raises(IndexFileError) as error:
        update_index(None, idx)
    assert not (tmp_path / "made").exists()
    assert {each: each.read_bytes() for each in [victim, *victim.rglob("*")] if each.is_file()} == before
    if kind == "same":
        assert str(error.value).startswith(f"{path} is a link, which Arbitrag did not put there; nothing was written.")


@pytest.mark.parametrize("name", ["index.json", "bm25/meta.json", "vectors/vectors.json", "vectors/1-keys.bin"])
@needs.pipes
def test_a_pipe_is_not_waited_for_when_searching(idx: Path, name: str) -> None:
    (idx / name).unlink()
    os.mkfifo(idx / name)
    with pytest.raises(IndexFileError):
        open_index(idx)


@needs.links
def test_a_new_index_is_not_made_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("hello world")
    (tmp_path / "victim").mkdir()
    (tmp_path / "x.idx").mkdir()
    (tmp_path / "x.idx" / "bm25").symlink_to(tmp_path / "victim")
    with pytest.raises(IndexFileError, match="is a link, which Arbitrag did not put there"):
        update_index(tmp_path / "docs", tmp_path / "x.idx")
    assert list((tmp_path / "victim").iterdir()) == []


@needs.links
def test_an_index_of_links_is_searched(idx: Path, tmp_path: Path) -> None:
    """As some stores of large files and of containers lay a folder out."""
    update_index(None, idx)
    copy = tmp_path / "copy.idx"
    for path in idx.rglob("*"):
        if path.is_file():
            (copy / path.relative_to(idx)).parent.mkdir(parents=True, exist_ok=True)
            (copy / path.relative_to(idx)).symlink_to(path)
    assert len(open_index(copy, mode="bm25").name) > 0
