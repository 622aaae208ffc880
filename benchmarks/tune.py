"""Tuning on recorded numbers costs far less than trying every setting, and its sums of scores are the same.

BRIDGE's default grid, 336,400 settings, over made-up agreements of three heads in up to three rounds. The other side is
its decision tree for every question and setting, in numpy too, with 16 combinations of weights at a time.
"""

from __future__ import annotations

import numpy as np
from harness.bench import Bench, alternate

ROUNDS, BATCH = 3, 16


def main() -> None:
    from arbitrag.encode.similarity import HEADS
    from arbitrag.evaluate.tune.bridge import BridgeNumbers
    from arbitrag.evaluate.tune.grid import Grid

    bench = Bench("tune", __doc__)
    rng = np.random.default_rng(bench.options.seed)
    questions = bench.pick(smoke=10, quick=100, full=400)
    lengths = rng.integers(1, ROUNDS + 1, questions)
    agreements = rng.random((questions, ROUNDS, len(HEADS), 4))
    bias = rng.integers(1, 10, questions) / 10

    def recorded(question: int, number: int) -> dict[str, float]:
        each = agreements[question, number]
        by_head = {f"s{n}_{head}": each[place, n - 1] for place, head in enumerate(HEADS) for n in range(1, 5)}
        return by_head | {"r_p": bias[question], "g_p": 1 - bias[question]}

    numbers = BridgeNumbers([[recorded(each, number) for number in range(lengths[each])] for each in range(questions)])
    grid = Grid.of(numbers, BridgeNumbers.values)
    scores = rng.integers(0, 2, (questions, numbers.paths)).astype(float)
    ratios = grid.weights / grid.weights.sum(1, keepdims=True)
    alpha, beta = grid.thresholds.T[..., None]

    def every_setting() -> np.ndarray:
        return np.concatenate([batch(ratios[first : first + BATCH]) for first in range(0, len(ratios), BATCH)])

    def batch(ratios: np.ndarray) -> np.ndarray:
        path = np.full((len(ratios), len(alpha), questions), -1)  # -1 goes on
        for number in range(ROUNDS):
            s1, s2, s3, s4 = np.einsum("wh,qhn->nwq", ratios, agreements[:, number])[:, :, None]
            t_ret, t_llm = bias * (s3 + (1 - s2)), (1 - bias) * (s2 + (1 - s3))
            evidence = np.where(t_ret >= beta, 2, np.where(t_ret < alpha, 3, 4))
            outcome = np.where(s1 + s4 > 1, 0, np.where(t_ret < t_llm, np.where(t_llm > alpha, 1, 3), evidence))
            goes_on = (outcome == 4) & (lengths > number + 1)
            path = np.where(path < 0, np.where(goes_on, -1, 5 * number + outcome), path)
        sums: np.ndarray = np.take(scores, path + np.arange(questions) * numbers.paths).sum(-1)
        return sums

    def tuned() -> np.ndarray:
        return grid.sums(scores, show=lambda *_: None, what="")[0]

    bench.figure("settings whose sums differ", float((tuned() != every_setting()).sum()), at_most=0)
    ours, theirs = alternate(tuned, every_setting, rounds=bench.pick(smoke=1, quick=3, full=3), warm_up=0)
    bench.ratio("rectangles / every setting", ours, theirs, at_most=0.1)
    bench.finish(settings=len(grid.weights) * len(grid.thresholds), questions=questions)


if __name__ == "__main__":
    main()
