"""What a caller wants of the in-process engine, on its way through the worker: ids, and what is known of them so far.

Texts are tokens already here, and results are plain values; ``llm/engine/engine.py`` stands between these and the
contract.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from arbitrag.errors import ArbitragError, BackendError
from arbitrag.llm.base import Sampling, Tokens
from arbitrag.llm.engine.runtime import Block, Logits, OutOfMemory

if TYPE_CHECKING:
    import numpy as np

NOT_FINITE = "the model's output is not finite (NaN or infinity); try a wider precision, dtype='float32'"


@dataclass(eq=False, slots=True)
class Request:
    """One prompt and what is wanted of it, made in the event loop that waits for its ``future``.

    The engine's thread calls ``finish`` or ``fail``, of which the first counts, and ``hand_over`` is then called in the
    loop. A request whose future was cancelled frees its place. After reading: ``blocks`` hold the keys and values of
    ``ids``, ``last`` the logits of the last token, and ``states`` the hidden states of the layers asked for.
    """

    WANTED: ClassVar[tuple[str, ...]] = ("ids", "layers")

    ids: list[int]
    layers: tuple[int, ...] = ()
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    outcome: Any = None
    error: Exception | None = None
    over: bool = False
    read: int = 0
    reused: int = 0
    blocks: list[Block] = field(default_factory=list)
    last: Logits | None = None
    states: dict[int, np.ndarray] = field(default_factory=dict)

    def wanted(self) -> dict[str, Any]:
        """What is asked for, by field: plain values, from which the same request can be made elsewhere."""
        return {name: getattr(self, name) for name in self.WANTED}

    def finish(self, result: Any) -> None:
        if not self.over:
            self.outcome, self.over = result, True

    def fail(self, error: Exception) -> None:
        if not self.over:
            known = error if isinstance(error, ArbitragError) else BackendError(_in_words(error))
            self.error, self.over = known, True

    def hand_over(self) -> None:
        """Give the future what ``finish`` or ``fail`` brought, unless its caller is gone."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.outcome)
        else:
            self.future.set_exception(self.error)

    @property
    def cancelled(self) -> bool:
        return self.future.cancelled()

    @property
    def open(self) -> bool:
        """Whether somebody still waits for a result that is not there."""
        return not self.over and not self.cancelled

    def tokens(self, written: int = 0) -> Tokens:
        return Tokens(self.read + self.reused, self.reused, written)

    def forget(self) -> None:
        """Let go of keys, values and logits."""
        self.blocks, self.last = [], None


@dataclass(eq=False, slots=True)
class Inspect(Request):
    """Result: (states, Tokens), the states by layer, (width,) float32."""


@dataclass(eq=False, slots=True)
class Distribute(Request):
    """Result: (log-probabilities of all tokens (vocabulary,) float32, Tokens)."""


@dataclass(eq=False, slots=True)
class Score(Request):
    """Result: (log-probabilities per continuation, Tokens). ``continuations`` are token ids, none empty."""

    WANTED: ClassVar[tuple[str, ...]] = ("ids", "continuations")

    continuations: list[list[int]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Write(Request):
    """Result: (ids, log-probabilities, finish, Tokens) of what was written, without a last token from ``eos_ids``.

    ``ids`` begins with ``prompt`` tokens and grows by what is written, until that is ``limit`` tokens or ``stops`` says
    that its text is over.
    """

    WANTED: ClassVar[tuple[str, ...]] = ("ids", "sampling", "limit", "eos_ids", "random", "prompt")

    sampling: Sampling = field(default_factory=Sampling)
    limit: int = 1
    eos_ids: frozenset[int] = frozenset()
    stops: Callable[[list[int]], bool] | None = None
    random: np.random.Generator | None = None
    prompt: int = 0
    logprobs: list[float] = field(default_factory=list)

    @property
    def written(self) -> list[int]:
        return self.ids[self.prompt :]


def _in_words(error: Exception) -> str:
    if isinstance(error, OutOfMemory):
        return "the model ran out of memory on this request alone; shorten it or use a smaller precision"
    return f"the model failed on this request: {type(error).__name__}: {error}"
