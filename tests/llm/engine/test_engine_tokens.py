"""Prompt, cached and completion tokens are counted exactly; a shared prefix is prefilled once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from engine_parts import Wrapped, ask, plain_greedy, plain_scores, tiny_engine, words

from arbitrag.llm.base import Sampling, Tokens

PASSAGES = [2 + (7 * at) % 61 for at in range(150)]
QUESTION, ENDING = [20, 21, 22, 23, 24], [30, 31]
EVIDENCE, EMPTY, MEMORY = PASSAGES + QUESTION + ENDING, PASSAGES + ENDING, QUESTION + ENDING
D, R = [40, 41, 42], [50, 51]
FOUR = Sampling(max_tokens=4)


async def test_trustmargin_prefills_the_passages_once() -> None:
    runtime = Wrapped()
    engine = tiny_engine(runtime)
    memory, evidence = await asyncio.gather(
        engine.generate(ask(MEMORY), FOUR),
        engine.generate(ask(EVIDENCE), FOUR),
    )
    written = [len(plain_greedy(prompt, 4)) for prompt in (MEMORY, EVIDENCE)]
    assert memory.tokens == Tokens(len(MEMORY), 0, written[0])
    assert evidence.tokens == Tokens(len(EVIDENCE), 0, written[1])

    answers = [words(D), words(R)]
    q, qp, p = await asyncio.gather(*(engine.score(ask(prompt), answers) for prompt in (MEMORY, EVIDENCE, EMPTY)))
    continuations = len(D) - 1 + len(R) - 1  # the last token of each is only predicted
    assert q.tokens == Tokens(continuations + len(MEMORY), len(MEMORY))
    assert qp.tokens == Tokens(continuations + len(EVIDENCE), len(EVIDENCE))
    assert p.tokens == Tokens(len(ENDING) + continuations + len(PASSAGES), len(PASSAGES))

    long = [rows * fresh for rows, fresh, _ in runtime.shapes if fresh >= len(PASSAGES)]
    assert long == [len(EVIDENCE)]
    await engine.aclose()


async def test_requests_of_one_batch_share_their_prefix() -> None:
    engine = tiny_engine()
    evidence, empty = await asyncio.gather(
        engine.generate(ask(EVIDENCE), FOUR),
        engine.score(ask(EMPTY), [words([40])]),
    )
    assert evidence.tokens.uncached_tokens == len(EVIDENCE)
    assert empty.tokens == Tokens(len(ENDING) + len(PASSAGES), len(PASSAGES))
    await engine.aclose()


async def test_probing_is_the_prefill_of_the_answer() -> None:
    engine = tiny_engine()
    probe = await engine.inspect(ask(EVIDENCE), [1])
    answer = await engine.generate(ask(EVIDENCE), FOUR)
    assert probe.tokens == Tokens(len(EVIDENCE), 0)
    assert answer.tokens == Tokens(len(EVIDENCE), len(EVIDENCE), len(plain_greedy(EVIDENCE, 4)))
    await engine.aclose()


async def test_probing_and_answering_in_one_batch() -> None:
    engine = tiny_engine()
    answer, probe = await asyncio.gather(engine.generate(ask(EVIDENCE), FOUR), engine.inspect(ask(EVIDENCE), [1]))
    assert probe.tokens == Tokens(len(EVIDENCE), 0)
    assert answer.tokens.uncached_tokens == 0
    again = await engine.inspect(ask(EVIDENCE), [2])  # hidden states are not cached: the last token is computed again
    assert again.tokens == Tokens(len(EVIDENCE), len(EVIDENCE) - 1)
    await engine.aclose()


async def test_samples_of_one_prompt_share_its_prefill() -> None:
    engine = tiny_engine()
    draws = [Sampling(max_tokens=3, temperature=1.0, seed=seed) for seed in range(5)]
    found = await asyncio.gather(*(engine.generate(ask(EVIDENCE), draw) for draw in draws))
    assert sorted(each.tokens.uncached_tokens for each in found) == [0, 0, 0, 0, len(EVIDENCE)]
    assert {each.tokens.prompt_tokens for each in found} == {len(EVIDENCE)}
    await engine.aclose()


async def test_a_common_system_text_is_prefilled_once() -> None:
    engine = tiny_engine()
    system = PASSAGES[:40]
    prompts = [[*system, 10 + n, 20 + n] for n in range(6)]
    found = await engine.next_token([ask(prompt) for prompt in prompts])
    assert found.tokens == Tokens(42 + 5 * 2 + 5 * 40, 5 * 40)
    await engine.aclose()


@pytest.mark.parametrize(
    ("common", "count", "new", "reused"),
    [(4, 8, 5, 0), (5, 8, 5, 5), (4, 7, 5, 4), (4, 8, 4, 4)],  # more is stored, fewer rows, fewer new tokens
)
async def test_a_short_cached_prefix_of_many_rows_is_prefilled_again_in_one_batch(
    common: int, count: int, new: int, reused: int
) -> None:
    runtime = Wrapped()
    runtime.info = replace(runtime.info, reprefill_threshold=4)
    engine = tiny_engine(runtime)
    beginning = PASSAGES[:common]
    await engine.next_token([ask([*beginning, 9, 10])])
    prompts = [[*beginning, 11 + n, *QUESTION[: new - 1]] for n in range(count)]
    found = await engine.next_token([ask(prompt) for prompt in prompts])
    assert found.tokens == Tokens(count * (common + new), count * reused)
    assert runtime.shapes[-1] == (count, common + new - reused, reused)
    again = await engine.score(ask(prompts[0]), [words(D)])
    assert again.tokens == Tokens(len(D) - 1 + common + new, common + new)
    assert again.likelihoods[0].logprobs == pytest.approx(plain_scores(prompts[0], D), abs=1e-4)
    await engine.aclose()


async def test_rows_prefilled_again_are_batched_with_others() -> None:
    runtime = Wrapped()
    runtime.info = replace(runtime.info, reprefill_threshold=4)
    engine = tiny_engine(runtime)
    await engine.next_token([ask([*PASSAGES[:20], 9])])
    prompts = [[*PASSAGES[:4], 40 + n, *QUESTION] for n in range(8)] + [[*PASSAGES[:20], 50, *QUESTION, *ENDING]]
    found = await asyncio.gather(*(engine.score(ask(prompt), [words(D)]) for prompt in prompts))
    assert [each.tokens.cached_tokens for each in found] == [0] * 8 + [20]
    for prompt, each in zip(prompts, found, strict=True):
        assert each.likelihoods[0].logprobs == pytest.approx(plain_scores(prompt, D), abs=1e-4)
    await engine.aclose()


async def test_a_shared_prefix_is_prefilled_twice_when_the_cache_is_full() -> None:
    engine = tiny_engine(prefix_bytes=0)
    found = await engine.next_token([ask(EVIDENCE), ask(EMPTY)])
    assert found.tokens == Tokens(len(EVIDENCE) + len(EMPTY), 0)
    await engine.aclose()


async def test_deterministic_mode_caches_nothing_and_repeats_to_the_last_bit() -> None:
    async def run() -> list[object]:
        engine = tiny_engine(deterministic=True)
        results = await asyncio.gather(
            engine.generate(ask(EVIDENCE), Sampling(max_tokens=5, logprobs=True)),
            engine.score(ask(EMPTY), [words(D), words(R)]),
            engine.generate(ask(MEMORY), Sampling(max_tokens=5, temperature=1.0, seed=3, logprobs=True)),
            engine.score(ask(EVIDENCE), [words(D), words(R)]),
        )
        await engine.aclose()
        return list(results)

    first, second = await run(), await run()
    assert first == second
    assert [each.tokens.cached_tokens for each in first] == [0, 0, 0, 0]  # type: ignore[attr-defined]


async def test_deterministic_mode_runs_one_row_at_a_time() -> None:
    runtime = Wrapped()
    engine = tiny_engine(runtime, deterministic=True)
    await asyncio.gather(*(engine.generate(ask([5 + n, 6, 7]), FOUR) for n in range(4)))
    assert {rows for rows, _, _ in runtime.shapes} == {1}
    await engine.aclose()


async def test_concurrent_completions_are_decoded_in_one_batch() -> None:
    runtime = Wrapped()
    engine = tiny_engine(runtime)
    found = await asyncio.gather(*(engine.generate(ask([5 + n, 6, 7]), FOUR) for n in range(4)))
    assert [each.text for each in found] == [words(plain_greedy([5 + n, 6, 7], 4)) for n in range(4)]
    assert runtime.shapes[0] == (4, 3, 0)
    assert len(runtime.shapes) <= 4
    await engine.aclose()
