"""What can go wrong. Every error says what was asked, what was found, and what to type next.

ArbitragError
├── UsageError          an unknown name, option or value (exit status 2)
├── MissingExtra        an optional dependency is not installed
├── PluginError         a part of another package, or of one's own module, that cannot be loaded or is none
├── CapabilityError     a method needs what no backend in the kit offers; raised before the first question
├── DataError           a file that cannot be read as what it should be; names the file and line
│   └── IndexFileError  an index that is missing, corrupt, in use, or of another version
├── PromptError         a prompt file that breaks the format, or a field missing or left over
├── ContextError        a question that does not fit into the model's context
├── TraceError          a trace that cannot be replayed with these settings
├── BudgetError         a request that would pass the limit on tokens or money; it was not made (exit status 3)
└── BackendError        a model or server failed after all retries; carries the HTTP status where there is one
    └── UnreachableError    a server that has answered nothing yet cannot be reached, or refuses the key
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class ArbitragError(Exception):
    """The root. Its text is one to three lines for a person; the command line prints it without a traceback."""

    exit_status = 1


class UsageError(ArbitragError):
    exit_status = 2


class MissingExtra(ArbitragError):
    """Raised as ``MissingExtra("hf")``; the text is the ``pip install`` that helps."""

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} needs the extra '{extra}'; type: pip install 'arbitrag[{extra}]'")
        self._given = extra, what

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return MissingExtra, self._given  # an error may come from another process


class PluginError(ArbitragError):
    """The text names the package or the module."""


class CapabilityError(ArbitragError):
    """``needs_scorer``: likelihoods are all that is missing, so a second model as the scorer would help."""

    def __init__(self, message: str, *, needs_scorer: bool = False) -> None:
        super().__init__(message)
        self.needs_scorer = needs_scorer


class DataError(ArbitragError):
    pass


class IndexFileError(DataError):
    pass


class PromptError(ArbitragError):
    pass


class ContextError(ArbitragError):
    pass


class TraceError(ArbitragError):
    pass


class BudgetError(ArbitragError):
    exit_status = 3


class BackendError(ArbitragError):
    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class UnreachableError(BackendError):
    """It ends a run at its first question, because it would fail every other one as well."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that looks most like ``name``, or an empty text when none does."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return close[0] if close else ""


def unknown(kind: str, name: str, known: Iterable[str], *, hint: str = "") -> UsageError:
    """An error for a name that is not in the list, with the nearest one that is."""
    names = sorted(known)
    close = nearest(name, names)
    guess = f" Did you mean '{close}'?" if close else ""
    listed = f" Known: {', '.join(names)}." if names else ""
    return UsageError(f"unknown {kind} '{name}'.{guess}{listed}{' ' + hint if hint else ''}")


def described(given: Any) -> str:
    """What kind of thing it is, with an article; of a class, how to make one of it."""
    if given is None:
        return "None"
    if isinstance(given, type):
        return f"the class {given.__name__}; make one of it: {given.__name__}(...)"
    kind = type(given).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
