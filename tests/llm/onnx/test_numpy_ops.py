import numpy as np
import pytest

from arbitrag.llm.engine.runtime import SampledTokens
from arbitrag.llm.onnx import numpy_ops

HALF, QUARTER, EIGHTH = np.log([0.5, 0.25, 0.125])
INF = float("inf")


def sample(logits: list[list[float]], temperature: float, top_p: float = 1.0, draw: float = 0.0) -> SampledTokens:
    batch = len(logits)
    full = [np.full(batch, value) for value in (temperature, top_p, draw)]
    return numpy_ops.sample(np.array(logits, np.float32), *full)


def test_greedy_takes_the_largest_and_the_first_of_equals() -> None:
    found = sample([[0.0, 2.0, 2.0], [3.0, 0.0, 0.0]], 0.0)
    assert found.ids.tolist() == [1, 0]
    assert found.logprobs[1] == pytest.approx(3 - np.log(np.exp(3) + 2), abs=1e-6)


@pytest.mark.parametrize(
    ("top_p", "draw", "expected"),
    [
        (1.0, 0.0, 2),  # probabilities by falling size: 2 (.5), 0 (.25), 3 (.125), 1 (.125)
        (1.0, 0.499, 2),
        (1.0, 0.501, 0),
        (1.0, 0.751, 1),  # equals keep their order
        (1.0, 0.999, 3),
        (0.49, 0.999, 2),  # the first reaches top_p alone
        (0.51, 0.6, 2),  # kept mass .75: .6 of it is .45
        (0.51, 0.7, 0),
        (1e-9, 0.999, 2),
    ],
)
def test_a_draw_picks_from_the_kept_mass(top_p: float, draw: float, expected: int) -> None:
    logits = [float(value) for value in (QUARTER, EIGHTH, HALF, EIGHTH)]
    found = sample([logits], 1.0, top_p, draw)
    assert found.ids.tolist() == [expected]
    assert found.logprobs[0] == pytest.approx(logits[expected], abs=1e-6), "at temperature 1, not truncated"


@pytest.mark.parametrize(("top_p", "draw", "expected"), [(1.0, 0.5, 1), (0.5, 0.999, 0), (0.5001, 0.5, 1)])
def test_a_draw_at_a_boundary(top_p: float, draw: float, expected: int) -> None:
    assert sample([[0.0, 0.0]], 1.0, top_p, draw).ids.tolist() == [expected]


def test_temperature_sharpens_and_flattens() -> None:
    logits = [[float(HALF), float(QUARTER), float(QUARTER)]]
    assert sample(logits, 0.5, draw=0.66).ids.tolist() == [0]  # squares: 4/6, 1/6, 1/6
    assert sample(logits, 0.5, draw=0.67).ids.tolist() == [1]
    assert sample(logits, 1.0, draw=0.66).ids.tolist() == [1]


@pytest.mark.parametrize("row", [[float("nan"), 0.0], [INF, 0.0], [-INF, -INF]])
def test_logits_that_are_not_finite_give_nan_in_their_row_only(row: list[float]) -> None:
    for temperature in (0.0, 1.0):
        found = sample([row, [0.0, -INF]], temperature, draw=0.5)
        assert np.isnan(found.logprobs[0])
        assert (found.ids[1], found.logprobs[1]) == (0, 0.0)
    scores = numpy_ops.token_logprobs(np.array([[row, [0.0, 0.0]]], np.float32), np.array([[1, 1]]))
    assert np.isnan(scores[0, 0])
    assert scores[0, 1] == pytest.approx(np.log(0.5), abs=1e-6)


def test_probabilities_sum_to_one_in_half_precision_too() -> None:
    logits = np.linspace(-60, 60, 5000, dtype=np.float16).reshape(1, -1)
    found = numpy_ops.log_softmax(logits)
    assert found.dtype == np.float32
    assert np.exp(found.astype(np.float64)).sum() == pytest.approx(1, abs=1e-5)


def cache(rows: int, slots: int, start: int) -> numpy_ops.Slots:
    """Two arrays (rows, 1, slots, 2) that count up, so that every slot can be told."""
    size = rows * slots * 2
    return [np.arange(start + at, start + at + size, dtype=np.float32).reshape(rows, 1, slots, 2) for at in (0, 1000)]


EMPTY = [np.zeros((1, 1, 0, 2), np.float32)] * 2


def test_blocks_are_right_aligned() -> None:
    made = cache(2, 3, 1)
    one, two = numpy_ops.block(made, 0, 1, 3), numpy_ops.block(made, 1, 0, 1)
    found = numpy_ops.assemble([[one, two], [two], []], EMPTY)
    assert found is not None
    assert [part.shape for part in found] == [(3, 1, 3, 2)] * 2
    assert found[0][0, 0].tolist() == [[3, 4], [5, 6], [7, 8]]
    assert found[0][1, 0].tolist() == [[0, 0], [0, 0], [7, 8]]
    assert found[1][2].any() == 0
    assert numpy_ops.assemble([[], []], EMPTY) is None
    assert numpy_ops.assemble([], EMPTY) is None


def test_joining_widens_the_narrower_and_selecting_narrows() -> None:
    joined = numpy_ops.join(cache(1, 1, 1), cache(1, 2, 11))
    assert joined[0][:, 0].tolist() == [[[0, 0], [1, 2]], [[11, 12], [13, 14]]]
    assert numpy_ops.select(joined, [1, 0, 1], 1)[0][:, 0, 0].tolist() == [[13, 14], [1, 2], [13, 14]]


def test_a_block_is_a_copy() -> None:
    made = cache(1, 2, 1)
    taken = numpy_ops.block(made, 0, 0, 2)
    short = numpy_ops.cut(taken, 1, 2)
    made[0][:] = 0
    taken[0][:] = 0
    assert short[0].tolist() == [[[3, 4]]]
