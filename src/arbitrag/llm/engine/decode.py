"""The batch that writes: every step adds one token to each of its rows, and rows join and leave between steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from arbitrag.errors import BackendError
from arbitrag.llm.engine.prefill import Reader
from arbitrag.llm.engine.requests import NOT_FINITE, Write
from arbitrag.llm.engine.runtime import Cache, Choice, Logits, OutOfMemory

if TYPE_CHECKING:
    import numpy as np


@dataclass(eq=False, slots=True)
class _Rows:
    """What is running: the requests, their cache of ``width`` slots, and how many of those are padding in each row.

    The last token of each request's ids is not in the cache yet.
    """

    requests: list[Write]
    cache: Cache
    width: int
    padding: np.ndarray


class Writer:
    """Writes for all requests that ``start`` was given, a token each per ``step``."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._rows: _Rows | None = None

    def __len__(self) -> int:
        """Rows that are writing."""
        return len(self._rows.requests) if self._rows else 0

    @property
    def width(self) -> int:
        """Slots of keys and values in each row, padding included."""
        return self._rows.width if self._rows else 0

    def start(self, requests: list[Write]) -> list[Write]:
        """Choose the first token of requests that were read, and let those that go on join the running batch.

        Returns those to be read again because memory ran out.
        """
        if not requests:
            return []
        runtime = self.reader.runtime
        try:
            alive = self._choose(runtime.stack([request.last for request in requests]), requests)
            if alive:
                self._join([requests[at] for at in alive])
        except OutOfMemory as error:
            width = max(self.width, *(len(request.ids) for request in requests))
            freed = self.reader.out_of_memory(len(self) + len(requests), 1, width)
            return self._again(requests, error, hopeless=not freed and self._rows is None)
        except Exception as error:  # noqa: BLE001  (every request carries it)
            for request in requests:
                request.fail(error)
        finally:
            for request in requests:
                request.forget()
        return []

    def _join(self, requests: list[Write]) -> None:
        import numpy

        runtime = self.reader.runtime
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

    def step(self) -> list[Write]:
        """Write one token in every row. Returns those to be read again because memory ran out; then nothing runs."""
        self._leave()
        rows = self._rows
        if rows is None:
            return []
        try:
            self._keep(self._choose(self._forward(rows), rows.requests))
        except OutOfMemory as error:
            self._rows = None
            freed = self.reader.out_of_memory(len(rows.requests), 1, rows.width)
            return self._again(rows.requests, error, hopeless=not freed)
        except Exception as error:  # noqa: BLE001  (every request of the batch carries it)
            self.fail(error)
        return []

    def _again(self, requests: list[Write], error: Exception, *, hopeless: bool) -> list[Write]:
        """Those still to be written; a single one for which there was nothing left to free gets the error."""
        rest = [request for request in requests if request.open]
        if len(requests) > 1 or not hopeless:
            return rest
        requests[0].fail(error)
        return []

    def _forward(self, rows: _Rows) -> Logits:
        import numpy

        ids = numpy.array([[request.ids[-1]] for request in rows.requests], numpy.int64)
        positions = (rows.width - rows.padding)[:, None].astype(numpy.int64)
        mask = numpy.arange(rows.width + 1)[None, :] >= rows.padding[:, None]
        step = self.reader.runtime.forward(ids, mask, positions, rows.cache, keep=1)
        rows.cache, rows.width = step.cache, rows.width + 1
        return step.logits

    def _choose(self, logits: Logits, requests: Sequence[Write]) -> list[int]:
        """Give each request its next token, finish those that are done, and return the places of the others."""
        import numpy

        temperatures = numpy.array([request.sampling.temperature for request in requests], numpy.float64)
        top_ps = numpy.array([request.sampling.top_p for request in requests], numpy.float64)
        draws = numpy.array([request.random.random() if request.random else 0.0 for request in requests])
        choice = self.reader.runtime.choose(logits, temperatures, top_ps, draws)
        return [at for at, request in enumerate(requests) if not self._over(request, choice, at)]

    def _over(self, request: Write, choice: Choice, at: int) -> bool:
        """Take the chosen token; whether the request ended with it."""
        logprob = float(choice.logprobs[at])
        if logprob != logprob:
            request.fail(BackendError(NOT_FINITE))
            return True
        token = int(choice.ids[at])
        if token in request.eos_ids:
            self._finish(request, "stop")
            return True
        request.ids.append(token)
        request.logprobs.append(logprob)
        if request.stops is not None and request.stops(request.written):
            self._finish(request, "stop")
            return True
        if len(request.logprobs) >= request.limit:
            self._finish(request, "length")
            return True
        return request.cancelled

    def _finish(self, request: Write, finish: Literal["stop", "length"]) -> None:
        written = request.written
        request.finish((written, request.logprobs, finish, request.tokens(len(written))))

    def _leave(self) -> None:
        """Drop the rows whose callers are gone."""
        if self._rows is not None:
            self._keep([at for at, request in enumerate(self._rows.requests) if not request.cancelled])

    def _keep(self, places: list[int]) -> None:
        rows = self._rows
        assert rows is not None
        if len(places) == len(rows.requests):
            return
        if not places:
            self._rows = None
            return
        places = _filled_up(places)
        padding = rows.padding[places]
        start = int(padding.min())
        rows.cache = self.reader.runtime.select(rows.cache, places, start)
        rows.requests = [rows.requests[at] for at in places]
        rows.padding, rows.width = padding - start, rows.width - start

    def fail(self, error: Exception) -> None:
        """Give every running request this error."""
        rows, self._rows = self._rows, None
        for request in rows.requests if rows else ():
            request.fail(error)


def _filled_up(places: list[int]) -> list[int]:
    """These in another order: all that are among the first stay where they are, and the last fill the gaps.

    So the least has to be moved where a runtime can keep rows in place.
    """
    count = len(places)
    order = list(range(count))
    gaps = sorted(set(order).difference(places))
    for gap, place in zip(gaps, (place for place in places if place >= count), strict=True):
        order[gap] = place
    return order
