"""An index whose files were changed by somebody else: one clear error each, whatever was done to which file."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from arbitrag.errors import IndexFileError
from arbitrag.retrieve import open_index, update_index


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder ``docs`` and its index ``docs.idx``."""
    here = tmp_path_factory.mktemp("made")
    (here / "docs").mkdir()
    for number in range(8):
        (here / "docs" / f"{number}.txt").write_text(f"hello world number{number} " * 30)
    update_index(here / "docs", here / "docs.idx")
    return here


@pytest.fixture
def idx(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "docs.idx", tmp_path / "docs.idx")
    return tmp_path / "docs.idx"


def search(idx: Path) -> int:
    return len(asyncio.run(open_index(idx).retrieve("hello number3", 5)))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scramble(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 4)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [truncate, scramble, empty, remove])
@pytest.mark.parametrize("suffix", ["fast", "fieldnorm", "idx", "pos", "store", "term", "meta.json"])
def test_harm_to_the_words_is_told_when_searching(idx: Path, suffix: str, harm: Callable[[Path], None]) -> None:
    for path in (idx / "bm25").glob(f"*{suffix}"):
        harm(path)
    with pytest.raises(
        IndexFileError, match=r"is damaged: .*\nRemove it and build it again: arbitrag index FOLDER -o "
    ):
        search(idx)


@pytest.mark.parametrize("harm", [truncate, scramble, empty, remove])
@pytest.mark.parametrize("name", ["meta.json", "store"])
def test_harm_to_the_words_is_told_when_indexing(
    made: Path, idx: Path, name: str, harm: Callable[[Path], None]
) -> None:
    for path in (idx / "bm25").glob(f"*{name}"):
        harm(path)
    with pytest.raises(IndexFileError, match="is damaged"):
        update_index(made / "docs", idx)


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (truncate, "is damaged: files.sqlite: database disk image is malformed"),
        (scramble, "is damaged: files.sqlite: file is not a database"),
        (empty, "is damaged: its file table knows 0 passages, but it holds 8"),
        (remove, "is damaged: its file table knows 0 passages, but it holds 8"),
    ],
)
def test_harm_to_the_file_table_is_told_when_indexing(
    made: Path, idx: Path, harm: Callable[[Path], None], text: str
) -> None:
    harm(idx / "files.sqlite")
    assert search(idx) == 5  # searching does not need it
    with pytest.raises(IndexFileError, match=text):
        update_index(made / "docs", idx)


def manifest(**changes: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def text(content: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_text(content)

    return change


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (truncate, "is damaged: its index.json is not JSON"),
        (scramble, "is damaged: its index.json is not JSON"),
        (empty, "is damaged: its index.json is not JSON"),
        (remove, "is a folder, but not an index: it has no index.json"),
        (text("[]"), "is a folder, but not an index: its index.json is of another kind"),
        (text("[" * 100_000), "is damaged: its index.json is not JSON"),
        (manifest(format="other"), "is a folder, but not an index: its index.json is of another kind"),
        (manifest(version=3), "has index format 3; this version of arbitrag reads format 2"),
        (
            manifest(version=1, root="/home/me/docs"),
            r"has index format 1; .* format 2.\nBuild another one \(arbitrag index /home/me/docs -o OTHER.idx\)",
        ),
        (manifest(commit=1), "is damaged: its index.json was changed after it was written"),
        (manifest(sources=[]), "is damaged: its index.json was changed after it was written"),
        (
            manifest(sources=[{"path": 1, "name": "", "folder": True}]),
            r"'sources\[0\].path' is a whole number; expected",
        ),
        (manifest(version="x\x1b[31m"), r"has index format x\\u001b\[31m; this version"),
        (manifest(version=None), "has index format None; this version"),
        (manifest(passage_tokens="many"), r"its index.json is not what it should be \('passage_tokens' is a string;"),
        (manifest(passage_tokens=True), "'passage_tokens' is true or false; expected a whole number"),
        (manifest(digest=7), "'digest' is a whole number; expected a string"),
    ],
)
def test_harm_to_the_manifest(made: Path, idx: Path, harm: Callable[[Path], None], message: str) -> None:
    harm(idx / "index.json")
    with pytest.raises(IndexFileError, match=message):
        search(idx)
    with pytest.raises(IndexFileError, match=message):
        update_index(made / "docs", idx)


def test_a_missing_index_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(
        IndexFileError, match=r"there is no index .*docs.idx. Build it: arbitrag index FOLDER -o .*docs"
    ):
        open_index(tmp_path / "docs.idx")


def test_a_file_is_not_an_index(tmp_path: Path) -> None:
    (tmp_path / "docs.idx").write_text("hello")
    with pytest.raises(IndexFileError, match=r"docs.idx is a file; an index is a folder. Build it: .* -o docs.idx"):
        open_index(tmp_path / "docs.idx")


def test_the_whole_is_readable_again_after_a_new_start(made: Path, idx: Path) -> None:
    scramble(idx / "index.json")
    shutil.rmtree(idx)
    update_index(made / "docs", idx)
    assert search(idx) == 5
