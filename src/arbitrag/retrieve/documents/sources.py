"""The folders and files that an index is made of, and how documents are named after them.

A document's ``source``, which citations show, is its path in its folder: ``films/orchard.md``. When there are several
folders the name of each stands in front: ``docs/films/orchard.md``. A name is given once and kept, so that adding a
folder later changes no citation of before; the first folder of an index then goes on without one.

No two documents share a ``source``. Names that are equal get the folder above in front (``left/docs``, ``right/docs``),
and a document of the nameless folder whose path begins like another's name is shown with ``./`` in front.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from arbitrag.errors import DataError, UsageError
from arbitrag.text import printable

_LIKE_AN_ESCAPE = re.compile(rb"\\(?=x[0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class Source:
    """``path`` is absolute; ``name`` begins the sources of a folder's documents, or is that of a file."""

    path: str
    name: str
    folder: bool

    def holds(self, other: str) -> bool:
        """Whether a path lies in this folder."""
        return self.folder and other.startswith(os.path.join(self.path, ""))

    def within(self, path: str) -> str:
        """The ``source`` of a path in this folder."""
        inside = escaped(path[len(os.path.join(self.path, "")) :].replace(os.sep, "/"))
        return f"{self.name}/{inside}" if self.name else inside


def absolute(inputs: Iterable[str | Path]) -> list[str]:
    """Absolute paths of what was given, each once. Raises DataError for one that does not exist."""
    paths: dict[str, None] = {}
    for given in inputs:
        path = os.path.abspath(given)
        if not os.path.exists(path):
            raise DataError(f"{printable(str(given))} does not exist; give a folder or a file to index")
        paths[path] = None
    return list(paths)


def existing_source(path: str, sources: Iterable[Source]) -> Source | None:
    """The one of the sources that is at this path, however the path was written."""
    for source in sources:
        if source.path == path or os.path.realpath(source.path) == os.path.realpath(path):
            return source
    return None


def with_names(paths: Sequence[str], kept: Sequence[Source] = ()) -> tuple[Source, ...]:
    """The sources ``kept``, and one for each of the paths, with a unique name."""
    found = {source.path: source for source in kept}
    if not kept and len(paths) == 1:
        (path,) = paths
        folder = os.path.isdir(path)
        return (Source(path, "" if folder else escaped(os.path.basename(path)), folder),)
    # What lies in a folder that is a source as well is named by its place there, so the folders come first.
    for path in sorted(paths, key=len):
        above = [source for source in found.values() if source.holds(path)]
        if above:
            name = max(above, key=lambda source: len(source.path)).within(path)
        else:
            name = _free_name(path, [*found.values()], [each for each in paths if each != path])
        found[path] = Source(path, name, os.path.isdir(path))
    return tuple(found[path] for path in dict.fromkeys([*(source.path for source in kept), *paths]))


def escaped(path: str) -> str:
    r"""A path as text that can be stored: bytes that are not UTF-8 as ``\xe9``.

    Two paths never become the same text: a backslash that already stands before such a number becomes ``\x5c``.
    """
    return _LIKE_AN_ESCAPE.sub(rb"\\x5c", os.fsencode(path)).decode("utf-8", "backslashreplace")


def _free_name(path: str, others: Sequence[Source], rest: Sequence[str]) -> str:
    """The shortest unique name made of a path's last parts; with a number where none is unique."""
    parts = [escaped(part) for part in PurePath(path).parts[1:]] or ["root"]
    for count in range(1, len(parts) + 1):
        name = "/".join(parts[-count:])
        equal = any("/".join(map(escaped, PurePath(other).parts[-count:])) == name for other in rest)
        if not equal and _is_free(name, others):
            return name
    number = 2
    while not _is_free(f"{parts[-1]}-{number}", others):
        number += 1
    return f"{parts[-1]}-{number}"


def _is_free(name: str, others: Sequence[Source]) -> bool:
    return not any(
        f"{other.name}/".startswith(f"{name}/") or f"{name}/".startswith(f"{other.name}/")
        if other.name
        else os.path.lexists(os.path.join(other.path, name))
        for other in others
    )


@dataclass(frozen=True)
class SourceChoice:
    """The sources that an index is to have, whether others may be dropped for them, and the globs of ``selection``."""

    sources: tuple[Source, ...]
    replaces: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def choose(index: Path, inputs: Sequence[str | Path], has: Sequence[Source], add: bool, replace: bool) -> SourceChoice:
    """The sources of an index after an update with these inputs, where it ``has`` some, or none when it is new.

    Without inputs they stay. Raises UsageError for sources that the index does not have, unless they are to be added or
    to replace the others, and DataError for an input that does not exist.
    """
    if add and replace:
        raise UsageError("choose one: --add keeps the sources that the index has, --replace drops those not named")
    if not inputs and (not has or add or replace):
        raise UsageError("nothing to index was given; type: arbitrag index FOLDER -o docs.idx")
    given = absolute(inputs)
    there = {path: existing_source(path, has) for path in given}
    new = [path for path, source in there.items() if source is None]
    if replace:
        return SourceChoice(with_names(new, [source for source in there.values() if source is not None]), replaces=True)
    if has and new and not add:
        raise _others(index, new, has)
    return SourceChoice(with_names(new, has))


def _others(index: Path, new: Sequence[str], has: Sequence[Source]) -> UsageError:
    shown = printable(str(index))
    return UsageError(
        f"{shown} is an index of {_listed([source.path for source in has])}; {_listed(new)} is not part of it.\n"
        "Add it and keep the rest: --add. Or make it an index of exactly what you name, and drop the rest: --replace.\n"
        "Or make another index: -o OTHER.idx"
    )


def _listed(paths: Sequence[str], most: int = 3) -> str:
    more = f" and {len(paths) - most:,} more" if len(paths) > most else ""
    return ", ".join(printable(path) for path in paths[:most]) + more
