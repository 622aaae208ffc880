"""Find the documents under a folder, and know how each kind is read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from arbitrag.errors import DataError
from arbitrag.retrieve import epub, notebook, office, pdf, readers
from arbitrag.retrieve.readers import Document, NotReadable, Reader
from arbitrag.retrieve.selection import Left, Selection
from arbitrag.text import printable

READ = "md, txt, html, pdf, docx, pptx, xlsx, epub, ipynb, jsonl"
_KINDS: dict[str, Reader] = {
    **dict.fromkeys((".md", ".markdown"), readers.read_markdown),
    **dict.fromkeys((".txt", ".text", ".rst", ""), readers.read_text),  # without a suffix: README, LICENSE
    **dict.fromkeys((".html", ".htm", ".xhtml"), readers.read_html),
    ".pdf": pdf.read_pdf,
    ".docx": office.read_docx,
    ".pptx": office.read_pptx,
    ".xlsx": office.read_xlsx,
    ".epub": epub.read_epub,
    ".ipynb": notebook.read_ipynb,
    **dict.fromkeys((".jsonl", ".ndjson"), readers.read_jsonl),
}


@dataclass(frozen=True, slots=True)
class Found:
    """A file that may be indexed. ``source`` is its path from the root, with forward slashes."""

    path: str
    source: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Passed:
    """Something that is not indexed, and why. Nothing is wrong with the files of a kind that is not read: for those
    ``named`` is false."""

    source: str
    reason: str
    named: bool = True


def common_root(inputs: Sequence[Path]) -> Path:
    """The folder that sources are relative to: a single folder itself, else the deepest that holds all inputs.

    Raises DataError for an input that does not exist.
    """
    for path in inputs:
        if not path.exists():
            raise DataError(f"{printable(str(path))} does not exist; give a folder or a file to index")
    folders = [path.absolute() if path.is_dir() else path.absolute().parent for path in inputs]
    if not folders:
        raise DataError("nothing to index was given; type: arbitrag index FOLDER -o docs.idx")
    try:
        return Path(os.path.commonpath([os.path.normpath(folder) for folder in folders]))
    except ValueError:  # different drives
        raise DataError("the folders to index lie on different drives; make one index for each") from None


def walk(inputs: Sequence[Path], root: Path, selection: Selection | None = None) -> Iterator[Found | Passed | Left]:
    """Every file under ``inputs``, each once: files given by themselves, then those of folders by their names.

    Links to folders or out of the given folder are passed over, as is what ``selection`` leaves out of a folder: by
    default hidden files and folders, those that tools make, and indexes. A file given by itself is read as text when
    its suffix says nothing.
    """
    selection = selection or Selection()
    seen: set[str] = set()
    for path in sorted(inputs, key=Path.is_dir):  # the files first: they are read even where a folder's would not be
        start = os.path.normpath(path.absolute())
        if path.is_dir():
            found = _walk_folder(start, str(root), selection)
        else:
            found = iter([_look(start, _source(start, str(root)), given=True)])
        for item in found:
            if len(inputs) == 1 or isinstance(item, Left):
                yield item
            elif item.source not in seen:
                seen.add(item.source)
                yield item


def read_document(path: Path, source: str, tokens: int) -> Document:
    """The passages of a file, at most about ``tokens`` tokens each, read as they are asked for.

    Raises NotReadable here or while reading, with a reason that can follow the file's name.
    """
    reader = _KINDS.get(PurePosixPath(source).suffix.lower(), readers.read_text)
    try:
        return reader(path, source, tokens)
    except OSError as error:
        raise NotReadable(error.strerror or str(error), lasting=False) from error


def _walk_folder(folder: str, root: str, selection: Selection) -> Iterator[Found | Passed | Left]:
    inside = os.path.join(os.path.realpath(folder), "")
    waiting: list[tuple[str, tuple[str, ...]]] = [(folder, ())]
    while waiting:
        here, parts = waiting.pop()
        try:
            with os.scandir(here) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError as error:
            yield Passed(_source(here, root), error.strerror or str(error))
            continue
        if left := selection.contents(parts, names):
            yield left
            continue
        folders = []
        for name in names:
            path, below = os.path.join(here, name), (*parts, name)
            is_folder = os.path.isdir(path)
            if left := selection.folder(below) if is_folder else selection.file(below):
                yield left
            elif is_folder:
                if os.path.islink(path):
                    yield Passed(_source(path, root), "a link to a folder; give that folder itself")
                else:
                    folders.append((path, below))
            elif os.path.islink(path) and os.path.exists(path) and not os.path.realpath(path).startswith(inside):
                # Who put it there may not be who reads the answers.
                yield Passed(_source(path, root), "a link out of the folder; give that file itself")
            else:
                yield _look(path, _source(path, root))
        waiting.extend(reversed(folders))


def _look(path: str, source: str, *, given: bool = False) -> Found | Passed:
    try:
        status = os.stat(path)
    except OSError as error:
        reason = "a link that leads nowhere" if os.path.islink(path) else error.strerror or str(error)
        return Passed(source, reason)
    if not stat.S_ISREG(status.st_mode):
        return Passed(source, "not a regular file")
    suffix = PurePosixPath(source).suffix.lower()
    if suffix not in _KINDS and not given:
        return Passed(source, suffix, named=False)
    return Found(path, source, status.st_size, status.st_mtime_ns)


def _source(path: str, root: str) -> str:
    """``path`` from ``root``; bytes of a name that are not UTF-8 are written as escapes, so that it can be stored."""
    relative = Path(os.path.relpath(path, root)).as_posix()
    return os.fsencode(relative).decode("utf-8", "backslashreplace")
