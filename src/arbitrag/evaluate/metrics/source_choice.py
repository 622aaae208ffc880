"""Whether the right source was trusted: what a perfect choice would have given, and what was chosen for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from arbitrag.evaluate.metrics.ratios import mean, share
from arbitrag.types import Strategy

STRATEGIES = tuple(Strategy)  # the order of rows and columns: FA, FI, FE, RA


@dataclass(frozen=True, slots=True)
class Oracle:
    """Two candidates for each question, and the better of the two each time. The means are None without a question.

    ``first`` and ``second`` are the mean scores of always taking the one or the other, ``best`` that of choosing
    perfectly.
    """

    questions: int
    first: float | None
    second: float | None
    best: float | None

    @property
    def gap(self) -> float | None:
        """best - max(first, second): what there is to gain by choosing (TrustMargin, table 3)."""
        if self.best is None or self.first is None or self.second is None:
            return None
        return self.best - max(self.first, self.second)

    def closed(self, score: float) -> float | None:
        """(score - max(first, second)) / gap: the share of the gap that a method's mean score closes.

        It is negative for a method below the better candidate, and above 1 for one that finds answers which neither
        candidate has. None where there is no gap. ``score`` must be over the same questions.
        """
        gap = self.gap
        if self.first is None or self.second is None or not gap:
            return None
        return (score - max(self.first, self.second)) / gap


def oracle(first: Sequence[float], second: Sequence[float]) -> Oracle:
    """The oracle of two candidates by their scores, such as EM or F1, of the same questions.

    Raises:
        ValueError: the two are not of one length.
    """
    best = [max(pair) for pair in zip(first, second, strict=True)]
    return Oracle(len(best), mean(first), mean(second), mean(best))


@dataclass(frozen=True, slots=True)
class Confusion:
    """Which strategy was taken in which scenario.

    ``counts[i][j]`` are the questions of scenario ``STRATEGIES[i]`` that were answered by ``STRATEGIES[j]``: a row per
    scenario, a column per strategy taken (BRIDGE, figure 4). Shares of nothing are None.
    """

    counts: tuple[tuple[int, ...], ...]

    @property
    def questions(self) -> int:
        return sum(map(sum, self.counts))

    @property
    def accuracy(self) -> float | None:
        """The share of all questions for which the strategy of the scenario was taken."""
        right = sum(self.counts[place][place] for place in range(len(STRATEGIES)))
        return share(right, self.questions)

    def count(self, scenario: Strategy, taken: Strategy) -> int:
        return self.counts[STRATEGIES.index(scenario)][STRATEGIES.index(taken)]

    def share(self, scenario: Strategy, taken: Strategy) -> float | None:
        """Of the questions of a scenario, the share for which ``taken`` was taken."""
        return share(self.count(scenario, taken), sum(self.counts[STRATEGIES.index(scenario)]))

    def recall(self, strategy: Strategy) -> float | None:
        """Of the questions that called for ``strategy``, the share for which it was taken."""
        return self.share(strategy, strategy)

    def precision(self, strategy: Strategy) -> float | None:
        """Of the questions for which ``strategy`` was taken, the share that called for it."""
        return share(self.count(strategy, strategy), sum(self.count(each, strategy) for each in STRATEGIES))


def confusion(scenarios: Sequence[Strategy], taken: Sequence[Strategy]) -> Confusion:
    """Count the strategy that each question's scenario calls for against the one that was taken.

    Raises:
        ValueError: the two are not of one length.
    """
    pairs = Counter(zip(scenarios, taken, strict=True))
    return Confusion(tuple(tuple(pairs[scenario, each] for each in STRATEGIES) for scenario in STRATEGIES))
