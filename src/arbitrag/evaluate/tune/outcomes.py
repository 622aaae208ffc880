"""What a method answers on every path that its decisions take on a grid, decided again from recorded calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arbitrag.errors import ArbitragError, TraceError
from arbitrag.evaluate.metrics.answers import Metric
from arbitrag.evaluate.tune.grid import Grid, Settings, Show
from arbitrag.evaluate.tune.recorded import Case, Recorded, joined_trace
from arbitrag.replay import decide_again
from arbitrag.trace import Trace

_UNRECORDED = "needs a call that was not recorded"
_DAMAGED = "has a damaged trace"
_OTHERWISE = "decides otherwise than its recorded numbers say"


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Tables (questions, paths): the ``scores`` of the answers, and which are ``undecided``; 0 where no setting leads.

    ``reasons`` counts the questions that are undecided on some path, by why.
    """

    scores: np.ndarray
    undecided: np.ndarray
    reasons: Mapping[str, int]


def outcomes(
    run: Recorded, set: str, cases: Sequence[Case], grid: Grid, default: Settings, metric: Metric, show: Show
) -> Outcomes:
    """Decide every question once for each path that it takes, on the grid or under the defaults."""
    scores = np.zeros((grid.numbers.questions, grid.numbers.paths))
    undecided = np.zeros(scores.shape, bool)
    reasons: Counter[str] = Counter()
    paths = grid.representatives()
    for question, path in enumerate(grid.paths_at(default).tolist()):
        paths[question].setdefault(path, default)

    async def decide() -> None:
        for question, case in enumerate(cases):
            show(question, len(cases), "deciding again")
            trace = _trace(run, set, case)
            why = []
            for path, settings in paths[question].items():
                found = await _score(trace, grid, path, settings, case, metric)
                undecided[question, path] = isinstance(found, str)
                if isinstance(found, str):
                    why.append(found)
                else:
                    scores[question, path] = found
            reasons.update(dict.fromkeys(why, 1))

    asyncio.run(decide())
    return Outcomes(scores, undecided, dict(reasons.most_common()))


def _trace(run: Recorded, set: str, case: Case) -> Trace | None:
    """None for one that is damaged."""
    try:
        return joined_trace(run, set, case)
    except ValueError:
        return None


async def _score(
    trace: Trace | None, grid: Grid, path: int, settings: Settings, case: Case, metric: Metric
) -> float | str:
    """The score of the answer on a path, or why it cannot be decided."""
    if trace is None:
        return _DAMAGED
    try:
        verdict = await decide_again(trace, {name: repr(value) for name, value in settings.items()})
    except TraceError:
        return _UNRECORDED
    except ArbitragError as error:
        return f"fails: {type(error).__name__}"
    return metric(verdict.answer, case.item) if grid.numbers.path_of(verdict) == path else _OTHERWISE
