"""What a method answers on every path that a decision takes, decided again from recorded calls when it is first met."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from arbitrag.errors import ArbitragError, TraceError
from arbitrag.evaluate.metrics.answers import Metric
from arbitrag.evaluate.tune_grid import Grid
from arbitrag.evaluate.tune_record import Case, Recorded, Show, joined_trace
from arbitrag.replay import decide_again
from arbitrag.trace import Trace

_UNRECORDED = "needs a call that was not recorded"
_DAMAGED = "has a damaged trace"
_OTHERWISE = "decides otherwise than its recorded numbers say"


class Paths:
    """The paths of the questions of a record: ``scores`` and ``undecided`` are (questions, paths)."""

    def __init__(self, run: Recorded, set: str, cases: Sequence[Case], grid: Grid, metric: Metric, show: Show) -> None:
        self.scores = np.zeros((len(cases), grid.outcomes))
        self.undecided = np.zeros(self.scores.shape, bool)
        self._known = np.zeros(self.scores.shape, bool)
        self._why: dict[tuple[int, str], None] = {}
        self._run, self._set, self._cases, self._grid, self._metric, self._show = run, set, cases, grid, metric, show

    @property
    def reasons(self) -> dict[str, int]:
        return dict(Counter(why for _, why in self._why).most_common())

    def learn(
        self, codes: np.ndarray, plane: Mapping[str, float], rows: Sequence[float], columns: Sequence[float], first: int
    ) -> None:
        """See that every path among the codes (n, rows, columns) of the questions from ``first`` on is known."""
        flat = codes.reshape(len(codes), -1)
        met = np.zeros((len(codes), self._grid.outcomes), bool)
        met[np.arange(len(codes))[:, None], flat] = True
        new = np.argwhere(met & ~self._known[first : first + len(codes)])
        if not len(new):
            return
        asked: dict[int, dict[int, dict[str, float]]] = {}
        for place, code in new.tolist():
            row, column = divmod(int(np.argmax(flat[place] == code)), len(columns))
            changes = {**plane, self._grid.axes[0]: rows[row], self._grid.axes[1]: columns[column]}
            asked.setdefault(first + place, {})[code] = changes
        asyncio.run(self._decide(asked))

    async def _decide(self, asked: Mapping[int, Mapping[int, Mapping[str, float]]]) -> None:
        for number, (place, by_code) in enumerate(asked.items()):
            self._show(number, len(asked), "deciding again")
            case = self._cases[place]
            try:
                trace = joined_trace(self._run, self._set, case)
            except ValueError:
                trace = None
            for code, changes in by_code.items():
                self._known[place, code] = True
                why = _DAMAGED if trace is None else await self._learn(trace, place, code, changes)
                if why:
                    self.undecided[place, code] = True
                    self._why[place, why] = None

    async def _learn(self, trace: Trace, place: int, code: int, changes: Mapping[str, float]) -> str:
        """Decide one path again; gives why that cannot be done, or nothing."""
        try:
            verdict = await decide_again(trace, {name: repr(value) for name, value in changes.items()})
        except TraceError:
            return _UNRECORDED
        except ArbitragError as error:
            return f"fails: {type(error).__name__}"
        if self._grid.taken(verdict) != code:
            return _OTHERWISE
        self.scores[place, code] = self._metric(verdict.answer, self._cases[place].item)
        return ""


def looked_up(table: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The entries (questions, rows, columns) of a table (questions, paths)."""
    flat = codes.reshape(len(codes), -1)
    return np.take_along_axis(table, flat.astype(np.intp), axis=1).reshape(codes.shape)
