"""The process of ``remote.py``: runs a scheduler for the requests that come over a pipe."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

from arbitrag.errors import ArbitragError, BackendError
from arbitrag.llm.engine.remote_messages import (
    Cancel,
    Completed,
    LogRecord,
    RuntimeSpec,
    Submit,
    pickled,
    unpickled,
)
from arbitrag.llm.engine.requests import Generate, Request
from arbitrag.llm.engine.runtime import Runtime
from arbitrag.llm.engine.scheduler import Scheduler, SchedulerConfig
from arbitrag.llm.engine.stops import stop_rule
from arbitrag.llm.tokenizer import Codec

Message = Submit | Cancel | None  # None: the pipe has ended
Send = Callable[[object], None]


def main() -> None:
    """Serve requests from standard input. Whatever else writes to standard output writes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    status = 0
    try:
        serve(sys.stdin.buffer, results)
    except BrokenPipeError:  # the process that asks is gone
        pass
    except Exception:  # noqa: BLE001  (told to whoever reads standard error; the other end sees the status)
        traceback.print_exc()
        status = 1
    os._exit(status)  # without waiting for the thread that reads, or flushing what nobody reads


def serve(messages: BinaryIO, results: BinaryIO) -> None:
    """Open the runtime, send its ModelInfo or the error, and serve requests until ``messages`` ends."""
    sending = threading.Lock()  # log records may come from any thread

    def send(message: object) -> None:
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with sending:
            results.write(data)
            results.flush()

    spec: RuntimeSpec
    config: SchedulerConfig
    spec, config = pickle.load(messages)
    try:
        runtime = spec.runtime()
    except ArbitragError as error:
        send(pickled((None, error)))
        return
    send(pickled((runtime.info, None)))
    handler = _LogSender(send)
    logging.getLogger("arbitrag").addHandler(handler)
    loop = asyncio.new_event_loop()  # futures belong to one; it never runs
    try:
        _Server(runtime, config, spec.codec, loop, send).run(_received(messages))
    finally:
        loop.close()
        logging.getLogger("arbitrag").removeHandler(handler)


def _received(messages: BinaryIO) -> SimpleQueue[Message]:
    """A queue of messages, which a thread reads as they come, so that the sender need not wait for a step to end."""
    received: SimpleQueue[Message] = SimpleQueue()

    def listen() -> None:
        try:
            while True:
                received.put(pickle.load(messages))
        except (EOFError, pickle.UnpicklingError):  # the pipe ended, perhaps within a message
            pass
        finally:
            received.put(None)

    threading.Thread(target=listen, name="arbitrag-engine-messages", daemon=True).start()
    return received


class _Server:
    """Runs the scheduler's steps, and knows requests by their numbers."""

    def __init__(
        self,
        runtime: Runtime,
        config: SchedulerConfig,
        codec: Callable[[], Codec],
        loop: asyncio.AbstractEventLoop,
        send: Send,
    ) -> None:
        self._scheduler = Scheduler(runtime, config, self._on_completed)
        self._codec = cache(codec)  # few requests need it
        self._loop = loop
        self._send = send
        self._requests: dict[int, Request] = {}
        self._numbers: dict[Request, int] = {}

    def run(self, received: SimpleQueue[Message]) -> None:
        """Run steps until the pipe has ended."""
        while True:
            for message in _all_of(received, wait=self._scheduler.idle):
                if message is None:
                    return
                if isinstance(message, Cancel):
                    self._cancel(message.number)
                else:
                    self._add(message)
            self._scheduler.step()

    def _add(self, message: Submit) -> None:
        """Schedule these requests; those that cannot be made here fail."""
        made, failed = [], []
        for number, data in message.requests:
            try:
                request = self._request(*unpickled(data))
            except Exception as error:  # noqa: BLE001  (the request carries it)
                known = error if isinstance(error, ArbitragError) else BackendError(f"{type(error).__name__}: {error}")
                failed.append((number, pickled((None, known))))
                continue
            self._requests[number], self._numbers[request] = request, number
            made.append(request)
        self._scheduler.add(made)
        self._send_completed(failed)

    def _request(self, kind: type[Request], arguments: dict[str, Any]) -> Request:
        request = kind(**arguments, future=self._loop.create_future())
        if isinstance(request, Generate):
            stop = request.sampling.stop
            request.should_stop = stop_rule(self._codec().decode, stop) if stop else None
        return request

    def _cancel(self, number: int) -> None:
        if (request := self._requests.pop(number, None)) is not None:
            del self._numbers[request]
            request.future.cancel()

    def _on_completed(self, completed: Sequence[Request]) -> None:
        found = []
        for request in completed:
            if (number := self._numbers.pop(request, None)) is not None:  # else it was cancelled
                del self._requests[number]
                found.append((number, _outcome(request)))
        self._send_completed(found)

    def _send_completed(self, requests: Sequence[tuple[int, bytes]]) -> None:
        if requests:
            self._send(Completed(requests, self._scheduler.prefix_cache.bytes))


def _outcome(request: Request) -> bytes:
    """The pickled (result, error), or the error of pickling them."""
    try:
        return pickled((request.result, request.error))
    except BackendError as error:
        return pickled((None, error))


def _all_of(received: SimpleQueue[Message], *, wait: bool) -> Iterator[Message]:
    """The messages that are there; with ``wait`` at least one."""
    if wait:
        yield received.get()
    while True:
        try:
            yield received.get_nowait()
        except Empty:
            return


class _LogSender(logging.Handler):
    """Sends what is logged here to the process that asks."""

    def __init__(self, send: Send) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send(LogRecord(record.levelno, record.getMessage()))
