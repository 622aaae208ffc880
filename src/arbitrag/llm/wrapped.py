"""A model around another model, which changes some of what that one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arbitrag.llm.base import (
    LLM,
    Capabilities,
    ContextWindow,
    Distributions,
    Generation,
    Inspection,
    Prompt,
    Sampling,
    Scores,
    capabilities_of,
    context_window_of,
)
from arbitrag.types import Need


class WrappedLLM:
    """Passes every request on to ``backend``; a subclass overrides what it changes."""

    def __init__(self, backend: LLM) -> None:
        self.backend = backend
        self.name, self.identity = backend.name, backend.identity
        self.wording, self.price = backend.wording, backend.price

    async def capabilities(self) -> Capabilities:
        return await self.backend.capabilities()

    async def capabilities_of(self, needs: Need, *, fresh: bool = False) -> Capabilities:
        return await capabilities_of(self.backend, needs, fresh=fresh)

    async def context_window(self, may_overflow: Callable[[], bool]) -> ContextWindow:
        return await context_window_of(self.backend, may_overflow)

    def count_tokens(self, text: Prompt | str) -> int:
        return self.backend.count_tokens(text)

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        return await self.backend.generate(prompt, sampling)

    async def score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        return await self.backend.score(prompt, continuations)

    async def inspect(self, prompt: Prompt, layers: Sequence[int]) -> Inspection:
        return await self.backend.inspect(prompt, layers)

    async def next_token(self, prompts: Sequence[Prompt]) -> Distributions:
        return await self.backend.next_token(prompts)

    async def aclose(self) -> None:
        await self.backend.aclose()
