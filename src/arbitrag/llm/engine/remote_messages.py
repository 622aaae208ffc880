"""Messages between an engine and its scheduler in another process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from arbitrag.errors import BackendError
from arbitrag.llm.engine.runtime import Runtime
from arbitrag.llm.tokenizer import Codec

_HINT = "open the model without own_process"


@dataclass(frozen=True, slots=True)
class RuntimeSpec:
    """How to open a runtime and a tokenizer in another process; both functions can be pickled."""

    runtime: Callable[[], Runtime]
    codec: Callable[[], Codec]


@dataclass(frozen=True, slots=True)
class Submit:
    """To the scheduler: requests, each with its number, and its type and arguments as ``pickled`` bytes.

    What cannot be unpickled on the other side is so an error of that request alone; also in ``Completed``.
    """

    requests: Sequence[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Cancel:
    """To the scheduler: the caller of this request is gone."""

    number: int


@dataclass(frozen=True, slots=True)
class Completed:
    """From the scheduler: requests by number, each with its pickled (result, error), and the prefix cache's bytes."""

    requests: Sequence[tuple[int, bytes]]
    prefix_cache_bytes: int


@dataclass(frozen=True, slots=True)
class LogRecord:
    """From the scheduler: a line for the log of the process that asks."""

    level: int
    text: str


def pickled(value: object) -> bytes:
    """The value as bytes; raises BackendError for one that cannot be pickled."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise BackendError(f"this cannot be sent from one process to another: {_named(error)}; {_HINT}") from error


def unpickled(data: bytes) -> Any:
    """The value of ``pickled`` bytes; raises BackendError where it cannot be made again in this process."""
    try:
        return pickle.loads(data)
    except Exception as error:
        raise BackendError(f"this cannot be unpickled in another process: {_named(error)}; {_HINT}") from error


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
