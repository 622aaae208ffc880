"""The engine's worker in a process of its own, so that its passes and what asks for them do not wait for each other.

Within one process both need Python's lock: the engine between any two passes, and whoever prepares prompts and keeps
rows all the time. Here they share nothing but two pipes. Texts are tokens before they get here, so that little
travels; ``llm/process_serve.py`` is the other end.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from arbitrag.errors import ArbitragError, BackendError
from arbitrag.llm.requests import Request
from arbitrag.llm.runtime import Facts, Runtime
from arbitrag.llm.turns import Rules
from arbitrag.llm.worker import CLOSED, WINDOW_S, hand_over

if TYPE_CHECKING:
    from arbitrag.llm.engine import Codec

log = logging.getLogger("arbitrag.llm")

# It finds the package where this process does. Untrusted text never comes near these words.
_SCRIPT = "import sys; sys.path[:] = {path!r}; from arbitrag.llm.process_serve import main; main()"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A runtime that is opened in another process; both functions can be pickled."""

    runtime: Callable[[], Runtime]
    codec: Callable[[], Codec]


@dataclass(frozen=True, slots=True)
class Ask:
    """To the engine: serve these, each with its number, its kind and what is wanted."""

    requests: Sequence[tuple[int, type[Request], dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Gone:
    """To the engine: nobody waits for this one any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Over:
    """From the engine: requests by their numbers, with outcome or error, and the bytes in the prefix store."""

    requests: Sequence[tuple[int, Any, Exception | None]]
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class Said:
    """From the engine: a line for the log."""

    level: int
    text: str


class ProcessWorker:
    """Serves requests in another process, which ends with this one or with ``aclose``."""

    def __init__(self, elsewhere: Elsewhere, rules: Rules, *, window_s: float = WINDOW_S) -> None:
        """Raises what opening the runtime raises, and BackendError when there is no process to be had."""
        command = [sys.executable, "-c", _SCRIPT.format(path=sys.path)]
        try:
            # In a session of its own, since Ctrl-C is for those who ask; at their end it ends as well.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise BackendError(f"no process could be started for the model: {error}") from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._window_s = window_s
        self._lock = threading.Lock()  # guards what follows, and sending
        self._count = 0
        self._asked: dict[int, Request] = {}
        self._unsent: dict[int, Request] = {}
        self._unsent_since = 0.0
        self._stored_bytes = 0
        self._end = ""  # why nothing can be asked any more
        self.facts = self._opened(elsewhere, rules)
        self._thread = threading.Thread(target=self._listen, name="arbitrag-engine-results", daemon=True)
        self._thread.start()

    @property
    def stored_bytes(self) -> int:
        return self._stored_bytes

    def submit(self, requests: Sequence[Request]) -> None:
        """Those that come at about the same time are sent, and so read, together."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._end:
                raise BackendError(self._end)
            if not self._unsent:
                self._unsent_since = time.monotonic()
            for request in requests:
                self._count += 1
                self._unsent[self._count] = request
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
        self._stored_bytes = 0

    def _opened(self, elsewhere: Elsewhere, rules: Rules) -> Facts:
        try:
            self._send((elsewhere, rules))
            found: Facts | ArbitragError = pickle.load(self._from)
        except EOFError:
            found = BackendError(f"{self._let_go()} before it was ready")
        except BaseException:
            self._process.kill()
            self._let_go()
            raise
        if isinstance(found, Facts):
            return found
        self._let_go()
        raise found

    def _let_go(self) -> str:
        """Let the process end, and say how it did."""
        for pipe in (self._to, self._from):
            with suppress(OSError):  # what could not be sent
                pipe.close()
        status = self._process.wait()
        if status >= 0:
            return f"the model's process ended with status {status}"
        return f"the model's process was ended by signal {-status} (perhaps for want of memory)"

    def _flush(self) -> None:
        with self._lock:
            unsent, self._unsent = self._unsent, {}
            if not unsent:
                return
            self._asked |= unsent
            self._send(Ask([(number, type(request), request.wanted()) for number, request in unsent.items()]))

    def _send(self, message: object) -> None:
        with suppress(OSError):  # the process is gone, which the thread that listens finds out as well
            pickle.dump(message, self._to, pickle.HIGHEST_PROTOCOL)
            self._to.flush()

    def _done(self, number: int, future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            return
        with self._lock:
            if self._unsent.pop(number, None) is None and self._asked.pop(number, None) is not None:
                self._send(Gone(number))

    def _listen(self) -> None:
        try:
            while True:
                message = pickle.load(self._from)
                if isinstance(message, Said):
                    log.log(message.level, "%s", message.text)
                else:
                    self._take(message)
        except (EOFError, pickle.UnpicklingError):  # it ended, perhaps in the middle of a message
            pass
        finally:
            self._fail()

    def _fail(self) -> None:
        """Fail what was asked of a process that is gone."""
        with self._lock:
            how = self._let_go()
            self._end = self._end or how
            left = [*self._asked.values(), *self._unsent.values()]
            self._asked, self._unsent = {}, {}
        for request in left:
            request.fail(BackendError(self._end))
        hand_over(left)

    def _take(self, over: Over) -> None:
        with self._lock:
            self._stored_bytes = over.stored_bytes
            found = [(self._asked.pop(number, None), outcome, error) for number, outcome, error in over.requests]
        ready = []
        for request, outcome, error in found:
            if request is None:  # its caller is gone
                continue
            if error is None:
                request.finish(outcome)
            else:
                request.fail(error)
            ready.append(request)
        hand_over(ready)
