"""The runtime whose cache is written in place, beside the plain graph of the same random weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import optimum_graph  # noqa: E402  (needs what was just looked for)
from onnx_parts import SHAPE, TEXTS, WORDS, alone, random_weights  # noqa: E402

from arbitrag.errors import BackendError  # noqa: E402
from arbitrag.llm.engine.runtime import ForwardOutput, OutOfMemory  # noqa: E402
from arbitrag.llm.onnx import kv_cache  # noqa: E402
from arbitrag.llm.onnx import runtime as onnx_runtime  # noqa: E402
from arbitrag.llm.onnx.backend import open_runtime  # noqa: E402
from arbitrag.llm.onnx.graph import build  # noqa: E402
from arbitrag.llm.onnx.kv_cache import SPARE, BufferPool, PlacedCache, UnplacedCache, placed  # noqa: E402
from arbitrag.llm.onnx.optimum import OptimumRuntime  # noqa: E402
from arbitrag.llm.onnx.packing import chunks  # noqa: E402
from arbitrag.llm.onnx.runtime import InPlaceRuntime  # noqa: E402

SIZES = (30, 1, 12, 5, 19)
CONTEXT = 256


def subject(folder: Path, threads: int = 2, **options: Any) -> InPlaceRuntime:
    onnx.save(build(replace(SHAPE, context=CONTEXT), random_weights, "fp32"), str(folder / "own.onnx"))
    found = open_runtime(folder / "own.onnx", threads=threads, **options)
    assert isinstance(found, InPlaceRuntime)
    return found


def plain(folder: Path) -> OptimumRuntime:
    onnx.save(optimum_graph.build(SHAPE, random_weights), str(folder / "plain.onnx"))
    found = open_runtime(folder / "plain.onnx", threads=1)
    assert isinstance(found, OptimumRuntime)
    return found


def ragged(
    runtime: InPlaceRuntime,
    cache: PlacedCache | UnplacedCache | PlacedCache | UnplacedCache | None,
    past: Sequence[int],
    new: Sequence[Sequence[int]],
    logits_to_keep: int = 1,
    layers: Sequence[int] = (),
) -> ForwardOutput:
    """As ``padded``: a pass over new tokens of rows with ``past`` tokens, all left-padded."""
    slots, width = (0 if cache is None else cache.width), max(map(len, new))
    ids = np.zeros((len(new), width), np.int64)
    positions, mask = np.zeros_like(ids), np.zeros((len(new), slots + width), bool)
    for row, tokens in enumerate(new):
        at = width - len(tokens)
        ids[row, at:] = tokens
        positions[row, at:] = past[row] + np.arange(len(tokens))
        mask[row, slots - past[row] : slots] = True
        mask[row, slots + at :] = True
    return runtime.forward(ids, mask, positions, cache, logits_to_keep=logits_to_keep, layers=layers)


@pytest.mark.parametrize(("threads", "small"), [(1, True), (2, True), (3, True), (2, False)])
def test_ragged_rows_equal_the_plain_graph(
    threads: int, small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prefill, a decode step, and a pass of several new tokens beside one."""
    if not small:
        monkeypatch.setattr(onnx_runtime, "_SMALL_BYTES", 0)
    runtime, reference = subject(tmp_path, threads), plain(tmp_path)
    draw = np.random.default_rng(3)
    texts: list[list[int]] = [[] for _ in SIZES]
    cache: PlacedCache | UnplacedCache | None = None
    for sizes in (SIZES, [1] * 5, [1] * 5, (2, 7, 1, 3, 3), [1] * 5):
        new = [draw.integers(0, WORDS, size).tolist() for size in sizes]
        step = ragged(runtime, cache, list(map(len, texts)), new, logits_to_keep=min(2, max(sizes)), layers=[0, 1, 2])
        cache = step.cache
        texts = [text + more for text, more in zip(texts, new, strict=True)]
        for row, (text, count) in enumerate(zip(texts, sizes, strict=True)):
            expected = alone(reference, text, min(2, count), layers=[0, 1, 2])
            found = step.logits[row, -min(2, count) :]
            assert np.allclose(found, expected.logits[0], atol=1e-4)
            for layer, state in expected.hidden_states.items():
                assert np.allclose(step.hidden_states[layer][row], state[0], atol=1e-4)


