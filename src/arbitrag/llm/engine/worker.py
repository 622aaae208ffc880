"""The engine's worker in this process: it takes requests as they arrive and keeps one thread busy with their turns.

When nothing runs, the first request waits a moment for company: until the event loop has nothing left to run, which is
when every caller waits, or for the window at most.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

from arbitrag.errors import BackendError
from arbitrag.llm.engine.requests import Request
from arbitrag.llm.engine.runtime import Facts, Runtime
from arbitrag.llm.engine.scheduler import Rules, Turns

WINDOW_S = 0.005
CLOSED = "the model was closed"


class Work(Protocol):
    """Whoever serves an engine's requests."""

    @property
    def facts(self) -> Facts: ...

    @property
    def stored_bytes(self) -> int:
        """Bytes in the prefix store; never more than its bound."""
        ...

    def submit(self, requests: Sequence[Request]) -> None:
        """Take requests; their futures get the results. Called from their event loop.

        Raises BackendError when the model was closed, or what serves has ended.
        """
        ...

    async def aclose(self) -> None:
        """Fail what is waiting or running, end what serves, and drop what is stored."""
        ...


class Worker:
    """Serves requests in one thread of this process."""

    def __init__(self, runtime: Runtime, rules: Rules, *, window_s: float = WINDOW_S) -> None:
        self.facts = runtime.facts
        self.turns = Turns(runtime, rules, hand_over)
        self._window_s = window_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="arbitrag-engine")
        self._lock = threading.Lock()  # guards the four below, which the event loop's thread shares
        self._arrived: list[Request] = []
        self._count = 0
        self._busy = False
        self._closed = False
        self._company = threading.Event()

    @property
    def stored_bytes(self) -> int:
        return self.turns.store.bytes

    def submit(self, requests: Sequence[Request]) -> None:
        with self._lock:
            if self._closed:
                raise BackendError(CLOSED)
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
        with self._lock:
            self._closed = True
        self._company.set()
        await asyncio.to_thread(self._thread.shutdown)
        self.turns.store.clear()

    def _work(self) -> None:
        while True:
            if self.turns.idle:
                with self._lock:
                    if not self._arrived:
                        self._busy = False
                        return
                self._company.wait(self._window_s)
            with self._lock:
                arrived, self._arrived = self._arrived, []
                closed = self._closed
            self.turns.take(arrived)
            if closed:
                self.turns.give_up(BackendError(CLOSED))
            else:
                self.turns.turn()


def hand_over(over: Sequence[Request]) -> None:
    """Give results to the event loops that wait for them, all at once, since it takes long to wake one up."""
    ready: dict[asyncio.AbstractEventLoop, list[Request]] = {}
    for request in over:
        ready.setdefault(request.future.get_loop(), []).append(request)
    for loop, requests in ready.items():
        with suppress(RuntimeError):  # a loop that was closed waits for nothing
            loop.call_soon_threadsafe(_give, requests)


def _give(requests: Sequence[Request]) -> None:
    for request in requests:
        request.hand_over()
