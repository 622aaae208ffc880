"""The end of an engine's process that serves, behind two pipes of this process."""

from __future__ import annotations

import logging
import os
import pickle
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from process_parts import WAIT_S, Lab, codec

from arbitrag.errors import BackendError
from arbitrag.llm.base import Sampling
from arbitrag.llm.engine.batch import BatchLimits
from arbitrag.llm.engine.remote_messages import Cancel, Completed, LogRecord, RuntimeSpec, Submit, pickled, unpickled
from arbitrag.llm.engine.remote_worker import serve
from arbitrag.llm.engine.requests import Generate, Inspect, NextToken, Score
from arbitrag.llm.engine.runtime import ForwardOutput, OutOfMemory, Runtime
from arbitrag.llm.engine.scheduler import SchedulerConfig


@dataclass
class Line:
    """The two pipes to an engine that is served by a thread of this process."""

    to: BinaryIO
    back: BinaryIO

    def ask(self, *messages: object) -> None:
        for message in messages:
            pickle.dump(message, self.to)
        self.to.flush()

    def told(self) -> Any:
        return pickle.load(self.back)


@contextmanager
def served(runtime: Runtime, config: SchedulerConfig = SchedulerConfig(BatchLimits(), 0, False)) -> Iterator[Line]:
    """An engine behind pipes, whose facts were told."""
    (asked, to), (back, results) = [_pipe(), _pipe()]
    line = Line(to, back)

    def work() -> None:
        with results:
            serve(asked, results)

    line.ask((RuntimeSpec(_Given(runtime), codec), config))
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        assert unpickled(line.told()) == (runtime.info, None)
        yield line
    finally:
        to.close()
        thread.join(WAIT_S)
        back.close()
        asked.close()
    assert not thread.is_alive()


def _pipe() -> tuple[BinaryIO, BinaryIO]:
    out, into = os.pipe()
    return os.fdopen(out, "rb"), os.fdopen(into, "wb")


_HERE: list[Runtime] = []


class _Given:
    """Opens a runtime that is in this process already."""

    def __init__(self, runtime: Runtime) -> None:
        _HERE[:] = [runtime]

    def __call__(self) -> Runtime:
        return _HERE[0]


def generate(ids: Sequence[int], max_new_tokens: int) -> bytes:
    arguments = {"sampling": Sampling(max_tokens=max_new_tokens), "eos_ids": frozenset(), "rng": None}
    arguments |= {"ids": list(ids), "max_new_tokens": max_new_tokens, "prompt_length": len(ids)}
    return pickled((Generate, arguments))


def outcomes(line: Line, count: int) -> dict[int, Any]:
    """By their numbers, what came back of so many requests: the outcome, or the error."""
    over: dict[int, Any] = {}
    while len(over) < count:
        told = line.told()
        assert isinstance(told, Completed)
        for number, each in told.requests:
            outcome, error = unpickled(each)
            over[number] = error or outcome
    return over


def test_requests_keep_their_numbers() -> None:
    score = pickled((Score, {"ids": [9, 10], "continuations": [[11], [12, 13]]}))
    with served(Lab()) as line:
        line.ask(Submit([(7, generate([9, 10], 3)), (4, score)]))
        over = outcomes(line, 2)
    written, logprobs, finish, tokens = over[7]
    assert (len(written), len(logprobs), finish, tokens.completion_tokens) == (3, 3, "length", 3)
    assert [len(each) for each in over[4][0]] == [1, 2]


class Gated(Lab):
    """Waits before every pass until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> ForwardOutput:
        self.entered.release()
        assert self.gate.acquire(timeout=WAIT_S)
        return super().forward(ids, *given, **options)

    def step(self, passes: int = 1) -> None:
        """Let passes through, and wait for the next to begin."""
        for _ in range(passes):
            self.gate.release()
            assert self.entered.acquire(timeout=WAIT_S)


def test_a_cancelled_request_leaves_the_batch_and_sends_nothing() -> None:
    runtime = Gated()
    with served(runtime) as line:
        line.ask(Submit([(1, generate([9, 10], 50)), (2, generate([11, 12], 20))]))
        assert runtime.entered.acquire(timeout=WAIT_S)
        runtime.step(5)
        line.ask(Cancel(1), Cancel(1), Cancel(99))
        time.sleep(0.2)  # until the message has been read, and is taken after the next turn
        before = len(runtime.rows)
        runtime.gate.release(500)
        assert list(outcomes(line, 1)) == [2]
        line.ask(Submit([(3, generate([13], 1))]))
        assert list(outcomes(line, 1)) == [3]
    assert runtime.rows[before - 1] == 2
    assert set(runtime.rows[before + 2 :]) == {1}


def test_an_error_comes_back_with_its_request() -> None:
    class Broken(Lab):
        def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> ForwardOutput:
            if 63 in ids:
                raise RuntimeError("a kernel failed")
            return super().forward(ids, *given, **options)

    inspect = pickled((Inspect, {"ids": [9], "layers": (1,)}))
    with served(Broken()) as line:
        line.ask(Submit([(1, generate([9, 63], 2)), (2, generate([9, 10], 2)), (3, inspect)]))
        over = outcomes(line, 3)
    assert isinstance(over[1], BackendError)
    assert str(over[1]) == "the model failed on this request: RuntimeError: a kernel failed"
    assert len(over[2][0]) == 2
    assert over[3][0].keys() == {1}


def test_a_request_that_cannot_be_unpickled_fails_alone() -> None:
    unreadable = b"\x80\x05cno_such_module\nname\n."
    with served(Lab()) as line:
        line.ask(Submit([(1, unreadable), (2, generate([9, 10], 2)), (3, pickled((Generate, {"strange": 1})))]))
        over = outcomes(line, 3)
    assert re.fullmatch(r"this cannot be unpickled in another process: ModuleNotFoundError: .*", str(over[1]))
    assert len(over[2][0]) == 2
    assert isinstance(over[3], BackendError)
    assert "strange" in str(over[3])


def test_a_result_that_cannot_be_pickled_is_an_error() -> None:
    class Odd(Lab):
        def distribution(self, logits: np.ndarray) -> Any:
            class Local(np.ndarray):
                pass

            found: np.ndarray = self.inner.distribution(logits)
            return found.view(Local)

    with served(Odd()) as line:
        line.ask(Submit([(1, pickled((NextToken, {"ids": [9]}))), (2, generate([9, 10], 2))]))
        over = outcomes(line, 2)
    assert str(over[1]).startswith("this cannot be sent from one process to another: ")
    assert len(over[2][0]) == 2


def test_log_records_are_sent() -> None:
    class Cramped(Lab):
        def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> ForwardOutput:
            if len(ids) > 1:
                raise OutOfMemory
            return super().forward(ids, *given, **options)

    with served(Cramped()) as line:
        line.ask(Submit([(number, generate([9 + number, 8], 1)) for number in range(4)]))
        told = [line.told() for _ in range(2)]
    said = next(each for each in told if isinstance(each, LogRecord))
    assert (said.level, said.text.partition(":")[0]) == (logging.WARNING, "out of memory")
