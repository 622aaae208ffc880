"""Batches of training samples, in a resumable stream.

Samples are drawn some hundreds at a time: a *fill*. It follows from the recipe, the process, its number, and the
progress of the training when it was ordered; so a stream is known by where it stands, and nothing else is stored.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import zip_longest

from arbitrag.lab.world import World
from training.samples import Kind, Sample, Samples

LONGEST = 640  # tokens of a sample; longer ones are passed over


@dataclass(frozen=True, slots=True)
class Row:
    """One sample in tokens; ``learned`` says which of them the model is trained to write."""

    kind: Kind
    ids: Sequence[int]
    learned: Sequence[bool]


Batch = list[Row]


@dataclass(frozen=True)
class Source:
    """What fills are made of. ``batch_tokens`` bounds a batch, its padding counted; ``tokenizer`` is one in JSON."""

    world: int
    tokenizer: str
    seed: int
    rank: int
    samples: int
    batch_tokens: int

    def fill(self, number: int, progress: float) -> list[Batch]:
        """The batches of one fill, short and long rows in turn, so that two processes take equally long for a step."""
        rng = random.Random(f"lab {self.seed} {self.rank} {number}")
        samples = Samples(_world(self.world), rng)
        rows = _rows(self.tokenizer, [samples.draw(progress) for _ in range(self.samples)])
        batches = _packed(sorted(rows, key=lambda row: len(row.ids)), self.batch_tokens)
        half = len(batches) // 2
        short, long = batches[:half], batches[half:]
        rng.shuffle(short)
        rng.shuffle(long)
        first, second = (short, long) if self.rank == 0 else (long, short)
        return [batch for pair in zip_longest(first, second) for batch in pair if batch]


@dataclass(frozen=True)
class Place:
    """Where a stream stands: the number of the fill it is in, the batches taken of it, the progress of every fill
    ordered since, that one first."""

    fill: int = 0
    taken: int = 0
    progresses: tuple[float, ...] = ()


class Stream:
    """Endless batches. With an ``executor``, ``ahead`` further fills are made while one is used."""

    def __init__(
        self, source: Source, place: Place = Place(), *, executor: Executor | None = None, ahead: int = 0
    ) -> None:
        self._source = source
        self._executor = executor
        self._ahead = ahead if executor else 0
        self._fill, self._taken = place.fill, place.taken
        self._progresses = deque(place.progresses)
        self._waiting = deque(self._order(place.fill + n, progress) for n, progress in enumerate(place.progresses))
        self._current: list[Batch] | None = self._waiting.popleft()() if self._waiting else None

    @property
    def place(self) -> Place:
        return Place(self._fill, self._taken, tuple(self._progresses))

    def take(self, progress: float) -> Batch:
        """The next batch; ``progress`` counts for fills that are ordered now."""
        if self._current is None:
            self._current = self._next(progress)
        elif self._taken == len(self._current):
            self._progresses.popleft()
            self._fill, self._taken = self._fill + 1, 0
            self._current = self._next(progress)
        self._taken += 1
        return self._current[self._taken - 1]

    def _next(self, progress: float) -> list[Batch]:
        while len(self._progresses) < 1 + self._ahead:
            self._waiting.append(self._order(self._fill + len(self._progresses), progress))
            self._progresses.append(progress)
        return self._waiting.popleft()()

    def _order(self, number: int, progress: float) -> Callable[[], list[Batch]]:
        if self._executor is None:
            return partial(self._source.fill, number, progress)
        ordered: Future[list[Batch]] = self._executor.submit(self._source.fill, number, progress)
        return ordered.result


@lru_cache(maxsize=2)
def _world(seed: int) -> World:
    return World(seed)


@lru_cache(maxsize=2)
def _tokenizer(text: str) -> object:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(text)


def _rows(tokenizer: str, samples: Sequence[Sample]) -> list[Row]:
    """Samples in tokens, without those that are too long; id 0 begins each."""
    texts = [piece.text for sample in samples for piece in sample.pieces]
    encoded = iter(_tokenizer(tokenizer).encode_batch(texts, add_special_tokens=False))  # type: ignore[attr-defined]
    rows = []
    for sample in samples:
        ids, learned = [0], [False]
        for piece in sample.pieces:
            found = next(encoded).ids
            ids += found
            learned += [piece.learned] * len(found)
        if len(ids) <= LONGEST:
            rows.append(Row(sample.kind, ids, learned))
    return rows


def _packed(rows: Sequence[Row], batch_tokens: int) -> list[Batch]:
    """Rows by growing length in batches, each as large as fits when padded to its longest row."""
    batches: list[Batch] = [[]]
    for row in rows:
        if batches[-1] and (len(batches[-1]) + 1) * len(row.ids) > batch_tokens:
            batches.append([])
        batches[-1].append(row)
    return batches
