"""An engine whose network is in a process of its own: the same results, and what happens when either end goes."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest
from process_parts import WAIT_S, Lab, codec

from arbitrag.errors import BackendError, DataError, MissingExtra, UsageError
from arbitrag.lab.model import FOLDER, open_lab
from arbitrag.llm.base import Prompt, Sampling
from arbitrag.llm.engine.engine import Engine
from arbitrag.llm.engine.remote import ProcessWorker
from arbitrag.llm.engine.remote_messages import Cancel, Completed, RuntimeSpec, Submit
from arbitrag.llm.engine.runtime import ForwardOutput, Runtime
from arbitrag.llm.onnx.backend import open_onnx, open_runtime

ASKED = Prompt.user("Question: Who directed The Silver Lantern?")
OTHER = Prompt.user("Question: Where was Ada Brandt born?")


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
        assert (mine.text, mine.finish, mine.tokens.completion_tokens) == (
            theirs.text,
            theirs.finish,
            theirs.tokens.completion_tokens,
        )
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
    assert following.shape == (2, apart.info.vocabulary)
    assert same(following, expected)
    assert (apart.identity, apart.name) == (here.identity, "lab")
    assert await apart.capabilities() == await here.capabilities()
    await here.aclose()


async def test_deterministic_gives_the_same_bits() -> None:
    models = [open_lab(deterministic=True, own_process=apart) for apart in (True, False)]
    drawn = Sampling(max_tokens=6, temperature=1.5, top_p=0.9, seed=3, logprobs=True)
    found = [await asyncio.gather(*(model.generate(each, drawn) for each in (ASKED, OTHER))) for model in models]
    assert found[0] == found[1]
    assert found[0][0].logprobs
    await asyncio.gather(*(model.aclose() for model in models))


async def test_a_stop_text_ends_a_completion(apart: Engine) -> None:
    whole = await apart.generate(ASKED, Sampling(max_tokens=8))
    stop = whole.text[2:4]
    ended = await apart.generate(ASKED, Sampling(max_tokens=8, stop=("no such text", stop)))
    assert ended.text == whole.text[: whole.text.index(stop)]
    assert ended.finish == "stop"
    assert 0 < ended.tokens.completion_tokens < whole.tokens.completion_tokens


async def test_prompts_are_cached(apart: Engine) -> None:
    prompt = Prompt.user("Question: What is kept in the other process?")
    first, again = [await apart.generate(prompt, Sampling(max_tokens=2)) for _ in range(2)]
    assert (first.tokens.uncached_tokens > 0, again.tokens.uncached_tokens) == (True, 0)
    assert apart.prefix_cache_bytes > 0


async def test_an_impossible_request_is_refused(apart: Engine) -> None:
    with pytest.raises(UsageError, match="max_tokens is 0"):
        await apart.generate(ASKED, Sampling(max_tokens=0))


def test_it_serves_one_event_loop_after_another(apart: Engine) -> None:
    texts = [asyncio.run(apart.generate(ASKED, Sampling(max_tokens=4))).text for _ in range(2)]
    assert texts[0] == texts[1] != ""


async def test_a_cancelled_request_leaves_the_others_alone(apart: Engine, messages: list[Submit | Cancel]) -> None:
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
    assert [len(each.requests) for each in (first, cancelled, last) if isinstance(each, Submit)] == [1, 1, 1]
    assert isinstance(cancelled, Submit)
    assert gone == Cancel(cancelled.requests[0][0])


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[Submit | Cancel]:
    """What is sent to processes."""
    found: list[Submit | Cancel] = []
    send = ProcessWorker._send

    def noted(worker: ProcessWorker, message: Submit | Cancel) -> None:
        found.append(message)
        send(worker, message)

    monkeypatch.setattr(ProcessWorker, "_send", noted)
    return found


@pytest.mark.parametrize(("window_s", "sizes"), [(60.0, [3]), (-1.0, [1, 1, 1])])
async def test_requests_of_one_batching_window_are_sent_together(
    window_s: float, sizes: list[int], messages: list[Submit | Cancel]
) -> None:
    engine = open_lab(own_process=True, window_s=window_s)
    await asyncio.gather(*(engine.score(prompt, ["yes"]) for prompt in (ASKED, OTHER, Prompt.user("Question:"))))
    assert [len(each.requests) for each in messages if isinstance(each, Submit)] == sizes
    await engine.aclose()


class _Waiting(Lab):
    """Never ends a pass."""

    def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> ForwardOutput:
        time.sleep(600)
        raise AssertionError


async def under_way() -> tuple[Engine, list[asyncio.Future[Any]]]:
    """An engine with a request that was sent, one that was cancelled then, and one that was not sent."""
    engine = Engine(RuntimeSpec(_Waiting, codec), codec(), name="waits", window_s=60.0)
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
    return engine._worker._sent


def unsent_of(engine: Engine) -> dict[int, Any]:
    assert isinstance(engine._worker, ProcessWorker)
    return engine._worker._unsent


@needs.signals
async def test_closing_fails_waiting_and_later_requests() -> None:
    engine, waiting = await under_way()
    await engine.aclose()
    for late in (*waiting, engine.generate(ASKED, Sampling())):
        with pytest.raises(BackendError, match=r"^the model was closed$"):
            await late
    assert process_of(engine).returncode == -signal.SIGKILL
    assert engine.prefix_cache_bytes == 0
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


async def test_a_request_that_cannot_be_pickled_fails_alone(apart: Engine) -> None:
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


async def test_a_result_that_cannot_be_unpickled_is_an_error_of_its_request() -> None:
    engine, waiting = await under_way()
    number = next(iter(asked_of(engine)))
    assert isinstance(engine._worker, ProcessWorker)
    engine._worker.handle(Completed([(number, b"no pickle"), (99, b"of a request that is gone")], 123))
    with pytest.raises(BackendError, match="this cannot be unpickled in another process: UnpicklingError"):
        await waiting[0]
    assert engine.prefix_cache_bytes == 123
    await engine.aclose()


@needs.signals
async def test_an_engine_that_is_garbage_collected_ends_its_process() -> None:
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


def test_a_fork_that_collects_its_copy_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_after_a_fork_it_has_to_be_opened_again(apart: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(BackendError, match="after a fork, open it again"):
        asyncio.run(apart.generate(ASKED, Sampling()))


def test_a_damaged_model_is_an_error_of_opening(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(DataError, match="is not a model that onnxruntime can open"):
        open_onnx(tmp_path, own_process=True)


def _ends() -> Runtime:
    os._exit(3)


def test_a_process_that_ends_at_once() -> None:
    with pytest.raises(BackendError, match=r"^the model's process ended with status 3 before it was ready$"):
        Engine(RuntimeSpec(_ends, codec), codec(), name="ends")


def test_a_process_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(FOLDER / "no such program"))
    with pytest.raises(BackendError, match=r"^no process could be started for the model: .*no such program"):
        open_lab(own_process=True)


def _fails() -> Runtime:
    raise KeyError("a fault of ours")


def test_a_fault_in_the_process_prints_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BackendError, match=r"^the model's process ended with status 1 before it was ready$"):
        Engine(RuntimeSpec(_fails, codec), codec(), name="fails")
    assert "KeyError: 'a fault of ours'" in capfd.readouterr().err


def _lacks() -> Runtime:
    raise MissingExtra("hf", "hf:model")


def test_an_error_of_opening_is_raised_as_it_is() -> None:
    with pytest.raises(MissingExtra, match=r"^hf:model needs the extra 'hf'"):
        Engine(RuntimeSpec(_lacks, codec), codec(), name="lacks")


def _talks() -> Runtime:
    print("words of some library")
    os.write(1, b"and of another one\n")
    return open_runtime(FOLDER / "model.onnx", threads=1)


async def test_output_of_the_process_goes_to_standard_error(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    engine = Engine(RuntimeSpec(_talks, codec), codec(), name="talks")
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
def test_it_ends_with_its_parent_and_not_with_ctrl_c() -> None:
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


def test_its_log_records_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(RuntimeSpec(_warns, codec), codec(), name="warns")
    with caplog.at_level(logging.WARNING, "arbitrag.llm"):
        asyncio.run(engine.generate(ASKED, Sampling(max_tokens=1)))
        asyncio.run(engine.aclose())
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("WARNING", "100% is %s")]


class _Warning(Lab):
    def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> ForwardOutput:
        logging.getLogger("arbitrag.llm").warning("100%% is %s", "%s")
        return super().forward(ids, *given, **options)


def _warns() -> Runtime:
    return _Warning()
