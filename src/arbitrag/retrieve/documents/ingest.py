"""Find the documents under a folder, and choose the reader for each file type."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from arbitrag.errors import DataError
from arbitrag.retrieve.documents import epub, notebook, office, pdf, readers
from arbitrag.retrieve.documents.readers import Document, NotReadable, Reader
from arbitrag.retrieve.documents.selection import ExcludedPath, Selection
from arbitrag.retrieve.documents.sources import Source
from arbitrag.text import printable

# What is read: each kind of document by its name, with its reader and its other suffixes.
_READERS: tuple[tuple[str, Reader, tuple[str, ...]], ...] = (
    ("md", readers.read_markdown, (".markdown",)),
    ("txt", readers.read_text, (".text", ".rst", "")),  # without a suffix: README, LICENSE
    ("html", readers.read_html, (".htm", ".xhtml")),
    ("pdf", pdf.read_pdf, ()),
    ("docx", office.read_docx, ()),
    ("pptx", office.read_pptx, ()),
    ("xlsx", office.read_xlsx, ()),
    ("epub", epub.read_epub, ()),
    ("ipynb", notebook.read_ipynb, ()),
    ("jsonl", readers.read_jsonl, (".ndjson",)),
)
READ = ", ".join(name for name, _, _ in _READERS)
_KINDS: dict[str, Reader] = {suffix: reader for name, reader, others in _READERS for suffix in (f".{name}", *others)}


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """A file that may be indexed. ``source`` is what citations show (see ``sources``), ``origin`` the name of the
    folder or file given by the user that it came with."""

    path: str
    source: str
    size: int
    mtime_ns: int
    origin: str = ""


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """Something that is not indexed, and why. Nothing is wrong with the files of a kind that is not read: for those
    ``reported`` is false."""

    source: str
    reason: str
    reported: bool = True


def find_documents(
    sources: Sequence[Source], selection: Selection | None = None
) -> Iterator[DocumentFile | SkippedFile | ExcludedPath]:
    """List every file of the sources once: files given by themselves first, then those of folders by name.

    Links to folders or out of the given folder are passed over, as is what ``selection`` leaves out of a folder (by
    default hidden files and folders, those that tools make, and indexes) and what is a source by itself. A file given
    by itself is read as text when its suffix says nothing.

    Raises DataError for a folder that does not exist any more; a file that is gone is a document that is gone.
    """
    for source in sorted(sources, key=lambda each: each.folder):
        if not os.path.isdir(source.path if source.folder else os.path.dirname(source.path)):
            raise _missing_source(source, sources)
        if source.folder:
            yield from _Folder(source, sources, selection or Selection()).walk()
        elif os.path.lexists(source.path):
            yield _document_file(source.path, source.name, source.name, given=True)


def read_document(path: Path, source: str, tokens: int) -> Document:
    """The passages of a file, at most about ``tokens`` tokens each, read as they are asked for.

    Raises NotReadable here or while reading, with a reason that can follow the file's name.
    """
    reader = _KINDS.get(path.suffix.lower(), readers.read_text)
    try:
        return reader(path, source, tokens)
    except OSError as error:
        raise NotReadable(error.strerror or str(error), lasting=False) from error


class _Folder:
    """Walks one of the folders of an index."""

    def __init__(self, source: Source, sources: Sequence[Source], selection: Selection) -> None:
        self._source = source
        self._selection = selection
        others = [each for each in sources if each is not source]
        self._own = {each.path for each in others}  # they come by themselves
        self._clashing = [each.name for each in others if not source.holds(each.path)]

    def walk(self) -> Iterator[DocumentFile | SkippedFile | ExcludedPath]:
        waiting: list[tuple[str, tuple[str, ...]]] = [(self._source.path, ())]
        while waiting:
            here, parts = waiting.pop()
            try:
                with os.scandir(here) as entries:
                    names = sorted(entry.name for entry in entries)
            except OSError as error:
                yield SkippedFile(self._named(here), error.strerror or str(error))
                continue
            if left := self._selection.contents(parts, names):
                yield left
                continue
            folders = []
            for name in names:
                path, below = os.path.join(here, name), (*parts, name)
                if path in self._own:
                    continue
                if os.path.isdir(path) and not os.path.islink(path) and not self._selection.folder(below):
                    folders.append((path, below))
                else:
                    yield self._one(path, below)
            waiting.extend(reversed(folders))

    def _one(self, path: str, parts: tuple[str, ...]) -> DocumentFile | SkippedFile | ExcludedPath:
        """A file, or a folder that is not walked."""
        is_folder = os.path.isdir(path)
        if left := self._selection.folder(parts) if is_folder else self._selection.file(parts):
            return left
        if is_folder:
            return SkippedFile(self._named(path), "a link to a folder; give that folder itself")
        inside = os.path.join(os.path.realpath(self._source.path), "")
        if os.path.islink(path) and os.path.exists(path) and not os.path.realpath(path).startswith(inside):
            # Who put it there may not be who reads the answers.
            return SkippedFile(self._named(path), "a link out of the folder; give that file itself")
        return _document_file(path, self._named(path), self._source.name)

    def _named(self, path: str) -> str:
        if path == self._source.path:
            return self._source.name or "."
        named = self._source.within(path)
        clashes = not self._source.name and any(f"{named}/".startswith(f"{name}/") for name in self._clashing)
        return f"./{named}" if clashes else named


def _missing_source(source: Source, sources: Sequence[Source]) -> DataError:
    left = " ".join(printable(shlex.quote(each.path)) for each in sources if each is not source) or "FOLDER"
    return DataError(
        f"{printable(source.path)}, which the index is made of, does not exist any more; is a disk missing?\n"
        f"If it is gone for good, name what the index is to hold: arbitrag index {left} -o INDEX --replace"
    )


def _document_file(path: str, source: str, origin: str, *, given: bool = False) -> DocumentFile | SkippedFile:
    try:
        status = os.stat(path)
    except OSError as error:
        reason = "a link that leads nowhere" if os.path.islink(path) else error.strerror or str(error)
        return SkippedFile(source, reason)
    if not stat.S_ISREG(status.st_mode):
        return SkippedFile(source, "not a regular file")
    suffix = PurePath(path).suffix.lower()
    if suffix not in _KINDS and not given:
        return SkippedFile(source, suffix, reported=False)
    return DocumentFile(path, source, status.st_size, status.st_mtime_ns, origin)
