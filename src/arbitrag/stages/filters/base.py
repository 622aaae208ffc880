"""What a filter is: a part of a pipeline that keeps the passages that look honest, and says why it drops the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from arbitrag.kit import Kit
from arbitrag.types import Decision, Dropped, Need, Passage, Question


class Filter(Protocol):
    """A frozen dataclass, whose fields are the options of the filter; ``arbitrag.stages.filters`` lists them all."""

    name: ClassVar[str]
    needs: ClassVar[Need]

    async def keep(self, question: Question, passages: Sequence[Passage], kit: Kit) -> Filtered:
        """What the filter keeps of the passages of a question; embeddings come from the index where it has them."""
        ...


@dataclass(frozen=True, slots=True)
class Filtered:
    """What a filter keeps, in the order given, and why it dropped the rest."""

    kept: tuple[Passage, ...]
    dropped: tuple[Dropped, ...] = ()
    decisions: tuple[Decision, ...] = ()


def filtered(passages: Sequence[Passage], reasons: Mapping[int, str], *decisions: Decision) -> Filtered:
    """Without the passages whose positions have a reason."""
    return Filtered(
        tuple(passage for number, passage in enumerate(passages) if number not in reasons),
        tuple(Dropped(passage, reasons[number]) for number, passage in enumerate(passages) if number in reasons),
        decisions,
    )


@dataclass(frozen=True)
class NoFilter:
    """Keep every passage."""

    name: ClassVar[str] = "none"
    needs: ClassVar[Need] = Need(0)

    async def keep(self, question: Question, passages: Sequence[Passage], kit: Kit) -> Filtered:
        return Filtered(tuple(passages))
