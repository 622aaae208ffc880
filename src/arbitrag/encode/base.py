"""The interface of sentence encoders: texts in, unit vectors out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from arbitrag.errors import BackendError
from arbitrag.text import one_line
from arbitrag.types import Passage

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["query", "passage"]
# What models call the prompt of each kind in their configuration; the first that is not empty counts.
PROMPT_NAMES: Mapping[Kind, tuple[str, ...]] = {"query": ("query",), "passage": ("document", "passage", "corpus")}


class Encoder(Protocol):
    """A sentence encoder. Calls are safe to make concurrently from one event loop.

    ``name`` is the address that ``open_encoder`` was given. ``identity`` names everything that decides a vector (model,
    revision or file hash, prompts, precision): vectors of two identities are never compared. ``width`` is the length of
    a vector, None for a server's model until its first reply.
    """

    name: str
    identity: str

    @property
    def width(self) -> int | None: ...

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        """Unit vectors of shape (texts, width), float32, so that a dot product is a cosine.

        ``kind`` chooses the prompt of models that read queries and passages differently. A text without anything
        to encode may give a row of zeros, which is similar to nothing. Raises BackendError when the model fails.
        """
        ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Vectors:
    """The result of encoding: ``rows`` (texts, width) float32."""

    rows: np.ndarray


def prompt_for(kind: Kind, prompts: Mapping[str, str | None]) -> str:
    """The prefix that a model expects before a text of this kind; usually empty."""
    return next((prompt for name in PROMPT_NAMES[kind] if (prompt := prompts.get(name))), "")


def encoded_text(passage: Passage) -> str:
    """The text of a passage as encoders read it: its title, where it has one, and its text on the next line."""
    return f"{passage.title}\n{passage.text}" if passage.title else passage.text


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """The rows of (n, width) scaled to length one, float32; a row of zeros stays as it is."""
    import numpy as np

    rows = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths == 0, np.float32(1), lengths)


def checked(vectors: np.ndarray, texts: Sequence[str], name: str) -> np.ndarray:
    """``unit_rows`` of a model's output, validated: one finite row per text, or a BackendError."""
    import numpy as np

    rows = np.asarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[0] != len(texts) or rows.shape[1] == 0:
        raise BackendError(f"{name} was given {len(texts)} texts and returned vectors of shape {rows.shape}")
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        broken = texts[int(np.argmin(finite))]
        raise BackendError(f"{name} returned a vector that is not finite for: {one_line(broken)}")
    return unit_rows(rows)
