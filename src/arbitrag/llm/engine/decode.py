"""The decode batch: every decode step appends one token to each of its rows, and rows join and leave between steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from arbitrag.errors import BackendError
from arbitrag.llm.engine.batch import BatchRunner
from arbitrag.llm.engine.requests import NOT_FINITE, Generate
from arbitrag.llm.engine.runtime import Cache, Logits, OutOfMemory, SampledTokens

if TYPE_CHECKING:
    import numpy as np


@dataclass(eq=False, slots=True)
class _Rows:
    """The running requests, and their KV cache of ``width`` slots, of which ``padding`` (rows,) are padding.

    The last token of each request's ids is not in the cache yet.
    """

    requests: list[Generate]
    cache: Cache
    width: int
    padding: np.ndarray


class DecodeBatch:
    """Continuous batching of generation: ``add`` takes requests whose prompts are prefilled, ``step`` decodes."""

    def __init__(self, runner: BatchRunner) -> None:
        self._runner = runner
        self._rows: _Rows | None = None

    def __len__(self) -> int:
        """Running requests."""
        return len(self._rows.requests) if self._rows else 0

    @property
    def width(self) -> int:
        """Slots of the KV cache in each row, padding included."""
        return self._rows.width if self._rows else 0

    def add(self, requests: list[Generate]) -> list[Generate]:
        """Sample the first token of prefilled requests, and let those that go on join the running batch.

        Returns those to be prefilled again because memory ran out.
        """
        if not requests:
            return []
        runtime = self._runner.runtime
        try:
            alive = self._sample(runtime.stack([request.last_logits for request in requests]), requests)
            if alive:
                self._join([requests[at] for at in alive])
        except OutOfMemory as error:
            width = max(self.width, *(len(request.ids) for request in requests))
            freed = self._runner.out_of_memory(len(self) + len(requests), 1, width)
            return self._retry(requests, error, hopeless=not freed and self._rows is None)
        except Exception as error:  # noqa: BLE001  (every request carries it)
            for request in requests:
                request.fail(error)
        finally:
            for request in requests:
                request.free()
        return []

    def _join(self, requests: list[Generate]) -> None:
        import numpy

        runtime = self._runner.runtime
        lengths = numpy.array([len(request.ids) - 1 for request in requests])
        width = int(lengths.max())
        cache = runtime.assemble([request.blocks for request in requests])
        running = self._rows
        if running is None:
            self._rows = _Rows(requests, cache, width, width - lengths)
            return
        wider = max(width, running.width)
        padding = numpy.concatenate([running.padding + wider - running.width, wider - lengths])
        joined = runtime.join(running.cache, cache)
        self._rows = _Rows([*running.requests, *requests], joined, wider, padding)

    def step(self) -> list[Generate]:
        """Decode one token in every row. Returns those to prefill again because memory ran out; then nothing runs."""
        self._drop_cancelled()
        rows = self._rows
        if rows is None:
            return []
        try:
            self._keep(self._sample(self._forward(rows), rows.requests))
        except OutOfMemory as error:
            self._rows = None
            freed = self._runner.out_of_memory(len(rows.requests), 1, rows.width)
            return self._retry(rows.requests, error, hopeless=not freed)
        except Exception as error:  # noqa: BLE001  (every request of the batch carries it)
            self.fail(error)
        return []

    def _retry(self, requests: list[Generate], error: Exception, *, hopeless: bool) -> list[Generate]:
        """Those that are still pending; a single one for which there was nothing left to free gets the error."""
        rest = [request for request in requests if request.pending]
        if len(requests) > 1 or not hopeless:
            return rest
        requests[0].fail(error)
        return []

    def _forward(self, rows: _Rows) -> Logits:
        import numpy

        ids = numpy.array([[request.ids[-1]] for request in rows.requests], numpy.int64)
        positions = (rows.width - rows.padding)[:, None].astype(numpy.int64)
        mask = numpy.arange(rows.width + 1)[None, :] >= rows.padding[:, None]
        output = self._runner.runtime.forward(ids, mask, positions, rows.cache, logits_to_keep=1)
        rows.cache, rows.width = output.cache, rows.width + 1
        return output.logits

    def _sample(self, logits: Logits, requests: Sequence[Generate]) -> list[int]:
        """Append a sampled token to each request, finish those that are complete, return the rows of the others."""
        import numpy

        temperatures = numpy.array([request.sampling.temperature for request in requests], numpy.float64)
        top_ps = numpy.array([request.sampling.top_p for request in requests], numpy.float64)
        draws = numpy.array([request.rng.random() if request.rng else 0.0 for request in requests])
        sampled = self._runner.runtime.sample(logits, temperatures, top_ps, draws)
        return [at for at, request in enumerate(requests) if not self._append(request, sampled, at)]

    def _append(self, request: Generate, sampled: SampledTokens, at: int) -> bool:
        """Append the token sampled for row ``at``; returns whether the request leaves the batch."""
        logprob = float(sampled.logprobs[at])
        if logprob != logprob:
            request.fail(BackendError(NOT_FINITE))
            return True
        token = int(sampled.ids[at])
        if token in request.eos_ids:
            self._finish(request, "stop")
            return True
        request.ids.append(token)
        request.logprobs.append(logprob)
        if request.should_stop is not None and request.should_stop(request.completion):
            self._finish(request, "stop")
            return True
        if len(request.logprobs) >= request.max_new_tokens:
            self._finish(request, "length")
            return True
        return request.cancelled

    def _finish(self, request: Generate, reason: Literal["stop", "length"]) -> None:
        completion = request.completion
        request.finish((completion, request.logprobs, reason, request.tokens(len(completion))))

    def _drop_cancelled(self) -> None:
        if self._rows is not None:
            self._keep([at for at, request in enumerate(self._rows.requests) if not request.cancelled])

    def _keep(self, kept: list[int]) -> None:
        """Shrink the batch to these rows, without slots that are padding in all of them."""
        rows = self._rows
        assert rows is not None
        if len(kept) == len(rows.requests):
            return
        if not kept:
            self._rows = None
            return
        kept = _compacted(kept)
        padding = rows.padding[kept]
        start = int(padding.min())
        rows.cache = self._runner.runtime.select(rows.cache, kept, start)
        rows.requests = [rows.requests[at] for at in kept]
        rows.padding, rows.width = padding - start, rows.width - start

    def fail(self, error: Exception) -> None:
        """Fail every running request with this error."""
        rows, self._rows = self._rows, None
        for request in rows.requests if rows else ():
            request.fail(error)


def _compacted(rows: list[int]) -> list[int]:
    """These rows in an order that moves the fewest of them: those among the first stay, the last fill the gaps.

    A runtime that keeps rows in place then copies least.
    """
    count = len(rows)
    order = list(range(count))
    gaps = sorted(set(order).difference(rows))
    for gap, row in zip(gaps, (row for row in rows if row >= count), strict=True):
        order[gap] = row
    return order
