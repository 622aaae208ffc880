"""``Runtime``: the protocol of a network that the engine drives, whichever array library computes it.

A runtime is a decoder-only network with its KV cache and nothing else: no text, no scheduling, no prefix caching.
``hf/runtime.py`` has one over torch, ``onnx/runtime.py`` and ``onnx/backend.py`` have two over onnxruntime.

Three types are opaque to the engine, so that their values can live on a device:

=========  ============================================================================================
Cache      the KV cache of a batch: B rows, P slots each; rows are right-aligned, shorter ones have
           padding slots on their left (zeros), which the engine masks
Block      keys and values of n consecutive tokens of one row, at their positions; immutable
Logits     unnormalised log-probabilities, (B, K, vocabulary) or for one position (vocabulary,)
=========  ============================================================================================

What crosses to the host is small: token ids, masks, the log-probabilities of given or sampled tokens. Sizes below: B
rows, T new tokens per row (left-padded), P past slots, K positions with logits. All methods are called by one thread at
a time, the engine's worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Cache: TypeAlias = Any
Block: TypeAlias = Any
Logits: TypeAlias = Any


class OutOfMemory(Exception):
    """A runtime could not allocate; the engine retries with a smaller batch. Never reaches a user."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the engine needs to know of a network.

    ``identity`` names the weights and the arithmetic (a hash or revision, the precision). ``layers`` is the number of
    decoder blocks, so that hidden states are numbered 0 to ``layers``; ``hidden_layers`` are those that can be returned
    (empty when none). ``token_bytes`` is the size of one token's keys and values over all layers, ``logits_bytes`` of
    one position's logits. ``evidence`` are lines for ``doctor``: the device, the precision, and why.

    ``ragged`` is False for a network that counts slots instead of positions (a sliding window): it cannot have padding
    between past and new tokens. ``packs`` says that ``forward`` accepts a mask per token, (B, T, P + T), and so several
    sequences packed into one row. ``reprefill_threshold`` is the longest cached prefix, in tokens, for which a batched
    prefill still recomputes it, so that many rows go through one pass together.
    """

    identity: str
    layers: int
    vocabulary: int
    context_tokens: int | None
    token_bytes: int
    logits_bytes: int
    hidden_layers: frozenset[int] = frozenset()
    evidence: tuple[str, ...] = ()
    ragged: bool = True
    packs: bool = False
    reprefill_threshold: int = 0


@dataclass(frozen=True, slots=True)
class ForwardOutput:
    """The outputs of one forward pass.

    ``cache`` has P + T slots; ``logits`` is (B, K, vocabulary) for the last K positions; ``hidden_states[layer]`` is
    (B, width) float32 on the host, at the last position, numbered as in ``llm.base.Inspection``.
    """

    cache: Cache
    logits: Logits
    hidden_states: Mapping[int, np.ndarray]


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """Sampled next tokens: ``ids`` (B,) int64 and ``logprobs`` (B,) float32, natural, at temperature 1, untruncated.

    A row whose logits are not finite (NaN, +inf, or nothing but -inf) has a NaN in ``logprobs``; its id is meaningless.
    """

    ids: np.ndarray
    logprobs: np.ndarray


class Runtime(Protocol):
    """A decoder-only network with a KV cache that runs forward passes for a batch."""

    @property
    def info(self) -> ModelInfo: ...

    def forward(
        self,
        ids: np.ndarray,
        mask: np.ndarray,
        positions: np.ndarray,
        cache: Cache | None,
        *,
        logits_to_keep: int,
        layers: Sequence[int] = (),
    ) -> ForwardOutput:
        """Run a forward pass over T more tokens in every row.

        ``ids`` and ``positions`` are (B, T) int64; ``mask`` is (B, P + T) bool, False at padding (left of the past,
        and again left of the new tokens, where padded positions are 0); ``cache`` None means P = 0;
        ``logits_to_keep`` is K, from 1 to T. Where ``info.packs``, ``mask`` may be (B, T, P + T) bool: the slots that
        each new token attends to (at least one). Several continuations of one past are so packed into one row, each
        with positions of its own. The given cache is consumed, also when this raises OutOfMemory.
        """
        ...

    def assemble(self, rows: Sequence[Sequence[Block]], *, single_pass: bool = False) -> Cache | None:
        """The KV cache of a batch from the rows' blocks in order, left-padded with zeros; None when all are empty.

        ``single_pass`` promises that it is used for one forward pass, after which only slots that this pass added are
        read: a runtime may then avoid a lasting copy. Raises OutOfMemory.
        """
        ...

    def join(self, first: Cache, second: Cache) -> Cache:
        """The rows of both, left-padded with zeros to the wider. Both are consumed, unless this raises OutOfMemory."""
        ...

    def select(self, cache: Cache, rows: Sequence[int], start: int) -> Cache:
        """Only these rows, in this order, without the slots before ``start``. The given cache is consumed."""
        ...

    def block(self, cache: Cache, row: int, start: int, stop: int) -> Block:
        """A copy of slots ``start`` to ``stop`` of one row."""
        ...

    def cut(self, block: Block, start: int, stop: int) -> Block:
        """A copy of a block's tokens ``start`` to ``stop``, which keeps nothing else of it in memory."""
        ...

    def row(self, logits: Logits, row: int) -> Logits:
        """A copy of the logits of one row's last position, (vocabulary,)."""
        ...

    def stack(self, rows: Sequence[Logits]) -> Logits:
        """(B, 1, vocabulary) of B values that ``row`` gave."""
        ...

    def sample(self, logits: Logits, temperatures: np.ndarray, top_ps: np.ndarray, draws: np.ndarray) -> SampledTokens:
        """Sample a next token per row from the logits of its last position.

        All three are (B,) float64. Temperature 0 takes the largest logit (the lowest id among equals). Otherwise the
        tokens are ordered by falling probability at that temperature, cut after the first whose cumulative probability
        reaches ``top_p``, and the one is taken at which the cumulative probability passes ``draw`` (from [0, 1)) times
        the kept mass: the same draw gives the same token whatever else is in the batch.
        """
        ...

    def logprobs(self, logits: Logits, targets: np.ndarray) -> np.ndarray:
        """Natural log-probabilities (B, K) float32 of ``targets`` (B, K) int64, computed in float32 or better.

        NaN where the logits of a position are not finite (see ``SampledTokens``).
        """
        ...

    def distribution(self, logits: Logits) -> np.ndarray:
        """Natural log-probabilities (B, vocabulary) float32 of all tokens at each row's last position."""
        ...
