"""The engine's worker in a process of its own, so that scheduling and the preparation of prompts do not share the GIL.

The processes are connected by two pipes, over which token ids and results travel (``remote_messages.py``);
``remote_worker.py`` is the other end. It is a subprocess and not a process of ``multiprocessing``, whose ``spawn``
needs a main guard and does not start from standard input or in a daemonic process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Any

from arbitrag.errors import BackendError
from arbitrag.llm.engine.remote_messages import (
    Cancel,
    Completed,
    LogRecord,
    RuntimeSpec,
    Submit,
    pickled,
    unpickled,
)
from arbitrag.llm.engine.requests import Request
from arbitrag.llm.engine.runtime import ModelInfo
from arbitrag.llm.engine.scheduler import SchedulerConfig
from arbitrag.llm.engine.worker import BATCHING_WINDOW_S, CLOSED, deliver

log = logging.getLogger("arbitrag.llm")

_EXIT_TIMEOUT_S = 5.0  # for a process whose pipe has ended
# It imports the package from where this process does. No untrusted text gets into this script.
_SCRIPT = "import sys; sys.path[:] = {path!r}; from arbitrag.llm.engine.remote_worker import main; main()"


class ProcessWorker:
    """Runs the scheduler in another process, which ends with this one, with ``aclose``, or with this object."""

    def __init__(self, spec: RuntimeSpec, config: SchedulerConfig, *, window_s: float = BATCHING_WINDOW_S) -> None:
        """Raises what opening the runtime raises, and BackendError when no process can be started."""
        opening = pickled((spec, config))
        self._process, self._to, self._from = _start_process()
        self._owner = os.getpid()
        self._window_s = window_s
        self._lock = threading.Lock()  # guards what follows, and sending
        self._count = 0
        self._sent: dict[int, Request] = {}
        self._unsent: dict[int, tuple[Request, bytes]] = {}
        self._unsent_since = 0.0
        self._prefix_cache_bytes = 0
        self._closed = ""  # why no more requests can be submitted
        self.info = self._open(opening)
        self._thread = threading.Thread(
            target=_listen, args=(weakref.ref(self), self._from), name="arbitrag-engine-results", daemon=True
        )
        weakref.finalize(self, _collected, self._process, self._owner)
        self._thread.start()

    @property
    def prefix_cache_bytes(self) -> int:
        return self._prefix_cache_bytes

    def submit(self, requests: Sequence[Request]) -> None:
        """Requests within one batching window are sent, and so prefilled, together."""
        if os.getpid() != self._owner:
            raise BackendError("a model in a process of its own serves who opened it; after a fork, open it again")
        loop = asyncio.get_running_loop()
        ready = [(request, pickled((type(request), request.arguments()))) for request in requests]
        with self._lock:
            if self._closed:
                raise BackendError(self._closed)
            if not self._unsent:
                self._unsent_since = time.monotonic()
            for request, arguments in ready:
                self._count += 1
                self._unsent[self._count] = request, arguments
                request.future.add_done_callback(partial(self._done, self._count))
            late = time.monotonic() - self._unsent_since > self._window_s
        if late:
            self._flush()
        else:  # two rounds: callers that were ready in this one get to submit in the next
            loop.call_soon(loop.call_soon, self._flush)

    async def aclose(self) -> None:
        with self._lock:
            self._closed = self._closed or CLOSED
        self._process.kill()
        await asyncio.to_thread(self._thread.join)

    def _open(self, opening: bytes) -> ModelInfo:
        try:
            with suppress(OSError):  # the process is gone, as reading finds out
                self._to.write(opening)
                self._to.flush()
            info, error = unpickled(pickle.load(self._from))
        except (EOFError, pickle.UnpicklingError):
            error = BackendError(f"{self._exit_status()} before it was ready")
        except BaseException:
            _terminate(self._process)
            raise
        if error is not None:
            _terminate(self._process)
            raise error
        found: ModelInfo = info
        return found

    def _flush(self) -> None:
        with self._lock:
            unsent, self._unsent = self._unsent, {}
            if unsent:
                self._sent |= {number: request for number, (request, _) in unsent.items()}
                self._send(Submit([(number, arguments) for number, (_, arguments) in unsent.items()]))

    def _send(self, message: Submit | Cancel) -> None:
        with suppress(OSError):  # the process is gone, as the thread that listens finds out
            self._to.write(pickled(message))
            self._to.flush()

    def _done(self, number: int, future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            return
        with self._lock:
            self._unsent.pop(number, None)
            if self._sent.pop(number, None) is not None:
                self._send(Cancel(number))

    def handle(self, message: Completed | LogRecord) -> None:
        """Handle a message of the process."""
        if isinstance(message, LogRecord):
            log.log(message.level, "%s", message.text)
            return
        with self._lock:
            self._prefix_cache_bytes = message.prefix_cache_bytes
            found = [(self._sent.pop(number, None), data) for number, data in message.requests]
        completed = [(request, data) for request, data in found if request is not None]  # the others were cancelled
        for request, data in completed:
            try:
                result, error = unpickled(data)
            except BackendError as unreadable:
                error = unreadable
            if error is None:
                request.finish(result)
            else:
                request.fail(error)
        deliver([request for request, _ in completed])

    def fail(self) -> None:
        """Fail all requests of the process, which is gone or going."""
        status = self._exit_status()
        with self._lock:
            _terminate(self._process)
            self._closed = self._closed or f"{status}; open the model again"
            left = [*self._sent.values(), *(request for request, _ in self._unsent.values())]
            self._sent, self._unsent, self._prefix_cache_bytes = {}, {}, 0
        for request in left:
            request.fail(BackendError(self._closed))
        deliver(left)

    def _exit_status(self) -> str:
        """Wait until the process has ended; returns how it did, for an error."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_TIMEOUT_S)
        self._process.kill()
        status = self._process.wait()
        if status >= 0:
            return f"the model's process ended with status {status}"
        memory = " (perhaps for want of memory)" if -status == getattr(signal, "SIGKILL", 9) else ""
        return f"the model's process was ended by signal {-status}{memory}"


def _collected(process: subprocess.Popen[bytes], owner: int) -> None:
    """Terminate the process of a worker that was garbage-collected, unless this is a fork of its owner."""
    if os.getpid() == owner:
        _terminate(process)


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, if it has not ended, and close the pipes to it."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # data that could not be flushed
                pipe.close()


def _start_process() -> tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]:
    """The process, and the pipes to it and from it."""
    command = [sys.executable or "python", "-c", _SCRIPT.format(path=[*map(str, sys.path)])]
    try:
        # In a session of its own, so that Ctrl-C does not reach it; it ends with the pipe that it reads.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise BackendError(f"no process could be started for the model: {error}") from None
    assert process.stdin is not None
    assert process.stdout is not None
    return process, process.stdin, process.stdout


def _listen(worker: weakref.ref[ProcessWorker], results: IO[bytes]) -> None:
    """Handle the process's messages until its pipe ends, or the worker was garbage-collected."""
    try:
        while (message := _next(results)) is not None and (alive := worker()) is not None:
            alive.handle(message)
            del alive  # so that it can be garbage-collected, which ends the process
    except BaseException:
        if (alive := worker()) is not None:
            alive._process.kill()
        raise
    finally:
        if (alive := worker()) is not None:
            alive.fail()


def _next(results: IO[bytes]) -> Completed | LogRecord | None:
    """The next message; None where the pipe ended, perhaps within a message, or was closed here."""
    try:
        found: Completed | LogRecord = pickle.load(results)
    except (EOFError, pickle.UnpicklingError, ValueError):
        return None
    return found
