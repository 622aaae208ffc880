"""The scripted server that ships to users: what it answers, and how it misbehaves, seen by a plain HTTP client."""

from __future__ import annotations

import gzip
import json
import math
import sys
import time
import urllib.error
import urllib.request
import zlib
from http.client import HTTPConnection, IncompleteRead
from typing import Any

import pytest

import arbitrag.testing
from arbitrag.testing import Fault, ScriptedServer
from arbitrag.testing.server import bomb, repeats


def post(server: ScriptedServer, path: str, **body: Any) -> Any:
    request = urllib.request.Request(
        server.base_url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.loads(response.read())


def say(server: ScriptedServer, text: str, **more: Any) -> str:
    answer = post(server, "/chat/completions", messages=[{"role": "user", "content": text}], **more)
    return str(answer["choices"][0]["message"]["content"])


def test_replies_by_list_mapping_function_and_none() -> None:
    with ScriptedServer(["one", "two"]) as server:
        assert [say(server, "x") for _ in range(3)] == ["one", "two", "the script has ended"]
    with ScriptedServer({"film": "a film", "": "anything"}) as server:
        assert [say(server, "which film?"), say(server, "who?")] == ["a film", "anything"]
    with ScriptedServer({"film": "a film"}) as server:
        assert say(server, "who?") == "no reply in the script"
    with ScriptedServer(lambda prompt: prompt.messages[0].text.upper()) as server:
        assert say(server, "loud") == "LOUD"
    with ScriptedServer() as server:
        assert say(server, "x") == "yes"


async def test_it_is_an_async_context_manager_too() -> None:
    async with ScriptedServer() as server:
        assert server.base_url.startswith("http://127.0.0.1:")
        assert server.base_url.endswith("/v1")


def test_one_connection_serves_many_requests() -> None:
    with ScriptedServer() as server:
        connection = HTTPConnection(server.base_url.split("/")[2], timeout=10)
        for _ in range(3):
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "a b"}))
            answer = json.loads(connection.getresponse().read())
            assert answer["choices"][0] == {"index": 0, "finish_reason": "stop", "text": "yes"}
            assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
        connection.close()
    assert [request.path for request in server.requests] == ["/v1/completions"] * 3


def test_a_port_that_is_taken() -> None:
    with ScriptedServer() as server, pytest.raises(OSError, match="address already in use"):
        ScriptedServer(port=int(server.base_url.split(":")[2].split("/")[0])).__enter__()


def test_a_limit_cuts_the_reply() -> None:
    with ScriptedServer(["a b c"]) as server:
        answer = post(server, "/completions", prompt="x", max_tokens=2)
    assert answer["choices"][0] == {"index": 0, "finish_reason": "length", "text": "a b"}


@pytest.mark.parametrize("fault", [Fault.busy("3"), Fault.error(500), Fault.error(404, "gone")])
def test_an_error_befalls_one_request(fault: Fault) -> None:
    with ScriptedServer(faults=[None, fault]) as server:
        assert say(server, "x") == "yes"
        with pytest.raises(urllib.error.HTTPError) as caught:
            say(server, "x")
        with caught.value as error:
            assert error.code == fault.status
            assert error.headers.get("Retry-After") == ("3" if fault.status == 429 else None)
            assert "message" in json.loads(error.read())["error"]
        assert say(server, "x") == "yes"


def test_a_connection_is_cut() -> None:
    with ScriptedServer(faults=[Fault.cut()]) as server:
        with pytest.raises(IncompleteRead):
            say(server, "x")
        assert say(server, "x") == "yes"


def test_wrong_json() -> None:
    with ScriptedServer(faults=[Fault.says("{nope")]) as server, pytest.raises(json.JSONDecodeError):
        say(server, "x")


def test_an_unknown_path() -> None:
    with ScriptedServer() as server, pytest.raises(urllib.error.HTTPError, match="404") as caught:
        post(server, "/embeddings", input="x")
    caught.value.close()


@pytest.mark.parametrize(("style", "known"), [("none", False), ("echo", False), ("ids", True)])
def test_only_one_style_has_a_tokenizer(style: Any, known: bool) -> None:
    with ScriptedServer(style=style) as server:
        server_root = server.base_url.removesuffix("/v1")
        request = urllib.request.Request(f"{server_root}/tokenize", json.dumps({"prompt": "a b a"}).encode())
        if known:
            with urllib.request.urlopen(request, timeout=10) as response:
                assert json.loads(response.read()) == {"tokens": [0, 1, 2, 3]}  # "a", " b" and " a"
        else:
            with pytest.raises(urllib.error.HTTPError, match="404") as caught:
                urllib.request.urlopen(request, timeout=10)
            caught.value.close()


