"""A runtime over torch: any causal language model of transformers that keeps plain keys and values.

A block is a pair of tensors, keys and values, each (layers, heads, tokens, head_dim); for caches see ``kv_cache``.
All rows of a batch are left-padded to the longest, unless ``cpu.optimise`` was called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from arbitrag.errors import BackendError
from arbitrag.llm.engine.runtime import ForwardOutput, ModelInfo, OutOfMemory, SampledTokens
from arbitrag.llm.hf.kv_cache import Block, Cache, assembled

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PLAIN_LAYERS = {"full_attention", "sliding_attention"}
_OOM_MESSAGES = ("can't allocate memory", "not enough memory", "out of memory")


@contextmanager
def _translate_oom() -> Iterator[None]:
    """Inference mode, in which a failure to allocate is OutOfMemory."""
    try:
        with torch.inference_mode():
            yield
    except RuntimeError as error:  # torch.OutOfMemoryError is one; the CPU allocator raises it bare
        if isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in _OOM_MESSAGES):
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
    """``model`` on its device, in its precision. Raises BackendError for one whose cache cannot be cut and joined.

    ``assembled`` makes a cache of rows of blocks, and ``around_pass`` is entered for every forward pass with its number
    of new tokens; optimisations for a device replace them.
    """

    def __init__(self, model: PreTrainedModel, *, identity: str, evidence: Sequence[str] = ()) -> None:
        self.model = model.eval()  # type: ignore[no-untyped-call]
        self.assembled: Callable[..., Cache] = assembled
        self.around_pass: Callable[[int], AbstractContextManager[object]] = nullcontext
        self._device = model.device
        takes = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in takes
        self._takes_keep = "logits_to_keep" in takes
        config = model.config.get_text_config(decoder=True)
        kinds = set(getattr(config, "layer_types", None) or ())
        if kinds - _PLAIN_LAYERS or getattr(config, "is_encoder_decoder", False):
            found = ", ".join(sorted(kinds - _PLAIN_LAYERS)) or "an encoder"
            raise BackendError(
                f"{type(model).__name__} keeps more than keys and values (it has {found}); this engine cannot run it"
            )
        context = getattr(config, "max_position_embeddings", None)
        window = getattr(config, "sliding_window", None)
        ragged = not window or (context is not None and window >= context)
        block, logits = self._try_out()
        self.info = ModelInfo(
            identity=identity,
            layers=config.num_hidden_layers,
            vocabulary=len(logits),
            context_tokens=context,
            token_bytes=sum(part.element_size() * part.numel() for part in block),
            logits_bytes=logits.element_size() * len(logits),
            hidden_layers=frozenset(range(config.num_hidden_layers + 1)),
            evidence=tuple(evidence),
            ragged=ragged,
            packs=ragged and self._packs(),
        )

    def _try_out(self) -> tuple[Block, torch.Tensor]:
        """Check that the model's cache can be cut and joined; returns one token's keys and values, and logits."""
        ids = np.arange(1, 5)[None]
        try:
            with torch.inference_mode():
                self._expected = self.model(input_ids=torch.from_numpy(ids).to(self._device)).logits[0, -1]
            whole = self.forward(ids, np.ones((1, 4), bool), np.arange(4)[None], None, logits_to_keep=1)
            self._blocks = self.block(whole.cache, 0, 0, 1), self.block(whole.cache, 0, 1, 3)
            equal = self.agrees_with_model()
        except Exception as error:
            raise BackendError(
                f"{type(self.model).__name__} has no key/value cache that this engine can use: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not equal:
            raise BackendError(
                f"{type(self.model).__name__} answers differently from its own cache; this engine cannot run it"
            )
        return self._blocks[0], self._expected

    def agrees_with_model(self) -> bool:
        """Whether a ragged batch over cut and joined caches gives what the plain model gives for the same text.

        Tokens 1 to 4 are in two rows: three tokens after the first's block, and one after the blocks of three.
        """
        one, two = self._blocks
        mask = np.array([[False, False, True, True, True, True], [True, True, True, False, False, True]])
        fresh, positions = np.array([[2, 3, 4], [0, 0, 4]]), np.array([[1, 2, 3], [0, 0, 3]])
        shorter, longer = self.assemble([[one]]), self.assemble([[one, two]])
        assert shorter is not None
        assert longer is not None
        logits: torch.Tensor = self.forward(fresh, mask, positions, self.join(shorter, longer), logits_to_keep=1).logits
        return _close(logits[:, -1], self._expected)

    def _packs(self) -> bool:
        """Whether two continuations in one row, masked from each other, give what the plain model gives."""
        mask = np.ones((1, 6, 7), bool)
        mask[0, :, 1:] = np.kron(np.eye(2), np.tri(3)).astype(bool)
        ids, positions = np.array([[2, 3, 4, 2, 3, 4]]), np.array([[1, 2, 3, 1, 2, 3]])
        try:
            past = self.assemble([[self._blocks[0]]], single_pass=True)
            found = self.forward(ids, mask, positions, past, logits_to_keep=6).logits[0, [2, 5]]
        except Exception:  # noqa: BLE001  (the answer is no: continuations then get a row each)
            return False
        return _close(found, self._expected)

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
        cache = Cache() if cache is None else cache
        extra: dict[str, Any] = {}
        with _translate_oom(), self.around_pass(ids.size):
            if self._takes_positions:
                extra["position_ids"] = torch.from_numpy(positions).to(self._device)
            if self._takes_keep:
                extra["logits_to_keep"] = logits_to_keep
            found = self.model(
                input_ids=torch.from_numpy(ids).to(self._device),
                attention_mask=cache.mask(mask, self._device),
                past_key_values=cache,
                use_cache=True,
                output_hidden_states=bool(layers),
                **extra,
            )
            states = {layer: found.hidden_states[layer][:, -1].float().cpu().numpy() for layer in layers}
            return ForwardOutput(found.past_key_values, found.logits[:, -logits_to_keep:], states)

    def assemble(self, rows: Sequence[Sequence[Block]], *, single_pass: bool = False) -> Cache | None:
        if not any(keys.shape[2] for blocks in rows for keys, _ in blocks):
            return None
        with _translate_oom():
            return self.assembled(rows, single_pass=single_pass)

    def join(self, first: Cache, second: Cache) -> Cache:
        with _translate_oom():
            return first.join(second)

    def select(self, cache: Cache, rows: Sequence[int], start: int) -> Cache:
        with _translate_oom():
            return cache.select(rows, start)

    def block(self, cache: Cache, row: int, start: int, stop: int) -> Block:
        with _translate_oom():
            return cache.block(row, start, stop)

    def cut(self, block: Block, start: int, stop: int) -> Block:
        with _translate_oom():
            return block[0][:, :, start:stop].clone(), block[1][:, :, start:stop].clone()

    def row(self, logits: torch.Tensor, row: int) -> torch.Tensor:
        with _translate_oom():
            return logits[row, -1].clone()

    def stack(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        with _translate_oom():
            return torch.stack(list(rows))[:, None]

    def sample(
        self, logits: torch.Tensor, temperatures: np.ndarray, top_ps: np.ndarray, draws: np.ndarray
    ) -> SampledTokens:
        with _translate_oom():
            last = logits[:, -1].float()
            ids = last.argmax(-1)
            drawing = np.flatnonzero(temperatures)
            if len(drawing):
                rows = torch.from_numpy(drawing).to(self._device)
                settings = (self._column(values[drawing]) for values in (temperatures, top_ps, draws))
                ids[rows] = _sample(last[rows], *settings)
            logprobs = _logprobs(last, ids)
            return SampledTokens(ids.cpu().numpy(), logprobs.cpu().numpy())

    def _column(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.float32))[:, None].to(self._device)

    def logprobs(self, logits: torch.Tensor, targets: np.ndarray) -> np.ndarray:
        with _translate_oom():
            wanted = torch.from_numpy(targets).to(self._device)
            rows = [_logprobs(row.float(), ids) for row, ids in zip(logits, wanted, strict=True)]
            found: np.ndarray = torch.stack(rows).cpu().numpy()
            return found

    def distribution(self, logits: torch.Tensor) -> np.ndarray:
        with _translate_oom():
            found: np.ndarray = logits[:, -1].float().log_softmax(-1).cpu().numpy()
            return found


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


def _sample(
    logits: torch.Tensor, temperatures: torch.Tensor, top_ps: torch.Tensor, draws: torch.Tensor
) -> torch.Tensor:
    """Sample a token per row (n, vocabulary), by the rule of ``Runtime.sample``; the settings are (n, 1)."""
    scaled = (logits - logits.amax(-1, keepdim=True)) / temperatures
    probabilities, order = scaled.softmax(-1).sort(stable=True, dim=-1, descending=True)
    reached = probabilities.cumsum(-1)
    kept = (reached - probabilities < top_ps).sum(-1, keepdim=True).clamp(min=1)
    mass = reached.gather(-1, kept - 1)
    place = torch.minimum((reached <= draws * mass).sum(-1, keepdim=True), kept - 1)
    return order.gather(-1, place)[:, 0]