@pytest.mark.parametrize(
    ("counts", "past", "workers", "passes"),
    [
        ([30, 1, 12], 0, 1, [[(0, 1, 30, 0), (2, 3, 12, 0), (1, 2, 1, 0)]]),  # one short row gains nothing by columns
        ([1, 1, 1, 1], 0, 1, [[(0, 4, 1, 0)]]),
        ([1, 1, 1, 1], 100_000, 1, [[(0, 4, 1, 0)]]),  # a single token looks back once in any case
        ([1, 1, 1, 1, 1], 0, 2, [[(0, 2, 1, 0), (2, 5, 1, 0)]]),
        ([1, 2, 2, 1, 9], 0, 1, [[(4, 5, 9, 0)], [(1, 3, 2, 1)], [(0, 4, 1, 0)]]),
        ([2, 9, 2, 2], 0, 1, [[(1, 2, 9, 0)], [(0, 1, 2, 1), (2, 4, 2, 1)], [(0, 1, 1, 0), (2, 4, 1, 0)]]),
        ([2, 2], 0, 1, [[(0, 1, 2, 0), (1, 2, 2, 0)]]),  # 2 passes of 2 rows cost as much as 2 rows of 2 tokens
        ([2] * 4, 767, 1, [[(0, 4, 2, 1)], [(0, 4, 1, 0)]]),
        ([2] * 4, 768, 1, [[(row, row + 1, 2, 0) for row in range(4)]]),  # looking back twice costs the passes saved
        ([9] * 20, 1, 1, [[(row, row + 1, 9, 0) for row in range(20)]]),  # too many tokens
    ],
)
def test_rows_with_few_new_tokens_are_batched(
    counts: list[int], past: int, workers: int, passes: list[list[tuple[int, int, int, int]]]
) -> None:
    lengths = np.full(len(counts), past)
    assert [list(map(tuple, parts)) for parts in chunks(lengths, np.array(counts), workers)] == passes


@pytest.mark.parametrize(
    ("lengths", "counts", "workers", "logits_to_keep", "passes"),
    [
        ([0] * 20, [9] * 20, 1, 1, [[(0, 20, 9, 1)], [(0, 20, 1, 0)]]),
        ([0] * 20, [9] * 20, 2, 1, [[(0, 10, 9, 1), (10, 20, 9, 1)], [(0, 10, 1, 0), (10, 20, 1, 0)]]),
        ([0] * 3, [9] * 3, 1, 2, [[(row, row + 1, 9, 0) for row in range(3)]]),  # two logits are wanted of each
        ([0] * 2, [9] * 2, 1, 1, [[(0, 1, 9, 0), (1, 2, 9, 0)]]),  # the last tokens cost a pass as well
        ([0] * 3, [341] * 3, 1, 1, [[(0, 3, 341, 1)], [(0, 3, 1, 0)]]),
        ([0] * 3, [342] * 3, 1, 1, [[(row, row + 1, 342, 0) for row in range(3)]]),  # too many for a pass
        ([0] * 34, [30] * 34, 1, 1, [[(0, 34, 30, 1)], [(0, 34, 1, 0)]]),
        ([0] * 40, [30] * 40, 1, 1, [[(0, 20, 30, 1), (20, 40, 30, 1)], [(0, 40, 1, 0)]]),
        ([0] * 4, [9] * 4, 4, 1, [[(row, row + 1, 9, 0) for row in range(4)]]),  # a core for each
        ([0] * 4, [10, 30, 10, 10], 1, 1, [[(1, 2, 30, 0), (0, 1, 10, 0), (2, 3, 10, 0), (3, 4, 10, 0)]]),  # filling up
        ([0, 0, 0, 5], [4, 6, 5, 1], 1, 1, [[(3, 4, 1, 0), (0, 3, 6, 1)], [(0, 3, 1, 0)]]),
        (
            [0, 0, 0, 5, 5, 0],
            [9, 9, 9, 1, 1, 1],
            1,
            1,
            [[(0, 3, 9, 1)], [(0, 6, 1, 0)]],
        ),  # last tokens beside single ones
    ],
)
def test_rows_without_a_past_are_batched(
    lengths: list[int],
    counts: list[int],
    workers: int,
    logits_to_keep: int,
    passes: list[list[tuple[int, int, int, int]]],
) -> None:
    found = chunks(np.array(lengths), np.array(counts), workers, logits_to_keep)
    assert [list(map(tuple, parts)) for parts in found] == passes


