"""Which version of which file is in an index: a table beside it, written so that a crash leaves nothing in doubt.

Every version of a file has a number, and each of its passages carries that number. A batch is recorded in three steps:
the new versions and those to be dropped are noted as pending, with the number of the last commit; the passages are
committed, which is atomic; what is pending takes effect. After a crash it takes effect when the commit's number has
changed since, and is forgotten when it has not.

Holding the ledger open is also the lock: one process may change an index at a time, and the system releases the lock
with the process, however it ends. Searching does not read the ledger.

sqlite notices little of what happens to its file, so every row has a checksum, which is looked at before an update.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from arbitrag.errors import IndexFileError
from arbitrag.retrieve.documents.ingest import DocumentFile
from arbitrag.retrieve.index.manifest import LEDGER, corrupt, unusable
from arbitrag.storage.files import check_plain, open_plain, read_plain
from arbitrag.text import printable

_OWNER = "writer.pid"
_TABLES = """
CREATE TABLE IF NOT EXISTS files (
    number INTEGER PRIMARY KEY, source TEXT NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    digest BLOB NOT NULL, passages INTEGER NOT NULL, reason TEXT NOT NULL, origin TEXT NOT NULL,
    crc INTEGER NOT NULL, pending INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS by_source ON files (source);
CREATE TABLE IF NOT EXISTS batch (last_commit INTEGER NOT NULL);
CREATE TEMP TABLE seen (
    source TEXT PRIMARY KEY, path BLOB, size INTEGER, mtime_ns INTEGER, origin TEXT
) WITHOUT ROWID;
"""
# What sqlite says when nothing is wrong with the file, and what the system would have said.
_REFUSED = {
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
}
# What stands in ``pending``; 0 is a version that is in the index.
_NEW, _DROPPED = 1, 2
# Tables of their own, so that they can be walked through while the files change.
_PLAN = """
UPDATE files SET origin = seen.origin FROM seen WHERE files.source = seen.source AND files.origin != seen.origin;
CREATE TEMP TABLE todo AS
    SELECT seen.path, seen.source, seen.size, seen.mtime_ns, seen.origin, files.number, files.digest, files.passages
    FROM seen LEFT JOIN files USING (source)
    WHERE files.size IS NOT seen.size OR files.mtime_ns IS NOT seen.mtime_ns ORDER BY seen.source;
CREATE TEMP TABLE lost AS
    SELECT number, source, passages FROM files WHERE source NOT IN (SELECT source FROM seen) ORDER BY source;
"""


@dataclass(frozen=True, slots=True)
class Version:
    """A file as it was when it was read. ``passages`` is 0 when it is of no use, and ``reason`` says why."""

    number: int
    source: str
    size: int
    mtime_ns: int
    digest: bytes
    passages: int
    reason: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A version that is in the index."""

    number: int
    source: str
    passages: int
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Task:
    """A file that is new or looks changed by size or time, and its version in the index if it has one."""

    found: DocumentFile
    old: IndexedFile | None


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """Counts of files: ``seen`` now, ``recorded`` before; ``todo`` are to be read, ``size`` bytes. ``emptied`` are the
    names of the index's sources of whose files, as many as stand there, none is left."""

    seen: int
    recorded: int
    size: int
    todo: int
    emptied: Mapping[str, int]


class Ledger:
    """The table of one index, open for writing. Use ``open_ledger``."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        (highest,) = database.execute("SELECT coalesce(max(number), 0) FROM files").fetchone()
        self._number: int = highest

    def next_number(self) -> int:
        """A number that no version in the index has."""
        self._number += 1
        return self._number

    def recover(self, commit: int) -> None:
        """Settle or forget what a crash left pending. ``commit`` is the number of the last commit now."""
        noted = self._database.execute("SELECT last_commit FROM batch").fetchone()
        if noted is not None and noted[0] != commit:
            self.settle()
            return
        with self._database as database:
            database.execute("DELETE FROM files WHERE pending = ?", (_NEW,))
            database.execute("UPDATE files SET pending = 0 WHERE pending = ?", (_DROPPED,))

    def changed_outside(self) -> bool:
        """Whether a row is not what was written."""
        (bad,) = self._database.execute(
            "SELECT count(*) FROM files WHERE crc != row_crc(number, source, size, mtime_ns, digest, passages, reason)"
        ).fetchone()
        return bool(bad)

    def plan(self, found: Iterable[DocumentFile]) -> UpdatePlan:
        """Compare the files that exist now with the recorded ones."""
        rows = ((each.source, os.fsencode(each.path), each.size, each.mtime_ns, each.origin) for each in found)
        with self._database as database:
            database.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?, ?, ?, ?)", rows)
        self._database.executescript(_PLAN)
        seen, recorded, size, todo = self._database.execute(
            "SELECT (SELECT count(*) FROM seen), (SELECT count(*) FROM files), "
            "(SELECT coalesce(sum(size), 0) FROM todo), (SELECT count(*) FROM todo)"
        ).fetchone()
        emptied = self._database.execute(
            "SELECT origin, count(*) FROM files GROUP BY origin "
            "HAVING count(*) = sum(number IN (SELECT number FROM lost))"
        )
        return UpdatePlan(seen, recorded, size, todo, dict(emptied))

    def tasks(self) -> Iterator[Task]:
        """The files to be read, in the order of their names."""
        for path, source, size, mtime_ns, origin, number, digest, passages in self._database.execute(
            "SELECT * FROM todo"
        ):
            old = None if number is None else IndexedFile(number, source, passages, digest)
            yield Task(DocumentFile(os.fsdecode(path), source, size, mtime_ns, origin), old)

    def lost(self) -> Iterator[IndexedFile]:
        """Recorded files that do not exist any more."""
        return (IndexedFile(*row) for row in self._database.execute("SELECT * FROM lost"))

    def useless(self) -> Iterator[tuple[str, str]]:
        """Source and reason of the recorded files without passages."""
        return iter(self._database.execute("SELECT source, reason FROM files WHERE passages = 0 ORDER BY source"))

    def propose(self, versions: Iterable[Version], dropped: Iterable[int], last_commit: int) -> None:
        """Note versions, and numbers to be dropped, as pending before their passages are committed or removed."""
        rows = ((*values, origin, _row_crc(*values), _NEW) for *values, origin in map(astuple, versions))
        with self._database as database:
            database.executemany("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            database.executemany(
                "UPDATE files SET pending = ? WHERE number = ?", ((_DROPPED, number) for number in dropped)
            )
            database.execute("DELETE FROM batch")
            database.execute("INSERT INTO batch VALUES (?)", (last_commit,))

    def settle(self) -> None:
        """Let the new versions replace the old ones, and forget those that are dropped."""
        with self._database as database:
            database.execute("DELETE FROM files WHERE pending = ?", (_DROPPED,))
            database.execute(
                "DELETE FROM files WHERE NOT pending AND source IN (SELECT source FROM files WHERE pending)"
            )
            database.execute("UPDATE files SET pending = 0 WHERE pending")
            database.execute("DELETE FROM batch")

    def touch(self, same: Collection[tuple[int, int]]) -> None:
        """Note new times (number, mtime_ns) of files whose bytes are the same."""
        with self._database as database:
            rows = ((mtime_ns, number) for number, mtime_ns in same)
            database.executemany("UPDATE files SET mtime_ns = ? WHERE number = ?", rows)
            database.executemany(
                "UPDATE files SET crc = row_crc(number, source, size, mtime_ns, digest, passages, reason) "
                "WHERE number = ?",
                ((number,) for number, _ in same),
            )

    def totals(self) -> tuple[int, int]:
        """Files with passages, and passages."""
        files, passages = self._database.execute(
            "SELECT count(*), coalesce(sum(passages), 0) FROM files WHERE passages > 0"
        ).fetchone()
        return files, passages

    def digest(self) -> str:
        """A hash over the names and bytes of all files with passages."""
        summary = hashlib.sha256()
        rows = self._database.execute("SELECT source, digest FROM files WHERE passages > 0 ORDER BY source")
        for source, digest in rows:
            summary.update(source.encode() + b"\0" + digest)
        return summary.hexdigest()


@contextmanager
def open_ledger(folder: Path) -> Iterator[Ledger]:
    """The ledger of an index, made when it is new; no other process can change the index meanwhile.

    Raises IndexFileError when another process holds it, or when it is damaged.
    """
    owner = folder / _OWNER
    check_plain(folder / LEDGER)
    try:
        with closing(sqlite3.connect(folder / LEDGER, timeout=0)) as database:
            _lock(database, folder, owner)
            try:
                _write_owner(owner)
                database.create_function("row_crc", 7, _row_crc, deterministic=True)
                _make_tables(database, folder)
                yield Ledger(database)
            finally:
                owner.unlink(missing_ok=True)
    except sqlite3.DatabaseError as error:
        code = _REFUSED.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        if code is None:
            raise corrupt(folder, f"{LEDGER}: {error}") from error
        raise unusable(folder, LEDGER, OSError(code, str(error)), writing=True) from error


def _make_tables(database: sqlite3.Connection, folder: Path) -> None:
    try:
        database.executescript(_TABLES)
    except UnicodeDecodeError as error:  # of sqlite's own message, which repeats what it cannot read
        raise corrupt(folder, f"{LEDGER}: its tables are not text") from error


def _row_crc(*values: object) -> int:
    """A checksum of what a row says of a file: all of ``Version`` but its origin."""
    return zlib.crc32(repr(values).encode("utf-8", "backslashreplace"))


def _write_owner(owner: Path) -> None:
    """Leave the number of this process, for the one that finds the index in use."""
    owner.unlink(missing_ok=True)
    with open_plain(owner, "xb") as file:
        file.write(str(os.getpid()).encode())


def _lock(database: sqlite3.Connection, folder: Path, owner: Path) -> None:
    try:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")  # held until the connection closes
        database.execute("BEGIN EXCLUSIVE")
        database.commit()
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
        raise _in_use(folder, owner) from None


def _in_use(folder: Path, owner: Path) -> IndexFileError:
    process = ""
    with suppress(OSError, ValueError):
        process = f" (pid {int(read_plain(owner, at_most=20))})"
    shown = printable(str(folder))
    return IndexFileError(f"the index {shown} is being written by another process{process}; wait for it, or end it")
