"""The other end of ``llm/engine/remote.py``: an engine's turns in a process that does nothing else."""

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
from arbitrag.llm.engine.remote_messages import Ask, Elsewhere, Gone, Over, Said, packed, unpacked
from arbitrag.llm.engine.requests import Request, Write
from arbitrag.llm.engine.runtime import Runtime
from arbitrag.llm.engine.scheduler import Rules, Turns
from arbitrag.llm.engine.stops import stop_rule
from arbitrag.llm.tokenizer import Codec

Message = Ask | Gone | None  # None: nobody is there any more
Tell = Callable[[object], None]


def main() -> None:
    """Serve what comes on standard input. Whatever else writes to standard output writes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    status = 0
    try:
        serve(sys.stdin.buffer, results)
    except BrokenPipeError:  # nobody is there any more
        pass
    except Exception:  # noqa: BLE001  (told to whoever reads standard error; the other end sees the status)
        traceback.print_exc()
        status = 1
    os._exit(status)  # without waiting for the thread that listens, or for what could not be told


def serve(asked: BinaryIO, results: BinaryIO) -> None:
    """Open the runtime, tell its facts or the error, and serve requests until ``asked`` ends."""
    telling = threading.Lock()  # what is logged may come from any thread

    def tell(message: object) -> None:
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with telling:
            results.write(data)
            results.flush()

    elsewhere: Elsewhere
    rules: Rules
    elsewhere, rules = pickle.load(asked)
    try:
        runtime = elsewhere.runtime()
    except ArbitragError as error:
        tell(packed((None, error)))
        return
    tell(packed((runtime.facts, None)))
    relay = _Relay(tell)
    logging.getLogger("arbitrag").addHandler(relay)
    loop = asyncio.new_event_loop()  # futures belong to one; it never runs
    try:
        _Server(runtime, rules, elsewhere.codec, loop, tell).run(_arriving(asked))
    finally:
        loop.close()
        logging.getLogger("arbitrag").removeHandler(relay)


def _arriving(asked: BinaryIO) -> SimpleQueue[Message]:
    """What is asked, read by a thread as it comes, so that whoever asks does not wait until a pass is over."""
    arrived: SimpleQueue[Message] = SimpleQueue()

    def listen() -> None:
        try:
            while True:
                arrived.put(pickle.load(asked))
        except (EOFError, pickle.UnpicklingError):  # the other end is gone, perhaps in the middle of a message
            pass
        finally:
            arrived.put(None)

    threading.Thread(target=listen, name="arbitrag-engine-asked", daemon=True).start()
    return arrived


class _Server:
    """Requests by their numbers, on their way through the turns."""

    def __init__(
        self,
        runtime: Runtime,
        rules: Rules,
        codec: Callable[[], Codec],
        loop: asyncio.AbstractEventLoop,
        tell: Tell,
    ) -> None:
        self._turns = Turns(runtime, rules, self._hand_over)
        self._codec = cache(codec)  # few requests need it
        self._loop = loop
        self._tell = tell
        self._requests: dict[int, Request] = {}
        self._numbers: dict[Request, int] = {}

    def run(self, arrived: SimpleQueue[Message]) -> None:
        """Take turns until nobody is there."""
        while True:
            for message in _all_of(arrived, wait=self._turns.idle):
                if message is None:
                    return
                if isinstance(message, Gone):
                    self._cancel(message.number)
                else:
                    self._take(message)
            self._turns.turn()

    def _take(self, asked: Ask) -> None:
        """Serve what can be made of these; the others are over."""
        made, failed = [], []
        for number, wanted in asked.requests:
            try:
                request = self._request(*unpacked(wanted))
            except Exception as error:  # noqa: BLE001  (the request carries it)
                known = error if isinstance(error, ArbitragError) else BackendError(f"{type(error).__name__}: {error}")
                failed.append((number, packed((None, known))))
                continue
            self._requests[number], self._numbers[request] = request, number
            made.append(request)
        self._turns.take(made)
        self._over(failed)

    def _request(self, kind: type[Request], wanted: dict[str, Any]) -> Request:
        request = kind(**wanted, future=self._loop.create_future())
        if isinstance(request, Write):
            stop = request.sampling.stop
            request.stops = stop_rule(self._codec().decode, stop) if stop else None
        return request

    def _cancel(self, number: int) -> None:
        if (request := self._requests.pop(number, None)) is not None:
            del self._numbers[request]
            request.future.cancel()

    def _hand_over(self, over: Sequence[Request]) -> None:
        told = []
        for request in over:
            if (number := self._numbers.pop(request, None)) is not None:  # else nobody waits for it
                del self._requests[number]
                told.append((number, _told(request)))
        self._over(told)

    def _over(self, told: Sequence[tuple[int, bytes]]) -> None:
        if told:
            self._tell(Over(told, self._turns.store.bytes))


def _told(request: Request) -> bytes:
    """The outcome and the error, or the error of telling them."""
    try:
        return packed((request.outcome, request.error))
    except BackendError as error:
        return packed((None, error))


def _all_of(arrived: SimpleQueue[Message], *, wait: bool) -> Iterator[Message]:
    """What has arrived; with ``wait`` at least one."""
    if wait:
        yield arrived.get()
    while True:
        try:
            yield arrived.get_nowait()
        except Empty:
            return


class _Relay(logging.Handler):
    """Tells what is logged here to the process that asks."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(Said(record.levelno, record.getMessage()))
