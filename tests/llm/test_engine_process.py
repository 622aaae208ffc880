"""An engine whose network is in a process of its own: the same results, and what happens when either end goes."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
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

from arbitrag.errors import BackendError, DataError, UsageError
from arbitrag.lab.model import FOLDER, open_lab
from arbitrag.llm.base import Prompt, Sampling
from arbitrag.llm.batching import Limits
from arbitrag.llm.engine import Engine
from arbitrag.llm.onnx import open_onnx, open_runtime
from arbitrag.llm.process import Ask, Elsewhere, Gone, Over, ProcessWorker, Said
from arbitrag.llm.process_serve import serve
from arbitrag.llm.requests import Inspect, Score, Write
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


async def test_a_cancelled_request_leaves_the_others_alone(apart: Engine) -> None:
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
    assert isinstance(apart._worker, ProcessWorker)
    assert apart._worker._asked == apart._worker._unsent == {}


@pytest.mark.parametrize(("window_s", "messages"), [(60.0, [3]), (-1.0, [1, 1, 1])])
async def test_what_comes_together_is_sent_together(
    window_s: float, messages: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    send = ProcessWorker._send

    def counted(worker: ProcessWorker, message: object) -> None:
        if isinstance(message, Ask):
            sent.append(len(message.requests))
        send(worker, message)

    monkeypatch.setattr(ProcessWorker, "_send", counted)
    engine = open_lab(own_process=True, window_s=window_s)
    await asyncio.gather(*(engine.score(prompt, ["yes"]) for prompt in (ASKED, OTHER, Prompt.user("Question:"))))
    assert sent == messages
    await engine.aclose()


async def test_closing_fails_what_waits_and_what_comes_later() -> None:
    engine = open_lab(own_process=True)
    assert isinstance(engine, Engine)
    running = asyncio.ensure_future(engine.generate(ASKED, Sampling(max_tokens=200, temperature=9.0)))
    for _ in range(5):
        await asyncio.sleep(0)
    await engine.aclose()
    for late in (running, engine.generate(ASKED, Sampling())):
        with pytest.raises(BackendError, match=r"^the model was closed$"):
            await late
    assert process_of(engine).returncode == -signal.SIGKILL
    assert engine.stored_bytes == 0
    await engine.aclose()


async def test_a_process_that_is_killed_fails_its_requests() -> None:
    engine = open_lab(own_process=True)
    assert isinstance(engine, Engine)
    running = asyncio.ensure_future(engine.generate(ASKED, Sampling(max_tokens=200, temperature=9.0)))
    for _ in range(5):
        await asyncio.sleep(0)
    process_of(engine).kill()
    for late in (running, engine.generate(ASKED, Sampling())):
        with pytest.raises(BackendError, match=r"^the model's process was ended by signal 9 \(perhaps for want of mem"):
            await late
    await engine.aclose()


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


def _talks() -> Runtime:
    print("words of some library")
    os.write(1, b"and of another one\n")
    return open_runtime(FOLDER / "model.onnx", threads=1)


async def test_what_else_is_printed_there_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    engine = Engine(Elsewhere(_talks, _codec), _codec(), name="talks")
    assert (await engine.generate(ASKED, Sampling(max_tokens=4))).text
    await engine.aclose()
    out, err = capfd.readouterr()
    assert out == ""
    assert "and of another one" in err


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
    into, out = [[os.fdopen(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True)] for _ in range(2)]
    line = Line(into[1], out[0])  # type: ignore[arg-type]

    def work() -> None:
        with out[1] as results:
            serve(into[0], results)  # type: ignore[arg-type]

    line.ask((Elsewhere(_Given(runtime), _codec), rules))
    thread = threading.Thread(target=work)
    thread.start()
    assert line.told() == runtime.facts
    yield line
    line.to.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    line.back.close()
    into[0].close()


_HERE: list[Runtime] = []


class _Given:
    """Opens a runtime that is in this process already."""

    def __init__(self, runtime: Runtime) -> None:
        _HERE[:] = [runtime]

    def __call__(self) -> Runtime:
        return _HERE[0]


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


def write(ids: Sequence[int], limit: int, **options: Any) -> tuple[type[Write], dict[str, Any]]:
    wanted = {"sampling": Sampling(max_tokens=limit), "eos_ids": frozenset(), "random": None, **options}
    return Write, {"ids": list(ids), "limit": limit, "prompt": len(ids), **wanted}


def test_requests_keep_their_numbers() -> None:
    score = Score, {"ids": [9, 10], "continuations": [[11], [12, 13]]}
    with served(Lab()) as line:
        line.ask(Ask([(7, *write([9, 10], 3)), (4, *score)]))
        over: dict[int, Any] = {}
        while len(over) < 2:
            told = line.told()
            assert isinstance(told, Over)
            over |= {number: outcome for number, outcome, error in told.requests if error is None}
    written, logprobs, finish, tokens = over[7]
    assert (len(written), len(logprobs), finish, tokens.written) == (3, 3, "length", 3)
    assert [len(each) for each in over[4][0]] == [1, 2]


def test_nobody_is_told_of_a_request_that_is_gone_and_it_gives_its_place_free() -> None:
    class Gated(Lab):
        """Waits before its second pass."""

        gate = threading.Event()

        def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> Step:
            if self.rows:
                assert self.gate.wait(WAIT_S)
            return super().forward(ids, *given, **options)

    runtime = Gated()
    with served(runtime) as line:
        line.ask(Ask([(1, *write([9, 10], 50)), (2, *write([11, 12], 3))]), Gone(1), Gone(1), Gone(99))
        runtime.gate.set()
        told = line.told()
        assert [(number, error) for number, _, error in told.requests] == [(2, None)]
        line.ask(Ask([(3, *write([13], 1))]))
        assert [number for number, _, _ in line.told().requests] == [3]
    assert len(runtime.rows) < 10


def test_an_error_comes_back_with_its_request() -> None:
    class Broken(Lab):
        def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> Step:
            if 63 in ids:
                raise RuntimeError("a kernel failed")
            return super().forward(ids, *given, **options)

    with served(Broken()) as line:
        line.ask(Ask([(1, *write([9, 63], 2)), (2, *write([9, 10], 2)), (3, Inspect, {"ids": [9], "layers": (1,)})]))
        over: dict[int, Any] = {}
        while len(over) < 3:
            over |= {number: error or outcome for number, outcome, error in line.told().requests}
    assert isinstance(over[1], BackendError)
    assert str(over[1]) == "the model failed on this request: RuntimeError: a kernel failed"
    assert len(over[2][0]) == 2
    assert over[3][0].keys() == {1}


def test_what_is_logged_there_is_told() -> None:
    class Cramped(Lab):
        def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> Step:
            if len(ids) > 1:
                raise OutOfMemory
            return super().forward(ids, *given, **options)

    with served(Cramped()) as line:
        line.ask(Ask([(number, *write([9 + number, 8], 1)) for number in range(4)]))
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
