"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from arbitrag.errors import DataError


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

    Raises DataError when the file cannot be written.
    """
    check_writable(path)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            draft.unlink()


def check_writable(path: Path) -> None:
    """Raise DataError when a file at ``path`` could not be made, before any work is spent on what goes into it."""
    folder = path.parent
    if not os.path.isdir(folder):  # unlike Path.is_dir, false for a name that is too long
        raise DataError(f"cannot write {path}: the folder {folder} does not exist; type: mkdir -p {folder}")
    if os.path.isdir(path):
        raise DataError(f"cannot write {path}: it is a folder; name a file in it")
    if not os.access(folder, os.W_OK):
        raise DataError(f"cannot write {path}: no permission to write in {folder}")
