"""Whether methods differ, or it is noise: intervals, tests, and a correction for many of them.

Scores are per question and paired: the same questions in the same order for every method. The order itself means
nothing to any result, so that a run gives the same numbers however its questions were scheduled. Every result carries
the number of questions behind it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from arbitrag.errors import UsageError
from arbitrag.evaluate.metrics.ratios import mean

_BLOCK = 1 << 20  # numbers drawn at once, which bounds the memory to some tens of MB
_MULTINOMIAL_COST = 8  # of one count, against drawing one question


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and the interval that holds it with confidence ``level``.

    ``mean`` is None without a question; ``low`` and ``high`` are None with fewer than two, of which nothing can be
    said. Below about 30 questions the interval is somewhat too narrow, and it has no width where all values are equal:
    then trust a test, whose p is never below 2 / 2^n for n questions that differ.
    """

    questions: int
    mean: float | None
    low: float | None
    high: float | None
    level: float
    resamples: int
    seed: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The interval of each method's mean, and of mean(left) - mean(right) for each pair, in the order given."""

    means: Mapping[str, Interval]
    differences: Mapping[tuple[str, str], Interval]


def compare(
    scores: Mapping[str, Sequence[float]], *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Comparison:
    """Paired percentile-bootstrap intervals of methods and their differences (Efron and Tibshirani 1993, chapter 13).

    Questions are drawn with replacement, as many as there are, each with the scores of all methods (Koehn 2004). An
    interval cuts (1 - level) / 2 of the ``resamples`` means off at each end. Not BCa: a mean is linear in the values,
    so that there is next to no bias to correct, while BCa's corrections divide by zero where all values are equal, as
    they are for two methods that agree on every question.

    Raises:
        ValueError: the scores are not of one length, or one is NaN or infinite.
        UsageError: the level is not between 0 and 1, or there is no resample.
    """
    if not 0 < level < 1:
        raise UsageError(f"the level of an interval is between 0 and 1, such as 0.95; got {level}")
    _check_resamples(resamples)
    table = _table(scores)
    sums = _resampled_sums(table, resamples, seed) if len(table) > 1 else None

    def interval(weights: np.ndarray) -> Interval:
        low = high = None
        if sums is not None:
            ends = np.quantile(sums @ weights, [(1 - level) / 2, (1 + level) / 2]) / len(table)
            low, high = ends.tolist()
        return Interval(len(table), mean((table @ weights).tolist()), low, high, level, resamples, seed)

    unit = dict(zip(scores, np.eye(len(scores)), strict=True))
    return Comparison(
        {name: interval(unit[name]) for name in scores},
        {(left, right): interval(unit[left] - unit[right]) for left, right in combinations(scores, 2)},
    )


def paired_bootstrap(
    left: Sequence[float],
    right: Sequence[float],
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """The interval of mean(left) - mean(right); see ``compare``, which draws once for any number of methods.

    Raises:
        ValueError: the two are not of one length, or a score is NaN or infinite.
        UsageError: the level is not between 0 and 1, or there is no resample.
    """
    both = compare({"left": left, "right": right}, level=level, resamples=resamples, seed=seed)
    return both.differences["left", "right"]


@dataclass(frozen=True, slots=True)
class SignFlip:
    """The two-sided ``p`` that paired scores differ by chance; ``different`` of the ``questions`` have unequal ones."""

    questions: int
    different: int
    p: float


def sign_flip(left: Sequence[float], right: Sequence[float], *, resamples: int = 10_000, seed: int = 0) -> SignFlip:
    """The randomisation test of paired scores, for F1 and other numbers (Fisher 1935; Smucker et al. 2007).

    If the two methods are alike, each difference could as well have had the other sign. p is the share of
    ``resamples`` random choices of signs whose sum is at least as far from 0 as the one that was found, which counts
    as one of them: p = (1 + as far) / (1 + resamples). Of right and wrong answers ``mcnemar`` gives it exactly.

    Raises:
        ValueError: the two are not of one length, or a score is NaN or infinite.
        UsageError: there is no resample.
    """
    _check_resamples(resamples)
    table = _table({"left": left, "right": right})
    differences = table[:, 0] - table[:, 1]
    sizes = np.sort(np.abs(differences[differences != 0]))  # sorted: the signs do not depend on the questions' order
    sums = _signed_sums(sizes, resamples, seed)
    rounding = 1e-9 * sizes.sum()  # the same numbers added up in another order are as far as they were
    as_far = int((np.abs(sums) >= abs(differences.sum()) - rounding).sum())
    return SignFlip(len(differences), len(sizes), (1 + as_far) / (1 + resamples))


@dataclass(frozen=True, slots=True)
class McNemar:
    """The questions that only one of two methods has right, and the two-sided ``p`` that this is chance."""

    questions: int
    only_left: int
    only_right: int
    p: float


def mcnemar(left: Sequence[bool], right: Sequence[bool]) -> McNemar:
    """McNemar's exact test of right and wrong answers (McNemar 1947; Fagerland et al. 2013).

    Of the n questions that one method has right and the other wrong, each falls to either side like a coin if the
    methods are alike:

        p = min(1, 2 sum_{i=0..m} C(n, i) / 2^n),   m = min(only_left, only_right)

    Without such a question p is 1.

    Raises:
        ValueError: the two are not of one length.
    """
    pairs = list(zip(left, right, strict=True))
    only_left = sum(a and not b for a, b in pairs)
    only_right = sum(b and not a for a, b in pairs)
    return McNemar(len(pairs), only_left, only_right, _coin(only_left, only_right))


def holm(p: Sequence[float]) -> tuple[float, ...]:
    """The p of many tests, each adjusted for all of them, in the order given (Holm 1979).

    The k-th smallest of m, k from 0, is multiplied by m - k; none is adjusted below a smaller one's or above 1. To
    call significant what stays at or below 0.05 errs in any of them with a probability of at most 0.05.

    Raises:
        ValueError: a p is not between 0 and 1.
    """
    if not all(0 <= each <= 1 for each in p):
        raise ValueError("a p is not between 0 and 1")
    adjusted = [0.0] * len(p)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        least = max(least, min(1.0, (len(p) - rank) * p[place]))
        adjusted[place] = least
    return tuple(adjusted)


def _resampled_sums(table: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """The sums (resamples, m) of n draws with replacement of the rows of a table (n, m).

    Rows that are equal are one row with a count, in sorted order, so that the order of the questions means nothing.
    """
    rows, counts = np.unique(table, axis=0, return_counts=True)
    rng = np.random.default_rng(seed)
    few = _MULTINOMIAL_COST * len(rows) < len(table)
    step = max(1, _BLOCK // (len(rows) if few else len(table)))
    sums = np.empty((resamples, table.shape[1]))
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = rng.multinomial(len(table), counts / len(table), size) if few else _drawn(counts, size, rng)
        sums[start : start + size] = drawn @ rows
    return sums


def _signed_sums(sizes: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """The sums (resamples,) of the sizes (n,), each with a random sign; of equal sizes only the number is drawn."""
    different, counts = np.unique(sizes, return_counts=True)
    rng = np.random.default_rng(seed)
    few = _MULTINOMIAL_COST * len(different) < len(sizes)
    step = max(1, _BLOCK // max(1, len(different) if few else len(sizes)))
    sums = np.empty(resamples)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        if few:
            positive = rng.binomial(counts, 0.5, (rows, len(counts))) @ different
        else:
            bits = np.unpackbits(rng.integers(256, size=(rows, len(sizes) // 8 + 1), dtype=np.uint8), axis=1)
            positive = bits[:, : len(sizes)] @ sizes
        sums[start : start + rows] = 2 * positive - sizes.sum()
    return sums


def _drawn(counts: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """How often each row is drawn, (size, rows): multinomial counts by single draws, faster where most counts are 1."""
    row_of = np.repeat(np.arange(len(counts)), counts)
    drawn = row_of[rng.integers(len(row_of), size=(size, len(row_of)))]
    drawn += len(counts) * np.arange(size)[:, None]
    return np.bincount(drawn.ravel(), minlength=size * len(counts)).reshape(size, len(counts))


def _coin(heads: int, tails: int) -> float:
    """The probability that a fair coin falls at least as unevenly as this, summed from the likeliest such count."""
    number, fewer = heads + tails, min(heads, tails)
    term = total = 1.0
    for count in range(fewer, 0, -1):
        term *= count / (number - count + 1)
        total += term
    return min(1.0, 2 * total * (math.comb(number, fewer) / (1 << number)))


def _table(scores: Mapping[str, Sequence[float]]) -> np.ndarray:
    """The scores as an array (questions, methods), checked."""
    lengths = {name: len(values) for name, values in scores.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"paired scores are of the same questions; got {found}")
    table = np.array([np.asarray(values, float) for values in scores.values()]).T
    if not np.isfinite(table).all():
        raise ValueError("a score is NaN or infinite; a failed question has no score and is left out")
    return table


def _check_resamples(resamples: int) -> None:
    if resamples < 1:
        raise UsageError(f"resamples must be 1 or more; got {resamples}")
