"""Open a text index read-only: nothing is written into its folder, and its checksums are verified.

tantivy takes a lock in the folder that it opens, and so needs to write there, also to search. So it is given a folder
of this process's own: a copy of ``meta.json``, which names the segments of one commit, and links to their files. They
are all mapped when it has opened them, and the folder is removed again. Where links cannot be made (Windows without
the right to, no place for temporary files) tantivy opens the folder itself.

The lock keeps a writer from removing files between the reading of ``meta.json`` and their mapping. Without it, what is
missing or does not fit is looked for again when ``meta.json`` has changed meanwhile.

Each segment file ends in a checksum that tantivy writes and never reads. It is compared here: once per file and
process, up to ``VERIFIED_BYTES`` in all when an index is opened (the small files first), and without a limit before an
index is changed. ``benchmarks/hybrid.py`` measures what it takes: about a second per GB.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from arbitrag.errors import IndexFileError
from arbitrag.retrieve.index.manifest import LARGEST
from arbitrag.storage.files import check_plain, open_reading, read_plain
from arbitrag.text import printable

if TYPE_CHECKING:
    import tantivy

META = "meta.json"
_LOCK = ".tantivy-meta.lock"
VERIFIED_BYTES = 1 << 30
_TRIES = 8  # a writer that commits again and again is still slower than this
_PARTS = ("store", "idx", "term", "pos", "fast", "fieldnorm")
_TAIL = struct.Struct("<II")  # length of the footer, and a magic number
_MAGIC = 1337
_LONGEST_FOOTER = 50_000
_CHUNK = 1 << 20
_SETTLED_NS = 2_000_000_000
_SEGMENT = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")

# Segment files are never changed, so one that was compared is known by what the system says of it; but not one that was
# written just now, whose time would not tell another change.
_verified: set[tuple[int, int, int, int]] = set()


class Damaged(Exception):
    """A file fails its checksum or format check; the text can follow the name of the index."""


@dataclass(frozen=True)
class Commit:
    """A commit as ``meta.json`` describes it: its number, its checksum, and the files of its segments."""

    number: int
    crc: int
    files: tuple[str, ...]
    content: bytes


def read_commit(words: Path) -> Commit:
    """The last commit of the text index in a folder. Raises Damaged, and OSError when it is missing or unreadable."""
    try:
        content = read_plain(words / META, at_most=LARGEST)
        found = json.loads(content)
        number = found["opstamp"]
        files = tuple(name for segment in found["segments"] for name in _files_of(segment))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Damaged(f"{words.name}/{META} is not what it should be") from None
    if type(number) is not int:
        raise Damaged(f"{words.name}/{META} is not what it should be")
    return Commit(number, zlib.crc32(content), files, content)


def open_snapshot(words: Path) -> tuple[tantivy.Index, Commit]:
    """tantivy's index at its last commit, to search, and that commit.

    Raises Damaged, OSError, or what tantivy raises.
    """
    for _ in range(_TRIES - 1):
        commit = read_commit(words)
        try:
            return _opened(words, commit), commit
        except (Damaged, OSError, ValueError):
            if read_commit(words).content == commit.content:
                raise
    commit = read_commit(words)
    return _opened(words, commit), commit


def verify(words: Path, files: Sequence[str], at_most: int | None = None) -> None:
    """Verify the checksums of segment files, the small ones first, until so many bytes are read.

    Raises Damaged for one that does not fit or is missing, OSError for one that cannot be read.
    """
    sizes = []
    for name in files:
        try:
            sizes.append(((words / name).stat().st_size, name))
        except FileNotFoundError:
            raise Damaged(f"{words.name}/{name} is missing") from None
    for size, name in sorted(sizes):
        if at_most is not None:
            at_most -= size
            if at_most < 0:
                return
        _verify(words / name)


def _files_of(segment: dict[str, Any]) -> Iterator[str]:
    name = str(segment["segment_id"])
    if not _SEGMENT.fullmatch(name):
        raise ValueError
    name = name.replace("-", "")
    yield from (f"{name}.{part}" for part in _PARTS)
    if segment["deletes"] is not None:
        yield f"{name}.{int(segment['deletes']['opstamp'])}.del"


def _opened(words: Path, commit: Commit) -> tantivy.Index:
    import tantivy

    verify(words, commit.files, VERIFIED_BYTES)
    with _linked(words, commit) as folder:
        index = tantivy.Index.open(str(folder))
        index.config_reader("manual")  # nothing is watched: a later commit is opened anew
    return index


@contextmanager
def _linked(words: Path, commit: Commit) -> Iterator[Path]:
    """A folder of this process with links to the files of a commit; the folder itself where there can be none."""
    folder = _made(words, commit)
    if folder is None:
        _check_lock(words)
    try:
        yield folder or words
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _check_lock(words: Path) -> None:
    """Raise IndexFileError where tantivy could not take its lock, DataError where that is a link."""
    if not os.access(words, os.W_OK):
        shown = printable(str(words.parent))
        raise IndexFileError(
            f"the index {shown} may not be written, and there is no folder for temporary files to search it from "
            "(a few KB).\nName one: export TMPDIR=FOLDER"
        )
    check_plain(words / _LOCK)


def _made(words: Path, commit: Commit) -> Path | None:
    for place in (None, "/dev/shm"):  # a container may have nowhere else to write
        folder = None
        try:
            folder = Path(tempfile.mkdtemp(prefix="arbitrag-", dir=place))
            (folder / META).write_bytes(commit.content)
            for name in commit.files:
                (folder / name).symlink_to((words / name).absolute())
        except OSError:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            continue
        return folder
    return None


def _verify(path: Path) -> None:
    """Compare the checksum of one file with that in its footer, a JSON object before eight bytes at the end."""
    where = f"{path.parent.name}/{path.name}"
    try:
        file = open_reading(path)
    except ValueError as error:
        raise Damaged(str(error)) from None
    with file:
        status = os.fstat(file.fileno())
        written_ns = max(status.st_mtime_ns, status.st_ctime_ns)
        key = (status.st_dev, status.st_ino, status.st_size, written_ns)
        if key in _verified:
            return
        try:
            expected, length = _footer(file, status.st_size)
        except (ValueError, KeyError, TypeError, struct.error):
            raise Damaged(f"{where} does not end as it should") from None
        if _crc(file, length) != expected:
            raise Damaged(f"{where} is not what was written (another checksum)")
    if time.time_ns() - written_ns > _SETTLED_NS:
        _verified.add(key)


def _footer(file: BinaryIO, size: int) -> tuple[int, int]:
    """The checksum that a file says it has, and the length of what it is over."""
    if size < _TAIL.size:
        raise ValueError
    file.seek(-_TAIL.size, os.SEEK_END)
    length, magic = _TAIL.unpack(file.read(_TAIL.size))
    body = size - _TAIL.size - length
    if magic != _MAGIC or length > _LONGEST_FOOTER or body < 0:
        raise ValueError
    file.seek(body)
    expected = json.loads(file.read(length))["crc"]
    if type(expected) is not int:
        raise ValueError
    return expected, body


def _crc(file: BinaryIO, length: int) -> int:
    file.seek(0)
    found = 0
    while length and (chunk := file.read(min(length, _CHUNK))):
        found = zlib.crc32(chunk, found)
        length -= len(chunk)
    return found
