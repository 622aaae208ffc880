"""Open the embedded model, its world's documents, and the questions that ``arbitrag demo`` asks.

All of it is in the folder ``embedded``; the model is replaced by replacing the folder. Its ``manifest.json`` names
every file with a hash, how the model was made, and what was measured of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from arbitrag.errors import DataError
from arbitrag.llm.base import LLM
from arbitrag.serialization import from_plain
from arbitrag.storage.files import read_json
from arbitrag.storage.model_manifest import Manifest, read_manifest
from arbitrag.types import Passage

if TYPE_CHECKING:
    from arbitrag.kit import Kit
    from arbitrag.retrieve.base import Retriever

FOLDER = Path(__file__).parent / "embedded"
PROMPTS = FOLDER / "prompts"  # also those that ``training`` trains a lab model on

_CLOSE = 0.75  # of the best score

Kind = Literal["memory", "evidence", "poison", "neither"]


def open_lab(**options: Any) -> LLM:
    """The embedded model; ``options`` are those of ``open_onnx``. Raises DataError when its folder is damaged.

    It computes in one thread unless told otherwise: it is so small that a second one helps little.
    """
    from arbitrag.llm.onnx.backend import open_onnx

    return open_onnx(FOLDER, **{"name": "lab", "wording": PROMPTS, "threads": 1, **options})


def manifest() -> Manifest:
    """What the embedded folder holds; raises DataError when it says nothing."""
    found = read_manifest(FOLDER)
    if found is None:
        raise DataError(f"{FOLDER} has no manifest.json; install arbitrag again")
    return found


@dataclass(frozen=True, slots=True)
class DemoCase:
    """A question with given passages for a method. ``truth`` is for the viewer: no method sees it.

    ``kind`` says which source is right: memory alone, the evidence alone, memory against a planted passage, or neither.
    """

    kind: Kind
    title: str
    question: str
    passages: tuple[Passage, ...]
    truth: str
    lesson: str
    method: str = "trustmargin"


def demo_cases() -> tuple[DemoCase, ...]:
    """The questions of the demonstration, one of each kind; raises DataError for a damaged file."""
    path = _verified("demo.json")
    try:
        return from_plain(tuple[DemoCase, ...], read_json(path, []))
    except ValueError as error:
        raise DataError(f"{path} is not a list of cases: {error}") from None


def demo_kit(llm: LLM, passages: Sequence[Passage]) -> Kit:
    """What a case of the demonstration is answered with."""
    from arbitrag.encode import open_encoder
    from arbitrag.kit import Kit
    from arbitrag.retrieve.fixed import FixedRetriever

    return Kit.of(llm, FixedRetriever(passages), encoder=open_encoder("hash"))


def world_documents() -> tuple[Passage, ...]:
    """Every document of the embedded world, one for each person, city, company, film, book and team with facts."""
    import gzip

    path = _verified("documents.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return tuple(Passage(**json.loads(line)) for line in lines)


def open_world() -> Retriever:
    """BM25 over the embedded world's documents, which hold every fact, also those after the model's cutoff."""
    return World()


class World:
    """Gives what clearly matches: passages that score at least 0.75 of the best, and no more than the model reads well.

    A document is a sentence or three, and its title nearly decides the score. What comes behind shares only the form
    of the question with it; the embedded model, which is small, loses its way among such passages.
    """

    name = "lab world"

    def __init__(self) -> None:
        from arbitrag.retrieve.index.bm25 import Bm25Index

        self._index = Bm25Index.in_memory(world_documents(), name=self.name)
        self._most = manifest().passages
        self.identity = f"{self._index.identity}:{self._most}:{_CLOSE}"

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        found = await self._index.retrieve(query, k if self._most is None else min(k, self._most), where)
        best = max((passage.score or 0.0 for passage in found), default=0.0)
        return tuple(passage for passage in found if (passage.score or 0.0) >= _CLOSE * best)

    async def aclose(self) -> None:
        await self._index.aclose()


def _verified(name: str) -> Path:
    manifest().verify(FOLDER, name)
    return FOLDER / name
