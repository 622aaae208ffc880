"""An embeddings endpoint, played by a small server on loopback."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from arbitrag.encode import open_encoder
from arbitrag.encode.openai import OpenAIEncoder
from arbitrag.errors import BackendError, UsageError

Answer = tuple[int, dict[str, Any]]


class Server:
    """Answers each request with what a function makes of its body; keeps the bodies."""

    def __init__(self, answer: Callable[[dict[str, Any]], Answer]) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.answer = answer
        self.url = ""


@contextmanager
def served(answer: Callable[[dict[str, Any]], Answer]) -> Iterator[Server]:
    server = Server(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/embeddings"
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            server.bodies.append(body)
            status, reply = server.answer(body)
            content = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def lengths(body: dict[str, Any]) -> Answer:
    """A vector [length, 1] for each text, in reverse order."""
    data = [{"index": at, "embedding": [float(len(text)), 1.0]} for at, text in enumerate(body["input"])]
    return 200, {"data": data[::-1]}


async def test_vectors_come_in_the_order_of_the_texts_and_are_unit() -> None:
    with served(lengths) as server:
        encoder = OpenAIEncoder("bge-m3", base_url=server.url, batch=2)
        assert encoder.width is None
        vectors = await encoder.encode(["a", "bb", "", "dddd", "eeeee"], kind="passage")
        await encoder.aclose()
    expected = np.array([[1, 1], [2, 1], [1, 1], [4, 1], [5, 1]], np.float32)
    np.testing.assert_allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)
    assert encoder.width == 2
    assert sorted(len(body["input"]) for body in server.bodies) == [1, 2, 2]
    assert sorted(text for body in server.bodies for text in body["input"]) == [" ", "a", "bb", "dddd", "eeeee"]
    assert {body["model"] for body in server.bodies} == {"bge-m3"}


async def test_prompts_and_dimensions_are_sent_and_identify() -> None:
    with served(lengths) as server:
        encoder = OpenAIEncoder("m", base_url=server.url, dimensions=2, prompts={"query": "query: "})
        await encoder.encode(["x"], kind="query")
        await encoder.encode(["x"], kind="passage")
        await encoder.aclose()
    assert [body["input"] for body in server.bodies] == [["query: x"], ["x"]]
    assert [body["dimensions"] for body in server.bodies] == [2, 2]
    assert encoder.identity == "openai:m:2:query='query: '"


async def test_base64_is_read_too() -> None:
    def packed(body: dict[str, Any]) -> Answer:
        numbers = base64.b64encode(np.array([0.0, 2.0], "<f4").tobytes()).decode()
        return 200, {"data": [{"index": 0, "embedding": numbers}]}

    with served(packed) as server:
        encoder = open_encoder(f"openai:m@{server.url}")
        np.testing.assert_array_equal(await encoder.encode(["x"], kind="query"), [[0.0, 1.0]])
        await encoder.aclose()


async def test_a_passing_failure_is_tried_again() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    replies: list[Answer] = [(429, {"error": {"message": "busy"}})]

    with served(lambda body: replies.pop() if replies else lengths(body)) as server:
        encoder = OpenAIEncoder("m", base_url=server.url, sleep=sleep)
        assert (await encoder.encode(["x"], kind="query")).shape == (1, 2)
        await encoder.aclose()
    assert len(waits) == 1
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((400, {"error": {"message": "no such model"}}), r"answered 400: no such model"),
        ((200, {"data": []}), r"did not return one vector for each of 1 texts: KeyError"),
        ((200, {"object": "list"}), r"did not return one vector for each of 1 texts: KeyError: 'data'"),
        ((200, {"data": [{"index": 0, "embedding": "%%%"}]}), "neither numbers nor base64"),
        ((200, {"data": [{"index": 0, "embedding": [None]}]}), "did not return one vector|not finite"),
    ],
)
async def test_a_broken_answer_is_one_clear_error(answer: Answer, message: str) -> None:
    with served(lambda body: answer) as server:
        encoder = OpenAIEncoder("m", base_url=server.url, retries=0)
        with pytest.raises(BackendError, match=message):
            await encoder.encode(["x"], kind="query")
        await encoder.aclose()


async def test_another_width_than_before_is_an_error() -> None:
    with served(lambda body: (200, {"data": [{"index": 0, "embedding": [1.0] * len(body["input"][0])}]})) as server:
        encoder = OpenAIEncoder("m", base_url=server.url)
        await encoder.encode(["xx"], kind="query")
        with pytest.raises(BackendError, match="vectors of different widths: 2, 3"):
            await encoder.encode(["xxx"], kind="query")
        await encoder.aclose()


async def test_no_texts_need_no_request() -> None:
    with served(lengths) as server:
        encoder = OpenAIEncoder("m", base_url=server.url)
        assert (await encoder.encode([], kind="query")).shape == (0, 0)
        await encoder.aclose()
    assert server.bodies == []


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="a batch of at least 1"):
        OpenAIEncoder("m", base_url="http://127.0.0.1:1/v1", batch=0)
