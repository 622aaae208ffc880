"""Text while it is written: from a server's events, from the model in this process, and never half an answer."""

from __future__ import annotations

import io
import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from arbitrag import Kit, Passage, Question
from arbitrag.cli.terminal import output
from arbitrag.errors import BackendError
from arbitrag.lab.model import open_lab
from arbitrag.llm.base import LLM, Prompt, Sampling, Streams, generated
from arbitrag.llm.cache import CachedLLM
from arbitrag.llm.http.body import BodyError
from arbitrag.llm.http.openai import OpenAILLM
from arbitrag.llm.http.streaming import Stream
from arbitrag.methods import method_from
from arbitrag.run import Failure, attempt
from arbitrag.testing import Fault, FixedRetriever, ScriptedLLM, ScriptedServer
from arbitrag.types import Verdict

if TYPE_CHECKING:
    from tests.conftest import Command

WHO = Prompt.user("Who directed it?")
KIND = {"Content-Type": "text/event-stream"}


def event(text: str, finish: str | None = None) -> str:
    return "data: " + json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": finish}]}) + "\n\n"


async def no_wait(seconds: float) -> None:
    pass


def client(server: ScriptedServer, **settings: Any) -> OpenAILLM:
    return OpenAILLM("scripted", base_url=server.base_url, sleep=no_wait, **settings)


def test_pieces_may_be_cut_anywhere() -> None:
    whole = (": hello\n\nevent: x\n" + event("Mira ") + event("Tälven", "stop") + "data: [DONE]\n\n").encode()
    for size in (1, 7, len(whole)):
        heard: list[str] = []
        stream = Stream(heard.append)
        for at in range(0, len(whole), size):
            stream.feed(whole[at : at + size])
        assert heard[-1] == "Mira Tälven"
        assert stream.answer()["choices"][0]["message"]["content"] == "Mira Tälven"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (event("Mira"), "ended before the text did"),
        ("", "ended before the text did"),
        (event("Mira") + 'data: {"error": {"message": "out of memory"}}\n\n', "broke off: out of memory"),
        (event("Mira") + "data: {oops\n\n", "streams something that is not JSON: '{oops'"),
        (event("Mira") + "data: [1]\n\n", r"broke off: \[1\]"),
    ],
)
def test_half_an_answer_is_an_error(body: str, why: str) -> None:
    def read() -> None:
        stream = Stream(lambda text: None)
        stream.feed(body.encode())
        stream.answer()

    with pytest.raises(BodyError, match=why):
        read()


async def test_a_server_streams() -> None:
    heard: list[str] = []
    with ScriptedServer(["Mira Talven did it"]) as server:
        llm = client(server)
        streamed = await llm.stream(WHO, Sampling(), heard.append)
        sent = server.requests[-1].body
        await llm.aclose()
    assert heard[-1] == "Mira Talven did it"
    assert all(later.startswith(earlier) for earlier, later in pairwise(heard))
    assert (streamed.text, streamed.finish, streamed.tokens.completion_tokens) == ("Mira Talven did it", "stop", 4)
    assert (sent["stream"], sent["stream_options"]) == (True, {"include_usage": True})


async def test_nobody_listens_so_nothing_is_streamed() -> None:
    with ScriptedServer(["Mira"]) as server:
        llm = client(server)
        assert (await generated(llm, WHO, Sampling(), None)).text == "Mira"
        assert "stream" not in server.requests[-1].body
        await llm.aclose()


async def test_a_server_that_refuses_to_stream_is_asked_without() -> None:
    heard: list[str] = []
    with ScriptedServer(["Mira"], faults=[Fault.error(400, "unknown field stream_options")]) as server:
        llm = client(server)
        assert (await llm.stream(WHO, Sampling(), heard.append)).text == "Mira"
        assert ["stream" in request.body for request in server.requests] == [True, False]
        await llm.aclose()
    assert heard == []


async def test_a_server_that_does_not_know_streaming_answers_whole() -> None:
    plain = json.dumps({"choices": [{"message": {"content": "Mira"}, "finish_reason": "stop"}]})
    with ScriptedServer(faults=[Fault.says(plain)]) as server:
        llm = client(server)
        assert (await llm.stream(WHO, Sampling(), lambda text: None)).text == "Mira"
        await llm.aclose()


async def test_a_stream_that_breaks_off_is_an_error_and_is_not_begun_again() -> None:
    heard: list[str] = []
    with ScriptedServer(["Mira"] * 9, faults=[Fault(200, KIND, event("Mira Tal"))]) as server:
        llm = client(server)
        with pytest.raises(BackendError, match=r"gave an answer that is not read: it ended before the text did"):
            await llm.stream(WHO, Sampling(), heard.append)
        assert len(server.requests) == 1
        await llm.aclose()
    assert heard == ["Mira Tal"]


async def test_before_the_first_text_a_request_is_made_again() -> None:
    with ScriptedServer(["Mira"], faults=[Fault.busy(), Fault.error(503)]) as server:
        llm = client(server)
        assert (await llm.stream(WHO, Sampling(), lambda text: None)).text == "Mira"
        assert len(server.requests) == 3
        await llm.aclose()


