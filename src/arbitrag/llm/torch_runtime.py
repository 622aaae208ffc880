"""A runtime over torch: any causal language model of transformers that keeps plain keys and values.

A block is a pair of tensors, keys and values, each (layers, heads, tokens, width); for caches see ``torch_cache``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from arbitrag.errors import BackendError
from arbitrag.llm.runtime import Choice, Facts, OutOfMemory, Step
from arbitrag.llm.torch_cache import SPARE, Block, Cache, GrowingLayer, PassingLayer, fill, with_slots

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PLAIN = {"full_attention", "sliding_attention"}
_EXHAUSTED = ("can't allocate memory", "not enough memory", "out of memory")


@contextmanager
def _memory() -> Iterator[None]:
    """What the body computes needs no gradients; failing to allocate becomes OutOfMemory."""
    try:
        with torch.inference_mode():
            yield
    except RuntimeError as error:  # torch.OutOfMemoryError is one; the CPU allocator raises it bare
        if isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in _EXHAUSTED):
            exhausted = True
        else:
            raise
    except MemoryError:
        exhausted = True
    else:
        exhausted = False
    if exhausted:  # outside the handler, whose traceback holds on to what had been allocated
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        raise OutOfMemory


class TorchRuntime:
    """``model`` on its device, in its precision. Raises BackendError for one whose cache cannot be cut and joined."""

    def __init__(self, model: PreTrainedModel, *, identity: str, evidence: Sequence[str] = ()) -> None:
        self._model = model.eval()  # type: ignore[no-untyped-call]
        self._device = model.device
        takes = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in takes
        self._takes_keep = "logits_to_keep" in takes
        config = model.config.get_text_config(decoder=True)
        kinds = set(getattr(config, "layer_types", None) or ())
        if kinds - _PLAIN or getattr(config, "is_encoder_decoder", False):
            found = ", ".join(sorted(kinds - _PLAIN)) or "an encoder"
            raise BackendError(
                f"{type(model).__name__} keeps more than keys and values (it has {found}); this engine cannot run it"
            )
        context = getattr(config, "max_position_embeddings", None)
        window = getattr(config, "sliding_window", None)
        ragged = not window or (context is not None and window >= context)
        block, logits, packs = self._try_out()
        self.facts = Facts(
            identity=identity,
            layers=config.num_hidden_layers,
            vocabulary=len(logits),
            context_tokens=context,
            token_bytes=sum(part.element_size() * part.numel() for part in block),
            logits_bytes=logits.element_size() * len(logits),
            states=frozenset(range(config.num_hidden_layers + 1)),
            evidence=tuple(evidence),
            ragged=ragged,
            packs=ragged and packs,
        )

    def _try_out(self) -> tuple[Block, torch.Tensor, bool]:
        """Check that a ragged batch over cut and joined caches gives what the plain model gives for the same text.

        Returns the keys and values of one token, the logits of one position, and whether rows can be packed.
        """
        ids = np.arange(1, 5)[None]
        try:
            with torch.inference_mode():
                plain = self._model(input_ids=torch.from_numpy(ids).to(self._device)).logits[0, -1]
            whole = self.forward(ids, np.ones((1, 4), bool), np.arange(4)[None], None, keep=1)
            two, one = self.block(whole.cache, 0, 0, 2), self.block(whole.cache, 0, 2, 3)
            shorter, longer = self.assemble([[two]]), self.assemble([[two, one]])
            assert shorter is not None
            assert longer is not None
            mask = np.array([[False, True, True, True, True], [True, True, True, False, True]])
            fresh, positions = np.array([[3, 4], [0, 4]]), np.array([[2, 3], [0, 3]])
            found = self.forward(fresh, mask, positions, self.join(shorter, longer), keep=1).logits[:, -1]
        except Exception as error:
            raise BackendError(
                f"{type(self._model).__name__} has no key/value cache that this engine can use: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not _close(found, plain):
            raise BackendError(
                f"{type(self._model).__name__} answers differently from its own cache; this engine cannot run it"
            )
        return one, plain, self._packs(two, plain)

    def _packs(self, past: Block, plain: torch.Tensor) -> bool:
        """Whether two continuations in one row, each blind to the other, give what the plain model gives."""
        mask = np.ones((1, 4, 6), bool)
        mask[0, :, 2:] = np.kron(np.eye(2), np.tri(2)).astype(bool)
        ids, positions = np.array([[3, 4, 3, 4]]), np.array([[2, 3, 2, 3]])
        try:
            found = self.forward(ids, mask, positions, self.assemble([[past]], once=True), keep=4).logits[0, [1, 3]]
        except Exception:  # noqa: BLE001  (the answer is no: continuations then get a row each)
            return False
        return _close(found, plain)

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
        extra: dict[str, Any] = {}
        with _memory():
            if self._takes_positions:
                extra["position_ids"] = torch.from_numpy(positions).to(self._device)
            if self._takes_keep:
                extra["logits_to_keep"] = keep
            found = self._model(
                input_ids=torch.from_numpy(ids).to(self._device),
                attention_mask=self._mask(mask),
                past_key_values=Cache() if cache is None else cache,
                use_cache=True,
                output_hidden_states=bool(layers),
                **extra,
            )
            states = {layer: found.hidden_states[layer][:, -1].float().cpu().numpy() for layer in layers}
            return Step(found.past_key_values, found.logits[:, -keep:], states)

    def _mask(self, mask: np.ndarray) -> torch.Tensor | None:
        if mask.ndim == 2 and mask.all():
            return None
        given = torch.from_numpy(mask).to(self._device)
        return given if given.ndim == 2 else given[:, None]

    def assemble(self, rows: Sequence[Sequence[Block]], *, once: bool = False) -> Cache | None:
        slots = max(sum(keys.shape[2] for keys, _ in blocks) for blocks in rows)
        if not slots:
            return None
        if once:
            return Cache([PassingLayer(rows, layer, slots) for layer in range(self._depth(rows))])
        with _memory():
            sides = [
                self._assembled([[block[side] for block in blocks] for blocks in rows], slots) for side in range(2)
            ]
            return _cache(sides[0], sides[1], slots)

    def _depth(self, rows: Sequence[Sequence[Block]]) -> int:
        return next(len(blocks[0][0]) for blocks in rows if blocks)

    def _assembled(self, rows: Sequence[Sequence[torch.Tensor]], slots: int) -> torch.Tensor:
        """One buffer (layers, rows, heads, slots + SPARE, width) for the keys or the values of all layers."""
        sample = next(parts[0] for parts in rows if parts)
        layers, heads, _, width = sample.shape
        buffer = sample.new_empty((layers, len(rows), heads, slots + SPARE, width))
        for row, parts in enumerate(rows):
            fill(buffer[:, row], parts, slots)
        return buffer

    def join(self, first: Cache, second: Cache) -> Cache:
        with _memory():
            joined = Cache([GrowingLayer() for _ in first.layers])
            slots = max(cache.layers[0].keys.shape[2] for cache in (first, second))
            for into, one, two in zip(joined.layers, first.layers, second.layers, strict=True):
                into.hold(*(_stacked(pair, slots) for pair in ((one.keys, two.keys), (one.values, two.values))), slots)
            return joined

    def select(self, cache: Cache, rows: Sequence[int], start: int) -> Cache:
        with _memory():
            index = torch.tensor(rows, device=self._device)
            for layer in cache.layers:
                slots = layer.keys.shape[2] - start
                kept = [
                    with_slots(side[:, :, start:].index_select(0, index), slots + SPARE)
                    for side in (layer.keys, layer.values)
                ]
                layer.hold(kept[0], kept[1], slots)
            return cache

    def block(self, cache: Cache, row: int, start: int, stop: int) -> Block:
        with _memory():
            parts = [layer.part(row, start, stop) for layer in cache.layers]
            return torch.stack([keys for keys, _ in parts]), torch.stack([values for _, values in parts])

    def cut(self, block: Block, start: int, stop: int) -> Block:
        with _memory():
            return block[0][:, :, start:stop].clone(), block[1][:, :, start:stop].clone()

    def row(self, logits: torch.Tensor, row: int) -> torch.Tensor:
        with _memory():
            return logits[row, -1].clone()

    def stack(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        with _memory():
            return torch.stack(list(rows))[:, None]

    def choose(self, logits: torch.Tensor, temperatures: np.ndarray, top_ps: np.ndarray, draws: np.ndarray) -> Choice:
        with _memory():
            last = logits[:, -1].float()
            ids = last.argmax(-1)
            drawing = np.flatnonzero(temperatures)
            if len(drawing):
                rows = torch.from_numpy(drawing).to(self._device)
                settings = (self._column(values[drawing]) for values in (temperatures, top_ps, draws))
                ids[rows] = _drawn(last[rows], *settings)
            logprobs = _logprobs(last, ids)
            return Choice(ids.cpu().numpy(), logprobs.cpu().numpy())

    def _column(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.float32))[:, None].to(self._device)

    def logprobs(self, logits: torch.Tensor, targets: np.ndarray) -> np.ndarray:
        with _memory():
            wanted = torch.from_numpy(targets).to(self._device)
            rows = [_logprobs(row.float(), ids) for row, ids in zip(logits, wanted, strict=True)]
            found: np.ndarray = torch.stack(rows).cpu().numpy()
            return found

    def distribution(self, logits: torch.Tensor) -> np.ndarray:
        with _memory():
            found: np.ndarray = logits[:, -1].float().log_softmax(-1).cpu().numpy()
            return found


def _cache(keys: torch.Tensor, values: torch.Tensor, slots: int) -> Cache:
    """A cache over buffers (layers, rows, heads, slots and more, width)."""
    layers = [GrowingLayer() for _ in keys]
    for layer, key, value in zip(layers, keys, values, strict=True):
        layer.hold(key, value, slots)
    return Cache(layers)


def _stacked(sides: Sequence[torch.Tensor], slots: int) -> torch.Tensor:
    """The rows of all, (rows, heads, slots + SPARE, width), each padded with zeros on the left of its slots."""
    rows, (_, heads, _, width) = sum(len(side) for side in sides), sides[0].shape
    buffer = sides[0].new_empty((rows, heads, slots + SPARE, width))
    at = 0
    for side in sides:
        into = buffer[at : at + len(side)]
        into[:, :, : slots - side.shape[2]] = 0
        into[:, :, slots - side.shape[2] : slots] = side
        at += len(side)
    return buffer


def _close(found: torch.Tensor, plain: torch.Tensor) -> bool:
    """Whether logits are equal up to the precision that they were computed in; also where they are not finite."""
    spread = (plain.max() - plain.min()).float()
    exact = 1e-3 if plain.dtype == torch.float32 else 0.1
    return not bool((found - plain).abs().max().float() > exact * spread + 1e-4)


def _logprobs(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """log softmax of (n, vocabulary) at ids (n,); NaN where a row is not finite."""
    norm = logits.logsumexp(-1)
    found = logits.gather(-1, ids[:, None])[:, 0] - norm
    return torch.where(norm.isfinite(), found, torch.nan)


def _drawn(logits: torch.Tensor, temperatures: torch.Tensor, top_ps: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """A token per row (n, vocabulary), by the rule of ``Runtime.choose``; the settings are (n, 1)."""
    scaled = (logits - logits.amax(-1, keepdim=True)) / temperatures
    probabilities, order = scaled.softmax(-1).sort(stable=True, dim=-1, descending=True)
    reached = probabilities.cumsum(-1)
    kept = (reached - probabilities < top_ps).sum(-1, keepdim=True).clamp(min=1)
    mass = reached.gather(-1, kept - 1)
    place = torch.minimum((reached <= draws * mass).sum(-1, keepdim=True), kept - 1)
    return order.gather(-1, place)[:, 0]
