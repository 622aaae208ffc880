"""Question sets from files and from the lab: one module per format, which says where it comes from and its licence."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arbitrag.evaluate.questions import Item, QuestionSet


def open_set(address: str | Path, *, limit: int | None = None, seed: int | None = None) -> QuestionSet:
    """The question set at an address.

    ``limit`` keeps so many questions: the first ones, or with ``seed`` others drawn at random; in the set's order
    either way. Raises DataError for a file with a bad row, which it names.
    """
    from arbitrag.errors import UsageError
    from arbitrag.evaluate.questions import QuestionSet

    if limit is not None and limit < 1:
        raise UsageError(f"a limit of {limit} questions; give 1 or more")
    items = _good(Path(address))
    found = list(items if limit is None or seed is not None else islice(items, limit))
    if limit is not None and len(found) > limit:
        chosen = random.Random(f"questions {seed}").sample(range(len(found)), limit)
        found = [found[number] for number in sorted(chosen)]
    return QuestionSet(Path(address).stem, found)


def _good(path: Path) -> Iterator[Item]:
    """The items of a file that has no bad row among those that are read."""
    from arbitrag.data.reading import read
    from arbitrag.errors import DataError

    for row in read(path):
        if row.item is None:
            worst = next(problem for problem in row.problems if not problem.warning)
            raise DataError(f"{path} line {worst.line}: {worst.text}\nSee every bad row: arbitrag data check {path}")
        yield row.item