@pytest.mark.parametrize("threads", [1, 2])
def test_batched_rows_equal_single_rows(threads: int, tmp_path: Path) -> None:
    """Of different lengths, some with a past; then they are continued."""
    runtime, reference = subject(tmp_path, threads), plain(tmp_path)
    draw = np.random.default_rng(5)
    texts = [draw.integers(0, WORDS, size).tolist() for size in (7, 8, 9, 9, 9, 10, 5)]
    behind = ragged(runtime, None, [0] * 2, [texts[6][:3], [1, 2, 3]]).cache
    rows = [[runtime._empty]] * 6 + [[runtime.block(behind, 0, 0, 3)]]
    sizes = [len(text) for text in texts[:6]]
    passes = list(chunks(np.array([0] * 6 + [3]), np.array([*sizes, 2]), threads))
    joined = [tuple(part) for part in passes[0] if part.end == 1]
    assert joined == ([(0, 6, 10, 1)] if threads == 1 else [(0, 3, 9, 1), (3, 6, 10, 1)])
    step = ragged(runtime, runtime.assemble(rows), [0] * 6 + [3], [*texts[:6], texts[6][3:]], layers=[1, 2])
    for row, text in enumerate(texts):
        expected = alone(reference, text, 1, layers=[1, 2])
        assert np.allclose(step.logits[row], expected.logits[0], atol=1e-4)
        for layer, state in expected.hidden_states.items():
            assert np.allclose(step.hidden_states[layer][row], state[0], atol=1e-4)
    more = ragged(runtime, step.cache, list(map(len, texts)), [[row] for row in range(7)])
    for row, text in enumerate(texts):
        assert np.allclose(more.logits[row], alone(reference, [*text, row], 1).logits[0], atol=1e-4)


def test_a_single_long_row_runs_on_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, reference = subject(tmp_path), plain(tmp_path)
    monkeypatch.setattr(onnx_runtime, "_MULTITHREADED", 6)
    short = ragged(runtime, None, [0], [TEXTS[0][:5]], 5)
    assert "_multithreaded" not in vars(runtime), "opened only when it is needed"
    assert np.allclose(short.logits, alone(reference, TEXTS[0][:5], 5).logits, atol=1e-4)
    long = ragged(runtime, None, [0], [TEXTS[0]], 6)
    assert "_multithreaded" in vars(runtime)
    assert np.allclose(long.logits, alone(reference, TEXTS[0], 6).logits, atol=1e-4)


def test_a_cache_grows_when_its_slots_are_used_up(tmp_path: Path) -> None:
    """Between times it stays where it is."""
    runtime, reference = subject(tmp_path), plain(tmp_path)
    texts = [list(text) for text in TEXTS]
    cache = ragged(runtime, None, [0, 0], texts).cache
    room, moves = cache.slots.shape[3], 0
    for written in range(2 * SPARE + 10):
        before = cache.slots
        cache = ragged(runtime, cache, list(map(len, texts)), [[written % WORDS], [5]]).cache
        moves += cache.slots is not before
        texts = [[*texts[0], written % WORDS], [*texts[1], 5]]
    assert room == len(TEXTS[0]) + SPARE
    assert moves == 2
    step = ragged(runtime, cache, list(map(len, texts)), [[7], [8]])
    for row, text in enumerate(texts):
        assert np.allclose(step.logits[row], alone(reference, [*text, 7 + row], 1).logits[0], atol=1e-4)


def test_the_buffer_of_a_freed_cache_is_reused() -> None:
    """What grows or is chosen moves between two, and neither touches the other's values."""
    pool, block = BufferPool(), np.arange(4 * 2 * 3 * 16, dtype=np.float32).reshape(4, 2, 3, 16)
    first = placed([[block], [block, block]], pool)
    place = first.slots.ctypes.data
    second = placed([[block]], pool)
    assert not np.shares_memory(first.slots, second.slots), "both are in use"
    del first
    third = placed([[-block]], pool)
    assert third.slots.ctypes.data == place
    assert np.array_equal(third.view(0, 0, 3), -block)
    assert np.array_equal(second.view(0, 0, 3), block)
    third.make_room(SPARE + 1)
    assert third.slots.ctypes.data != place
    assert np.array_equal(third.view(0, 0, 3), -block)
    assert placed([[block]], pool).slots.ctypes.data == place


