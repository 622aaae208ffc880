"""Requests of the engine, in token ids: what is asked, the state while it is computed, and the result.

Texts are tokenized before and results are decoded after, by ``engine/engine.py``.
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
    """One prompt and what is asked of it, made in the event loop that awaits its ``future``.

    The engine's thread calls ``finish`` or ``fail``, of which the first counts; ``deliver`` is then called in the
    event loop. A request whose future was cancelled leaves its batch. After prefill, ``blocks`` hold the keys and
    values of ``ids``, ``last_logits`` the logits of the last token, and ``hidden_states`` those of the requested
    layers. ``computed_tokens`` went through the network, ``cached_tokens`` came from the prefix cache.
    """

    ARGUMENTS: ClassVar[tuple[str, ...]] = ("ids", "layers")

    ids: list[int]
    layers: tuple[int, ...] = ()
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    result: Any = None
    error: Exception | None = None
    done: bool = False
    computed_tokens: int = 0
    cached_tokens: int = 0
    blocks: list[Block] = field(default_factory=list)
    last_logits: Logits | None = None
    hidden_states: dict[int, np.ndarray] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """What is asked for, by field: plain values, from which an equal request is made in another process."""
        return {name: getattr(self, name) for name in self.ARGUMENTS}

    def finish(self, result: Any) -> None:
        if not self.done:
            self.result, self.done = result, True

    def fail(self, error: Exception) -> None:
        if not self.done:
            known = error if isinstance(error, ArbitragError) else BackendError(_described(error))
            self.error, self.done = known, True

    def deliver(self) -> None:
        """Set the result or the error of the future, unless its caller is gone."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)

    @property
    def cancelled(self) -> bool:
        return self.future.cancelled()

    @property
    def pending(self) -> bool:
        """Neither finished nor cancelled."""
        return not self.done and not self.cancelled

    def tokens(self, completion_tokens: int = 0) -> Tokens:
        return Tokens(self.computed_tokens + self.cached_tokens, self.cached_tokens, completion_tokens)

    def free(self) -> None:
        """Drop keys, values and logits."""
        self.blocks, self.last_logits = [], None


@dataclass(eq=False, slots=True)
class Inspect(Request):
    """Hidden states of the last prompt token: (states by layer, (width,) float32 each; Tokens)."""


@dataclass(eq=False, slots=True)
class NextToken(Request):
    """The next-token distribution: (log-probabilities (vocabulary,) float32, Tokens)."""


@dataclass(eq=False, slots=True)
class Score(Request):
    """Log-probabilities of continuations: (a list for each continuation, Tokens). No continuation is empty."""

    ARGUMENTS: ClassVar[tuple[str, ...]] = ("ids", "continuations")

    continuations: list[list[int]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Generate(Request):
    """A completion: (ids, log-probabilities, finish reason, Tokens); a final token from ``eos_ids`` is left out.

    ``ids`` begins with ``prompt_length`` prompt tokens, to which each decode step appends one, until there are
    ``max_new_tokens`` or ``should_stop`` is true of the new ones.
    """

    ARGUMENTS: ClassVar[tuple[str, ...]] = ("ids", "sampling", "max_new_tokens", "eos_ids", "rng", "prompt_length")

    sampling: Sampling = field(default_factory=Sampling)
    max_new_tokens: int = 1
    eos_ids: frozenset[int] = frozenset()
    should_stop: Callable[[list[int]], bool] | None = None
    rng: np.random.Generator | None = None
    prompt_length: int = 0
    logprobs: list[float] = field(default_factory=list)

    @property
    def completion(self) -> list[int]:
        return self.ids[self.prompt_length :]


def _described(error: Exception) -> str:
    if isinstance(error, OutOfMemory):
        return "the model ran out of memory on this request alone; shorten it or use a smaller precision"
    return f"the model failed on this request: {type(error).__name__}: {error}"
