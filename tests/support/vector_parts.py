"""An encoder that says where it looks, and folders of documents, for the tests of vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from arbitrag.encode.base import Kind, unit_rows
from arbitrag.errors import BackendError


class TableEncoder:
    """A text's vector is the first of the given words in it; ``texts`` keeps what was encoded."""

    def __init__(self, table: Mapping[str, Sequence[float]], name: str = "table") -> None:
        self.name = self.identity = name
        self.texts: list[str] = []
        self.closed = 0
        self.fails_after: int | None = None
        self._table = {word: np.array(vector, np.float32) for word, vector in table.items()}

    @property
    def width(self) -> int | None:
        return len(next(iter(self._table.values())))

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        if self.fails_after is not None and len(self.texts) + len(texts) > self.fails_after:
            raise BackendError("the encoder went away")
        self.texts += texts
        nothing = np.zeros(self.width or 0, np.float32)
        rows = [next((vector for word, vector in self._table.items() if word in text), nothing) for text in texts]
        return unit_rows(np.stack(rows))

    async def aclose(self) -> None:
        self.closed += 1


def write_rows(path: Path, rows: Sequence[dict[str, str]]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
