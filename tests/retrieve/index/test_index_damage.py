"""One changed byte anywhere in an index: one clear error, or exactly the answers of before."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from arbitrag.errors import IndexFileError
from arbitrag.retrieve import open_index, update_index
from arbitrag.retrieve.index.snapshot import Damaged, verify
from arbitrag.types import Passage

FILES = 30
QUERIES = ("orchard", "number7 river", "gate number21 orchard")
PLACES = 6  # bytes of each file that are changed, the first and the last among them


def write(docs: Path, numbers: Sequence[int], word: str = "orchard") -> None:
    docs.mkdir(exist_ok=True)
    for number in numbers:
        (docs / f"{number:02}.jsonl").write_text(
            f'{{"text": "The {word} number{number} and the river by the gate.", "half": "{number % 2}"}}\n'
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents and an index of them with everything that an index can have: codes, tags, a deleted passage."""
    here = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        make_few_exact(patch)
        write(here / "docs", range(FILES))
        update_index(here / "docs", here / "x.idx", encoder="hash")
        write(here / "docs", [3, 4], "garden")
        update_index(None, here / "x.idx")
    return here


@pytest.fixture(autouse=True)
def few_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    make_few_exact(monkeypatch)


def make_few_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes from 20 rows on, so that they are read here too."""
    pytest.importorskip("faiss")
    for module in ("codes", "dense", "vectors"):
        monkeypatch.setattr(f"arbitrag.retrieve.index.{module}.EXACT_ROWS", 20)


def answers(idx: Path) -> list[tuple[Passage, ...]]:
    async def ask() -> list[tuple[Passage, ...]]:
        found = []
        for mode in ("hybrid", "bm25"):
            index = open_index(idx, mode=mode)
            for query in QUERIES:
                found.append(await index.retrieve(query, 8))
                found.append(await index.retrieve(query, 8, {"half": "1"}))
            await index.aclose()
        return found

    return asyncio.run(ask())


def plain(found: list[tuple[Passage, ...]]) -> list[list[object]]:
    return [
        [(each.text, each.source, each.score, np.asarray(each.embedding).tobytes()) for each in row] for row in found
    ]


def names(idx: Path) -> list[str]:
    return sorted(path.relative_to(idx).as_posix() for path in idx.rglob("*") if path.is_file())


def test_the_index_has_every_kind_of_file(made: Path) -> None:
    suffixes = {
        name.rpartition(".")[2] if "bm25" in name else name.rpartition("-")[2] for name in names(made / "x.idx")
    }
    assert suffixes >= {"store", "idx", "term", "pos", "fast", "fieldnorm", "del", "json"}
    assert suffixes >= {"keys.bin", "tags.bin", "sums.bin", "vectors.bin", "codes.faiss"}


def flipped(path: Path, places: int = PLACES) -> Iterator[int]:
    """Change one byte after the other of a file, for as long as each is asked for."""
    content = path.read_bytes()
    for place in sorted({int(at) for at in np.linspace(0, len(content) - 1, places)} if content else ()):
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << place % 8)]) + content[place + 1 :])
        yield place
    path.write_bytes(content)


def test_a_changed_byte_changes_no_answer(made: Path, tmp_path: Path) -> None:
    idx = tmp_path / "x.idx"
    shutil.copytree(made / "x.idx", idx)
    expected, told = plain(answers(idx)), dict[str, str]()
    for name in names(idx):
        for place in flipped(idx / name):
            try:
                found = plain(answers(idx))
            except IndexFileError as error:
                told[name] = str(error)
            else:
                assert found == expected, f"{name} at {place}"
    unread = {"bm25/.managed.json", "files.sqlite", *(name for name in names(idx) if name.endswith(".lock"))}
    assert set(names(idx)) - told.keys() == unread
    assert all(re.search("is damaged: |has index format|have format|not an index", each) for each in told.values())


def test_an_update_of_a_changed_index_ends_with_the_right_documents(made: Path, tmp_path: Path) -> None:
    fresh = sorted({each.text for each in answers(made / "x.idx")[0]})
    changed, idx = tmp_path / "changed.idx", tmp_path / "x.idx"
    shutil.copytree(made / "x.idx", changed)
    for name in names(changed):
        for place in flipped(changed / name, 4):
            shutil.copytree(changed, idx)
            try:
                update_index(None, idx)
                found = sorted({each.text for each in answers(idx)[0]})
            except IndexFileError:
                found = fresh
            assert found == fresh, f"{name} at {place}"
            shutil.rmtree(idx)


def test_an_update_notices_damage_to_its_own_table(made: Path, tmp_path: Path) -> None:
    idx = tmp_path / "x.idx"
    shutil.copytree(made / "x.idx", idx)
    with closing(sqlite3.connect(idx / "files.sqlite")) as database, database:
        database.execute("UPDATE files SET number = 99 WHERE number = 7")  # whose passages would never be dropped
    with pytest.raises(IndexFileError, match=r"is damaged: files\.sqlite was changed after it was written"):
        update_index(None, idx)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [zero, half, remove])
@pytest.mark.parametrize("what", ["keys.bin", "sums.bin", "tags.bin", "vectors.bin", "codes.faiss", "vectors.json"])
def test_vectors_that_were_cut_or_wiped(made: Path, tmp_path: Path, what: str, harm: Callable[[Path], None]) -> None:
    idx = tmp_path / "x.idx"
    shutil.copytree(made / "x.idx", idx)
    (path,) = (idx / "vectors").glob(f"*{what}")
    harm(path)
    with pytest.raises(IndexFileError, match=r"is damaged: .*\bvectors"):
        answers(idx)


def test_a_missing_folder_of_vectors_is_no_search_without_them(made: Path, tmp_path: Path) -> None:
    idx = tmp_path / "x.idx"
    shutil.copytree(made / "x.idx", idx)
    shutil.rmtree(idx / "vectors")
    for mode in (None, "bm25", "hybrid"):
        with pytest.raises(IndexFileError, match=r"is damaged: vectors/vectors\.json is missing"):
            open_index(idx, mode=mode)
    with pytest.raises(IndexFileError, match=r"is damaged: vectors/vectors\.json is missing"):
        update_index(None, idx)


def test_vectors_of_an_earlier_copy_are_noticed(made: Path, tmp_path: Path) -> None:
    write(tmp_path / "docs", range(5))
    idx = tmp_path / "x.idx"
    update_index(tmp_path / "docs", idx, encoder="hash")
    shutil.copytree(idx / "vectors", tmp_path / "before")
    write(tmp_path / "docs", range(5, 9))
    update_index(None, idx)
    shutil.rmtree(idx / "vectors")
    (tmp_path / "before").rename(idx / "vectors")
    with pytest.raises(IndexFileError, match=r"is damaged: vectors holds 5 vectors, and index\.json knows of 9"):
        open_index(idx)


def test_the_largest_files_are_left_to_an_update(made: Path) -> None:
    words = made / "x.idx" / "bm25"
    names = [path.name for path in words.glob("*.store")]
    verify(words, names, at_most=10)  # less than any of them has: none is read
    with pytest.raises(Damaged, match="is missing"):
        verify(words, ["nowhere.store"], at_most=10)
