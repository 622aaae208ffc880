"""Question sets from files and from the lab: one module per format, which says where it comes from and its licence."""

from __future__ import annotations

import random
import shlex
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arbitrag.data.reading import QuestionSource
    from arbitrag.evaluate.questions import Item, QuestionSet


def open_set(address: str | Path, *, limit: int | None = None, seed: int | None = None) -> QuestionSet:
    """The question set at an address: ``FILE``, ``FILE?poisoned=1&k=5`` or ``lab:questions?count=500``.

    The format of a file is found by what it holds; what stands behind the ``?`` are options of the format. ``limit``
    keeps so many questions: the first ones, or with ``seed`` others drawn at random; in the set's order either way.

    Raises DataError for a file of another format, or for a bad row, which it names; UsageError for a wrong option.
    """
    from arbitrag.data.reading import open_source
    from arbitrag.errors import UsageError
    from arbitrag.evaluate.questions import QuestionSet

    if limit is not None and limit < 1:
        raise UsageError(f"a limit of {limit} questions; give 1 or more")
    source = open_source(address)
    items = _good(source)
    found = list(items if limit is None or seed is not None else islice(items, limit))
    if limit is not None and len(found) > limit:
        chosen = random.Random(f"questions {seed}").sample(range(len(found)), limit)
        found = [found[number] for number in sorted(chosen)]
    return QuestionSet(source.name, found)


def _good(source: QuestionSource) -> Iterator[Item]:
    """The items of a set that has no bad row among those that are read."""
    from arbitrag.errors import DataError

    for row in source.rows():
        if row.item is None:
            worst = next(problem for problem in row.problems if not problem.warning)
            command = shlex.join(["arbitrag", "data", "check", source.address])
            raise DataError(f"{source.address} line {worst.line}: {worst.text}\nSee every bad row: {command}")
        yield row.item
