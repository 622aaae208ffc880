"""A scripted OpenAI-compatible server on loopback, which can also misbehave. Standard library only.

with ScriptedServer(["Paris"], faults=[Fault.busy("1")]) as server:
    llm = OpenAILLM("scripted", base_url=server.base_url)  # the first request gets 429 with Retry-After: 1

A token is a word with the white space before it. ``likelihood(before, token)`` gives the log-probability of a token
after a text; the one that stands in for none makes repetition likely, so that a probe finds the server plausible.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, Literal, Self

from arbitrag.llm.base import Message, Prompt
from arbitrag.testing.llm import prompt_text

Likelihood = Callable[[str, str], float]
Replies = Sequence[str] | Mapping[str, str] | Callable[[Prompt], str]
Style = Literal["none", "ids", "echo"]

_WINDOW = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # zlib's name for the format around the same packed bytes
_TOKEN = re.compile(r"\s*\S+|\s+$")
BEGIN = "<s>"


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one request instead of an answer.

    Without a ``status`` the answer comes all the same: late by ``delay_s``, with other ``headers``, or a byte at a time
    with ``drip_s`` between two of them.
    """

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | bytes = ""
    delay_s: float = 0.0
    cuts: bool = False
    drip_s: float = 0.0

    @classmethod
    def busy(cls, retry_after: str = "") -> Fault:
        """429, with a Retry-After in seconds or as a date."""
        headers = {"Retry-After": retry_after} if retry_after else {}
        return cls(429, headers, json.dumps({"error": {"message": "too many requests"}}))

    @classmethod
    def error(cls, status: int = 500, message: str = "it broke") -> Fault:
        return cls(status, {}, json.dumps({"error": {"message": message}}))

    @classmethod
    def slow(cls, seconds: float) -> Fault:
        return cls(delay_s=seconds)

    @classmethod
    def cut(cls) -> Fault:
        """The connection ends in the middle of the answer."""
        return cls(cuts=True)

    @classmethod
    def says(cls, body: str | bytes, content_type: str = "application/json") -> Fault:
        """200 with this body, whatever it is."""
        return cls(200, {"Content-Type": content_type}, body)

    @classmethod
    def drip(cls, seconds: float) -> Fault:
        """The answer a byte at a time, its first line included, so that there is always something to wait for."""
        return cls(drip_s=seconds)

    @classmethod
    def charset(cls, name: str) -> Fault:
        """The answer, in UTF-8 as ever, under a Content-Type that names this charset."""
        return cls(headers={"Content-Type": f"application/json; charset={name}"})

    @classmethod
    def redirect(cls, to: str, status: int = 307) -> Fault:
        return cls(status, {"Location": to})

    @classmethod
    def bomb(cls, decoded_bytes: int = 2**30, encoding: str = "gzip") -> Fault:
        """200 with spaces that decode to this many bytes; ``encoding`` is gzip, deflate, or several of them."""
        return cls(200, {"Content-Encoding": encoding}, bomb(decoded_bytes, encoding))


