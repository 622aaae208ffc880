"""BRIDGE's alpha, beta and weights of the scorer, from the agreements by head of every round of every question.

The weights count by their shares only (0.4, 0.2 and 0.4 decide as 0.8, 0.4 and 0.8 do), so equal shares are tried once,
under the weights nearest to the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import ClassVar

import numpy as np

from arbitrag.encode.similarity import HEADS, normalised_weights
from arbitrag.errors import DataError, UsageError
from arbitrag.evaluate.tune_grid import Values, spread
from arbitrag.evaluate.tune_record import Round
from arbitrag.methods.base import Method
from arbitrag.methods.bridge.decision_tree import REFLECT
from arbitrag.methods.bridge.knowledge_scores import recorded
from arbitrag.methods.bridge.method import Bridge
from arbitrag.types import Decision, Strategy, Verdict

THRESHOLDS = ("alpha", "beta")
WEIGHTS = {head: f"{head}_weight" for head in HEADS}
VALUES: Values = {name: spread(0.1, 2.0, 0.1) for name in THRESHOLDS} | {
    name: spread(0.1, 1.0, 0.1) for name in WEIGHTS.values()
}
_OUTCOMES = (*(strategy.value for strategy in Strategy), REFLECT)
_BOTH, _MEMORY, _EVIDENCE, _REFUSE, _REFLECT = (np.int16(number) for number in range(len(_OUTCOMES)))
_TREE = ("consistency", "threshold")  # the stages that say where the tree leads
_SAME = 9  # decimals in which equal shares agree


def read(decisions: Sequence[Decision]) -> tuple[Round, ...]:
    """The agreements by head of every round, and the bias, which is the same in all. Raises ValueError without any."""
    bias = next((each.inputs for each in decisions if each.stage == "soft bias"), None)
    rounds = recorded(decisions)
    if bias is None or not rounds:
        raise ValueError("a decision of bridge has a bias and agreements")
    r_p, g_p = bias["retrieval"] / 100, bias["generation"] / 100
    return tuple(
        {f"{name}_{head}": value for head, each in heads.items() for name, value in asdict(each).items()}
        | {"r_p": r_p, "g_p": g_p}
        for heads in rounds
    )


@dataclass(frozen=True)
class BridgeGrid:
    """A plane of alpha by beta for every shares of the heads.

    A code is five times the round, plus where the tree leads in it; it leads to "reflect" at the last round recorded.
    ``agreements[head]`` are (rounds, 4, questions), ``bias`` (2, questions) and ``lengths`` (questions,).
    """

    method: ClassVar[type[Method]] = Bridge
    axes: ClassVar[tuple[str, str]] = ("alpha", "beta")

    values: Values
    planes: Sequence[Mapping[str, float]]
    agreements: Mapping[str, np.ndarray]
    bias: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, rounds: Sequence[Sequence[Round]], values: Values) -> BridgeGrid:
        """Raises DataError for questions that were compared by different heads."""
        heads = _heads(rounds)
        longest = max(map(len, rounds))
        agreements = {head: np.full((longest, 4, len(rounds)), np.nan) for head in heads}
        for place, each in enumerate(rounds):
            for number, numbers in enumerate(each):
                for head in heads:
                    agreements[head][number, :, place] = [numbers[f"s{n}_{head}"] for n in range(1, 5)]
        tuned = {name: tuple(values[name]) for name in (*THRESHOLDS, *_tuned(heads))}
        return cls(
            tuned,
            _planes(heads, tuned),
            agreements,
            np.array([[each[0]["r_p"], each[0]["g_p"]] for each in rounds], float).T,
            np.array(list(map(len, rounds)), int),
        )

    @property
    def outcomes(self) -> int:
        return int(self.lengths.max()) * len(_OUTCOMES)

    @property
    def maps(self) -> Sequence[tuple[str, str]]:
        weights = _tuned(tuple(self.agreements))
        return (self.axes, (weights[0], weights[1])) if weights else (self.axes,)

    @property
    def notes(self) -> Sequence[str]:
        heads = tuple(self.agreements)
        if len(heads) == len(HEADS):
            return ()
        if len(heads) == 1:
            return (f"The encoder compares by its {HEADS[heads[0]]} head alone, so no weight matters: none is tuned.",)
        missing = " and ".join(words for head, words in HEADS.items() if head not in heads)
        return (f"The encoder has no {missing} head, so its weight is not tuned.",)

    def codes(
        self, plane: Mapping[str, float], rows: Sequence[float], columns: Sequence[float], questions: slice
    ) -> np.ndarray:
        alphas, betas = np.array(rows), np.array(columns)
        used = self._shares(plane)
        places = np.arange(len(self.lengths))[questions]
        codes = np.zeros((len(places), len(alphas), len(betas)), np.int16)
        walking = np.arange(len(places))  # those that some setting brings to the round
        for number in range(int(self.lengths[places].max())):
            at = places[walking]
            scores = np.asarray(sum(share * self.agreements[head][number][:, at] for head, share in used.items()))
            first = len(_OUTCOMES) * number
            before = codes[walking]
            arrived = before == first - len(_OUTCOMES) + _REFLECT if number else True
            codes[walking] = np.where(arrived, first + _walk(scores, self.bias[:, at], alphas, betas), before)
            goes_on = (codes[walking] == first + _REFLECT).any((1, 2)) & (self.lengths[at] > number + 1)
            walking = walking[goes_on]
        return codes

    def taken(self, verdict: Verdict) -> int:
        rounds = len(recorded(verdict.decisions))
        outcome = [each.outcome for each in verdict.decisions if each.stage in _TREE][-1]
        return len(_OUTCOMES) * (rounds - 1) + _OUTCOMES.index(outcome)

    def plane_of(self, settings: Mapping[str, float]) -> int:
        return self._numbers[_rounded(self._shares(settings))]

    @cached_property
    def _numbers(self) -> dict[tuple[float, ...], int]:
        return {_rounded(self._shares(plane)): number for number, plane in enumerate(self.planes)}

    def _shares(self, weights: Mapping[str, float]) -> dict[str, float]:
        heads = tuple(self.agreements)
        return normalised_weights(_by_head(weights), heads, "")


def _walk(scores: np.ndarray, bias: np.ndarray, alphas: np.ndarray, betas: np.ndarray) -> np.ndarray:
    """``decide_with_steps`` for scores (4, n), bias (2, n), each alpha and beta: (n, alphas, betas)."""
    s1, s2, s3, s4 = (each[:, None, None] for each in scores)
    r_p, g_p = (each[:, None, None] for each in bias)
    t_ret, t_llm = r_p * (s3 + (1 - s2)), g_p * (s2 + (1 - s3))
    alphas = alphas[:, None]
    memory = np.where(t_llm > alphas, _MEMORY, _REFUSE)
    evidence = np.where(t_ret >= betas, _EVIDENCE, np.where(t_ret < alphas, _REFUSE, _REFLECT))
    return np.where(s1 + s4 > 1, _BOTH, np.where(t_ret < t_llm, memory, evidence))


def check(settings: Mapping[str, object]) -> None:
    """Raises UsageError for a form of BRIDGE that does not decide by its numbers."""
    if settings.get("tree") is False:
        raise UsageError("bridge with tree=False decides by no threshold, so there is nothing to tune; choose another")


def _heads(rounds: Sequence[Sequence[Round]]) -> tuple[str, ...]:
    found = {tuple(head for head in HEADS if f"s1_{head}" in numbers) for each in rounds for numbers in each}
    if len(found) > 1:
        listed = "; ".join(" and ".join(HEADS[head] for head in heads) for heads in sorted(found))
        raise DataError(f"the questions were compared by different heads of an encoder ({listed}); record them anew")
    return next(iter(found))


def _tuned(heads: Sequence[str]) -> tuple[str, ...]:
    """The weights that matter: none of a head that is alone."""
    return tuple(WEIGHTS[head] for head in HEADS if head in heads) if len(heads) > 1 else ()


def _planes(heads: Sequence[str], values: Values) -> list[Mapping[str, float]]:
    """Weights with different shares of the heads, each as near to the defaults as there are. Raises UsageError when
    every one of them is 0 or less."""
    default = {name: float(getattr(Bridge(), name)) for name in WEIGHTS.values()}
    names = _tuned(heads)
    found: dict[tuple[float, ...], Mapping[str, float]] = {}
    every = [default | dict(zip(names, chosen, strict=True)) for chosen in product(*(values[name] for name in names))]
    for weights in sorted(every, key=lambda weights: sum(abs(weights[name] - default[name]) for name in names)):
        if min(weights.values()) >= 0 and any(weights[WEIGHTS[head]] for head in heads):
            found.setdefault(_rounded(normalised_weights(_by_head(weights), heads, "")), weights)
    if not found:
        raise UsageError("weights are 0 or more, and one of them is more; give --grid such weights")
    return list(found.values())


def _by_head(weights: Mapping[str, float]) -> dict[str, float]:
    return {head: weights[name] for head, name in WEIGHTS.items()}


def _rounded(shares: Mapping[str, float]) -> tuple[float, ...]:
    return tuple(round(shares.get(head, 0.0), _SAME) for head in HEADS)