def test_echo_in_openais_form() -> None:
    with ScriptedServer(style="echo", likelihood=lambda before, token: -float(len(before))) as server:
        answer = post(server, "/completions", prompt="a bc d", echo=True, logprobs=1, max_tokens=0)
    assert answer["choices"][0]["text"] == "a bc d"
    assert answer["choices"][0]["logprobs"] == {
        "tokens": ["<s>", "a", " bc", " d"],
        "token_logprobs": [None, 0.0, -1.0, -4.0],
    }


def test_prompt_logprobs_in_vllms_form() -> None:
    with ScriptedServer(style="ids", likelihood=lambda before, token: -float(len(before))) as server:
        answer = post(server, "/completions", prompt="a bc", prompt_logprobs=1, max_tokens=1)
    rows = [None, {"1": {"logprob": 0.0, "rank": 1}}, {"2": {"logprob": -1.0, "rank": 1}}]
    assert answer["choices"][0]["prompt_logprobs"] == rows


def test_a_server_without_likelihoods_answers_200_all_the_same() -> None:
    with ScriptedServer() as server:
        answer = post(server, "/completions", prompt="a bc", prompt_logprobs=1, echo=True, logprobs=1)
    assert answer["choices"] == [{"index": 0, "finish_reason": "stop", "text": "yes"}]


@pytest.mark.parametrize(
    ("before", "token", "chance"),
    [("one two one", " two", 0.9), ("one two one", " one", 0.001), ("one two", " two", 0.001), ("", "one", 0.001)],
)
def test_repetition_is_likely(before: str, token: str, chance: float) -> None:
    assert repeats(before, token) == math.log(chance)


def test_the_models_it_lists() -> None:
    with (
        ScriptedServer(model="small", context_tokens=128) as server,
        urllib.request.urlopen(f"{server.base_url}/models", timeout=10) as response,
    ):
        assert json.loads(response.read())["data"] == [{"id": "small", "object": "model", "max_model_len": 128}]


def test_the_door_is_lazy_and_strict() -> None:
    assert arbitrag.testing.ScriptedServer is sys.modules["arbitrag.testing.server"].ScriptedServer
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        arbitrag.testing.Nothing  # noqa: B018


def test_a_model_that_takes_its_time_answers_calls_side_by_side_and_looks_tokens_up_at_once() -> None:
    with ScriptedServer(["one"], style="ids", delay_s=0.3) as server:
        clock = time.perf_counter()
        assert say(server, "x") == "one"
        assert time.perf_counter() - clock >= 0.3
        clock = time.perf_counter()
        request = urllib.request.Request(
            f"{server.base_url.removesuffix('/v1')}/tokenize",
            b'{"prompt": "a word"}',
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            assert len(json.loads(response.read())["tokens"]) == 3
        assert time.perf_counter() - clock < 0.3


def test_what_befalls_a_request_beside_errors() -> None:
    faults = [
        Fault.drip(0.0001),
        Fault.charset("rot13"),
        Fault.redirect("/v1/elsewhere", 302),
        Fault.bomb(5000, "gzip"),
    ]

    with ScriptedServer(faults=faults) as server:
        place = HTTPConnection(server.base_url.split("/")[2], timeout=10)
        found = []
        for _ in faults:
            place.request("POST", "/v1/completions", json.dumps({"prompt": "a"}))
            response = place.getresponse()
            found.append((response.status, response.headers, response.read()))
        place.close()
    dripped, charset, redirect, packed = found
    assert json.loads(dripped[2]) == json.loads(charset[2])
    assert charset[1]["Content-Type"] == "application/json; charset=rot13"
    assert (redirect[0], redirect[1]["Location"]) == (302, "/v1/elsewhere")
    assert packed[1]["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed[2]) == b" " * 5000


@pytest.mark.parametrize("size", [0, 1, 2**20 + 3])
def test_a_bomb_holds_what_it_says(size: int) -> None:
    assert gzip.decompress(gzip.decompress(bomb(size, "gzip, gzip"))) == b" " * size
    assert zlib.decompress(bomb(size, "deflate")) == b" " * size
