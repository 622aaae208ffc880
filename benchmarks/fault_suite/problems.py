"""What the fault suite finds, and how it reports it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

Show = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Problem:
    """One finding: ``kind`` is one of the bars of ``faults.py``."""

    kind: str
    fault: str
    command: str
    what: str


class Problems(list[Problem]):
    """The problems so far; each is printed on standard error when it is found, since a run may be cut off."""

    def append(self, problem: Problem) -> None:
        super().append(problem)
        print(f"  {problem.kind}: {problem.fault} · {problem.command} · {problem.what}", file=sys.stderr, flush=True)