@pytest.mark.parametrize(("limit", "kept"), [(1024, True), (1023, False)])
def test_buffers_beyond_a_limit_are_freed(limit: int, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_cache, "MAX_POOLED_BYTES", limit)
    pool = BufferPool()
    taken = pool.take((2, 100))  # 256 numbers, the next power of two
    pool.give_back(taken)
    assert (pool.take((16, 16)).base is taken.base) == kept


def test_the_largest_buffers_are_kept_and_the_smallest_that_suffices_is_taken() -> None:
    pool = BufferPool()
    taken = [pool.take((size,)) for size in (64, 8, 32, 16)]
    for each in taken:
        pool.give_back(each)
    large, _, middle, small = (each.base for each in taken)
    assert pool.take((17,)).base is middle
    assert pool.take((9,)).base is small
    assert pool.take((8,)).base is large
    fresh = pool.take((1,)).base
    assert not any(fresh is each.base for each in taken), "nothing is left"
    for each in taken:
        pool.give_back(each)
    fresh = pool.take((65,)).base
    assert not any(fresh is each.base for each in taken)
    assert pool.take((8,)).base is middle, "the one of 16 made room for the new one"


def test_the_same_batch_gives_the_same_bits(tmp_path: Path) -> None:
    runtime = subject(tmp_path)
    new = [list(range(1, size + 1)) for size in (9, 3, 1, 7)]
    passes = []
    for _ in range(5):
        first = ragged(runtime, None, [0] * 4, new)
        second = ragged(runtime, first.cache, [9, 3, 1, 7], [[4]] * 4)
        passes.append(np.concatenate([first.logits, second.logits]).tobytes())
    assert len(set(passes)) == 1


def test_the_cache_can_be_cut_into_blocks_and_assembled_again(tmp_path: Path) -> None:
    runtime, reference = subject(tmp_path), plain(tmp_path)
    first = ragged(runtime, None, [0, 0], TEXTS).cache  # 6 and 3 tokens
    start, end = runtime.block(first, 0, 0, 4), runtime.block(first, 0, 4, 6)
    assert (start.shape, end.shape) == ((4, 2, 4, 16), (4, 2, 2, 16))
    assert runtime.block(first, 1, 3, 6).shape[2] == 3, "a shorter row ends where the longest does"
    assert runtime.block(first, 1, 0, 4).shape[2] == 1, "padding is not stored"
    made = runtime.assemble([[start, runtime.cut(end, 0, 1)], [runtime.block(first, 1, 3, 6)], []])
    assert made is not None
    assert (made.lengths.tolist(), made.width) == ([5, 3, 0], 5)
    joined = runtime.join(made, first)
    assert (joined.lengths.tolist(), joined.width) == ([5, 3, 0, 6, 3], 6)
    chosen = runtime.select(joined, [1, 3, 0, 4], 0)
    new = [[12], [12, 2], [TEXTS[0][5], 12], [1]]
    step = ragged(runtime, chosen, [3, 6, 5, 3], new)
    texts = [TEXTS[1], TEXTS[0], TEXTS[0][:5], TEXTS[1]]
    for row, (text, more) in enumerate(zip(texts, new, strict=True)):
        assert np.allclose(step.logits[row], alone(reference, [*text, *more], 1).logits[0], atol=1e-4)
    shorter = runtime.select(runtime.select(step.cache, [0, 3, 2], 1), [1, 0], 2)
    assert (shorter.lengths.tolist(), shorter.width) == ([4, 4], 5)
    assert runtime.assemble([[], []]) is None


