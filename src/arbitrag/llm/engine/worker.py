"""The engine's worker in this process: one thread that runs the scheduler.

When nothing runs, the first request opens a batching window, in which others can arrive and be prefilled with it. It
ends when the event loop has nothing left to run, since then every caller waits, or after ``window_s`` at most.
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
from arbitrag.llm.engine.runtime import ModelInfo, Runtime
from arbitrag.llm.engine.scheduler import Scheduler, SchedulerConfig

BATCHING_WINDOW_S = 0.005
CLOSED = "the model was closed"


class Worker(Protocol):
    """Serves an engine's requests, in this process or in another."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def prefix_cache_bytes(self) -> int:
        """Bytes in the prefix cache; never more than its capacity."""
        ...

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests, whose futures get the results. Called from their event loop.

        Raises BackendError when the model was closed, or the worker has ended.
        """
        ...

    async def aclose(self) -> None:
        """Fail what is waiting or running, end the worker, and drop the prefix cache."""
        ...


class ThreadWorker:
    """Runs the scheduler in one thread of this process."""

    def __init__(self, runtime: Runtime, config: SchedulerConfig, *, window_s: float = BATCHING_WINDOW_S) -> None:
        self.info = runtime.info
        self.scheduler = Scheduler(runtime, config, deliver)
        self._window_s = window_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="arbitrag-engine")
        self._lock = threading.Lock()  # guards the four below, which the event loop's thread shares
        self._arrived: list[Request] = []
        self._count = 0
        self._busy = False
        self._closed = False
        self._window_over = threading.Event()

    @property
    def prefix_cache_bytes(self) -> int:
        return self.scheduler.prefix_cache.bytes

    def submit(self, requests: Sequence[Request]) -> None:
        with self._lock:
            if self._closed:
                raise BackendError(CLOSED)
            self._arrived += requests
            self._count += 1
            count, idle, self._busy = self._count, not self._busy, True
            self._window_over.clear()
        loop = asyncio.get_running_loop()
        # Two rounds: callers that were ready in this one get to submit in the next.
        loop.call_soon(loop.call_soon, self._end_window, count)
        if idle:
            self._thread.submit(self._work)

    def _end_window(self, count: int) -> None:
        if count == self._count:
            self._window_over.set()

    async def aclose(self) -> None:
        with self._lock:
            self._closed = True
        self._window_over.set()
        await asyncio.to_thread(self._thread.shutdown)
        self.scheduler.prefix_cache.clear()

    def _work(self) -> None:
        while True:
            if self.scheduler.idle:
                with self._lock:
                    if not self._arrived:
                        self._busy = False
                        return
                self._window_over.wait(self._window_s)
            with self._lock:
                arrived, self._arrived = self._arrived, []
                closed = self._closed
            self.scheduler.add(arrived)
            if closed:
                self.scheduler.fail_all(BackendError(CLOSED))
            else:
                self.scheduler.step()


def deliver(completed: Sequence[Request]) -> None:
    """Deliver results to the event loops that wait for them, all at once, since it takes long to wake one up."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Request]] = {}
    for request in completed:
        by_loop.setdefault(request.future.get_loop(), []).append(request)
    for loop, requests in by_loop.items():
        with suppress(RuntimeError):  # a loop that was closed waits for nothing
            loop.call_soon_threadsafe(_deliver_all, requests)


def _deliver_all(requests: Sequence[Request]) -> None:
    for request in requests:
        request.deliver()
