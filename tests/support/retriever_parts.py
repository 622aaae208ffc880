"""What the tests of retrievers share: a few passages, an encoder one can follow by hand, and a PostgreSQL."""

from __future__ import annotations

import atexit
import functools
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest

from arbitrag.errors import BackendError, MissingExtra
from arbitrag.testing.postgres import PostgresServer
from arbitrag.types import Passage

PASSAGES = (
    Passage("The lighthouse of Orrin stands on a cliff.", id="orrin", title="Orrin", metadata={"land": "north"}),
    Passage("A comet passed over the river Sel.", id="sel", source="sky.md", line=3, offset=40, date="2024-05-01"),
    Passage("The river Tamm floods the tulip fields.", id="tamm", metadata={"land": "south", "kind": "field notes"}),
    Passage("The lighthouse keeper of Brae grows a tulip by the lighthouse.", id="brae", metadata={"land": "south"}),
    Passage('Nothing happened in Quill; it\'s a quiet "town" – über ruhig.', id="quill", metadata={"land": "north"}),
)
_SAY_NOTHING = {"the", "a", "of", "on", "in", "by", "who", "where", "is", "s", "over", "and", "or", "not", "to"}
AXES = ("lighthouse", "comet", "river", "tulip", "town", "field")


class TinyEncoder:
    """Counts of six words, as a unit vector; zeros for a text with none of them."""

    name = "tiny"

    def __init__(self, axes: Sequence[str] = AXES, identity: str = "tiny:1") -> None:
        self.axes = tuple(axes)
        self.identity = identity
        self.closed = False

    @property
    def width(self) -> int | None:
        return len(self.axes)

    async def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> np.ndarray:
        return np.array([self.vector(text) for text in texts], np.float32).reshape(len(texts), len(self.axes))

    async def aclose(self) -> None:
        self.closed = True

    def vector(self, text: str) -> list[float]:
        counts = np.array([text.lower().count(axis) for axis in self.axes], float)
        length = float(np.linalg.norm(counts))
        return [float(count) / (length or 1.0) for count in counts]


def words(text: str) -> set[str]:
    """The words of a text that say something, in lower case."""
    return set(re.findall(r"\w+", text.lower())) - _SAY_NOTHING


def overlap(query: str, text: str) -> int:
    """How many words a query shares with a text."""
    return len(words(query) & words(text))


@functools.cache
def _started() -> PostgresServer | str:
    try:
        server = PostgresServer().__enter__()
    except (MissingExtra, BackendError) as error:
        return str(error)
    atexit.register(server.__exit__)
    return server


def running_postgres() -> PostgresServer:
    """One real server for all tests of this process; skips with the reason where it does not start."""
    pytest.importorskip("psycopg_pool")
    server = _started()
    if isinstance(server, str):
        pytest.skip(f"no PostgreSQL here: {server}")
    return server
