"""Which documents of a corpus answer a question: those that tell one of its facts as it is at present.

Relevant are the document of a fact and its copies, word for word or told again, also by another name of its subject;
not relevant are outdated versions, poisons, and documents that only give a name. A question over two facts needs a
document of each: ``by_hop`` has the relevant ones of the first fact, then those of the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from arbitrag.lab.corpus import Label
from arbitrag.lab.questions import LabQuestion
from arbitrag.lab.world import Fact


@dataclass(frozen=True)
class Relevant:
    """A question, and the ids of the documents that tell each of its facts, in the order of the corpus."""

    question: LabQuestion
    by_hop: tuple[tuple[str, ...], ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys(each for hop in self.by_hop for each in hop))

    def complete(self, found: Iterable[str]) -> bool:
        """Whether every fact is told by one of the documents that were found."""
        there = set(found)
        return all(there.intersection(hop) for hop in self.by_hop)


def relevant(labels: Iterable[Label], questions: Sequence[LabQuestion]) -> list[Relevant]:
    """The relevant documents of every question; ``labels`` are those of the whole corpus."""
    asked = {fact for question in questions for fact in question.facts}
    telling: dict[Fact, list[str]] = {fact: [] for fact in asked}
    for label in labels:
        if label.kind in ("fact", "copy") and label.fact in telling:
            telling[label.fact].append(label.id)
    return [Relevant(question, tuple(tuple(telling[fact]) for fact in question.facts)) for question in questions]


def relevant_row(each: Relevant) -> dict[str, Any]:
    return {
        "id": each.question.id,
        "question": each.question.question,
        "kind": each.question.kind,
        "hops": len(each.by_hop),
        "relevant": list(each.ids),
        "by_hop": [list(hop) for hop in each.by_hop],
    }
