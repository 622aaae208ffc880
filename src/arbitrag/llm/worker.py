"""The engine's worker: it takes requests as they arrive, joins those that arrive together, and keeps one thread busy.

A turn reads the prompts of new requests, finishes those that only read, and adds a token to everything that writes.
Between turns requests come and go. When nothing runs, the first request waits a moment for company: until the event
loop has nothing left to run, which is when every caller waits, or for the window at most.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from arbitrag.errors import BackendError
from arbitrag.llm.batching import Limits, Reader
from arbitrag.llm.prefix import PrefixStore
from arbitrag.llm.requests import Distribute, Inspect, Request, Score, Write
from arbitrag.llm.runtime import Runtime
from arbitrag.llm.writing import Writer

WINDOW_S = 0.005
_CLOSED = "the model was closed"


class Worker:
    """Serves requests in one thread; ``alone`` serves them one at a time, in the order of their arrival."""

    def __init__(
        self, runtime: Runtime, store: PrefixStore, limits: Limits, *, alone: bool, window_s: float = WINDOW_S
    ) -> None:
        self.reader = Reader(runtime, store, limits)
        self._writer = Writer(self.reader)
        self._alone = alone
        self._window_s = window_s
        self._waiting: deque[Request] = deque()
        self._taken: list[Request] = []  # whose results were not handed over yet
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="arbitrag-engine")
        self._lock = threading.Lock()  # guards the four below, which the event loop's thread shares
        self._arrived: list[Request] = []
        self._count = 0
        self._busy = False
        self._closed = False
        self._company = threading.Event()

    def submit(self, requests: Sequence[Request]) -> None:
        """Take requests; their futures get the results. Called from their event loop."""
        with self._lock:
            if self._closed:
                raise BackendError(_CLOSED)
            self._arrived += requests
            self._count += 1
            count, idle, self._busy = self._count, not self._busy, True
            self._company.clear()
        loop = asyncio.get_running_loop()
        # Two rounds: callers that were ready in this one get to submit in the next.
        loop.call_soon(loop.call_soon, self._settle, count)
        if idle:
            self._thread.submit(self._work)

    def _settle(self, count: int) -> None:
        if count == self._count:
            self._company.set()

    async def aclose(self) -> None:
        """Fail what is waiting or running, and end the thread."""
        with self._lock:
            self._closed = True
        self._company.set()
        await asyncio.to_thread(self._thread.shutdown)

    def _work(self) -> None:
        while True:
            if not self._waiting and not len(self._writer):
                with self._lock:
                    if not self._arrived:
                        self._busy = False
                        return
                self._company.wait(self._window_s)
            with self._lock:
                self._waiting += self._arrived
                self._taken += self._arrived
                self._arrived = []
                closed = self._closed
            if closed:
                self._fail(self._waiting, BackendError(_CLOSED))
                self._waiting.clear()
            else:
                self._turn(self._admitted())

    def _turn(self, requests: list[Request]) -> None:
        try:
            self.reader.read(requests)
            ready = [request for request in requests if request.open]
            for request in ready:
                if isinstance(request, Inspect):
                    request.finish((request.states, request.tokens()))
                elif isinstance(request, Distribute):
                    self.reader.distribute(request)
            self.reader.score([request for request in ready if isinstance(request, Score)])
            self._hand_over()
            again = self._writer.start([request for request in ready if isinstance(request, Write)])
            self._hand_over()
            again += self._writer.step()
            self._hand_over()
            self._waiting.extendleft(reversed(again))
        except Exception as error:  # noqa: BLE001  (no caller may wait for ever)
            self._fail(requests, error)

    def _admitted(self) -> list[Request]:
        """The waiting requests that may go on now: all that only read, and as many that write as there is room for.

        Those that write go in the order of their arrival.
        """
        if self._alone:
            return [self._waiting.popleft()] if self._waiting and not len(self._writer) else []
        limits = self.reader.limits
        admitted: list[Request] = []
        kept: deque[Request] = deque()
        rows, width = len(self._writer), self._writer.width
        for request in self._waiting:
            if isinstance(request, Write):
                wider = max(width, request.prompt + request.limit)
                full = rows + 1 > limits.rows or (rows + 1) * wider > limits.slots
                if kept or (rows and full):  # a single one may exceed the limits
                    kept.append(request)
                    continue
                rows, width = rows + 1, wider
            admitted.append(request)
        self._waiting = kept
        return admitted

    def _fail(self, requests: Sequence[Request] | deque[Request], error: Exception) -> None:
        for request in requests:
            request.fail(error)
        self._writer.fail(error)
        self._hand_over()

    def _hand_over(self) -> None:
        """Give what is over to the event loops that wait for it, all at once, since it takes long to wake one up."""
        ready: dict[asyncio.AbstractEventLoop, list[Request]] = {}
        for request in self._taken:
            if request.over:
                ready.setdefault(request.future.get_loop(), []).append(request)
        self._taken = [request for request in self._taken if request.open]
        for loop, requests in ready.items():
            with suppress(RuntimeError):  # a loop that was closed waits for nothing
                loop.call_soon_threadsafe(_hand_over, requests)


def _hand_over(requests: Sequence[Request]) -> None:
    for request in requests:
        request.hand_over()
