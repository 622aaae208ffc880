"""The write-ahead log beside a run file whose writer was killed: whether sqlite can read all that was committed to it.

sqlite takes the frames of the log up to the first that does not agree with its checksum, and leaves out the rest
without a word, which is right after a loss of power and would hide rows where the log was damaged. What was left out
shows: frames of this generation of the log (their salts are those of its header) that end a commit, behind the last
frame that sqlite took. The format is that of https://www.sqlite.org/fileformat2.html#the_write_ahead_log.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

_HEADER, _FRAME = 32, 24  # bytes
_MAGIC = (0x377F0682, 0x377F0683)
_TAKEN = slice(16, 20)  # of the file beside the log, RUN.db-shm: the number of frames taken, in the machine's order


def is_cut(path: Path, connection: sqlite3.Connection) -> bool:
    """Whether the log of an open run holds commits that sqlite left out. Nobody may be writing to it meanwhile."""
    log, index = (path.with_name(f"{path.name}-{ending}") for ending in ("wal", "shm"))
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # which reads the log
    try:
        size = log.stat().st_size
        if size == 0:
            return False
        with log.open("rb") as file:
            head = file.read(_HEADER)
            taken = int.from_bytes(index.read_bytes()[_TAKEN], sys.byteorder)
            if len(head) < _HEADER or int.from_bytes(head[:4], "big") not in _MAGIC:
                return size > _HEADER
            step = _FRAME + int.from_bytes(head[8:12], "big")
            for start in range(_HEADER + taken * step, size - step + 1, step):
                file.seek(start)
                frame = file.read(_FRAME)
                if frame[8:16] == head[16:24] and any(frame[4:8]):
                    return True
    except OSError:
        pass  # without a log there is nothing to leave out; without an index sqlite could not have read it either
    return False
