"""What the in-process engine asks of a network, whichever array library computes it.

A runtime is a decoder-only network with its key/value cache, and nothing else: no text, no scheduling, no sharing.
``llm/hf/runtime.py`` is one over torch, ``llm/onnx/runtime.py`` one over onnxruntime; ``llm/engine/engine.py`` drives
either.

Three kinds of value stay opaque to the engine, so that they can live on a device:

=========  ============================================================================================
Cache      keys and values of a batch: B rows, P slots each; rows end together, shorter ones have
           slots without meaning on their left (zeros), which the engine masks
Block      keys and values of n consecutive tokens of one row, at their positions; never changed once made
Logits     unnormalised log-probabilities, (B, K, vocabulary) or for one position (vocabulary,)
=========  ============================================================================================

What crosses to the host is small: token ids, masks, the log-probabilities of given or chosen tokens. Sizes below: B
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
    """A runtime could not allocate; the engine answers with a smaller batch. Never reaches a user."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a network is.

    ``identity`` names the weights and the arithmetic (a hash or revision, the precision); ``layers`` counts blocks, so
    that hidden states are numbered 0 to ``layers``; ``states`` are those that can be given (empty when none).
    ``token_bytes`` is the size of one token's keys and values over all layers, ``logits_bytes`` of one position's
    logits. ``evidence`` are lines for ``doctor``: the device, the precision, and why. ``ragged`` is False for a network
    that counts slots instead of positions (a sliding window), which cannot have padding between past and new tokens.
    ``packs`` says that ``forward`` also takes a mask with what each single token sees. ``rereads`` is up to how many
    tokens many rows may have behind them and are still better read from their beginning, so that they are together.
    """

    identity: str
    layers: int
    vocabulary: int
    context_tokens: int | None
    token_bytes: int
    logits_bytes: int
    states: frozenset[int] = frozenset()
    evidence: tuple[str, ...] = ()
    ragged: bool = True
    packs: bool = False
    rereads: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of one forward pass.

    ``cache`` has P + T slots; ``logits`` is (B, K, vocabulary) for the last K positions; ``states[layer]`` is
    (B, width) float32 on the host: the hidden state at the last position, numbered as in ``llm.base.Inspection``.
    """

    cache: Cache
    logits: Logits
    states: Mapping[int, np.ndarray]


@dataclass(frozen=True, slots=True)
class Choice:
    """Chosen next tokens: ``ids`` (B,) int64 and ``logprobs`` (B,) float32, natural, at temperature 1, untruncated.

    A row whose logits are not finite (NaN, +inf, or nothing but -inf) has a NaN in ``logprobs``; its id means nothing.
    """

    ids: np.ndarray
    logprobs: np.ndarray


class Runtime(Protocol):
    """A network that computes one step for a batch."""

    @property
    def facts(self) -> Facts: ...

    def forward(
        self,
        ids: np.ndarray,
        mask: np.ndarray,
        positions: np.ndarray,
        cache: Cache | None,
        *,
        keep: int,
        layers: Sequence[int] = (),
    ) -> Step:
        """Read T more tokens in every row.

        ``ids`` and ``positions`` are (B, T) int64; ``mask`` is (B, P + T) bool, False at padding (left of the past,
        and again left of the new tokens, where padded positions are 0); ``cache`` None means P = 0; ``keep`` is K, from
        1 to T. Where ``facts.packs``, ``mask`` may be (B, T, P + T) bool and say for each new token which slots it sees
        (at least one), so that several continuations of one past go side by side in one row, each with positions of
        its own. The given cache is used up, also when this raises OutOfMemory.
        """
        ...

    def assemble(self, rows: Sequence[Sequence[Block]], *, once: bool = False) -> Cache | None:
        """A batch cache of the rows' blocks in order, left-padded with zeros to the longest; None when all are empty.

        ``once`` promises that it serves a single pass, after which blocks are only taken of the slots that this pass
        added: a runtime may then do without a copy that lasts. Raises OutOfMemory.
        """
        ...

    def join(self, first: Cache, second: Cache) -> Cache:
        """The rows of both, left-padded with zeros to the wider. Both are used up, unless this raises OutOfMemory."""
        ...

    def select(self, cache: Cache, rows: Sequence[int], start: int) -> Cache:
        """Only these rows, in this order, without the slots before ``start``. The given cache is used up."""
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

    def choose(self, logits: Logits, temperatures: np.ndarray, top_ps: np.ndarray, draws: np.ndarray) -> Choice:
        """A next token per row from the logits of its last position.

        All three are (B,) float64. Temperature 0 takes the largest logit (the lowest id among equals). Otherwise the
        tokens are ordered by falling probability at that temperature, cut after the first whose cumulative probability
        reaches ``top_p``, and the one is taken at which the cumulative probability passes ``draw`` (from [0, 1)) times
        the kept mass: the same draw gives the same token whatever else is in the batch.
        """
        ...

    def logprobs(self, logits: Logits, targets: np.ndarray) -> np.ndarray:
        """Natural log-probabilities (B, K) float32 of ``targets`` (B, K) int64, computed in float32 or better.

        NaN where the logits of a position are not finite (see ``Choice``).
        """
        ...

    def distribution(self, logits: Logits) -> np.ndarray:
        """Natural log-probabilities (B, vocabulary) float32 of all tokens at each row's last position."""
        ...
