"""One writer of a file at a time.

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
    """Held by the one process that writes ``path``; raises DataError when another one does."""

    def __init__(self, path: Path) -> None:
        check_writable(path)
        shown, lock = printable(str(path)), path.with_name(f".{path.name}.lock")
        check_plain(lock)
        with ExitStack() as opened:
            try:
                connection = sqlite3.connect(lock, timeout=0, isolation_level=None)
                opened.callback(connection.close)
                connection.execute("BEGIN EXCLUSIVE")
            except sqlite3.Error as error:
                raise DataError(
                    f"another process is writing {shown}; wait until it ends, or name another file"
                    if "locked" in str(error)
                    else f"cannot write {shown}: its lock cannot be had: {error}"
                ) from None
            opened.pop_all()
        self._connection = connection

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Let others write."""
        self._connection.close()
