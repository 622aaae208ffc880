"""What an engine in a process of its own and the process that asks tell each other."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from arbitrag.errors import BackendError
from arbitrag.llm.engine.runtime import Runtime
from arbitrag.llm.tokenizer import Codec

_HERE = "open the model without own_process"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A runtime that is opened in another process; both functions can be pickled."""

    runtime: Callable[[], Runtime]
    codec: Callable[[], Codec]


@dataclass(frozen=True, slots=True)
class Ask:
    """To the engine: serve these, each with its number, and its kind and what is wanted as pickled by ``packed``.

    What cannot be read on the other side is so an error of that request alone; also in an ``Over``.
    """

    requests: Sequence[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Gone:
    """To the engine: nobody waits for this one any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Over:
    """From the engine: requests by number, with a pickled outcome and error, and the bytes in the prefix store."""

    requests: Sequence[tuple[int, bytes]]
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class Said:
    """From the engine: a line for the log."""

    level: int
    text: str


def packed(value: object) -> bytes:
    """The value as bytes; raises BackendError for one that cannot be pickled."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise BackendError(f"this cannot be sent from one process to another: {_named(error)}; {_HERE}") from error


def unpacked(data: bytes) -> Any:
    """What ``packed`` made bytes of; raises BackendError where that cannot be made again in this process."""
    try:
        return pickle.loads(data)
    except Exception as error:
        raise BackendError(f"this cannot be read in another process: {_named(error)}; {_HERE}") from error


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
