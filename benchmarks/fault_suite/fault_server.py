"""A server on loopback that misbehaves.

A fault is what happens to the questions that it befalls; everything else is answered honestly, so that it shows
whether one bad answer costs more than its own row.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

HONEST = "Paris"
KEY = "sk-canary-7f3a91d2c4e8"
USER, PASSWORD = "canaryuser", "canary-pass-55aa"
QUERY = "canary-query-90fe"
MARK = "number 2?"  # a question with these words meets the fault


@dataclass(frozen=True)
class Request:
    """One request as it came, ``head`` with its request line and headers."""

    head: str
    body: str

    @property
    def asks(self) -> bool:
        """Whether it is a generation, and no look at what the server offers."""
        return "completions" in self.head.split("\r\n", 1)[0]


Act = Callable[[socket.socket, Request], None]


@dataclass(frozen=True)
class Fault:
    """``act`` writes what comes in place of an answer; the connection is closed behind it.

    ``answers`` are the texts that may be taken for an answer; without any, the question has to fail.
    ``any_answer`` is for faults that leave open what the answer is (a reply that a method may read in its own way).
    """

    name: str
    act: Act
    answers: frozenset[str] = field(default_factory=frozenset)
    any_answer: bool = False


class FaultServer:
    """Answers on loopback in threads: honestly, or, for requests that ``befalls`` is true of, by the fault."""

    def __init__(self, fault: Fault | None, befalls: Callable[[Request], bool], host: str = "127.0.0.1") -> None:
        self.requests: list[Request] = []
        self._fault = fault
        self._befalls = befalls
        self._socket = socket.create_server((host, 0), backlog=64)
        self._stopped = threading.Event()
        self._host = host

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def address(self) -> str:
        """The base URL, with a user, a password and a query that nobody may see."""
        return f"http://{USER}:{PASSWORD}@{self._host}:{self.port}/v1?key={QUERY}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._socket.close()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError):
            connection.settimeout(60)
            while (request := _read(connection)) is not None:
                self.requests.append(request)
                if self._fault is not None and self._befalls(request):
                    self._fault.act(connection, request)
                    return
                connection.sendall(honest(request))


def _read(connection: socket.socket) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            return None
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        part = connection.recv(65536)
        if not part:
            return None
        body += part
    return Request(head.decode("latin-1"), body.decode("utf-8", "replace"))


def honest(request: Request) -> bytes:
    """A good answer to any request."""
    path = request.head.split(" ")[1].partition("?")[0]
    if path.endswith("/models"):
        return response(json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}))
    if request.asks:
        return response(completion(HONEST, chat="chat" in path))
    return response(json.dumps({"detail": "Not Found"}), status="404 Not Found")


def completion(text: Any, *, chat: bool = True, **more: Any) -> str:
    """The JSON of a completion with this text; ``more`` replaces its other fields."""
    said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
    return json.dumps({"choices": [{"index": 0, "finish_reason": "stop", **said}], "usage": usage, **more})


def response(
    body: str | bytes, *, status: str = "200 OK", kind: str = "application/json", length: bool = True, **headers: str
) -> bytes:
    content = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(content)}"] if length else []
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + content


def sends(*parts: bytes, pause_s: float = 0.0) -> Act:
    """These bytes, with a pause between them, and the end of the connection."""

    def act(connection: socket.socket, request: Request) -> None:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause_s)

    return act


def resets(*parts: bytes) -> Act:
    """As ``sends``, but the connection is reset and not closed."""

    def act(connection: socket.socket, request: Request) -> None:
        for part in parts:
            connection.sendall(part)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return act


def drips(head: bytes, byte: bytes, *, every_s: float = 0.2, seconds: float = 45.0) -> Act:
    """A byte now and then, for longer than anybody should wait."""

    def act(connection: socket.socket, request: Request) -> None:
        connection.sendall(head)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            connection.sendall(byte)
            time.sleep(every_s)

    return act


def says(body: str | bytes, **options: Any) -> Act:
    return sends(response(body, **options))


def zeros(size: int, wbits: int) -> bytes:
    """``size`` spaces and no more, compressed by zlib (31: gzip, 15: zlib, -15: raw deflate)."""
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    block = b" " * (1 << 20)
    parts = [packer.compress(block) for _ in range(size >> 20)]
    return b"".join([*parts, packer.flush()])
