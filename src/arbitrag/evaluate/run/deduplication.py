"""Request deduplication: equal requests of several systems for one question are computed once.

These are model calls, retrievals, vectors and lengths of texts; the Direct answer inside TrustMargin is Direct's own.
Systems that answer one question at about the same time get kits from one ``Deduplication``; it is forgotten with the
question, so that a run of any length holds only what is under way. The first to ask pays. A call that failed is not
kept: whoever waited for it tries for itself, as it would have alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from arbitrag.encode.base import Encoder, Kind
from arbitrag.encode.lazy import LazyEncoder
from arbitrag.encode.similarity import Heads, MultiHead
from arbitrag.kit import Kit
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
from arbitrag.llm.results import M, as_cached, money_of
from arbitrag.llm.wrapped import WrappedLLM
from arbitrag.retrieve.base import Retriever
from arbitrag.trace import Call, usage_of
from arbitrag.types import Passage, Usage

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")


class Deduplication:
    """Deduplicates the requests of all kits that come from here; made for one question."""

    def __init__(self) -> None:
        self._models: dict[int, DeduplicatingLLM] = {}
        self._retrievers: dict[int, DeduplicatingRetriever] = {}
        self._encoders: dict[int, Encoder] = {}

    def kit(self, kit: Kit) -> Kit:
        """The kit with deduplicating models, retriever and encoder."""
        return replace(
            kit.with_models(self._model),
            retriever=None if kit.retriever is None else self._retriever(kit.retriever),
            encoder=None if kit.encoder is None else self._encoder(kit.encoder),
        )

    def _model(self, backend: LLM) -> DeduplicatingLLM:
        if id(backend) not in self._models:
            self._models[id(backend)] = DeduplicatingLLM(backend)
        return self._models[id(backend)]

    def _retriever(self, retriever: Retriever) -> DeduplicatingRetriever:
        if id(retriever) not in self._retrievers:
            self._retrievers[id(retriever)] = DeduplicatingRetriever(retriever)
        return self._retrievers[id(retriever)]

    def _encoder(self, encoder: Encoder) -> Encoder:
        if id(encoder) not in self._encoders:
            self._encoders[id(encoder)] = deduplicating_encoder(encoder, _RequestCache())
        return self._encoders[id(encoder)]


class DeduplicatingLLM(WrappedLLM):
    """A model that computes equal requests once. Who asked first gets the answer as it is, others as from a cache."""

    def __init__(self, backend: LLM) -> None:
        super().__init__(backend)
        self._requests = _RequestCache()
        self._lengths: dict[Prompt | str, int] = {}

    def count_tokens(self, text: Prompt | str) -> int:
        length = self._lengths.get(text)
        if length is None:
            length = self._lengths[text] = self.backend.count_tokens(text)
        return length

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        if sampling.temperature > 0 and sampling.seed is None:  # two draws are not one
            return await self.backend.generate(prompt, sampling)
        return await self._answer(("generate", prompt, sampling), lambda: self.backend.generate(prompt, sampling))

    async def score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        return await self._answer(
            ("score", prompt, tuple(continuations)), lambda: self.backend.score(prompt, continuations)
        )

    async def inspect(self, prompt: Prompt, layers: Sequence[int]) -> Inspection:
        return await self._answer(("inspect", prompt, tuple(layers)), lambda: self.backend.inspect(prompt, layers))

    async def next_token(self, prompts: Sequence[Prompt]) -> Distributions:
        return await self._answer(("next_token", tuple(prompts)), lambda: self.backend.next_token(prompts))

    async def aclose(self) -> None:
        """Nothing: the model is closed by who opened it."""

    async def _answer(self, request: Hashable, ask: Callable[[], Awaitable[M]]) -> M:
        answer, first = await self._requests.computed_once(request, ask)
        return answer if first else as_cached(answer, answer.tokens)


class DeduplicatingRetriever:
    """Passages that are looked up once for equal queries."""

    def __init__(self, retriever: Retriever) -> None:
        self.name, self.identity = retriever.name, retriever.identity
        self._retriever = retriever
        self._requests = _RequestCache()

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        request = (query, k, tuple(sorted((where or {}).items())))
        found, _ = await self._requests.computed_once(request, lambda: self._retriever.retrieve(query, k, where))
        return found

    async def aclose(self) -> None:
        """Nothing: the retriever is closed by who opened it."""


class DeduplicatingEncoder:
    """An encoder that reads equal lists of passages once.

    Queries are short and not kept: what is encoded once in a run (``Kit.nearest``) holds on to its encoder.
    """

    def __init__(self, encoder: Encoder, requests: _RequestCache) -> None:
        self.name, self.identity = encoder.name, encoder.identity
        self._encoder = encoder
        self._requests = requests

    @property
    def width(self) -> int | None:
        return self._encoder.width

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        if kind == "query":
            return await self._encoder.encode(texts, kind=kind)
        found, _ = await self._requests.computed_once(
            ("encode", tuple(texts)), lambda: self._encoder.encode(texts, kind=kind)
        )
        return found

    async def aclose(self) -> None:
        """Nothing: the encoder is closed by who opened it."""


class _DeduplicatingMultiHead(DeduplicatingEncoder):
    """With three heads, as ``encode.similarity`` knows them."""

    async def encode_heads(self, texts: Sequence[str], *, kind: Kind) -> list[Heads]:
        assert isinstance(self._encoder, MultiHead)
        encode = self._encoder.encode_heads
        found, _ = await self._requests.computed_once(("heads", kind, tuple(texts)), lambda: encode(texts, kind=kind))
        return found


class _DeduplicatingLazyEncoder(LazyEncoder):
    """Opened when there is something to encode."""

    def __init__(self, encoder: LazyEncoder, requests: _RequestCache) -> None:
        super().__init__(encoder.name, encoder.identity, encoder.width)
        self._encoder = encoder
        self._requests = requests

    async def opened(self) -> Encoder:
        return deduplicating_encoder(await self._encoder.opened(), self._requests)


def deduplicating_encoder(encoder: Encoder, requests: _RequestCache) -> Encoder:
    """The encoder with all that it can do."""
    if isinstance(encoder, LazyEncoder):
        return _DeduplicatingLazyEncoder(encoder, requests)
    return (_DeduplicatingMultiHead if isinstance(encoder, MultiHead) else DeduplicatingEncoder)(encoder, requests)


class _RequestCache:
    """Results by request, finished or still being computed."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, asyncio.Future[Any]] = {}

    async def computed_once(self, request: Hashable, ask: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """The answer, and whether this caller was the one for whom it was computed."""
        while (coming := self._answers.get(request)) is not None:
            arrived, answer = await asyncio.shield(coming)
            if arrived:
                return answer, False
        mine = self._answers[request] = asyncio.get_running_loop().create_future()
        try:
            answer = await ask()
        except BaseException:
            del self._answers[request]
            mine.set_result((False, None))
            raise
        mine.set_result((True, answer))
        return answer, True


def standalone_cost(calls: Sequence[Call], seconds: float, prices: Mapping[str, Price | None]) -> Usage:
    """Standalone cost: what the calls cost had each been computed for them; ``prices`` are those of the models by role.

    What a prefix cache saved stays saved: nobody knows what it would have held otherwise. ``seconds`` are as measured,
    which a shared call shortens only when it was made before.
    """
    return usage_of([_as_computed(call, call.computed, prices) for call in calls], seconds)


def _as_computed(call: Call, computed: Tokens | None, prices: Mapping[str, Price | None]) -> Call:
    if computed is None:
        return call
    return replace(
        call,
        prompt_tokens=computed.prompt_tokens,
        cached_tokens=computed.cached_tokens,
        completion_tokens=computed.completion_tokens,
        money=money_of(computed, prices.get(call.role)),
    )


def incremental_cost(calls: Sequence[Call], seconds: float) -> Usage:
    """Incremental cost: what was computed for these calls and for no others.

    Those that came from a cache or another system are free.
    """
    usage = usage_of([call for call in calls if not call.cached], seconds)
    free = usage.calls == 0 and any(call.money is not None for call in calls)
    return replace(usage, money=0.0) if free else usage


def total_usage(first: Usage, second: Usage) -> Usage:
    """The sum of two costs; money is known only where both are."""
    money = None if first.money is None or second.money is None else first.money + second.money
    return Usage(
        **{name: getattr(first, name) + getattr(second, name) for name in Usage.__slots__ if name != "money"},
        money=money,
    )
