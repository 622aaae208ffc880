"""The filters of ``stages.filters.clean`` as parts of a pipeline, each with its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from arbitrag.errors import UsageError
from arbitrag.kit import Kit
from arbitrag.stages.filters.clean import clean
from arbitrag.stages.filters.robust import Filtered, keep_all
from arbitrag.types import Need, Passage, Question


class Filter(Protocol):
    name: ClassVar[str]
    needs: ClassVar[Need]

    async def keep(self, question: Question, passages: Sequence[Passage], kit: Kit) -> Filtered: ...


@dataclass(frozen=True)
class NoFilter:
    """Keep every passage."""

    name: ClassVar[str] = "none"
    needs: ClassVar[Need] = Need(0)

    async def keep(self, question: Question, passages: Sequence[Passage], kit: Kit) -> Filtered:
        return keep_all(passages)


@dataclass(frozen=True)
class RobustFilter:
    """Drop what looks planted; ``similar`` is the cosine of copies, 0 for the one that belongs to the encoder."""

    name: ClassVar[str] = "robust"
    needs: ClassVar[Need] = Need.ENCODE

    similar: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.similar <= 1:
            raise UsageError(f"the filter robust: similar is a cosine from 0 to 1; got {self.similar:g}")

    async def keep(self, question: Question, passages: Sequence[Passage], kit: Kit) -> Filtered:
        return await clean(question, passages, self.name, kit, similar=self.similar)


@dataclass(frozen=True)
class ReferenceFilter:
    """Decide as TrustRAG's authors' code does."""

    name: ClassVar[str] = "reference"
    needs: ClassVar[Need] = Need.ENCODE

    async def keep(self, question: Question, passages: Sequence[Passage], kit: Kit) -> Filtered:
        return await clean(question, passages, self.name, kit)


FILTERS: Mapping[str, type[NoFilter] | type[RobustFilter] | type[ReferenceFilter]] = {
    each.name: each for each in (NoFilter, RobustFilter, ReferenceFilter)
}