async def test_a_stream_is_read_no_further_than_an_answer_can_be() -> None:
    endless = Fault(200, KIND, event("x" * 100) * 20_000)
    with ScriptedServer(faults=[endless]) as server:
        llm = client(server, retries=0)
        with pytest.raises(BackendError, match=r"is larger than [\d,]+ bytes"):
            await llm.stream(WHO, Sampling(max_tokens=4), lambda text: None)
        await llm.aclose()


async def test_a_stream_that_drips_ends_at_the_deadline() -> None:
    with ScriptedServer(["Mira"], faults=[Fault.drip(0.05)]) as server:
        llm = client(server, retries=0, timeout_s=0.5)
        with pytest.raises(BackendError, match=r"gave no whole answer within 0.5 s"):
            await llm.stream(WHO, Sampling(), lambda text: None)
        await llm.aclose()


async def test_the_key_is_taken_out_of_what_is_shown() -> None:
    heard: list[str] = []
    with ScriptedServer(["it is sk-secret-123456 then"]) as server:
        llm = client(server, api_key="sk-secret-123456")
        answer = await llm.stream(WHO, Sampling(), heard.append)
        await llm.aclose()
    assert "sk-secret" not in answer.text + "".join(heard)


async def test_the_model_in_this_process_streams_what_it_generates() -> None:
    heard: list[str] = []
    llm = open_lab()
    try:
        prompt = Prompt.user("Question: By whom was The Stolen Desert directed?")
        whole = await llm.generate(prompt, Sampling(max_tokens=8))
        assert isinstance(llm, Streams)
        streamed = await llm.stream(prompt, Sampling(max_tokens=8), heard.append)
    finally:
        await llm.aclose()
    assert (streamed.text, streamed.finish) == (whole.text, whole.finish)
    assert len(heard) >= 2
    assert heard[-1].strip() == whole.text.strip()


async def test_what_is_kept_is_not_streamed_again(tmp_path: Path) -> None:
    heard: list[str] = []
    with ScriptedServer(["Mira"]) as server:
        llm = CachedLLM(client(server), tmp_path)
        first = await llm.stream(WHO, Sampling(), heard.append)
        again = await llm.stream(WHO, Sampling(), heard.append)
        await llm.aclose()
    assert (first.text, again.text, again.cached, heard) == ("Mira", "Mira", True, ["Mira"])


async def heard_of(method: str, form: Any, llm: LLM) -> tuple[list[str], Verdict | Failure]:
    heard: list[str] = []
    kit = Kit.of(llm, FixedRetriever([Passage("Mira did it.", id="a")]))
    return heard, await attempt(Question("Who?"), method_from(method), kit, form=form, on_text=heard.append)


@pytest.mark.parametrize(
    ("method", "form", "last"),
    [
        ("rag", "short", "short one"),
        ("auto", "short", "short one"),
        ("direct", "short", "short one"),
        ("trustmargin", "short", None),
        ("rag", "long", "A long one [1]."),
        ("trustmargin", "long", "A long one [1]."),
    ],
)
async def test_what_is_streamed_is_the_answer_and_nothing_on_the_way(method: str, form: str, last: str | None) -> None:
    class Streaming(ScriptedLLM):
        async def stream(self, prompt: Prompt, sampling: Sampling, on_text: Any) -> Any:
            reply = await self.generate(prompt, sampling)
            on_text(reply.text)
            return reply

    llm = Streaming(lambda prompt: "A long one [1]." if "one to four" in str(prompt) else "short one")
    heard, outcome = await heard_of(method, form, llm)
    assert isinstance(outcome, Verdict)
    assert heard == ([] if last is None else [last])


async def test_a_failure_in_the_middle_is_a_failure() -> None:
    with ScriptedServer(faults=[Fault(200, KIND, event("Mira Tal"))] * 3) as server:
        llm = client(server)
        heard, outcome = await heard_of("direct", "short", llm)
        await llm.aclose()
    assert heard == ["Mira Tal"]
    assert isinstance(outcome, Failure)
    assert isinstance(outcome.error, BackendError)


class Terminal:
    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def isatty(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def test_what_is_waited_for_and_what_arrives_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(io.StringIO())
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with output.waiting("Asking"):
        pass
    assert terminal.stream.getvalue() == "", "what is done at once needs no line"
    with output.waiting("Asking the [red]model\x1b[31m") as wait:
        wait.stream("Mira \x1b[31mTal[b]ven")
        while "ven" not in terminal.stream.getvalue():
            time.sleep(0.01)
    shown = terminal.stream.getvalue()
    assert "Mira \\u001b[31mTal[b]ven" in shown
    assert "Asking the [red]model\\u001b[31m … 0 s" in shown
    monkeypatch.setattr(output, "PATIENCE_S", 0)
    with output.waiting("Opening it") as wait:
        wait.tell("Asking it")
        while "Asking it" not in terminal.stream.getvalue():
            time.sleep(0.01)


def test_away_from_a_terminal_nothing_is_shown_or_streamed(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PATIENCE_S", 0)
    with ScriptedServer(["Mira"] * 4) as server:
        typed = ("ask", "Who?", "--llm", f"openai:scripted@{server.base_url}", "--method", "direct")
        ran = command(*typed)
        assert (ran.status, ran.err) == (0, "")
        assert not [request for request in server.requests if request.body and "stream" in request.body]
