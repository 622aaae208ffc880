"""A limit on tokens and money: kept before a request is made, and to the last token."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from runner_parts import Numbers, given_plan, methods, numbers

from arbitrag.errors import BudgetError, UsageError
from arbitrag.evaluate.run.plan import entries
from arbitrag.evaluate.run.runner import run
from arbitrag.evaluate.run.store import Store
from arbitrag.kit import Kit
from arbitrag.llm.base import Generation, Message, Price, Prompt, Sampling, Tokens
from arbitrag.llm.budget import Budget, MeteredLLM
from arbitrag.llm.cache import CachedLLM
from arbitrag.llm.http.openai import OpenAILLM
from arbitrag.run import Failure, answer_all
from arbitrag.types import Question, Verdict

PRICE = Price(1_000_000, 2_000_000)  # 1 for a token read, 2 for one written


class Meter(Numbers):
    """Each answer costs ``used``, whatever is asked; counts what a prompt has as ``counted``."""

    def __init__(self, used: Tokens, counted: int = 10, steps: int = 3, price: Price | None = None) -> None:
        super().__init__(steps=steps, price=price)
        self.used, self.counted = used, counted

    def count_tokens(self, text: Prompt | str) -> int:
        return self.counted

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        found = await super().generate(prompt, sampling)
        return Generation(found.text, found.finish, tokens=self.used)


PROMPT, SAMPLING = Prompt.user("What is number 7?"), Sampling(max_tokens=10)


async def test_what_fits_to_the_last_token_is_asked_and_what_does_not_is_not() -> None:
    for limit, asked in ((20, 1), (19, 0)):
        backend = Meter(Tokens(10, 0, 10))
        model, budget = backend, Budget(max_tokens=limit)
        metered = MeteredLLM(model, budget)
        if asked:
            await metered.generate(PROMPT, SAMPLING)
        else:
            with pytest.raises(BudgetError, match=r"^the next request would pass --max-tokens 19$"):
                await metered.generate(PROMPT, SAMPLING)
        assert (len(backend.asked), budget.reached) == (asked, not asked)


async def test_requests_wait_for_those_under_way_and_the_limit_is_never_passed() -> None:
    backend = Meter(Tokens(5, 2, 1))  # 6 of the 20 that are reserved
    budget = Budget(max_tokens=60)
    metered = MeteredLLM(backend, budget)
    asked = await asyncio.gather(*(metered.generate(PROMPT, SAMPLING) for _ in range(20)), return_exceptions=True)
    made = [each for each in asked if isinstance(each, Generation)]
    # 3 at a time fit beside each other; the last was made when 14 were left of the 20 that it might have taken: 40 + 20
    assert backend.most_at_a_time == 3
    assert (len(made), budget.tokens) == (7, 42)
    assert all(isinstance(each, BudgetError) for each in asked if not isinstance(each, Generation))


async def test_money_is_reserved_at_the_dearest_price() -> None:
    backend = Meter(Tokens(10, 0, 1), price=PRICE)
    budget = Budget(max_cost=41.9)
    metered = MeteredLLM(backend, budget)
    await metered.generate(PROMPT, SAMPLING)  # at most 30, then 12
    assert budget.money == 12
    with pytest.raises(BudgetError, match=r"^the next request would pass --max-cost 41\.9$"):
        await metered.generate(PROMPT, SAMPLING)


async def test_a_server_that_reports_nothing_is_counted_with_the_bound() -> None:
    budget = Budget(max_tokens=100)
    await MeteredLLM(Meter(Tokens()), budget).generate(PROMPT, SAMPLING)
    assert budget.tokens == 20


async def test_a_request_that_failed_gives_back_what_was_reserved() -> None:
    backend = Meter(Tokens(10, 0, 10))
    backend.down["7"] = RuntimeError("down")
    budget = Budget(max_tokens=20)
    with pytest.raises(RuntimeError):
        await MeteredLLM(backend, budget).generate(PROMPT, SAMPLING)
    backend.down = {}
    await MeteredLLM(backend, budget).generate(PROMPT, SAMPLING)
    assert budget.tokens == 20


def test_a_price_is_needed_for_a_limit_of_money() -> None:
    with pytest.raises(UsageError, match="a limit of money needs the price of numbers: --price PROMPT,COMPLETION"):
        Budget(max_cost=1.0).metered(Numbers())
    Budget(max_tokens=1).metered(Numbers())


def test_answers_from_a_cache_are_below_the_meter(tmp_path: Path) -> None:
    cached = CachedLLM(Numbers(), tmp_path)
    budget = Budget(max_tokens=1)
    assert budget.metered(budget.metered(cached)) is cached
    assert isinstance(cached.backend, MeteredLLM)
    assert not isinstance(cached.backend.backend, MeteredLLM)
    cached.close()


def test_the_scorer_is_metered_and_one_model_has_one_meter() -> None:
    model, scorer = Numbers(), Numbers("scorer")
    budget = Budget(max_tokens=1)
    kit = Kit.of(model, scorer=scorer).with_models(budget.metered)
    assert isinstance(kit.scorer.backend, MeteredLLM)
    assert budget.metered(model) is kit.llm.backend
    alone = Kit.of(model).with_models(budget.metered)
    assert alone.scorer is alone.llm


@pytest.mark.parametrize("text", ["", "a", "日本語のテキスト", "🙂" * 5, "x" * 1000])
def test_no_tokenizer_counts_more_than_the_bound_of_a_server(text: str) -> None:
    model = OpenAILLM("m", base_url="http://localhost:1/v1")
    assert model.most_tokens(text) == len(text.encode())
    chat = Prompt(messages=(Message("system", text), Message("user", text)))
    assert model.most_tokens(chat) >= 2 * len(text.encode()) + 32
    assert model.most_tokens(Prompt(text=text)) >= model.most_tokens(text)


async def test_a_run_stops_before_its_limit_and_goes_on_with_a_higher_one(tmp_path: Path) -> None:
    backend = Meter(Tokens(10, 0, 10), counted=10)
    kit, sets, chosen = Kit.of(backend), [numbers(10)], methods("direct", "rag")
    made = given_plan(sets, [kit], chosen)
    with Store.create(tmp_path / "run.db", made) as store:
        budget = Budget(max_tokens=150)  # of the 400 that 20 rows cost; 42 are reserved for a row
        tally = await run(store, entries(chosen, [kit]), passages="given", concurrency=4, budget=budget)
        assert budget.reached
        assert 0 < budget.tokens <= 150
        assert budget.tokens == store.spent()[0] == 20 * tally.done
        assert tally.failed == 0
        more = Budget(max_tokens=10_000, tokens=store.spent()[0])
        rest = await run(store, entries(chosen, [kit]), passages="given", concurrency=4, budget=more)
        assert (rest.before, rest.done, more.reached) == (tally.done, 20 - tally.done, False)
        assert more.tokens == 400


async def test_rows_that_would_not_be_ended_are_not_begun(tmp_path: Path) -> None:
    """A row of trustmargin takes several requests; the mean of those that ended says how much."""
    backend = Meter(Tokens(10, 0, 10), counted=10)
    kit, chosen = Kit.of(backend), methods("direct")
    with Store.create(tmp_path / "run.db", given_plan([numbers(50)], [kit], chosen)) as store:
        budget = Budget(max_tokens=199)
        await run(store, entries(chosen, [kit]), passages="given", concurrency=1, budget=budget)
        assert budget.tokens == store.spent()[0]  # nothing was spent on a row that is not there


async def test_questions_beyond_the_budget_are_failures_of_their_own_kind() -> None:
    backend = Meter(Tokens(10, 0, 10), counted=10)
    budget = Budget(max_tokens=100)
    asked = [Question(f"What is number {n}?", id=str(n)) for n in range(20)]
    found = [each async for each in answer_all(asked, "direct", Kit.of(backend), concurrency=2, budget=budget)]
    answered = [each for each in found if isinstance(each, Verdict)]
    left = [each for each in found if isinstance(each, Failure)]
    assert len(found) == 20
    assert 20 * len(answered) == budget.tokens <= 100
    assert left
    assert {type(each.error) for each in left} == {BudgetError}


async def test_a_report_that_cannot_be_is_counted_as_the_most_that_it_can_be() -> None:
    class Lying(Meter):
        async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
            return replace(await super().generate(prompt, sampling), doubt="prompt_tokens -5")

    budget = Budget(max_tokens=100)
    await MeteredLLM(Lying(Tokens(0, 0, 1)), budget).generate(PROMPT, SAMPLING)
    assert budget.tokens == 10 + 10
