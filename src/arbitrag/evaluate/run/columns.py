"""The rows of one system on one set as columns, which is what figures over many rows are made from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arbitrag.types import Strategy

COSTS = (
    "generations",
    "scorings",
    "inspections",
    "calls",
    "steps",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "seconds",
    "money",
)


@dataclass(frozen=True)
class Columns:
    """What one system made of n questions, a place for each.

    ``places`` (n,) are those of the questions in their set, rising. ``answers`` and ``strategies`` are None for a
    failed row, of which ``errors`` tells more; an answer is None for a refusal too. ``score`` (n,) is one named score,
    NaN where a row has none. ``standalone`` and ``incremental`` (n, costs), in the order of ``COSTS``, are NaN where a
    cost is not known. ``attempts``, ``cut`` and ``parse_failures`` are (n,).
    """

    places: np.ndarray
    answers: Sequence[str | None]
    strategies: Sequence[Strategy | None]
    errors: Sequence[str]
    score: np.ndarray
    standalone: np.ndarray
    incremental: np.ndarray
    attempts: np.ndarray
    cut: np.ndarray
    parse_failures: np.ndarray

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def failed(self) -> np.ndarray:
        """Which rows failed (n,)."""
        return np.array([strategy is None for strategy in self.strategies], bool)

    @property
    def answered(self) -> np.ndarray:
        """Which rows have an answer (n,)."""
        return np.array([answer is not None for answer in self.answers], bool)

    def at(self, indices: np.ndarray) -> Columns:
        """The rows at some indices (m,)."""
        picked = indices.tolist()
        return Columns(
            self.places[indices],
            [self.answers[index] for index in picked],
            [self.strategies[index] for index in picked],
            [self.errors[index] for index in picked],
            self.score[indices],
            self.standalone[indices],
            self.incremental[indices],
            self.attempts[indices],
            self.cut[indices],
            self.parse_failures[indices],
        )


def columns(rows: Sequence[Sequence[Any]], score: str) -> Columns:
    """Columns of rows.

    A row is (place, answer, strategy, why, error, scores, standalone, incremental, attempts, cut, parse failures,
    check). Scores, standalone and incremental are JSON texts: an object, and two lists in the order of ``COSTS`` or
    None. ``score`` names one of the scores. The texts of a column are read as one, which takes a fraction of the time.
    """
    places, answers, strategies, _, errors, scores, standalone, incremental, attempts, cut, parse_failures, _ = (
        zip(*rows, strict=True) if rows else [()] * 12
    )
    known = {strategy.value: strategy for strategy in Strategy} | {None: None}
    return Columns(
        np.array(places, int),
        answers,
        [known[strategy] for strategy in strategies],
        errors,
        _named(scores, score),
        _costs(standalone),
        _costs(incremental),
        np.array(attempts, int),
        np.array(cut, int),
        np.array(parse_failures, int),
    )


def _named(texts: Sequence[str], name: str) -> np.ndarray:
    """One score of each row (n,); texts that do not hold its name are not read."""
    key = json.dumps(name)
    read: list[dict[str, float]] = _together([text if key in text else "{}" for text in texts])
    return np.array([each.get(name) for each in read], float)


def _costs(texts: Sequence[str | None]) -> np.ndarray:
    unknown = ",".join(["null"] * len(COSTS))
    flat = _together([unknown if text is None else text[1:-1] for text in texts])
    return np.array(flat, float).reshape(len(texts), len(COSTS))


def _together(texts: Sequence[str]) -> list[Any]:
    """JSON values that are separated by commas, within each text and between them."""
    found: list[Any] = json.loads(f"[{','.join(texts)}]")
    return found
