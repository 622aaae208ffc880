"""The engine's worker in a process of its own, so that its passes and what asks for them do not wait for each other.

Within one process both need Python's lock: the engine between any two passes, and whoever prepares prompts and keeps
rows all the time. Here they share nothing but two pipes. Texts are tokens before they get here, so that little
travels; ``llm/engine/remote_worker.py`` is the other end.
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
from arbitrag.llm.engine.remote_messages import Ask, Elsewhere, Gone, Over, Said, packed, unpacked
from arbitrag.llm.engine.requests import Request
from arbitrag.llm.engine.runtime import Facts
from arbitrag.llm.engine.scheduler import Rules
from arbitrag.llm.engine.worker import CLOSED, WINDOW_S, hand_over

log = logging.getLogger("arbitrag.llm")

_PATIENCE_S = 5.0  # in which a process that said its last word ends
# It finds the package where this process does. Untrusted text never comes near these words.
_SCRIPT = "import sys; sys.path[:] = {path!r}; from arbitrag.llm.engine.remote_worker import main; main()"


class ProcessWorker:
    """Serves requests in another process, which ends with this one, with ``aclose``, or with this object."""

    def __init__(self, elsewhere: Elsewhere, rules: Rules, *, window_s: float = WINDOW_S) -> None:
        """Raises what opening the runtime raises, and BackendError when there is no process to be had."""
        opening = packed((elsewhere, rules))
        self._process, self._to, self._from = _started()
        self._owner = os.getpid()
        self._window_s = window_s
        self._lock = threading.Lock()  # guards what follows, and sending
        self._count = 0
        self._asked: dict[int, Request] = {}
        self._unsent: dict[int, tuple[Request, bytes]] = {}
        self._unsent_since = 0.0
        self._stored_bytes = 0
        self._end = ""  # why nothing can be asked any more
        self.facts = self._opened(opening)
        self._thread = threading.Thread(
            target=_listen, args=(weakref.ref(self), self._from), name="arbitrag-engine-results", daemon=True
        )
        weakref.finalize(self, _dropped, self._process, self._owner)
        self._thread.start()

    @property
    def stored_bytes(self) -> int:
        return self._stored_bytes

    def submit(self, requests: Sequence[Request]) -> None:
        """Those that come at about the same time are sent, and so read, together."""
        if os.getpid() != self._owner:
            raise BackendError("a model in a process of its own serves who opened it; after a fork, open it again")
        loop = asyncio.get_running_loop()
        ready = [(request, packed((type(request), request.wanted()))) for request in requests]
        with self._lock:
            if self._end:
                raise BackendError(self._end)
            if not self._unsent:
                self._unsent_since = time.monotonic()
            for request, wanted in ready:
                self._count += 1
                self._unsent[self._count] = request, wanted
                request.future.add_done_callback(partial(self._done, self._count))
            late = time.monotonic() - self._unsent_since > self._window_s
        if late:
            self._flush()
        else:  # two rounds: callers that were ready in this one get to submit in the next
            loop.call_soon(loop.call_soon, self._flush)

    async def aclose(self) -> None:
        with self._lock:
            self._end = self._end or CLOSED
        self._process.kill()
        await asyncio.to_thread(self._thread.join)

    def _opened(self, opening: bytes) -> Facts:
        try:
            with suppress(OSError):  # it is gone, which is found out now
                self._to.write(opening)
                self._to.flush()
            facts, error = unpacked(pickle.load(self._from))
        except (EOFError, pickle.UnpicklingError):
            error = BackendError(f"{self._ended()} before it was ready")
        except BaseException:
            _let_go(self._process)
            raise
        if error is not None:
            _let_go(self._process)
            raise error
        found: Facts = facts
        return found

    def _flush(self) -> None:
        with self._lock:
            unsent, self._unsent = self._unsent, {}
            if unsent:
                self._asked |= {number: request for number, (request, _) in unsent.items()}
                self._send(Ask([(number, wanted) for number, (_, wanted) in unsent.items()]))

    def _send(self, message: Ask | Gone) -> None:
        with suppress(OSError):  # the process is gone, which the thread that listens finds out as well
            self._to.write(packed(message))
            self._to.flush()

    def _done(self, number: int, future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            return
        with self._lock:
            self._unsent.pop(number, None)
            sent = self._asked.pop(number, None)
            if sent is not None:
                self._send(Gone(number))

    def take(self, message: Over | Said) -> None:
        """What the process told."""
        if isinstance(message, Said):
            log.log(message.level, "%s", message.text)
            return
        with self._lock:
            self._stored_bytes = message.stored_bytes
            found = [(self._asked.pop(number, None), told) for number, told in message.requests]
        ready = [(request, told) for request, told in found if request is not None]  # the callers of others are gone
        for request, told in ready:
            try:
                outcome, error = unpacked(told)
            except BackendError as unreadable:
                error = unreadable
            if error is None:
                request.finish(outcome)
            else:
                request.fail(error)
        hand_over([request for request, _ in ready])

    def fail(self) -> None:
        """Fail what was asked of the process, which is gone or going."""
        how = self._ended()
        with self._lock:
            _let_go(self._process)
            self._end = self._end or f"{how}; open the model again"
            left = [*self._asked.values(), *(request for request, _ in self._unsent.values())]
            self._asked, self._unsent, self._stored_bytes = {}, {}, 0
        for request in left:
            request.fail(BackendError(self._end))
        hand_over(left)

    def _ended(self) -> str:
        """Wait until the process has ended, and say how it did."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE_S)
        self._process.kill()
        status = self._process.wait()
        if status >= 0:
            return f"the model's process ended with status {status}"
        memory = " (perhaps for want of memory)" if -status == getattr(signal, "SIGKILL", 9) else ""
        return f"the model's process was ended by signal {-status}{memory}"


def _dropped(process: subprocess.Popen[bytes], owner: int) -> None:
    """Let go of a process, unless it is another's, who lives on after a fork."""
    if os.getpid() == owner:
        _let_go(process)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """End a process, if it has not, and close the pipes to it."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what could not be sent
                pipe.close()


def _started() -> tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]:
    """The process, and the pipes to it and from it."""
    command = [sys.executable or "python", "-c", _SCRIPT.format(path=[*map(str, sys.path)])]
    try:
        # In a session of its own, since Ctrl-C is for those who ask; at their end it ends as well.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise BackendError(f"no process could be started for the model: {error}") from None
    assert process.stdin is not None
    assert process.stdout is not None
    return process, process.stdin, process.stdout


def _listen(worker: weakref.ref[ProcessWorker], told: IO[bytes]) -> None:
    """Pass on what the process tells, for as long as there is somebody to tell."""
    try:
        while (message := _next(told)) is not None and (served := worker()) is not None:
            served.take(message)
            del served  # whoever drops the worker ends the process
    except BaseException:
        if (served := worker()) is not None:
            served._process.kill()
        raise
    finally:
        if (served := worker()) is not None:
            served.fail()


def _next(told: IO[bytes]) -> Over | Said | None:
    """A message; None where there is an end, perhaps in the middle of one, or where the pipe was closed here."""
    try:
        found: Over | Said = pickle.load(told)
    except (EOFError, pickle.UnpicklingError, ValueError):
        return None
    return found
