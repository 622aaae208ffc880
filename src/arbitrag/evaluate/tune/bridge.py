"""BRIDGE's alpha, beta and weights of the heads, from the agreements by head of every round of every question.

Only the ratio of the weights counts (0.4, 0.2 and 0.4 decide as 0.8, 0.4 and 0.8 do), so equal ratios are tried once,
under the weights nearest to the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from operator import add
from typing import ClassVar

import numpy as np

from arbitrag.encode.similarity import HEADS
from arbitrag.errors import DataError, UsageError
from arbitrag.evaluate.tune.grid import Numbers, Round, Values, combined, rectangles, spread
from arbitrag.methods.bridge.decision_tree import REFLECT, Outcome, last_outcome
from arbitrag.methods.bridge.knowledge_scores import recorded
from arbitrag.methods.bridge.method import Bridge
from arbitrag.stages.soft_bias import recorded_bias
from arbitrag.types import Decision, Strategy, Verdict

_OUTCOMES: tuple[Outcome, ...] = (*Strategy, REFLECT)
_BOTH, _MEMORY, _EVIDENCE, _REFUSE, _REFLECT = range(len(_OUTCOMES))
_DECIMALS = 9  # in which equal ratios agree


class BridgeNumbers(Numbers):
    """A path is five times the round, plus where the tree leads in it; it ends in "reflect" at the last one recorded.

    ``heads`` are places in ``HEADS``. ``agreements`` are (heads, rounds, 4, questions), NaN after the last round of a
    question; ``bias`` is (2, questions), and ``lengths``, the rounds recorded, (questions,).
    """

    method = Bridge
    weights = tuple(f"{head}_weight" for head in HEADS)
    thresholds = ("alpha", "beta")
    fixed: ClassVar[Mapping[str, object]] = {"tree": True}
    values: ClassVar[Values] = {
        **dict.fromkeys(thresholds, spread(0.1, 2.0, 0.1)),
        **dict.fromkeys(weights, spread(0.1, 1.0, 0.1)),
    }

    def __init__(self, rounds: Sequence[Sequence[Round]]) -> None:
        """Raises DataError for questions that were compared by different heads."""
        super().__init__(rounds)
        names = _heads(rounds)
        self.heads = [list(HEADS).index(head) for head in names]
        self.lengths = np.array(list(map(len, rounds)))
        self.paths = len(_OUTCOMES) * int(self.lengths.max())
        self.bias = np.array([[each[0]["r_p"], each[0]["g_p"]] for each in rounds]).T
        self.agreements = np.full((len(names), self.lengths.max(), 4, len(rounds)), np.nan)
        for question, each in enumerate(rounds):
            for number, numbers in enumerate(each):
                agreements = [[numbers[f"s{n}_{head}"] for n in range(1, 5)] for head in names]
                self.agreements[:, number, :, question] = agreements
        self.tuned = (*self.thresholds, *(self.weights[head] for head in self.heads if len(names) > 1))
        if len(names) == 1:
            told = f"The encoder compares by its {HEADS[names[0]]} head alone, so no weight matters: none is tuned."
            self.notes = (told,)
        elif missing := [words for head, words in HEADS.items() if head not in names]:
            self.notes = (f"The encoder has no {missing[0]} head, so its weight is not tuned.",)

    @staticmethod
    def read(decisions: Sequence[Decision]) -> tuple[Round, ...]:
        """The agreements by head of every round, and the bias, which is the same in all."""
        bias, rounds = recorded_bias(decisions), recorded(decisions)
        if not rounds:
            raise ValueError("no agreements were recorded")
        return tuple(
            {f"{name}_{head}": value for head, each in heads.items() for name, value in asdict(each).items()}
            | {"r_p": bias.retrieval / 100, "g_p": bias.generation / 100}
            for heads in rounds
        )

    def combinations(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        """Raises UsageError when no weights are allowed."""
        default = [getattr(Bridge(), name) for name in self.weights]
        weights = combined([values.get(name, (usual,)) for name, usual in zip(self.weights, default, strict=True)])
        index = np.full(len(weights), -1)
        allowed = np.flatnonzero((weights >= 0).all(1) & (weights[:, self.heads] > 0).any(1))
        if not len(allowed):
            raise UsageError("weights are 0 or more, and one of them is more; give --grid such weights")
        away = reduce(add, np.abs(weights[allowed] - default).T)
        allowed = allowed[np.argsort(away, kind="stable")]
        ratios = np.round(self._ratios(weights[allowed]), _DECIMALS)
        _, first, alike = np.unique(ratios, axis=0, return_index=True, return_inverse=True)
        index[allowed] = np.argsort(np.argsort(first))[alike.reshape(-1)]
        return weights[allowed[np.sort(first)]], index

    def regions(self, weights: np.ndarray, *thresholds: np.ndarray) -> np.ndarray:
        """Walk down the tree (``methods.bridge.decision_tree``), a round after the other.

        A question arrives in a round with an alpha in the rows before ``bottom`` and a beta in the columns from
        ``left`` on. There the tree has one outcome in the columns before ``right``; in the others it has one in the
        rows before ``below``, and refuses from there on.
        """
        alpha, beta = thresholds
        ratios, parts = self._ratios(weights), []
        weight, question = (each.ravel() for each in np.indices((len(ratios), self.questions)))
        bottom, left = np.full(len(weight), len(alpha)), np.zeros(len(weight), int)
        for number in range(int(self.lengths.max())):
            agreements, (r_p, g_p) = self.agreements[:, number], self.bias[:, question]
            s1, s2, s3, s4 = reduce(add, (ratios[weight, n] * head[:, question] for n, head in enumerate(agreements)))
            t_ret, t_llm = r_p * (s3 + (1 - s2)), g_p * (s2 + (1 - s3))
            both = s1 + s4 > 1
            memory = ~both & (t_ret < t_llm)
            evidence = np.maximum(left, np.searchsorted(beta, t_ret, "right"))  # T_ret >= beta
            right = np.where(both, len(beta), np.where(memory, left, evidence))
            trusted = np.searchsorted(alpha, t_llm, "left")  # T_llm > alpha
            kept = np.searchsorted(alpha, t_ret, "right")  # not T_ret < alpha
            below = np.minimum(bottom, np.where(memory, trusted, kept))
            goes_on = ~memory & (self.lengths[question] > number + 1)
            first, at = len(_OUTCOMES) * number, (weight, question)
            parts += [
                (*at, first + np.where(both, _BOTH, _EVIDENCE), 0, bottom, left, right),
                (*at, first + np.where(memory, _MEMORY, _REFLECT), 0, np.where(goes_on, 0, below), right, len(beta)),
                (*at, first + _REFUSE, below, bottom, right, len(beta)),
            ]
            goes_on &= (below > 0) & (right < len(beta))
            weight, question, bottom, left = (each[goes_on] for each in (weight, question, below, right))
        return rectangles(*parts)

    def path_of(self, verdict: Verdict) -> int:
        rounds = len(recorded(verdict.decisions))
        return len(_OUTCOMES) * (rounds - 1) + _OUTCOMES.index(last_outcome(verdict.decisions))

    def _ratios(self, weights: np.ndarray) -> np.ndarray:
        """The weights of the heads that there are, so that they come to 1: (w, heads)."""
        used = weights[:, self.heads]
        ratios: np.ndarray = used / reduce(add, used.T)[:, None]
        return ratios


def _heads(rounds: Sequence[Sequence[Round]]) -> tuple[str, ...]:
    found = {tuple(head for head in HEADS if f"s1_{head}" in numbers) for each in rounds for numbers in each}
    if len(found) > 1:
        listed = "; ".join(" and ".join(HEADS[head] for head in heads) for heads in sorted(found))
        raise DataError(f"the questions were compared by different heads of an encoder ({listed}); record them anew")
    return found.pop()
