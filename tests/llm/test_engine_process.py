"""An engine whose network is in a process of its own: the same results, and what happens when either end goes."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from arbitrag.errors import BackendError, DataError, MissingExtra, UsageError
from arbitrag.lab.model import FOLDER, open_lab
from arbitrag.llm.base import Prompt, Sampling
from arbitrag.llm.batching import Limits
from arbitrag.llm.engine import Engine
from arbitrag.llm.onnx import open_onnx, open_runtime
from arbitrag.llm.process import ProcessWorker
from arbitrag.llm.process_messages import Ask, Elsewhere, Gone, Over, Said, packed, unpacked
from arbitrag.llm.process_serve import serve
from arbitrag.llm.requests import Distribute, Inspect, Score, Write
from arbitrag.llm.runtime import OutOfMemory, Runtime, Step
from arbitrag.llm.tokenizer import TextCodec
from arbitrag.llm.turns import Rules

ASKED = Prompt.user("Question: Who directed The Silver Lantern?")
OTHER = Prompt.user("Question: Where was Ada Brandt born?")
WAIT_S = 30.0


@pytest.fixture(scope="module")
def apart() -> Iterator[Engine]:
    engine = open_lab(own_process=True)
    assert isinstance(engine, Engine)
    yield engine
    asyncio.run(engine.aclose())


class Lab:
    """The embedded model as a runtime that another stands behind; tests change what they need."""

    def __init__(self) -> None:
        self.inner = open_runtime(FOLDER / "model.onnx", threads=1)
        self.facts = self.inner.facts
        self.rows: list[int] = []  # of every pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> Step:
        self.rows.append(len(ids))
        return self.inner.forward(ids, *given, **options)


def process_of(engine: Engine) -> subprocess.Popen[bytes]:
    assert isinstance(engine._worker, ProcessWorker)
    return engine._worker._process


def same(one: Any, other: Any) -> bool:
    """Whether two log-probabilities, or lists of them, are equal but for the order in which floats were added."""
    return bool(np.allclose(one, other, atol=1e-4))


async def test_it_answers_as_in_this_process(apart: Engine) -> None:
    here = open_lab()
    drawn = Sampling(max_tokens=8, temperature=2.0, seed=5, logprobs=True)
    for wanted in (Sampling(max_tokens=8, logprobs=True), drawn):
        mine, theirs = [await model.generate(ASKED, wanted) for model in (apart, here)]
        assert (mine.text, mine.finish, mine.tokens.written) == (theirs.text, theirs.finish, theirs.tokens.written)
        assert mine.text
        assert same(mine.logprobs, theirs.logprobs)
    answers = ["Ada Brandt", "1987", "nobody knows"]
    scores, plain = [await model.score(OTHER, answers) for model in (apart, here)]
    assert [each.text for each in scores.likelihoods] == answers
    for one, other in zip(scores.likelihoods, plain.likelihoods, strict=True):
        assert same(one.logprobs, other.logprobs)
    states, others = [(await model.inspect(ASKED, [0, 2])).states for model in (apart, here)]
    assert states.keys() == {0, 2}
    assert all(same(states[layer], others[layer]) for layer in states)
    following, expected = [(await model.next_token([ASKED, OTHER])).logprobs for model in (apart, here)]
    assert following.shape == (2, apart.facts.vocabulary)
    assert same(following, expected)
    assert (apart.identity, apart.name) == (here.identity, "lab")
    assert await apart.offer() == await here.offer()
    await here.aclose()


async def test_one_at_a_time_gives_the_same_bits() -> None:
    models = [open_lab(deterministic=True, own_process=apart) for apart in (True, False)]
    drawn = Sampling(max_tokens=6, temperature=1.5, top_p=0.9, seed=3, logprobs=True)
    found = [await asyncio.gather(*(model.generate(each, drawn) for each in (ASKED, OTHER))) for model in models]
    assert found[0] == found[1]
    assert found[0][0].logprobs
    await asyncio.gather(*(model.aclose() for model in models))


async def test_a_stop_text_ends_an_answer_there_as_well(apart: Engine) -> None:
    whole = await apart.generate(ASKED, Sampling(max_tokens=8))
    stop = whole.text[2:4]
    ended = await apart.generate(ASKED, Sampling(max_tokens=8, stop=("no such text", stop)))
    assert ended.text == whole.text[: whole.text.index(stop)]
    assert ended.finish == "stop"
    assert 0 < ended.tokens.written < whole.tokens.written


async def test_what_was_read_is_kept_there(apart: Engine) -> None:
    prompt = Prompt.user("Question: What is kept in the other process?")
    first, again = [await apart.generate(prompt, Sampling(max_tokens=2)) for _ in range(2)]
    assert (first.tokens.read > 0, again.tokens.read) == (True, 0)
    assert apart.stored_bytes > 0


async def test_a_request_that_nobody_can_serve_is_refused_here(apart: Engine) -> None:
    with pytest.raises(UsageError, match="max_tokens is 0"):
        await apart.generate(ASKED, Sampling(max_tokens=0))


def test_it_serves_one_event_loop_after_another(apart: Engine) -> None:
    texts = [asyncio.run(apart.generate(ASKED, Sampling(max_tokens=4))).text for _ in range(2)]
    assert texts[0] == texts[1] != ""


async def test_a_cancelled_request_leaves_the_others_alone(apart: Engine, messages: list[Ask | Gone]) -> None:
    expected = (await apart.generate(ASKED, Sampling(max_tokens=4))).text
    unsent = asyncio.ensure_future(apart.generate(OTHER, Sampling(max_tokens=100)))
    await asyncio.sleep(0)
    unsent.cancel()
    sent = asyncio.ensure_future(apart.generate(OTHER, Sampling(max_tokens=100, temperature=9.0)))
    for _ in range(5):
        await asyncio.sleep(0)
    sent.cancel()
    found = await asyncio.gather(unsent, sent, apart.generate(ASKED, Sampling(max_tokens=4)), return_exceptions=True)
    assert [type(each) for each in found[:2]] == [asyncio.CancelledError] * 2
    assert not isinstance(found[2], BaseException)
    assert found[2].text == expected
    assert not asked_of(apart)
    assert not unsent_of(apart)
    first, cancelled, gone, last = messages
    assert [len(each.requests) for each in (first, cancelled, last) if isinstance(each, Ask)] == [1, 1, 1]
    assert isinstance(cancelled, Ask)
    assert gone == Gone(cancelled.requests[0][0])


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[Ask | Gone]:
    """What is sent to processes."""
    found: list[Ask | Gone] = []
    send = ProcessWorker._send

    def noted(worker: ProcessWorker, message: Ask | Gone) -> None:
        found.append(message)
        send(worker, message)

    monkeypatch.setattr(ProcessWorker, "_send", noted)
    return found


@pytest.mark.parametrize(("window_s", "sizes"), [(60.0, [3]), (-1.0, [1, 1, 1])])
async def test_what_comes_together_is_sent_together(
    window_s: float, sizes: list[int], messages: list[Ask | Gone]
) -> None:
    engine = open_lab(own_process=True, window_s=window_s)
    await asyncio.gather(*(engine.score(prompt, ["yes"]) for prompt in (ASKED, OTHER, Prompt.user("Question:"))))
    assert [len(each.requests) for each in messages if isinstance(each, Ask)] == sizes
    await engine.aclose()


class _Waiting(Lab):
    """Never ends a pass; says on standard error that one began."""

    def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> Step:
        time.sleep(600)
        raise AssertionError


async def under_way() -> tuple[Engine, list[asyncio.Future[Any]]]:
    """An engine with a request that was sent, one that was cancelled then, and one that was not sent."""
    engine = Engine(Elsewhere(_Waiting, _codec), _codec(), name="waits", window_s=60.0)
    sent = [asyncio.ensure_future(engine.generate(ASKED, Sampling())) for _ in range(2)]
    while len(asked_of(engine)) < 2:  # noqa: ASYNC110  (until the loop has come around to sending)
        await asyncio.sleep(0)
    sent[1].cancel()
    await asyncio.gather(sent[1], return_exceptions=True)
    unsent = asyncio.ensure_future(engine.generate(OTHER, Sampling()))
    await asyncio.sleep(0)
    assert (len(asked_of(engine)), len(unsent_of(engine))) == (1, 1)
    return engine, [sent[0], unsent]


def asked_of(engine: Engine) -> dict[int, Any]:
    assert isinstance(engine._worker, ProcessWorker)
    return engine._worker._asked


def unsent_of(engine: Engine) -> dict[int, Any]:
    assert isinstance(engine._worker, ProcessWorker)
    return engine._worker._unsent


async def test_closing_fails_what_waits_and_what_comes_later() -> None:
    engine, waiting = await under_way()
    await engine.aclose()
    for late in (*waiting, engine.generate(ASKED, Sampling())):
        with pytest.raises(BackendError, match=r"^the model was closed$"):
            await late
    assert process_of(engine).returncode == -signal.SIGKILL
    assert engine.stored_bytes == 0
    await engine.aclose()


async def test_a_process_that_is_killed_fails_its_requests() -> None:
    engine, waiting = await under_way()
    assert isinstance(engine._worker, ProcessWorker)
    process_of(engine).kill()
    engine._worker._thread.join(WAIT_S)  # so that the last request is not sent any more
    for late in (*waiting, engine.generate(ASKED, Sampling())):
        with pytest.raises(BackendError, match=r"^the model's process was ended by signal 9 \(perhaps for want of mem"):
            await late
    await engine.aclose()


async def test_a_request_that_cannot_be_sent_is_refused_alone(apart: Engine) -> None:
    class Local(Sampling):
        pass

    odd, plain = await asyncio.gather(
        apart.generate(ASKED, Local(max_tokens=2)),
        apart.generate(ASKED, Sampling(max_tokens=2)),
        return_exceptions=True,
    )
    assert isinstance(odd, BackendError)
    assert str(odd).startswith("this cannot be sent from one process to another: ")
    assert not isinstance(plain, BaseException)
    assert plain.text


async def test_what_cannot_be_read_here_is_an_error_of_its_request() -> None:
    engine, waiting = await under_way()
    number = next(iter(asked_of(engine)))
    assert isinstance(engine._worker, ProcessWorker)
    engine._worker.take(Over([(number, b"no pickle"), (99, b"of a request that is gone")], 123))
    with pytest.raises(BackendError, match="this cannot be read in another process: UnpicklingError"):
        await waiting[0]
    assert engine.stored_bytes == 123
    await engine.aclose()


async def test_one_that_is_dropped_ends_its_process() -> None:
    engine = open_lab(own_process=True)
    assert isinstance(engine, Engine)
    await engine.generate(ASKED, Sampling(max_tokens=1))
    process = process_of(engine)
    del engine
    until = time.monotonic() + WAIT_S
    while process.returncode is None and time.monotonic() < until:
        gc.collect()
        await asyncio.sleep(0.01)
    assert process.returncode == -signal.SIGKILL


def test_a_fork_that_drops_its_copy_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_lab(own_process=True)
    assert isinstance(engine, Engine)
    process = process_of(engine)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        del engine
        gc.collect()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
    process.kill()
    process.communicate()


def test_after_a_fork_it_is_not_the_forks(apart: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(BackendError, match="after a fork, open it again"):
        asyncio.run(apart.generate(ASKED, Sampling()))


def test_a_damaged_model_is_said_by_the_one_who_opens_it(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(DataError, match="is not a model that onnxruntime can open"):
        open_onnx(tmp_path, own_process=True)


def _codec() -> TextCodec:
    return TextCodec.from_folder(FOLDER)


def _ends() -> Runtime:
    os._exit(3)


def test_a_process_that_ends_at_once() -> None:
    codec = _codec()
    with pytest.raises(BackendError, match=r"^the model's process ended with status 3 before it was ready$"):
        Engine(Elsewhere(_ends, _codec), codec, name="ends")


def test_there_may_be_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(FOLDER / "no such program"))
    with pytest.raises(BackendError, match=r"^no process could be started for the model: .*no such program"):
        open_lab(own_process=True)


def _fails() -> Runtime:
    raise KeyError("a fault of ours")


def test_a_fault_in_the_process_is_told_with_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BackendError, match=r"^the model's process ended with status 1 before it was ready$"):
        Engine(Elsewhere(_fails, _codec), _codec(), name="fails")
    assert "KeyError: 'a fault of ours'" in capfd.readouterr().err


def _lacks() -> Runtime:
    raise MissingExtra("hf", "hf:model")


def test_an_error_of_opening_is_the_same_here() -> None:
    with pytest.raises(MissingExtra, match=r"^hf:model needs the extra 'hf'"):
        Engine(Elsewhere(_lacks, _codec), _codec(), name="lacks")


def _talks() -> Runtime:
    print("words of some library")
    os.write(1, b"and of another one\n")
    return open_runtime(FOLDER / "model.onnx", threads=1)


async def test_what_else_is_printed_there_goes_to_standard_error(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    engine = Engine(Elsewhere(_talks, _codec), _codec(), name="talks")
    assert (await engine.generate(ASKED, Sampling(max_tokens=4))).text
    await engine.aclose()
    out, err = capfd.readouterr()
    assert out == ""
    assert "words of some library\n" in err
    assert "and of another one\n" in err


_OPENS = """
import time
from arbitrag.lab.model import open_lab
model = open_lab(own_process=True)
print(model._worker._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no sessions and signals")
def test_it_ends_with_the_process_that_asks_and_not_with_ctrl_c() -> None:
    asks = subprocess.Popen([sys.executable, "-c", _OPENS], stdout=subprocess.PIPE, text=True)
    assert asks.stdout is not None
    number = int(asks.stdout.readline())
    assert os.getsid(number) == number != os.getsid(asks.pid)
    asks.kill()
    asks.communicate()
    until = time.monotonic() + WAIT_S
    while _runs(number) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _runs(number)


def _runs(number: int) -> bool:
    """Whether a process of that number is there, and is not only waiting to be reaped."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{number}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


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

    line.ask((Elsewhere(_Given(runtime), _codec), rules))
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
    assert (len(written), len(logprobs), finish, tokens.written) == (3, 3, "length", 3)
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


def test_what_it_says_is_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(Elsewhere(_warns, _codec), _codec(), name="warns")
    with caplog.at_level(logging.WARNING, "arbitrag.llm"):
        asyncio.run(engine.generate(ASKED, Sampling(max_tokens=1)))
        asyncio.run(engine.aclose())
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("WARNING", "100% is %s")]


class _Warning(Lab):
    def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> Step:
        logging.getLogger("arbitrag.llm").warning("100%% is %s", "%s")
        return super().forward(ids, *given, **options)


def _warns() -> Runtime:
    return _Warning()
