"""Optimisations of a torch model on a CPU, with equal results: ``optimise(runtime)``. Everything works without it.

Length buckets: in a batch, attention runs once per group of rows of similar length, so that a short row is not padded
to a long one and does not pay for its slots in every step; linear layers still compute all rows at once. It needs a
model that calls scaled dot product attention through the interface of transformers and hands it the mask unchanged.

Blocked linear layers: for a few tokens, as in a decode step, torch multiplies with a whole matrix at once: a single row
on one core, several rows after copying the matrix. Here the matrix is taken in blocks that fit into a core's cache,
shared out among the cores. Measured on two cores, float32, matrices of 768 to 8,192 columns: 1.3 to 2.6 times as fast
for 1 to 64 rows; on one core about the same.

On a GPU nothing is done: there one more call costs more than padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AttentionInterface, AttentionMaskInterface, cache_utils
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from arbitrag.llm.hf.kv_cache import Block, Cache, Pair, assembled, joined, tokens_of

if TYPE_CHECKING:
    from arbitrag.llm.hf.runtime import TorchRuntime

IMPLEMENTATION = "arbitrag_length_buckets"  # the attention's name in a model's configuration
SLACK = 64  # slots by which the rows of a bucket may differ in any case: one more call costs about as much
FEW_TOKENS = 64  # new tokens of a pass up to which blocked linear layers are faster
_BLOCK_BYTES = 2**19  # bytes of a matrix that stay in a core's cache
_BLOCK_ROWS = 8  # rows of a matrix, below which a block costs more than it saves


def optimise(runtime: TorchRuntime) -> TorchRuntime:
    """Make a runtime on a CPU faster, as far as its model allows; returns it.

    The model then calls its attention by another name, which changes nothing for other callers.
    """
    if runtime.model.device.type == "cpu":
        runtime.around_pass = BlockedLinear(runtime.model).during_pass
        if runtime.info.ragged:
            _use_length_buckets(runtime)
    return runtime


def _use_length_buckets(runtime: TorchRuntime) -> None:
    """Run attention by length buckets where this gives what the model gives."""
    model = runtime.model
    usual = model.config._attn_implementation
    if usual not in {"sdpa", IMPLEMENTATION} or not model._can_set_attn_implementation():
        return
    padded = runtime.assembled
    model.set_attn_implementation(IMPLEMENTATION)
    runtime.assembled = partial(bucketed, slack=0)  # which parts the rows of the check
    try:
        equal = runtime.agrees_with_model()
    except Exception:  # noqa: BLE001  (the answer is no: rows are then padded to the longest of all)
        equal = False
    runtime.assembled = partial(bucketed, slack=SLACK) if equal else padded
    if not equal:
        model.set_attn_implementation(usual)


def grouped(lengths: Sequence[int], slack: int) -> list[list[int]]:
    """Rows by similar length, each group ascending: its longest at most 1.5 times its shortest, plus ``slack``."""
    order = sorted(range(len(lengths)), key=lambda at: lengths[at])
    groups: list[list[int]] = []
    for at in order:
        if not groups or lengths[at] > 1.5 * lengths[groups[-1][0]] + slack:
            groups.append([])
        groups[-1].append(at)
    return [sorted(group) for group in groups]


class Buckets:
    """Which rows of a batch each bucket has, ascending, and their masks in the pass under way."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.rows = [list(places) for places in rows]
        self.index = [_index(places) for places in self.rows]
        self.given: torch.Tensor | None = None
        self.masks: list[torch.Tensor | None] = []

    def __len__(self) -> int:
        return len(self.rows)

    def mask(self, mask: np.ndarray, past: Sequence[int], device: torch.device) -> torch.Tensor:
        """Prepare a pass with the mask of ``Runtime.forward``; bucket i has ``past[i]`` slots.

        Returns what the model is to hand to its attention: a mask without meaning, by which ``attend`` sees that it
        came through unchanged.
        """
        rows, fresh = mask.shape[0], mask.shape[-1] - max(past)
        self.masks = []
        for places, slots in zip(self.rows, past, strict=True):
            seen = mask[places][..., mask.shape[-1] - slots - fresh :]
            if seen.ndim == 2:
                seen = seen[:, None] & np.tri(fresh, slots + fresh, slots, dtype=bool)
            self.masks.append(None if seen.all() else torch.from_numpy(seen[:, None]).to(device))
        self.given = torch.ones((), dtype=torch.bool, device=device).expand(rows, 1, fresh, mask.shape[-1])
        return self.given


def _index(places: list[int]) -> slice | torch.Tensor:
    first, last = places[0], places[-1]
    return slice(first, last + 1) if last - first + 1 == len(places) else torch.tensor(places)


@dataclass(frozen=True, slots=True)
class _Marked:
    """Keys and values of each bucket, which new keys carry from the cache to ``attend``."""

    buckets: Buckets
    pairs: Sequence[Pair]


