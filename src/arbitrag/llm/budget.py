"""A limit on what a run spends, in tokens or in money, that is kept before a request is made and not after.

Before each request the most that it can cost is reserved: its prompt's tokens and all that it may write. When that does
not fit beside what was spent and what is reserved, the request waits for those under way, which nearly always cost less
than was reserved; when there are none, or it could not fit in any case, it is not made, and the run has reached its
limit. Rows are begun only while the mean of those that ended says that they will find room, so that few are given up
half-way.

Not counted, because nobody says it: what a server charges for a request that it failed or that was cancelled, and
embeddings. A backend that does not know the tokenizer gives an upper bound (``most_tokens``), since no token is shorter
than a byte; a server that reports no usage, or one that cannot be, is counted with that bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from arbitrag.errors import BudgetError, UsageError
from arbitrag.llm.base import (
    LLM,
    Distributions,
    Generation,
    Inspection,
    Price,
    Prompt,
    Sampling,
    Scores,
    Tokens,
)
from arbitrag.llm.results import M, money_of
from arbitrag.llm.wrapped import WrappedLLM

_PER_REQUEST = 16  # tokens beside its texts that a request for likelihoods may be counted with


@dataclass
class Budget:
    """At most ``max_tokens`` in all, of prompts and completions, and at most ``max_cost`` of money; None is no limit.

    ``tokens`` and ``money`` are what was spent, before this session too. ``reached`` says that something was not asked
    for want of room. Not for several event loops.
    """

    max_tokens: int | None = None
    max_cost: float | None = None
    tokens: int = 0
    money: float = 0.0
    reached: bool = False
    _reserved: tuple[int, float] = (0, 0.0)
    _under_way: int = 0  # rows
    _ended: int = 0
    _at_first: tuple[int, float] = (0, 0.0)  # spent when the first row began
    _change: asyncio.Event = field(default_factory=asyncio.Event)
    _models: dict[int, MeteredLLM] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"max_tokens is {self.max_tokens}; it is 1 or more")
        if self.max_cost is not None and not self.max_cost > 0:
            raise UsageError(f"max_cost is {self.max_cost}; it is more than 0")

    def metered(self, model: LLM) -> LLM:
        """The model with its requests kept within this budget; a model that is metered already stays as it is.

        Raises UsageError for a model without a price where money is limited.
        """
        from arbitrag.llm.cache import CachedLLM

        if isinstance(model, CachedLLM):  # what comes from the cache costs nothing, so the meter is below it
            if not isinstance(model.backend, MeteredLLM):
                model.backend = self._meter(model.backend)
            return model
        return self._meter(model)

    def _meter(self, backend: LLM) -> MeteredLLM:
        if self.max_cost is not None and backend.price is None:
            raise UsageError(
                f"a limit of money needs the price of {backend.name}: --price PROMPT,COMPLETION, per million tokens "
                "(0,0 for a model that costs nothing)"
            )
        if id(backend) not in self._models:
            self._models[id(backend)] = MeteredLLM(backend, self)
        return self._models[id(backend)]

    async def begin(self) -> bool:
        """Whether another row may begin. Waits while those under way may still leave room for it."""
        if not self._ended and not self._under_way:
            self._at_first = (self.tokens, self.money)
        while not self.reached:
            if self._has_room(self._mean_row(), self._under_way):
                self._under_way += 1
                return True
            if not self._under_way:
                self.reached = True
                break
            await self._changed()
        return False

    def end(self) -> None:
        """A row that began has ended."""
        self._under_way -= 1
        self._ended += 1
        self._tell()

    async def spend(self, most: Tokens, price: Price | None, ask: Callable[[], Awaitable[M]]) -> M:
        """The answer to a request that costs ``most`` at most; raises BudgetError, and does not ask, without room."""
        bound = (most.prompt_tokens + most.completion_tokens, _dearest(most, price))
        while not self._has_room(bound, 0, self._reserved):
            if not self._has_room(bound, 0):
                self.reached = True
                self._tell()
                raise BudgetError(f"the next request would pass {self.limits}")
            await self._changed()
        self._reserve(bound, 1)
        try:
            answer = await ask()
            used = answer.tokens
            doubtful = isinstance(answer, Generation | Scores) and answer.doubt
            spent = used.prompt_tokens + used.completion_tokens
            silent = doubtful or not spent
            self.tokens += bound[0] if silent else spent
            self.money += bound[1] if silent else money_of(used, price) or 0.0
            return answer
        finally:
            self._reserve(bound, -1)
            self._tell()

    @property
    def limits(self) -> str:
        """The limits in words."""
        words = [] if self.max_tokens is None else [f"--max-tokens {self.max_tokens:,}"]
        return " and ".join(words + ([] if self.max_cost is None else [f"--max-cost {self.max_cost:g}"]))

    @property
    def spent(self) -> str:
        """What was spent, in words."""
        return f"{self.tokens:,} tokens" + ("" if self.max_cost is None else f" and {self.money:.4g} of money")

    def _has_room(self, bound: tuple[int, float], others: int, reserved: tuple[int, float] = (0, 0.0)) -> bool:
        """For ``bound``, beside as much for each of the ``others`` and what is ``reserved``."""
        tokens = self.tokens + reserved[0] + bound[0] * (1 + others)
        money = self.money + reserved[1] + bound[1] * (1 + others)
        return (self.max_tokens is None or tokens <= self.max_tokens) and (
            self.max_cost is None or money <= self.max_cost
        )

    def _mean_row(self) -> tuple[int, float]:
        ended = max(1, self._ended)
        return (self.tokens - self._at_first[0]) // ended, (self.money - self._at_first[1]) / ended

    def _reserve(self, bound: tuple[int, float], sign: int) -> None:
        self._reserved = (self._reserved[0] + sign * bound[0], self._reserved[1] + sign * bound[1])

    async def _changed(self) -> None:
        await self._change.wait()

    def _tell(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


class MeteredLLM(WrappedLLM):
    """A model whose every request is kept within a budget."""

    def __init__(self, backend: LLM, budget: Budget) -> None:
        super().__init__(backend)
        self._budget = budget

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        most = Tokens(prompt_tokens=self._most(prompt), completion_tokens=sampling.max_tokens)
        return await self._budget.spend(most, self.price, lambda: self.backend.generate(prompt, sampling))

    async def score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        texts = sum(self._most(prompt.lead + each) for each in continuations)
        prompt_tokens = texts + len(continuations) * (self._most(prompt) + _PER_REQUEST)
        most = Tokens(prompt_tokens=prompt_tokens, completion_tokens=len(continuations))
        return await self._budget.spend(most, self.price, lambda: self.backend.score(prompt, continuations))

    async def inspect(self, prompt: Prompt, layers: Sequence[int]) -> Inspection:
        most = Tokens(prompt_tokens=self._most(prompt))
        return await self._budget.spend(most, self.price, lambda: self.backend.inspect(prompt, layers))

    async def next_token(self, prompts: Sequence[Prompt]) -> Distributions:
        most = Tokens(prompt_tokens=sum(map(self._most, prompts)))
        return await self._budget.spend(most, self.price, lambda: self.backend.next_token(prompts))

    def _most(self, text: Prompt | str) -> int:
        count: Callable[[Prompt | str], int] = getattr(self.backend, "most_tokens", self.backend.count_tokens)
        return count(text)


def _dearest(most: Tokens, price: Price | None) -> float:
    """The money for these tokens at the higher of the two prices of prompt tokens, cached or not."""
    if price is None:
        return 0.0
    dearest = most.prompt_tokens * max(price.prompt, price.cached) + most.completion_tokens * price.completion
    return dearest / 1_000_000
