"""Select the files and folders to index, by the user's globs and default exclusions.

A glob is matched on the path from the source, with forward slashes. ``*`` and ``?`` stay within a name, ``**`` stands
for any number of folders; a glob without a slash matches a name at any depth; one that matches a folder matches all it
holds. As in a shell, only a glob that writes the dot matches a name that begins with one.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from arbitrag.errors import UsageError
from arbitrag.text import printable

# Made by tools from other files, and not written for readers; names that begin with a dot are left out as well.
MADE_BY_TOOLS = frozenset(
    ["node_modules", "bower_components", "__pycache__", "site-packages", "build", "dist", "target", "venv"]
)
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")  # what a virtual environment has at its top
_INDEX = frozenset(["index.json", "files.sqlite"])
_ANY = ("*", "**")
_SHOWN = 6  # names of folders in one line

Glob = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExclusionCounts:
    """What was not looked at, in numbers: ``folders`` left out by default, by their names, and ``hidden_files``, whose
    names begin with a dot; files and folders that ``exclude`` matched, and files that no ``include`` did."""

    folders: Mapping[str, int] = field(default_factory=dict)
    hidden_files: int = 0
    excluded: int = 0
    not_included: int = 0

    def lines(self, *, including: bool) -> list[str]:
        """What was left out, for a reader; ``including`` says whether there was an ``include``."""
        names = [name if count == 1 else f"{name} ({count:,})" for name, count in self.folders.items()]
        shown = [printable(name) for name in names[:_SHOWN]]
        if len(names) > _SHOWN:
            shown.append(f"{sum(self.folders.values()) - sum([*self.folders.values()][:_SHOWN]):,} more folders")
        if self.hidden_files:
            shown.append(_counted(self.hidden_files, "hidden file"))
        lines = [f"left out by default: {', '.join(shown)}"] if shown else []
        if self.folders:
            other = "" if including else "--include '**' "
            one = min(
                self.folders, key=lambda name: name.startswith(".")
            )  # the first that is not hidden, if any is not
            lines.append(f"to index one of these too, name it: {other}--include {shlex.quote(printable(one))}")
        if self.excluded:
            lines.append(f"left out by --exclude: {_counted(self.excluded, 'file or folder', 'files and folders')}")
        if self.not_included:
            lines.append(f"matched by no --include: {_counted(self.not_included, 'file')}")
        return lines


@dataclass(frozen=True, slots=True)
class ExcludedPath:
    """A file or a folder that is left out: ``why`` is "folder" or "hidden" (by default), "excluded" or
    "not included"."""

    name: str
    why: str


class Selection:
    """The include and exclude globs of one run. Raises UsageError for one that can match nothing."""

    def __init__(self, include: Iterable[str] = (), exclude: Iterable[str] = ()) -> None:
        self._include = [_parsed(glob, "--include") for glob in include]
        self._exclude = [_parsed(glob, "--exclude") for glob in exclude]

    @property
    def including(self) -> bool:
        """Whether only what an ``include`` matches is wanted."""
        return bool(self._include)

    def folder(self, parts: Sequence[str]) -> ExcludedPath | None:
        """Why the folder at ``parts``, the names from the source, is left out; None where it is to be walked."""
        name = parts[-1]
        if (name.startswith(".") or name in MADE_BY_TOOLS) and not self._names(parts):
            return ExcludedPath(name, "folder")
        return ExcludedPath(name, "excluded") if _any_covers(self._exclude, parts) else None

    def contents(self, parts: Sequence[str], names: Sequence[str]) -> ExcludedPath | None:
        """Why a folder that holds ``names`` is left out: it is a virtual environment or an index."""
        if _INDEX.issubset(names):
            return ExcludedPath(parts[-1] if parts else "", "folder")
        environment = bool(parts) and any(each in names for each in _ENVIRONMENT)
        return ExcludedPath(parts[-1], "folder") if environment and not self._names(parts) else None

    def file(self, parts: Sequence[str]) -> ExcludedPath | None:
        """Why the file at ``parts`` is left out; None where it is to be read."""
        name = parts[-1]
        if name.startswith(".") and not self._names(parts):
            return ExcludedPath(name, "hidden")
        if _any_covers(self._exclude, parts):
            return ExcludedPath(name, "excluded")
        return ExcludedPath(name, "not included") if self._include and not _any_covers(self._include, parts) else None

    def _names(self, parts: Sequence[str]) -> bool:
        """Whether an ``include`` spells the last of ``parts``, so that it is wanted although others like it are not."""
        return any(
            glob[state] not in _ANY and _fits(parts[-1], glob[state])
            for glob in self._include
            for state in _states(glob, parts[:-1])
            if state < len(glob)
        )


def count_exclusions(left: Iterable[ExcludedPath]) -> ExclusionCounts:
    """Count the excluded files and folders."""
    folders: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for each in left:
        if each.why == "folder":
            folders[each.name] += 1
        others[each.why] += 1
    return ExclusionCounts(dict(folders.most_common()), others["hidden"], others["excluded"], others["not included"])


def _counted(number: int, noun: str, many: str = "") -> str:
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def _parsed(glob: str, option: str) -> Glob:
    parts = [part for part in glob.replace("\\", "/").split("/") if part not in ("", ".")]
    if glob.startswith("/") or ".." in parts or not parts:
        raise UsageError(
            f"{option} '{printable(glob)}' matches nothing: it is compared with paths from the source, such as "
            "notes/2024.md; write for example 'notes/**' or '*.md'"
        )
    while parts[1:] and parts[-1] == "**":  # what matches a folder matches all that it holds
        parts.pop()
    if parts == ["**"]:
        return ("*",)
    return tuple(parts) if "/" in glob.rstrip("/") else ("**", *parts)


def _any_covers(globs: Iterable[Glob], parts: Sequence[str]) -> bool:
    return any(_covers(glob, parts) for glob in globs)


def _covers(glob: Glob, parts: Sequence[str]) -> bool:
    """Whether a glob matches a path, or a folder on the way to it."""
    return any(len(glob) in states for states in _steps(glob, parts))


def _states(glob: Glob, parts: Sequence[str]) -> set[int]:
    """The places in a glob that may be reached after ``parts``."""
    *_, last = _steps(glob, parts)
    return last


def _steps(glob: Glob, parts: Sequence[str]) -> Iterator[set[int]]:
    """The places in a glob that may be reached before the first of ``parts``, and after each."""
    states = _with_skips(glob, {0})
    yield states
    for part in parts:
        reached = set()
        for state in (each for each in states if each < len(glob)):
            deep = glob[state] == "**"
            if _fits(part, "*" if deep else glob[state]):
                reached.add(state if deep else state + 1)
        states = _with_skips(glob, reached)
        yield states


def _with_skips(glob: Glob, states: set[int]) -> set[int]:
    """``**`` may stand for no folder at all."""
    found = set(states)
    for state in states:
        while state < len(glob) and glob[state] == "**":
            state += 1
            found.add(state)
    return found


def _fits(name: str, glob: str) -> bool:
    return (glob.startswith(".") or not name.startswith(".")) and fnmatchcase(name, glob)
