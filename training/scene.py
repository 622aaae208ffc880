"""A lab question with its passages and memory, from which the right reply to any task follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from arbitrag.lab.world import Fact
from arbitrag.stages.parsing.values import Known

SURE = 0.7


@dataclass(frozen=True, slots=True)
class Scene:
    """A question with its sources. ``rank`` is from 0 to 1, None for a fact that is not in the training data.

    ``titles`` are those of the passages; ``objects`` has for each passage the object that it names for the question,
    None where it says something else;
    ``remembered`` is the object that the memory in the prompt names.
    """

    fact: Fact
    question: str
    rank: float | None
    passages: tuple[str, ...] = ()
    objects: tuple[str | None, ...] = ()
    remembered: str | None = None
    titles: tuple[str, ...] = ()

    @property
    def sure(self) -> bool:
        """Whether the model is to tell the fact from memory."""
        return self.rank is not None and self.rank < SURE

    @property
    def bias(self) -> int:
        """How far the question rests on documents, in percent, a round ten."""
        return 90 if self.rank is None else 10 + 10 * round(8 * self.rank)

    @property
    def sources(self) -> Mapping[str, tuple[int, ...]]:
        """The numbers of the passages that name each object, in order; none for one that only memory names."""
        named = dict.fromkeys(each for each in (*self.objects, self.remembered) if each)
        return {name: tuple(number for number, each in enumerate(self.objects, 1) if each == name) for name in named}

    @property
    def support(self) -> Mapping[str, int]:
        """How much supports each object."""
        memory = 1 if self.fact.form.changes else 2
        return {
            name: len(numbers) + (memory if name == self.remembered else 0) for name, numbers in self.sources.items()
        }

    @property
    def known(self) -> Known:
        """How many documents of each kind are at hand."""
        return Known(len(self.passages), int(self.remembered is not None))

    @property
    def best(self) -> str | None:
        """The best supported object; None where nothing is named."""
        support = self.support
        return max(support, key=support.__getitem__) if support else None
