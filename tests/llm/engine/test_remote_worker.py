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
from arbitrag.llm.engine.prefill import Limits
from arbitrag.llm.engine.remote_messages import Ask, Elsewhere, Gone, Over, Said, packed, unpacked
from arbitrag.llm.engine.remote_worker import serve
from arbitrag.llm.engine.requests import Distribute, Inspect, Score, Write
from arbitrag.llm.engine.runtime import OutOfMemory, Runtime, Step
from arbitrag.llm.engine.scheduler import Rules


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
def served(runtime: Runtime, rules: Rules = Rules(Limits(), 0, False)) -> Iterator[Line]:
    """An engine behind pipes, whose facts were told."""
    (asked, to), (back, results) = [_pipe(), _pipe()]
    line = Line(to, back)

    def work() -> None:
        with results:
            serve(asked, results)

    line.ask((Elsewhere(_Given(runtime), codec), rules))
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        assert unpacked(line.told()) == (runtime.facts, None)
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


def write(ids: Sequence[int], limit: int, **options: Any) -> bytes:
    wanted = {"sampling": Sampling(max_tokens=limit), "eos_ids": frozenset(), "random": None, **options}
    return packed((Write, {"ids": list(ids), "limit": limit, "prompt": len(ids), **wanted}))


def outcomes(line: Line, count: int) -> dict[int, Any]:
    """By their numbers, what came back of so many requests: the outcome, or the error."""
    over: dict[int, Any] = {}
    while len(over) < count:
        told = line.told()
        assert isinstance(told, Over)
        for number, each in told.requests:
            outcome, error = unpacked(each)
            over[number] = error or outcome
    return over


def test_requests_keep_their_numbers() -> None:
    score = packed((Score, {"ids": [9, 10], "continuations": [[11], [12, 13]]}))
    with served(Lab()) as line:
        line.ask(Ask([(7, write([9, 10], 3)), (4, score)]))
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

    def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> Step:
        self.entered.release()
        assert self.gate.acquire(timeout=WAIT_S)
        return super().forward(ids, *given, **options)

    def step(self, passes: int = 1) -> None:
        """Let passes through, and wait for the next to begin."""
        for _ in range(passes):
            self.gate.release()
            assert self.entered.acquire(timeout=WAIT_S)


def test_nobody_is_told_of_a_request_that_is_gone_and_it_gives_its_place_free() -> None:
    runtime = Gated()
    with served(runtime) as line:
        line.ask(Ask([(1, write([9, 10], 50)), (2, write([11, 12], 20))]))
        assert runtime.entered.acquire(timeout=WAIT_S)
        runtime.step(5)
        line.ask(Gone(1), Gone(1), Gone(99))
        time.sleep(0.2)  # until the message has been read, and is taken after the next turn
        before = len(runtime.rows)
        runtime.gate.release(500)
        assert list(outcomes(line, 1)) == [2]
        line.ask(Ask([(3, write([13], 1))]))
        assert list(outcomes(line, 1)) == [3]
    assert runtime.rows[before - 1] == 2
    assert set(runtime.rows[before + 2 :]) == {1}


def test_an_error_comes_back_with_its_request() -> None:
    class Broken(Lab):
        def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> Step:
            if 63 in ids:
                raise RuntimeError("a kernel failed")
            return super().forward(ids, *given, **options)

    inspect = packed((Inspect, {"ids": [9], "layers": (1,)}))
    with served(Broken()) as line:
        line.ask(Ask([(1, write([9, 63], 2)), (2, write([9, 10], 2)), (3, inspect)]))
        over = outcomes(line, 3)
    assert isinstance(over[1], BackendError)
    assert str(over[1]) == "the model failed on this request: RuntimeError: a kernel failed"
    assert len(over[2][0]) == 2
    assert over[3][0].keys() == {1}


def test_a_request_that_cannot_be_made_there_is_over_alone() -> None:
    unreadable = b"\x80\x05cno_such_module\nname\n."
    with served(Lab()) as line:
        line.ask(Ask([(1, unreadable), (2, write([9, 10], 2)), (3, packed((Write, {"strange": 1})))]))
        over = outcomes(line, 3)
    assert re.fullmatch(r"this cannot be read in another process: ModuleNotFoundError: .*", str(over[1]))
    assert len(over[2][0]) == 2
    assert isinstance(over[3], BackendError)
    assert "strange" in str(over[3])


def test_an_outcome_that_cannot_be_told_is_an_error() -> None:
    class Odd(Lab):
        def distribution(self, logits: np.ndarray) -> Any:
            class Local(np.ndarray):
                pass

            found: np.ndarray = self.inner.distribution(logits)
            return found.view(Local)

    with served(Odd()) as line:
        line.ask(Ask([(1, packed((Distribute, {"ids": [9]}))), (2, write([9, 10], 2))]))
        over = outcomes(line, 2)
    assert str(over[1]).startswith("this cannot be sent from one process to another: ")
    assert len(over[2][0]) == 2


def test_what_is_logged_there_is_told() -> None:
    class Cramped(Lab):
        def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> Step:
            if len(ids) > 1:
                raise OutOfMemory
            return super().forward(ids, *given, **options)

    with served(Cramped()) as line:
        line.ask(Ask([(number, write([9 + number, 8], 1)) for number in range(4)]))
        told = [line.told() for _ in range(2)]
    said = next(each for each in told if isinstance(each, Said))
    assert (said.level, said.text.partition(":")[0]) == (logging.WARNING, "out of memory")
