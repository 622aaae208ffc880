"""A lock that allows one writer per file.

The lock is a transaction of sqlite on a file of its own, ``.NAME.lock``, which stays and stays empty. The system
releases it with its process, however that ends, on Windows as elsewhere.
"""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from arbitrag.errors import DataError
from arbitrag.storage.files import check_plain, check_writable
from arbitrag.text import printable


class Lock:
    """An exclusive lock on writing ``path``; raises DataError when another process holds it."""

    def __init__(self, path: Path) -> None:
        connection = _acquired(path)
        if connection is None:
            shown = printable(str(path))
            raise DataError(f"another process is writing {shown}; wait until it ends, or name another file")
        self._connection = connection

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock."""
        self._connection.close()


def is_held(path: Path) -> bool:
    """Whether another process holds the lock of ``path``; False where that cannot be found out."""
    try:
        connection = _acquired(path)
    except DataError:
        return False
    if connection is None:
        return True
    connection.close()
    return False


def _acquired(path: Path) -> sqlite3.Connection | None:
    """A connection that holds the lock of ``path``; None when another process holds it.

    Raises DataError where the lock's file cannot be written.
    """
    check_writable(path)
    lock = path.with_name(f".{path.name}.lock")
    check_plain(lock)
    with ExitStack() as opened:
        try:
            connection = sqlite3.connect(lock, timeout=0, isolation_level=None)
            opened.callback(connection.close)
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:  # the low byte, without the extended code
                return None
            raise DataError(f"cannot write {printable(str(path))}: its lock cannot be had: {error}") from None
        opened.pop_all()
    return connection