@cache
def bomb(decoded_bytes: int, encoding: str = "gzip") -> bytes:
    """``decoded_bytes`` of spaces, compressed by each part of a Content-Encoding in turn (identity adds nothing)."""
    first, *more = (each.strip() for each in encoding.split(","))
    packing = zlib.compressobj(9, wbits=_WINDOW[first])
    block = b" " * min(decoded_bytes, 2**20)
    packed = bytearray()
    for begin in range(0, decoded_bytes, len(block) or 1):
        packed += packing.compress(block[: decoded_bytes - begin])
    packed += packing.flush()
    for each in more:
        again = zlib.compressobj(9, wbits=_WINDOW[each])
        packed = bytearray(again.compress(bytes(packed)) + again.flush())
    return bytes(packed)


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sent. Header names are in lower case."""

    path: str
    body: Any
    headers: Mapping[str, str]


def repeats(before: str, token: str) -> float:
    """ln 0.9 for a token that followed the last one before, ln 0.001 for any other."""
    words = before.split()
    pairs = set(pairwise(words))
    return math.log(0.9) if words and (words[-1], token.strip()) in pairs else math.log(0.001)


class ScriptedServer:
    """Answers from a script, in a thread of its own; a context manager, sync or async.

    ``replies``: texts in the order of the requests, a mapping from a piece of the prompt to the reply, or a function of
    the prompt; without any, a reply is the word "yes". ``style`` says how the server gives likelihoods of a given text:
    "ids" as vLLM does, "echo" as OpenAI's completions did, "none" as most do, which is to answer 200 and ignore that
    they were asked. ``logprobs`` says whether it reports those of written tokens. ``faults`` befall the first requests,
    one each (None is an ordinary answer). ``delay_s`` is how long the model takes for a call; looking up tokens takes
    none. ``refuses_max_tokens`` is a server of reasoning models. ``requests`` keeps what came in, and
    ``most_at_a_time`` how many of them were answered side by side at most.
    """

    def __init__(
        self,
        replies: Replies = (),
        *,
        style: Style = "none",
        likelihood: Likelihood = repeats,
        logprobs: bool | None = None,
        faults: Iterable[Fault | None] = (),
        model: str = "scripted",
        context_tokens: int | None = None,
        refuses_max_tokens: bool = False,
        finish: str | None = None,
        delay_s: float = 0.0,
        port: int = 0,
    ) -> None:
        self.requests: list[Request] = []
        self.most_at_a_time = 0
        self.faults: list[Fault | None] = list(faults)
        self._replies = list(replies) if isinstance(replies, list | tuple) else replies
        self._scripted = bool(replies) or callable(replies)
        self._style = style
        self._likelihood = likelihood
        self._logprobs = style != "none" if logprobs is None else logprobs
        self._model = model
        self._context_tokens = context_tokens
        self._refuses_max_tokens = refuses_max_tokens
        self._finish = finish
        self._delay_s = delay_s
        self._ids: dict[str, int] = {BEGIN: 0}
        self._under_way = 0
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._failure: OSError | None = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), name="scripted-server", daemon=True)
        self._thread.start()
        started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        if self._thread is not None:
            self._thread.join()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.__exit__)

    def _serve(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._run(started))
        except OSError as error:  # the port is taken; the caller's thread raises it
            self._failure = error
            started.set()
        finally:
            self._loop.close()

    async def _run(self, started: threading.Event) -> None:
        self._stopped = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connect, "127.0.0.1", self._port)
        self._port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stopped.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the server stops
        finally:
            self._connections.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read one request and answer it; whether the connection lives on."""
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        sent = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Request(first.split(" ")[1], json.loads(sent) if sent else None, headers)
        self.requests.append(request)
        fault = self.faults.pop(0) if self.faults else None
        self._under_way += 1
        self.most_at_a_time = max(self.most_at_a_time, self._under_way)
        try:
            await asyncio.sleep(fault.delay_s if fault else self._delay_s if "completions" in request.path else 0)
            await _write(writer, self._reply_to(request, fault), fault.drip_s if fault else 0.0)
        finally:
            self._under_way -= 1
        return not (fault and fault.cuts)

    def _reply_to(self, request: Request, fault: Fault | None) -> bytes:
        """The whole HTTP response."""
        if fault and fault.cuts:
            return b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{"choi'
        if fault and fault.status is not None:
            status, extra, body = fault.status, fault.headers, fault.body
        else:
            status, answer = self._answer(request)
            extra, body = fault.headers if fault else {}, json.dumps(answer)
            if status == 200 and isinstance(request.body, dict) and request.body.get("stream"):
                extra, body = {"Content-Type": "text/event-stream", **extra}, _events(answer)
        content = body if isinstance(body, bytes) else body.encode("utf-8", "surrogateescape")
        head = {"Content-Type": "application/json", "Content-Length": str(len(content)), **extra}
        shown = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        return f"HTTP/1.1 {status} Scripted\r\n{shown}\r\n".encode("latin-1") + content

    def _answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        path = request.path.partition("?")[0]
        if path == "/v1/models":
            window = {} if self._context_tokens is None else {"max_model_len": self._context_tokens}
            return 200, {"object": "list", "data": [{"id": self._model, "object": "model", **window}]}
        if path == "/tokenize" and self._style == "ids":
            return 200, {"tokens": self._encode(request.body)}
        if path == "/v1/chat/completions":
            return self._complete(request.body, chat=True)
        if path == "/v1/completions":
            return self._complete(request.body, chat=False)
        return 404, {"detail": "Not Found"}

    def _complete(self, body: Mapping[str, Any], *, chat: bool) -> tuple[int, dict[str, Any]]:
        if self._refuses_max_tokens and chat and "max_tokens" in body:
            return 400, {"error": {"message": "Unsupported: 'max_tokens'. Use 'max_completion_tokens' instead."}}
        prompt = _prompt(body, self._text_of)
        read = self._encode(body)
        before = self._text_of(read[1:]) if chat or isinstance(body.get("prompt"), list) else prompt.text or ""
        if not chat and ("prompt_logprobs" in body or body.get("echo")) and self._style != "none":
            return 200, self._score(body, read, before)
        limit = body.get("max_tokens", body.get("max_completion_tokens", 16))
        reply = self._reply(prompt)
        words = _TOKEN.findall(reply)
        text = "".join(words[:limit])
        finish = self._finish or ("stop" if len(words) <= limit else "length")
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        if body.get("logprobs") and self._logprobs:
            values = self._likelihoods(before, words[:limit])
            choice["logprobs"] = (
                {"content": [{"token": t, "logprob": v} for t, v in zip(words[:limit], values, strict=True)]}
                if chat
                else {"tokens": words[:limit], "token_logprobs": values}
            )
        return 200, {"choices": [choice], "usage": _usage(len(read), min(len(words), limit))}

    def _score(self, body: Mapping[str, Any], read: list[int], before: str) -> dict[str, Any]:
        texts = list(self._ids)
        tokens = _TOKEN.findall(before) if body.get("echo") else [texts[id] for id in read[1:]]
        values = self._likelihoods("", tokens)
        choice: dict[str, Any] = {"index": 0, "text": "", "finish_reason": "length"}
        if body.get("echo") and self._style == "echo":
            choice["text"] = before
            choice["logprobs"] = {"tokens": [BEGIN, *tokens], "token_logprobs": [None, *values]}
        elif self._style == "ids":
            rows = [{str(id): {"logprob": v, "rank": 1}} for id, v in zip(read[1:], values, strict=True)]
            choice["prompt_logprobs"] = [None, *rows]
        return {"choices": [choice], "usage": _usage(len(read), 0)}

    def _likelihoods(self, before: str, tokens: Sequence[str]) -> list[float]:
        values = []
        for token in tokens:
            values.append(self._likelihood(before, token))
            before += token
        return values

    def _reply(self, prompt: Prompt) -> str:
        if not self._scripted:
            return "yes"
        if callable(self._replies):
            return self._replies(prompt)
        if isinstance(self._replies, Mapping):
            text = prompt_text(prompt)
            return next((reply for piece, reply in self._replies.items() if piece in text), "no reply in the script")
        return self._replies.pop(0) if self._replies else "the script has ended"  # type: ignore[union-attr]

    def _encode(self, body: Mapping[str, Any]) -> list[int]:
        """Ids of what a request holds: token ids as they are, text, or messages in a simple template."""
        given = body.get("prompt")
        if isinstance(given, list):
            return given
        if given is None:
            given = (
                "".join(f"[{message['role']}] {message['content']}\n" for message in body["messages"]) + "[assistant]"
            )
        start = [0] if body.get("add_special_tokens", True) else []
        return start + [self._ids.setdefault(token, len(self._ids)) for token in _TOKEN.findall(given)]

    def _text_of(self, ids: Sequence[int]) -> str:
        texts = {id: token for token, id in self._ids.items()}
        return "".join(texts[id] for id in ids)


async def _write(writer: asyncio.StreamWriter, response: bytes, drip_s: float) -> None:
    """The response at once, or a byte at a time with a pause after each."""
    if not drip_s:
        writer.write(response)
        await writer.drain()
        return
    for byte in response:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(drip_s)


def _prompt(body: Mapping[str, Any], text_of: Callable[[Sequence[int]], str]) -> Prompt:
    given = body.get("prompt")
    if given is None:
        return Prompt(messages=tuple(Message(each["role"], each["content"]) for each in body["messages"]))
    return Prompt(text=given if isinstance(given, str) else text_of(given[1:]))


def _usage(read: int, written: int) -> dict[str, Any]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _events(answer: Mapping[str, Any]) -> str:
    """An answer as a server streams it: an event a word, the reason why it ended, the tokens."""
    (choice,) = answer["choices"]
    chat = "message" in choice
    words = _TOKEN.findall(choice["message"]["content"] if chat else choice["text"])
    pieces: list[dict[str, Any]] = [{"delta": {"content": word}} if chat else {"text": word} for word in words]
    pieces.append({"delta": {}, "finish_reason": choice["finish_reason"]})
    if not chat:
        pieces[-1] = {"text": "", "finish_reason": choice["finish_reason"]}
    events: list[dict[str, Any]] = [{"choices": [{"index": 0, **piece}]} for piece in pieces]
    events.append({"choices": [], "usage": answer["usage"]})
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