class BucketedLayer(cache_utils.DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values, bucket by bucket."""

    def __init__(self, layers: Sequence[Any], buckets: Buckets) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._layers = layers
        self._buckets = buckets
        self.is_initialized = True

    def get_seq_length(self) -> int:
        found: int = max(layer.get_seq_length() for layer in self._layers)
        return found

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Pair:
        if len(self._layers) == 1:
            found: Pair = self._layers[0].update(key_states, value_states)
            return found
        pairs = [
            layer.update(key_states[index], value_states[index])
            for layer, index in zip(self._layers, self._buckets.index, strict=True)
        ]
        marked: Any = key_states.view_as(key_states)  # no cycle with a layer that holds the states themselves
        marked.arbitrag_buckets = _Marked(self._buckets, pairs)
        return marked, value_states


class BucketedCache(Cache):
    """The KV cache of a batch as one cache for each length bucket; what joins goes to the bucket of its length."""

    def __init__(self, caches: Sequence[Cache], rows: Sequence[Sequence[int]], slack: int) -> None:
        self.caches = list(caches)
        self.buckets = Buckets(rows)
        self._slack = slack
        layers = zip(*(cache.layers for cache in caches), strict=True)
        super().__init__([BucketedLayer(each, self.buckets) for each in layers])

    @property
    def rows(self) -> int:
        return sum(map(len, self.buckets.rows))

    @property
    def past(self) -> list[int]:
        """Slots of each bucket; those of a narrower one are the last of the widest one's."""
        return [cache.slots for cache in self.caches]

    def mask(self, mask: np.ndarray, device: torch.device) -> torch.Tensor | None:
        if len(self.buckets) == 1:
            return super().mask(mask, device)
        return self.buckets.mask(mask, self.past, device)

    def block(self, row: int, start: int, stop: int) -> Block:
        bucket = next(number for number, places in enumerate(self.buckets.rows) if row in places)
        cache = self.caches[bucket]
        missing = self.slots - cache.slots
        return cache.block(self.buckets.rows[bucket].index(row), start - missing, stop - missing)

    def join(self, other: Cache) -> Cache:
        before = self.rows
        theirs = other if isinstance(other, BucketedCache) else BucketedCache([other], [range(other.rows)], self._slack)
        caches = [*self.caches, *theirs.caches]
        rows = [*self.buckets.rows, *([row + before for row in places] for places in theirs.buckets.rows)]
        found, merged = [], []
        for group in grouped([cache.slots for cache in caches], self._slack):
            merged.append(sorted(row for bucket in group for row in rows[bucket]))
            places = [[merged[-1].index(row) for row in rows[bucket]] for bucket in group]
            found.append(joined([caches[bucket] for bucket in group], places))
        return BucketedCache(found, merged, self._slack)

    def select(self, rows: Sequence[int], start: int) -> Cache:
        to = {row: place for place, row in enumerate(rows)}
        found, kept = [], []
        for cache, places in zip(self.caches, self.buckets.rows, strict=True):
            order = sorted((to[row], at) for at, row in enumerate(places) if row in to)
            if order:
                kept.append([place for place, _ in order])
                found.append(cache.select([at for _, at in order], max(0, start - self.slots + cache.slots)))
        return BucketedCache(found, kept, self._slack)


def bucketed(rows: Sequence[Sequence[Block]], *, single_pass: bool, slack: int) -> Cache:
    """As ``kv_cache.assembled``, in length buckets."""
    sample = next(blocks[0] for blocks in rows if blocks)
    groups = grouped([tokens_of(blocks) for blocks in rows], slack)
    caches = [
        assembled(
            [rows[row] for row in group],
            single_pass=single_pass,
            sample=sample,
            buffers=None if len(groups) == 1 else {},
        )
        for group in groups
    ]
    return BucketedCache(caches, groups, slack)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Scaled dot product attention, bucket by bucket.

    ``query`` is (rows, heads, new tokens, head_dim), the result (rows, new tokens, heads, head_dim).
    """
    found: _Marked | None = getattr(key, "arbitrag_buckets", None)
    if found is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    if attention_mask is not found.buckets.given or options.get("position_bias") is not None:
        raise NotImplementedError("this model changes the attention's mask, which differs from bucket to bucket")
    whole = None
    for index, mask, (keys, values) in zip(found.buckets.index, found.buckets.masks, found.pairs, strict=True):
        part, _ = sdpa_attention_forward(module, query[index], keys, values, mask, **options)
        if whole is None:
            whole = part.new_empty((len(query), *part.shape[1:]))
        whole[index] = part
    assert whole is not None
    return whole, None


AttentionInterface.register(IMPLEMENTATION, attend)
AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)


class BlockedLinear:
    """The linear layers of a model that can be computed in blocks, for as long as a pass takes."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._layers = [
            (layer, partial(_in_blocks, layer, size))
            for layer in model.modules()
            if type(layer) is torch.nn.Linear and "forward" not in vars(layer) and (size := block_rows(layer.weight))
        ]

    def __len__(self) -> int:
        return len(self._layers)

    @contextmanager
    def during_pass(self, tokens: int) -> Iterator[None]:
        """Within the body the model computes in blocks if it is so few new tokens; afterwards it is as it was."""
        if tokens > FEW_TOKENS:
            yield
            return
        for layer, forward in self._layers:
            vars(layer)["forward"] = forward
        try:
            yield
        finally:
            for layer, _ in self._layers:
                vars(layer).pop("forward", None)


def block_rows(weight: torch.Tensor) -> int:
    """Rows of a matrix (out, in) in one block, a power of two that divides them; 0 where it has to stay whole."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not weight.is_contiguous():
        return 0
    size = 1 << (_BLOCK_BYTES // weight[0].nbytes).bit_length() >> 1
    while size >= _BLOCK_ROWS and len(weight) % size:
        size //= 2
    return size if _BLOCK_ROWS <= size < len(weight) else 0


def _in_blocks(layer: Any, size: int, given: torch.Tensor) -> torch.Tensor:
    """What ``layer`` gives for (..., in): (..., out)."""
    count, inner = layer.out_features // size, layer.in_features
    rows = given.reshape(-1, inner)
    blocks = layer.weight.view(count, size, inner).transpose(1, 2)
    found = torch.bmm(rows.expand(count, *rows.shape), blocks)  # (blocks, rows, size)
    whole = found.transpose(0, 1).reshape(*given.shape[:-1], layer.out_features)
    return whole if layer.bias is None else whole + layer.bias
