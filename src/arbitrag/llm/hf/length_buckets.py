"""Attention over a batch whose rows differ much in length: rows of like length are padded together, the others not.

A short row beside a long one would otherwise be padded to its slots, and pay for them at every step. The rows are
parted into bands; the linear layers compute all rows at once, and attention goes band by band. For that a model has to
call its attention by the name of ``IMPLEMENTATION``, which does what "sdpa" does for everything but a cache with bands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

Pair: TypeAlias = tuple[torch.Tensor, torch.Tensor]

IMPLEMENTATION = "arbitrag_bands"
ALIKE = 64  # slots by which the rows of a band may differ in any case: a call more costs about as much


class Bands:
    """The places of each band's rows in the batch, ascending."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.rows = [list(places) for places in rows]
        self.index = [_index(places) for places in self.rows]
        self.given: torch.Tensor | None = None
        self.masks: list[torch.Tensor | None] = []

    def __len__(self) -> int:
        return len(self.rows)

    def see(self, mask: np.ndarray, past: Sequence[int], device: torch.device) -> torch.Tensor:
        """Prepare a pass with the mask of ``Runtime.forward``; band i has ``past[i]`` slots.

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


@dataclass(frozen=True, slots=True)
class _Banded:
    bands: Bands
    pairs: Sequence[Pair]


def banded(key_states: torch.Tensor, bands: Bands, pairs: Sequence[Pair]) -> torch.Tensor:
    """What a cache gives to a model as keys: the new ones, with the keys and values of each band for ``attend``."""
    marked: Any = key_states.view_as(key_states)  # no cycle with a layer that holds the states themselves
    marked.arbitrag_banded = _Banded(bands, pairs)
    found: torch.Tensor = marked
    return found


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Scaled dot product attention; (rows, heads, new tokens, width) to (rows, new tokens, heads, width)."""
    found: _Banded | None = getattr(key, "arbitrag_banded", None)
    if found is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    if attention_mask is not found.bands.given or options.get("position_bias") is not None:
        raise NotImplementedError("this model changes the attention's mask, which differs from band to band")
    whole = None
    for index, mask, (keys, values) in zip(found.bands.index, found.bands.masks, found.pairs, strict=True):
        part, _ = sdpa_attention_forward(module, query[index], keys, values, mask, **options)
        if whole is None:
            whole = part.new_empty((len(query), *part.shape[1:]))
        whole[index] = part
    assert whole is not None
    return whole, None


AttentionInterface.register(IMPLEMENTATION, attend)
AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)


def grouped(lengths: Sequence[int], alike: int) -> list[list[int]]:
    """Places of like lengths, each group ascending: the longest at most half again the shortest, and ``alike`` more."""
    order = sorted(range(len(lengths)), key=lambda at: lengths[at])
    groups: list[list[int]] = []
    for at in order:
        if not groups or lengths[at] > 1.5 * lengths[groups[-1][0]] + alike:
            groups.append([])
        groups[-1].append(at)
    return [sorted(group) for group in groups]


def _index(places: list[int]) -> slice | torch.Tensor:
    first, last = places[0], places[-1]
    return slice(first, last + 1) if last - first + 1 == len(places) else torch.tensor(places)
