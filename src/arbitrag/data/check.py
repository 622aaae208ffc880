"""What is in a question set and what is wrong with it, row by row, without keeping the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from arbitrag.data.reading import QuestionSource
from arbitrag.data.rows import Problem
from arbitrag.evaluate.questions import Item
from arbitrag.retrieve.documents.chunking import estimate_tokens
from arbitrag.types import Passage

_FEW = 10  # questions with poison; among fewer, a pattern may be chance


@dataclass
class Spread:
    """The least, the most and the sum of some numbers."""

    least: int = 0
    most: int = 0
    total: int = 0
    count: int = 0

    def add(self, number: int) -> None:
        self.least = min(self.least, number) if self.count else number
        self.most = max(self.most, number)
        self.total += number
        self.count += 1

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def plain(self) -> dict[str, float]:
        return {"least": self.least, "mean": round(self.mean, 2), "most": self.most}


@dataclass
class Summary:
    """What the good rows hold; ``bad`` rows have errors. ``tokens`` are estimated, of questions with their passages.

    ``notes`` name what tells poisoned passages from clean ones beside their text.
    """

    address: str
    name: str
    format: str
    rows: int = 0
    bad: int = 0
    errors: int = 0
    warnings: int = 0
    answers: Spread = field(default_factory=Spread)
    options: Spread = field(default_factory=Spread)
    passages: Spread = field(default_factory=Spread)
    poisoned: Spread = field(default_factory=Spread)
    planted: int = 0
    scenarios: Counter[str] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)
    tokens: float = 0.0
    notes: list[str] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """The summary as JSON values."""
        spreads = {name: getattr(self, name).plain() for name in ("answers", "options", "passages", "poisoned")}
        counts = {name: dict(getattr(self, name)) for name in ("scenarios", "groups")}
        return {**vars(self), **spreads, **counts, "with_passages": self.passages.count, "tokens": round(self.tokens)}


def check(
    source: QuestionSource,
    found: Callable[[Problem], None],
    progress: Callable[[int, int, str], None] = lambda done, total, note: None,
) -> Summary:
    """Read all rows, give every problem to ``found``, and say what the good ones hold.

    Raises DataError for a file that cannot be read.
    """
    summary = Summary(source.address, source.name, source.format)
    telling = _Telling()
    for row in source.rows():
        summary.rows += 1
        summary.bad += row.item is None
        for problem in row.problems:
            summary.warnings += problem.warning
            summary.errors += not problem.warning
            found(problem)
        if row.item is not None:
            _count(summary, row.item)
            telling.add(row.item)
        progress(row.end, source.size, "")
    if not summary.rows:
        summary.errors += 1
        found(Problem(1, "there are no questions"))
    summary.notes = telling.notes()
    return summary


def _count(summary: Summary, item: Item) -> None:
    summary.answers.add(len(item.answers))
    summary.options.add(len(item.question.options))
    if item.passages is not None:
        summary.passages.add(len(item.passages))
    summary.poisoned.add(len(item.poisoned))
    summary.planted += bool(item.planted)
    summary.scenarios[item.scenario.name if item.scenario else "not stated"] += 1
    if item.group:
        summary.groups[item.group] += 1
    texts = [item.question.text, *(passage.text for passage in item.passages or ())]
    summary.tokens += sum(map(estimate_tokens, texts))


class _Telling:
    """Whether something beside the text of a passage says that it is poisoned."""

    def __init__(self) -> None:
        self._questions = 0
        self._sizes: Counter[bool] = Counter()  # of clean (False) and poisoned (True) passages
        self._having: Counter[tuple[str, bool]] = Counter()
        self._places: Counter[int | None] = Counter()

    def add(self, item: Item) -> None:
        passages = item.passages or ()
        for passage in passages:
            is_poisoned = passage.id in item.poisoned
            self._sizes[is_poisoned] += 1
            for name in _said_beside(passage):
                self._having[name, is_poisoned] += 1
        places = [place for place, passage in enumerate(passages) if passage.id in item.poisoned]
        if places and len(places) < len(passages):
            self._questions += 1
            self._places[places[0] if len(places) == 1 else None] += 1

    def notes(self) -> list[str]:
        if self._questions < _FEW:
            return []
        found = []
        for name in sorted({name for name, _ in self._having}):
            shares = {kind: self._having[name, kind] / self._sizes[kind] for kind in (False, True)}
            if set(shares.values()) == {0.0, 1.0}:
                having = "poisoned" if shares[True] else "clean"
                found.append(f"exactly the {having} passages have a {name}; a method can tell the others by that")
        if len(self._places) == 1 and None not in self._places:
            place = next(iter(self._places)) or 0
            found.append(f"the poisoned passage is number {place + 1} in every question; a method can tell it by that")
        return found


def _said_beside(passage: Passage) -> Iterable[str]:
    return (
        name for name, value in (("title", passage.title), ("source", passage.source), ("date", passage.date)) if value
    )