def test_rows_join_and_leave_without_a_copy_of_the_others(tmp_path: Path) -> None:
    runtime, reference = subject(tmp_path), plain(tmp_path)
    texts = [[7, 3, 9], [1, 2, 3, 4, 5], [11], [6, 6]]

    def read(*chosen: int) -> PlacedCache:
        cache = ragged(runtime, None, [0] * len(chosen), [texts[at] for at in chosen]).cache
        assert isinstance(cache, PlacedCache)
        return cache

    running = runtime.join(runtime.join(read(0), read(1)), read(2))
    slots = running.slots
    assert slots.shape[1] == 4, "a place is free"
    running = runtime.join(running, read(3))
    running = runtime.select(running, [0, 3, 2], 0)  # the last takes the place of the one that left
    running = runtime.join(running, read(1))
    assert running.slots is slots
    left = [texts[0], texts[3], texts[2], texts[1]]
    step = ragged(runtime, running, [len(text) for text in left], [[12]] * 4)
    for row, text in enumerate(left):
        assert np.allclose(step.logits[row], alone(reference, [*text, 12], 1).logits[0], atol=1e-4)
    single = read(2)
    assert runtime.select(step.cache, [0, 1, 2], 0).slots is slots
    loose = runtime.assemble([[runtime.block(single, 0, 0, 1)]])
    assert loose is not None
    assert runtime.join(step.cache, loose).slots is slots, "what has no place yet is put into a free one"
    assert (slots[:, 3, :, :1] == single.slots[:, 0, :, :1]).all()
    fifth = runtime.join(step.cache, read(2))
    assert fifth.slots is not slots, "there was no place left"
    assert fifth.lengths.tolist() == [4, 3, 2, 1, 1]


def test_a_row_that_fills_all_slots_finds_others_to_join(tmp_path: Path) -> None:
    runtime = subject(tmp_path)
    short = runtime.join(ragged(runtime, None, [0], [[1]]).cache, ragged(runtime, None, [0], [[2]]).cache)
    runtime.select(short, [0], 0)
    room = short.slots.shape[3]
    fits = ragged(runtime, None, [0], [[1] * (room - 1)]).cache
    assert runtime.join(short, fits) is short
    runtime.select(short, [0], 0)
    too_long = ragged(runtime, None, [0], [[1] * room]).cache
    joined = runtime.join(short, too_long)
    assert joined is not short
    assert joined.lengths.tolist() == [1, room]


def test_copies_keep_empty_else_in_memory(tmp_path: Path) -> None:
    runtime = subject(tmp_path)
    cache = ragged(runtime, None, [0, 0], TEXTS).cache
    block = runtime.block(cache, 0, 0, 4)
    assert block.base is None
    assert runtime.cut(block, 1, 3).base is None
    assert block.nbytes == 4 * runtime.info.token_bytes


def test_a_row_is_continued_where_it_ends(tmp_path: Path) -> None:
    runtime = subject(tmp_path)
    cache = ragged(runtime, None, [0, 0], TEXTS).cache
    with pytest.raises(BackendError, match="can only be continued where it ends"):
        ragged(runtime, cache, [5, 3], [[1], [1]])


def test_the_context_is_what_the_file_says_or_less(tmp_path: Path) -> None:
    assert subject(tmp_path).info.context_tokens == CONTEXT
    assert subject(tmp_path, context=40).info.context_tokens == 40
    runtime = subject(tmp_path, context=1000)
    assert runtime.info.context_tokens == CONTEXT
    assert ragged(runtime, None, [0], [[1] * CONTEXT]).logits.shape == (1, 1, WORDS)
    with pytest.raises(BackendError, match="onnxruntime failed"):
        ragged(runtime, None, [0], [[1] * (CONTEXT + 1)])


def test_failures_are_named_and_empty_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = subject(tmp_path)
    with pytest.raises(BackendError, match="onnxruntime failed"):
        ragged(runtime, None, [0, 0], [[1], [WORDS + 5]])
    with pytest.raises(BackendError, match="no hidden states of layer 7"):
        ragged(runtime, None, [0], [[1]], layers=[7])
    assert capfd.readouterr() == ("", "")

    def full(*_: object) -> None:
        raise MemoryError("no more")

    block = runtime.block(ragged(runtime, None, [0], [[1]]).cache, 0, 0, 1)
    monkeypatch.setattr(BufferPool, "take", full)
    there: Any = runtime.assemble([[block]])
    assert there is not None
    with pytest.raises(OutOfMemory, match="no more"):
        ragged(runtime, there, [1], [[1]])
    with pytest.raises(OutOfMemory, match="no more"):
        runtime.join(there, there)
    with pytest.raises(OutOfMemory, match="no more"):
        ragged(runtime, None, [0], [[1]])


def test_model_info(tmp_path: Path) -> None:
    info = subject(tmp_path).info
    assert (info.layers, info.vocabulary, sorted(info.hidden_layers)) == (2, WORDS, [0, 1, 2])
    assert info.token_bytes == 2 * 2 * 2 * 16 * 4, "two layers, keys and values, two heads of 8 filled up to 16"
    assert info.logits_bytes == WORDS * 4
    assert not info.packs
