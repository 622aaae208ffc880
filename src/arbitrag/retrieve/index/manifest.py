"""``index.json``: what an index is, so that another version or a foreign folder is told from a good one.

What is wrong with an index is said by three errors, which are kept apart: ``corrupt`` for files that are not what they
were when they were written, ``unusable`` for what the system refuses (permissions, a full disk), and
``unfinished_at`` for a first build that never came to its end.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from arbitrag.errors import IndexFileError
from arbitrag.retrieve.documents.sources import Source
from arbitrag.serialization import from_plain
from arbitrag.storage.checksums import KEY, seal, unseal
from arbitrag.storage.files import read_plain, write_text
from arbitrag.text import printable

T = TypeVar("T")

FORMAT = "arbitrag-index"
VERSION = 2
FILE = "index.json"
WORDS = "bm25"  # the folder with tantivy's files
VECTORS = "vectors"  # the folder with the vectors of the passages, where the index has them
VECTORS_FILE = "vectors.json"
LEDGER = "files.sqlite"
LARGEST = 64_000_000  # bytes of a JSON file of an index


@dataclass(frozen=True)
class IndexManifest:
    """The settings of an index, and what it held when it was last brought up to date.

    ``sources`` are the folders and files that it is made of, ``include`` and ``exclude`` the globs that choose in them.
    ``digest`` is over the names and bytes of the indexed files; it and ``words_crc``, of tantivy's ``meta.json``, hold
    for the commit numbered ``commit`` only, so that an update that was cut short is seen. Vectors are at least those of
    ``generation`` with ``rows``; 0 is no vectors.
    """

    passage_tokens: int
    language: str
    sources: tuple[Source, ...]
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    files: int = 0
    passages: int = 0
    digest: str = ""
    commit: int = 0
    words_crc: int = 0
    generation: int = 0
    rows: int = 0

    @property
    def finished(self) -> bool:
        """Whether the index was up to date once."""
        return bool(self.digest)

    def write(self, folder: Path) -> None:
        """Replace the manifest in one step: a reader sees the old or the new one."""
        sealed = seal({"format": FORMAT, "version": VERSION, **asdict(self)})
        write_text(folder / FILE, json.dumps(sealed, indent=2) + "\n")


def read_manifest(folder: Path) -> IndexManifest:
    """The manifest of an index. Raises IndexFileError when there is none that this version understands."""
    shown = printable(str(folder))
    again = f"Build it: arbitrag index FOLDER -o {shown}"
    try:
        found = json.loads(read_plain(folder / FILE, at_most=LARGEST).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.lexists(folder):
            raise IndexFileError(f"there is no index {shown}. {again}") from None
        if not folder.is_dir():
            elsewhere = again.replace(shown, "docs.idx")
            raise IndexFileError(f"{shown} is a file; an index is a folder. {elsewhere}") from None
        if is_vacant(folder):
            raise IndexFileError(
                f"{shown} holds nothing yet: an index was only begun there, if that. {again}"
            ) from None
        raise IndexFileError(f"{shown} is a folder, but not an index: it has no {FILE}.\n{_ELSEWHERE}") from None
    except OSError as error:
        raise unusable(folder, FILE, error) from error
    except (ValueError, RecursionError) as error:
        raise corrupt(folder, f"its {FILE} is not JSON") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise IndexFileError(f"{shown} is a folder, but not an index: its {FILE} is of another kind.\n{_ELSEWHERE}")
    if found.get("version") != VERSION:
        raise _other_version(folder, found)
    return read_sealed(IndexManifest, found, folder, FILE, beside=("format", "version"))


def is_vacant(folder: Path) -> bool:
    """Whether a folder holds nothing, or only what a crash at the very start of an index leaves."""
    try:
        names = os.listdir(folder)
        started = [name for name in names if name == WORDS and not os.listdir(folder / name)]
    except OSError:
        return False
    drafts = [name for name in names if name.startswith(f".{FILE}.") and name.endswith(".part")]
    return len(started) + len(drafts) == len(names)


def has_vectors(folder: Path) -> bool:
    """Whether vectors lie in the folder of an index. Its manifest says whether they should (``generation``)."""
    return (folder / VECTORS / VECTORS_FILE).is_file()


def read_sealed(kind: type[T], found: Any, folder: Path, name: str, *, beside: tuple[str, ...] = ()) -> T:
    """What a JSON file of an index holds ``beside`` its checksum and some other keys.

    Raises IndexFileError when it is not what was written.
    """
    others = {KEY, *beside}
    plain = {key: value for key, value in found.items() if key not in others} if isinstance(found, dict) else found
    try:
        value = from_plain(kind, plain)
    except ValueError as error:
        raise corrupt(folder, f"its {name} is not what it should be ({printable(str(error))[:200]})") from None
    try:
        unseal(found)
    except ValueError:
        found = {}
    if KEY not in found:
        raise corrupt(folder, f"its {name} was changed after it was written")
    return value


def corrupt(folder: Path, reason: str) -> IndexFileError:
    """The error for an index whose files are not what was written."""
    shown = printable(str(folder))
    return IndexFileError(
        f"the index {shown} is damaged: {printable(reason)}.\n"
        f"Remove it and build it again: arbitrag index FOLDER -o {shown}"
    )


def unfinished_at(folder: Path, passages: int) -> IndexFileError:
    """The error for an index whose first build has not come to its end."""
    shown = printable(str(folder))
    return IndexFileError(
        f"the index {shown} is unfinished: the run that makes it still goes on, or was cut short after "
        f"{passages:,} passages.\nWait for it, or finish it: arbitrag index -o {shown}"
    )


def unusable(folder: Path, name: str, error: OSError, *, writing: bool = False) -> IndexFileError:
    """The error for what the system refuses; nothing is wrong with the index."""
    shown, what = printable(str(folder)), "written" if writing else "read"
    place = f"{shown}: {printable(name)}" if name else shown
    reason = error.strerror or str(error)
    return IndexFileError(f"the index {place} cannot be {what}: {printable(reason)}.\n{_help(shown, error, writing)}")


def _help(shown: str, error: OSError, writing: bool) -> str:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        if writing:
            return "It can be searched; to change it, ask its owner, or make another index (-o OTHER.idx)"
        return f"Nothing is wrong with it; its owner lets others read it by: chmod -R a+rX {shown}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "The disk is full; what was there before can still be searched. Make room and type the command again"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "Too many files are open at once; raise the limit (ulimit -n 4096) and type the command again"
    return "See what the system says of this disk, and type the command again"


_ELSEWHERE = "Give the folder that arbitrag index made (it ends in .idx by habit)."


def _other_version(folder: Path, found: Mapping[str, Any]) -> IndexFileError:
    shown, version = printable(str(folder)), printable(str(found.get("version")))[:40]
    root = found.get("root")
    made_of = printable(root) if found.get("version") == 1 and isinstance(root, str) else "FOLDER"
    return IndexFileError(
        f"{shown} has index format {version}; this version of arbitrag reads format {VERSION}.\n"
        f"Build another one (arbitrag index {made_of} -o OTHER.idx), or install the arbitrag that made it."
    )
