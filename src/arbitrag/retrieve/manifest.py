"""``index.json``: what an index is, so that another version or a foreign folder is told from a good one."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from arbitrag.errors import IndexFileError
from arbitrag.text import printable

FORMAT = "arbitrag-index"
VERSION = 1
FILE = "index.json"
WORDS = "bm25"  # the folder with tantivy's files
VECTORS = "vectors"  # the folder with the vectors of the passages, where the index has them
VECTORS_FILE = "vectors.json"
LEDGER = "files.sqlite"


@dataclass(frozen=True)
class Manifest:
    """The settings of an index, and what it held when it was last brought up to date.

    ``digest`` is over the names and bytes of the indexed files; it holds for the commit numbered ``commit`` only, so
    that an update that was cut short is seen. ``root`` is the folder that sources are relative to.
    """

    passage_tokens: int
    language: str
    root: str
    files: int = 0
    passages: int = 0
    digest: str = ""
    commit: int = 0

    def write(self, folder: Path) -> None:
        """Replace the manifest in one step: a reader sees the old or the new one."""
        text = json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=2)
        draft = folder / f"{FILE}.tmp"
        with draft.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / FILE)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an index. Raises IndexFileError when there is none that this version understands."""
    shown = printable(str(folder))
    again = f"Build it: arbitrag index FOLDER -o {shown}"
    if not folder.exists():
        raise IndexFileError(f"there is no index {shown}. {again}")
    if not folder.is_dir():
        raise IndexFileError(f"{shown} is a file; an index is a folder. {again.replace(shown, 'docs.idx')}")
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise IndexFileError(f"{shown} is a folder, but not an index: it has no {FILE}.\n{_ELSEWHERE}") from None
    except OSError as error:
        raise IndexFileError(f"{shown}/{FILE} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise corrupt(folder, f"its {FILE} is not JSON") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise IndexFileError(f"{shown} is a folder, but not an index: its {FILE} is of another kind.\n{_ELSEWHERE}")
    if found.get("version") != VERSION:
        version = printable(str(found.get("version")))[:40]
        raise IndexFileError(
            f"{shown} has index format {version}; this version of arbitrag reads format {VERSION}.\n"
            f"Build another one (arbitrag index FOLDER -o OTHER.idx), or install the arbitrag that made it."
        )
    return _checked(folder, found)


def has_vectors(folder: Path) -> bool:
    """Whether the index in ``folder`` has vectors of its passages."""
    return (folder / VECTORS / VECTORS_FILE).is_file()


def corrupt(folder: Path, reason: str) -> IndexFileError:
    """The error for an index whose files do not fit together."""
    shown = printable(str(folder))
    return IndexFileError(
        f"the index {shown} is damaged: {printable(reason)}.\n"
        f"Remove it and build it again: arbitrag index FOLDER -o {shown}"
    )


_ELSEWHERE = "Give the folder that arbitrag index made (it ends in .idx by habit)."


def _checked(folder: Path, found: dict[str, Any]) -> Manifest:
    values: dict[str, Any] = {}
    for each in fields(Manifest):
        kind = int if each.type == "int" else str
        value = found.get(each.name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise corrupt(folder, f"{each.name!r} in its {FILE} is {value!r}"[:200])
        values[each.name] = value
    return Manifest(**values)
