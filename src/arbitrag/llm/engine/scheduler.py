"""What the in-process engine does, turn after turn, wherever its turns are taken: in a thread, or in another process.

A turn reads the prompts of new requests, finishes those that only read, and adds a token to everything that writes.
Between turns requests come and go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arbitrag.llm.engine.decode import Writer
from arbitrag.llm.engine.prefill import Limits, Reader
from arbitrag.llm.engine.prefix_cache import PrefixStore
from arbitrag.llm.engine.requests import Distribute, Inspect, Request, Score, Write
from arbitrag.llm.engine.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Rules:
    """How requests are served: in passes up to ``limits``, with a prefix store of up to ``prefix_bytes``.

    ``alone`` serves them one at a time, in the order of their arrival.
    """

    limits: Limits
    prefix_bytes: int
    alone: bool


class Turns:
    """Serves requests for whoever calls, from one thread at a time.

    ``hand_over`` is told of requests that are over, several at once, as soon as they are.
    """

    def __init__(self, runtime: Runtime, rules: Rules, hand_over: Callable[[Sequence[Request]], None]) -> None:
        self.store = PrefixStore(
            rules.prefix_bytes,
            token_bytes=runtime.facts.token_bytes,
            logits_bytes=runtime.facts.logits_bytes,
            cut=runtime.cut,
        )
        self.reader = Reader(runtime, self.store, rules.limits)
        self._writer = Writer(self.reader)
        self._alone = rules.alone
        self._tell = hand_over
        self._waiting: deque[Request] = deque()
        self._taken: list[Request] = []  # whose results were not handed over yet

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._waiting and not len(self._writer)

    def take(self, requests: Sequence[Request]) -> None:
        """Serve these as well, from the next turn on."""
        self._waiting += requests
        self._taken += requests

    def turn(self) -> None:
        """Serve what there is for a moment. An error goes to whom it concerns."""
        requests = self._admitted()
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

    def give_up(self, error: Exception) -> None:
        """Fail everything that is waiting or running."""
        self._fail(self._waiting, error)
        self._waiting.clear()

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
        over = [request for request in self._taken if request.over]
        self._taken = [request for request in self._taken if request.open]
        if over:
            self._tell(over)
