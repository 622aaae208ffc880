"""Atomic file writes that follow no links."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

from arbitrag.errors import DataError
from arbitrag.serialization import describe, parse_json
from arbitrag.text import printable

T = TypeVar("T", dict[str, Any], list[Any])

# Windows has neither; there links are looked for before a file is opened.
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
# Without O_NONBLOCK a pipe would wait for its other end.
_READING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_ALWAYS = _NO_FOLLOW | _READING
_FLAGS = {
    "ab": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "wb": os.O_WRONLY | os.O_CREAT,
    "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
}


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, default: T) -> T:
    """The JSON object or list in a file, ``default`` where there is no file. Raises DataError for anything else."""
    try:
        found: Any = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}") from None
    if type(found) is not type(default):
        raise DataError(f"{path} holds {describe(found)}; expected {describe(default)}")
    return found


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 in one step: a reader, or a crash, sees the old file or the new one, never a half.

    Raises DataError when the file cannot be written.
    """
    with replacing(path) as file:
        file.write(encoded(text))


def encoded(text: str) -> bytes:
    """UTF-8, with half of a surrogate pair as a backslash escape, which in JSON means the same."""
    return text.encode("utf-8", "backslashreplace")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of ``path`` when the block ends, and vanishes when the block fails.

    A link at ``path`` is replaced, what it leads to is not touched. Raises DataError when the file cannot be written.
    """
    check_writable(path)
    draft = draft_of(path)
    try:
        with open_plain(draft, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            draft.unlink()


def draft_of(path: Path) -> Path:
    """A name beside ``path`` that nobody can guess, for a file that is to take its place."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def open_plain(path: Path, mode: Literal["ab", "wb", "xb"], *, buffering: int = -1) -> BinaryIO:
    """Open a regular file for writing: append ("ab"), write anew ("wb"), or make one that is not there ("xb").

    Raises DataError when a link, a pipe or a device lies at ``path``, which is never followed or opened, and OSError
    as ``open`` does.
    """
    if not _NO_FOLLOW:
        check_plain(path)
    try:
        number = os.open(path, _FLAGS[mode] | _ALWAYS, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            check_plain(path)
        raise
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise _not_plain(path, "is not a regular file")
    if mode == "wb":  # not before it is known to be a regular file
        os.truncate(number, 0)
    return os.fdopen(number, "ab" if mode == "ab" else "wb", buffering)


def open_reading(path: Path) -> BinaryIO:
    """Open a regular file to read it, without a buffer. A link is followed, a pipe is not waited for.

    Raises OSError as ``open`` does, and ValueError for what is no regular file.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | _READING), "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(f"{path.name} is not a regular file")
    return file


def read_plain(path: Path, *, at_most: int) -> bytes:
    """The bytes of a small file, opened by ``open_reading``. Raises ValueError also beyond ``at_most`` bytes."""
    with open_reading(path) as file:
        content = b""
        while len(content) <= at_most and (more := file.read(at_most + 1 - len(content))):
            content += more
    if len(content) > at_most:
        raise ValueError(f"is larger than {at_most / 1e6:,.0f} MB")
    return content


def check_plain(path: Path) -> None:
    """Raise DataError when something lies at ``path`` that is not a regular file: a link, a pipe, a device.

    For files that a library opens by their name, such as sqlite, which would follow a link.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise _not_plain(path, f"is a link to {printable(os.readlink(path))}")
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # nobody takes a folder for a file
            raise _not_plain(path, "is not a regular file")


def check_writable(path: Path) -> None:
    """Raise DataError when a file at ``path`` could not be made, before any work is spent on what goes into it."""
    folder = path.parent
    if not os.path.isdir(folder):  # unlike Path.is_dir, false for a name that is too long
        raise DataError(f"cannot write {path}: the folder {folder} does not exist; type: mkdir -p {folder}")
    if os.path.isdir(path):
        raise DataError(f"cannot write {path}: it is a folder; name a file in it")
    if os.path.exists(path) and not os.path.isfile(path):
        raise DataError(f"cannot write {path}: it is a pipe or a device; name a file")
    if not os.access(folder, os.W_OK):
        raise DataError(f"cannot write {path}: no permission to write in {folder}")


def _not_plain(path: Path, what: str) -> DataError:
    shown = printable(str(path))
    return DataError(
        f"cannot write {shown}: it {what}, and Arbitrag writes to regular files only; remove it or name another"
    )
