"""Passages as a method gets them: nothing about one says where it stood in the file or that it was planted."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from arbitrag.types import Passage

_ID_LENGTH = 12


def named(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """The passages, each called by a hash of what it says; of equal ones the second is called otherwise than the first.

    A name such as "poison-1", or the place in the list, would tell a method what only an evaluation may know.
    """
    seen: Counter[str] = Counter()
    found = []
    for passage in passages:
        said = "\x00".join((passage.title, passage.text, passage.source, passage.date))
        found.append(replace(passage, id=_hash(f"{said}\x00{seen[said]}")))
        seen[said] += 1
    return tuple(found)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_LENGTH]
