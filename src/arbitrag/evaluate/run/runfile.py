"""The file under a run: an sqlite database that survives a kill, has one writer at a time, and readers at any time.

Every commit is in the hands of the system when it returns (a write-ahead log, ``synchronous = NORMAL``): what ends the
process loses nothing; only what stops the machine itself may cost the last commits, and leaves the file whole. When
the writer ends in order the log is folded in, so that the run is one file to copy; after a kill, ``RUN.db-wal`` beside
it belongs to it until the run is opened again.

The writer holds a ``Lock``, whose file is ``.RUN.db.lock``.
"""

from __future__ import annotations

import os
import re
import sqlite3
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from arbitrag.errors import DataError
from arbitrag.evaluate.run import write_ahead_log
from arbitrag.storage.files import check_plain, check_writable, draft_of, open_plain
from arbitrag.storage.lock import is_held
from arbitrag.text import one_line, printable

APPLICATION = 0x41524254  # "ARBT", in the file's header
VERSION = 3
READABLE = (1, 2, 3)  # 1 has no checksums; in 1 and 2 prompt tokens are without the cached ones
BUSY_S = 10.0

_SQLITE = b"SQLite format 3\x00"
_OF_CONTENT = re.compile("decode|malformed|no such|not a database|unsupported|syntax|misuse|parse", re.IGNORECASE)


def create(path: Path, tables: str) -> None:
    """Make an empty run file in one step; raises DataError when it is there already or cannot be written."""
    check_writable(path)
    if os.path.lexists(path):
        raise DataError(f"{_shown(path)} is there already")
    draft = draft_of(path)
    try:
        with told(path):
            open_plain(draft, "xb").close()
            connection = sqlite3.connect(draft, isolation_level=None)
            try:
                connection.executescript(
                    f"BEGIN; PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; {tables} COMMIT;"
                )
            finally:
                connection.close()
            draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink()


def remove(path: Path) -> None:
    """Take away a run file that holds nothing, with what lies beside it."""
    for each in (path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))):
        with suppress(OSError):
            each.unlink()


def reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot change the file; raises DataError for one that is no run of this version."""
    check(path)
    name = path.absolute().as_uri()
    with told(path):
        connection = sqlite3.connect(f"{name}?mode=ro", uri=True, timeout=BUSY_S, isolation_level=None)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            connection.close()
            if path.with_name(f"{path.name}-wal").exists():
                raise
            # In a folder that nobody may write to, nobody writes to the file either.
            connection = sqlite3.connect(f"{name}?mode=ro&immutable=1", uri=True, isolation_level=None)
        _guard(connection, path)
        if write_ahead_log.is_cut(path, connection) and not is_held(path):
            connection.close()
            raise DataError(
                f"{_shown(path)}-wal, which belongs to the run, is damaged: finished rows in it cannot be read\n"
                f"To keep what can be read and make the rest again, type: arbitrag bench run {_shown(path)}"
            )
    return connection


def writer(path: Path, upgrade: Callable[[sqlite3.Connection, int], str]) -> sqlite3.Connection:
    """A connection that writes; hold the ``Lock`` first. ``upgrade`` gives the statements that bring an older version
    of the file, which it is told, to this one.

    Raises DataError as ``reader`` does.
    """
    check(path)
    check_plain(path)
    if not os.access(path, os.W_OK):
        raise DataError(f"cannot write {_shown(path)}: the file is read-only")
    check_writable(path)
    with told(path):
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        _guard(connection, path)
        if write_ahead_log.is_cut(path, connection):
            said = f"{_shown(path)}-wal is damaged: finished rows in it cannot be read, and are made again"
            warnings.warn(said, RuntimeWarning, stacklevel=2)
        if (found := version(connection, path)) < VERSION:
            connection.executescript(f"BEGIN; {upgrade(connection, found)} PRAGMA user_version = {VERSION}; COMMIT;")
    return connection


def version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of an open run file."""
    with told(path):
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _guard(connection: sqlite3.Connection, path: Path) -> None:
    """Raise DataError for a file that holds more than tables: a view or a trigger is another's program.

    A stranger's file could otherwise let a query run for ever, or have it call functions.
    """
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    found = connection.execute("SELECT type, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    if any(kind != "table" or not str(sql).startswith("CREATE TABLE") for kind, sql in found):
        raise damaged(path, "it holds views, triggers or tables that no run has")


def fold(connection: sqlite3.Connection) -> None:
    """Close a writer's connection and leave one file, unless somebody is reading just now."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What sqlite and the system say of a file, as DataError in one line."""
    try:
        yield
    except sqlite3.Error as error:
        raise DataError(_reason(_shown(path), error)) from None
    except UnicodeDecodeError:  # of sqlite's own message, which repeats what it cannot read
        raise damaged(path, "its tables are not text") from None
    except OSError as error:
        raise DataError(f"cannot write {_shown(path)}: {error.strerror}") from None


@contextmanager
def decoded(path: Path) -> Iterator[None]:
    """What cannot be read of what the file gave, as DataError in one line."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError, zlib.error):
        raise damaged(path, "a value in it is not one that a run has") from None


def damaged(path: Path, what: str) -> DataError:
    """The error for a file that does not hold what was written."""
    return DataError(
        f"{_shown(path)} is damaged ({one_line(what, 300)}); "
        "take a copy of it from before, or run it again into another file"
    )


def _reason(path: str, error: sqlite3.Error) -> str:
    text = str(error)
    if "full" in text:
        return f"cannot write {path}: the disk is full; what it holds is kept. Make room and run the same command again"
    if "locked" in text:
        return f"{path} is in use by another process; try again when it ends"
    if isinstance(error, sqlite3.OperationalError) and not _OF_CONTENT.search(text):
        return f"{path} cannot be used: {text}"
    return str(damaged(Path(path), text))


def check(path: Path) -> None:
    """Raise DataError unless the file's header says that it is a run of this version."""
    shown = _shown(path)
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise DataError(f"{shown} is not a run file; it is a pipe or a device")  # and would be waited for
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        raise DataError(f"there is no run file {shown}; make one: arbitrag bench run {shown} ...") from None
    except OSError as error:
        raise DataError(f"{shown} cannot be read: {error.strerror}") from None
    if not head.startswith(_SQLITE) or len(head) < 100:
        raise DataError(f"{shown} is not a run file; it looks like {_looks_like(head)}")
    application, version = int.from_bytes(head[68:72], "big"), int.from_bytes(head[60:64], "big")
    if application != APPLICATION:
        raise DataError(f"{shown} is not a run file; it looks like an sqlite database of another program")
    if version not in READABLE:
        raise DataError(
            f"{shown} is a run file of version {version}, and this Arbitrag reads version {VERSION}; "
            + ("install a newer one" if version > VERSION else "run it again into another file")
        )


def _looks_like(head: bytes) -> str:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not head:
        return "an empty file"
    if head.startswith(_SQLITE):
        return "an sqlite database that was cut off"
    if start[:1] == b"{":
        return "JSON or jsonl, perhaps a question set (give it with --questions)"
    if start[:1] == b"[":
        return "JSON"
    return "binary data" if b"\x00" in head else "a text"


def _shown(path: Path) -> str:
    return printable(str(path))
