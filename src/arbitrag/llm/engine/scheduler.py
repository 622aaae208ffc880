"""The scheduler: ``step()`` runs one prefill or decode step for the requests that are ready.

A step prefills the prompts of new requests, finishes those that generate nothing, and runs one decode step for the
others. Requests come and go between steps. The caller runs the steps, in a thread (``engine/worker.py``) or in another
process (``engine/remote_worker.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arbitrag.llm.engine.batch import BatchLimits, BatchRunner
from arbitrag.llm.engine.decode import DecodeBatch
from arbitrag.llm.engine.prefill import Prefiller
from arbitrag.llm.engine.prefix_cache import PrefixCache
from arbitrag.llm.engine.requests import Generate, Inspect, NextToken, Request, Score
from arbitrag.llm.engine.runtime import Runtime
from arbitrag.llm.engine.scoring import Scorer


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Batch limits, the capacity of the prefix cache in bytes, and whether requests run one at a time.

    ``one_at_a_time`` serves requests in the order of their arrival.
    """

    limits: BatchLimits
    prefix_bytes: int
    one_at_a_time: bool


class Scheduler:
    """Batches requests into prefills and decode steps; for one thread at a time.

    ``on_completed`` is called with requests that are done, several at once, as soon as they are.
    """

    def __init__(
        self, runtime: Runtime, config: SchedulerConfig, on_completed: Callable[[Sequence[Request]], None]
    ) -> None:
        self.prefix_cache = PrefixCache(
            config.prefix_bytes,
            token_bytes=runtime.info.token_bytes,
            logits_bytes=runtime.info.logits_bytes,
            cut=runtime.cut,
        )
        self._runner = BatchRunner(runtime, self.prefix_cache, config.limits)
        self._prefiller, self._scorer = Prefiller(self._runner), Scorer(self._runner)
        self._decode_batch = DecodeBatch(self._runner)
        self._one_at_a_time = config.one_at_a_time
        self._on_completed = on_completed
        self._waiting: deque[Request] = deque()
        self._undelivered: list[Request] = []  # everything that was added and not yet reported as completed

    @property
    def idle(self) -> bool:
        """Whether no request is waiting or running."""
        return not self._waiting and not len(self._decode_batch)

    def add(self, requests: Sequence[Request]) -> None:
        """Queue requests; the next step may admit them."""
        self._waiting += requests
        self._undelivered += requests

    def step(self) -> None:
        """Run one prefill or decode step for the requests that are ready. An error fails the requests it concerns."""
        requests = self._admit()
        try:
            self._prefiller.prefill(requests)
            ready = [request for request in requests if request.pending]
            for request in ready:
                if isinstance(request, Inspect):
                    request.finish((request.hidden_states, request.tokens()))
                elif isinstance(request, NextToken):
                    self._prefiller.next_token(request)
            self._scorer.score([request for request in ready if isinstance(request, Score)])
            self._report_completed()
            retried = self._decode_batch.add([request for request in ready if isinstance(request, Generate)])
            self._report_completed()
            retried += self._decode_batch.step()
            self._report_completed()
            self._waiting.extendleft(reversed(retried))
        except Exception as error:  # noqa: BLE001  (no caller may wait for ever)
            self._fail(requests, error)

    def fail_all(self, error: Exception) -> None:
        """Fail everything that is waiting or running."""
        self._fail(self._waiting, error)
        self._waiting.clear()

    def _admit(self) -> list[Request]:
        """Dequeue the requests that may start: all that only prefill, and as many generations as there is room for.

        Generations start in the order of their arrival.
        """
        if self._one_at_a_time:
            return [self._waiting.popleft()] if self._waiting and not len(self._decode_batch) else []
        limits = self._runner.limits
        admitted: list[Request] = []
        kept: deque[Request] = deque()
        rows, width = len(self._decode_batch), self._decode_batch.width
        for request in self._waiting:
            if isinstance(request, Generate):
                wider = max(width, request.prompt_length + request.max_new_tokens)
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
        self._decode_batch.fail(error)
        self._report_completed()

    def _report_completed(self) -> None:
        completed = [request for request in self._undelivered if request.done]
        self._undelivered = [request for request in self._undelivered if request.pending]
        if completed:
            self._on_completed(completed)
