"""Searching needs to read an index and no more; what the system refuses is never called damage."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import needs
import pytest

from arbitrag.errors import IndexFileError
from arbitrag.retrieve import open_index, update_index
from arbitrag.retrieve.index import snapshot
from arbitrag.retrieve.index.manifest import unusable

NOBODY = 65534

# Everything is imported by a first search; after that the process may not even read Python's own folder.
_SEARCH = """
import asyncio, os, sys
from arbitrag.errors import IndexFileError
from arbitrag.retrieve import open_index, update_index
warm, index, what = sys.argv[1:]
def search(path):
    return sorted(passage.source for passage in asyncio.run(open_index(path).retrieve("hello", 9)))
search(warm)
update_index(None, warm)
if os.getuid() == 0 and what != "mounted":
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
assert not os.access(index, os.W_OK)
try:
    if what == "update":
        update_index(None, index)
    print(search(index))
except IndexFileError as error:
    print(error)
"""


@pytest.fixture(params=["", "hash"], ids=["bm25", "hybrid"])
def place(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder that everybody may read, with documents, an index of them, and another one."""
    here = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    here.chmod(0o755)
    try:
        (here / "docs").mkdir()
        for number in range(3):
            (here / "docs" / f"{number}.txt").write_text(f"hello world number{number}")
        for name in ("warm.idx", "x.idx"):
            update_index(here / "docs", here / name, encoder=request.param or None)
        yield here
    finally:
        for folder in [here, *here.rglob("*")]:
            if folder.is_dir():
                folder.chmod(0o755)
        shutil.rmtree(here)


def seal_off(idx: Path) -> None:
    for folder in (idx / "vectors", idx / "bm25", idx):
        if folder.exists():
            folder.chmod(0o555)


def as_nobody(place: Path, what: str = "search", *, before: tuple[str, ...] = ()) -> str:
    words = [*before, sys.executable, "-c", _SEARCH, str(place / "warm.idx"), str(place / "x.idx"), what]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


FOUND = "['0.txt', '1.txt', '2.txt']"


def contents(idx: Path) -> dict[str, tuple[int, int, int]]:
    stats = {str(path): path.lstat() for path in [idx, *idx.rglob("*")]}
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


def test_an_index_of_somebody_else_is_searched(place: Path) -> None:
    seal_off(place / "x.idx")
    before = contents(place / "x.idx")
    assert as_nobody(place) == FOUND
    assert contents(place / "x.idx") == before


def test_a_read_only_mount_is_searched(place: Path) -> None:
    idx = place / "x.idx"
    mounted = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && shift 0 && exec "$@"'
    before = ("unshare", "--mount", "sh", "-c", mounted, str(idx))
    if not shutil.which("unshare") or subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("no right to mount here")
    assert as_nobody(place, "mounted", before=before) == FOUND


def test_a_search_writes_nothing(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idx = place / "x.idx"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (idx / "bm25" / ".tantivy-meta.lock").unlink()
    before = contents(idx)
    assert len(asyncio.run(open_index(idx).retrieve("hello", 9))) == 3
    assert contents(idx) == before
    assert list(tmp_path.iterdir()) == []


def test_an_update_says_that_it_may_not_write(place: Path) -> None:
    seal_off(place / "x.idx")
    said = as_nobody(place, "update")
    assert said.startswith(f"the index {place / 'x.idx'} cannot be written: no permission to write there.\n")
    assert said.endswith("It can be searched; to change it, ask its owner, or make another index (-o OTHER.idx)")


@pytest.mark.parametrize("name", ["index.json", "bm25", "bm25/meta.json", "*.store", "*.term", "vectors", "*-keys.bin"])
@needs.permissions
def test_what_may_not_be_read_is_not_called_damaged(place: Path, name: str) -> None:
    idx = place / "x.idx"
    found = [idx / name] if "*" not in name else list(idx.rglob(name))
    if not all(path.exists() for path in found) or not found:
        pytest.skip("an index without vectors")
    for path in found:
        path.chmod(0)
    seal_off(place / "x.idx") if name not in ("bm25", "vectors") else idx.chmod(0o555)
    said = as_nobody(place)
    assert "cannot be read: Permission denied" in said
    assert f"its owner lets others read it by: chmod -R a+rX {idx}" in said
    assert "damaged" not in said


class TestErrorsOfTheSystem:
    def said_when_opening(self, place: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> str:
        import tantivy

        class Refusing:
            @staticmethod
            def open(path: str) -> object:
                raise error

        monkeypatch.setattr(tantivy, "Index", Refusing)
        with pytest.raises(IndexFileError) as raised:
            open_index(place / "x.idx")
        return str(raised.value)

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("Failed to acquire Lockfile: IoError(Os { code: 13, kind: PermissionDenied })", "Permission denied"),
            (
                "An IO error occurred: 'Too many open files (os error 24)'",
                "Too many open files.\nToo many files are open",
            ),
            (
                "An IO error occurred: 'Input/output error (os error 5)'",
                "Input/output error.\nSee what the system says",
            ),
        ],
    )
    def test_what_tantivy_was_refused(self, place: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str) -> None:
        said = self.said_when_opening(place, monkeypatch, ValueError(text))
        assert f"cannot be read: {says}" in said
        assert "damaged" not in said

    def test_what_tantivy_finds_wrong(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "is damaged: Data corrupted" in self.said_when_opening(place, monkeypatch, ValueError("Data corrupted"))

    @pytest.mark.parametrize(
        ("number", "writing", "says"),
        [
            (errno.EROFS, True, "It can be searched; to change it, ask its owner"),
            (errno.ENOSPC, True, "The disk is full; what was there before can still be searched"),
            (errno.EDQUOT, True, "The disk is full"),
            (errno.EACCES, False, "its owner lets others read it"),
            (errno.EMFILE, False, "raise the limit (ulimit -n 4096)"),
            (errno.EIO, False, "See what the system says of this disk"),
        ],
    )
    def test_each_says_what_to_do(self, number: int, writing: bool, says: str) -> None:
        said = str(unusable(Path("x.idx"), "", OSError(number, os.strerror(number)), writing=writing))
        assert says in said

    def test_no_place_for_temporary_files(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def nowhere(*rest: object, **options: object) -> str:
            raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

        monkeypatch.setattr(tempfile, "mkdtemp", nowhere)
        assert len(asyncio.run(open_index(place / "x.idx").retrieve("hello", 9))) == 3  # by a lock, where it may write
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(IndexFileError, match=r"no folder for temporary files .*\nName one: export TMPDIR=FOLDER"):
            open_index(place / "x.idx")


def test_a_writer_that_removes_files_meanwhile(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the reading of meta.json and the opening of its files there is no lock."""
    idx, real, commits = place / "x.idx", snapshot.verify, []

    def verify(words: Path, files: tuple[str, ...], at_most: int | None = None) -> None:
        if at_most is None:  # an update looks at everything
            return real(words, files)
        commits.append(files)
        if len(commits) == 1:
            (place / "docs" / "new.txt").write_text("hello again")
            update_index(None, idx)
            raise snapshot.Damaged("a file of the commit before is missing")
        return real(words, files, at_most)

    monkeypatch.setattr(snapshot, "verify", verify)
    assert len(asyncio.run(open_index(idx).retrieve("hello", 9))) == 4
    assert commits[0] != commits[1]
    (idx / "bm25" / commits[1][0]).unlink()
    with pytest.raises(IndexFileError, match=r"is damaged: bm25/\S+ is missing"):  # and no writer to blame
        open_index(idx)
