"""One OpenAI-compatible server: its address and key, how many requests at a time, when to try again, errors in words.

Requests go through httpx. An attempt ends at its deadline, whatever the server sends meanwhile; a body is read no
further than an answer to the request can be; redirects are not followed. Keys, and whatever else in an address is
secret, are taken out of every text that leaves this module.
"""

from __future__ import annotations

import asyncio
import copy
import json
import math
import os
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.request import getproxies

import httpx

from arbitrag import __version__
from arbitrag.errors import BackendError, UnreachableError, UsageError
from arbitrag.llm.base import OnText
from arbitrag.llm.http.body import ACCEPTED, BodyError, read
from arbitrag.llm.http.streaming import Stream, is_stream
from arbitrag.security.addresses import Url
from arbitrag.security.redaction import Secrets
from arbitrag.text import one_line

OPENAI = "https://api.openai.com/v1"
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0
JITTER = 1.25  # a wait that the server asked for is lengthened at random by up to this factor
# How large an answer may be. An answer's own frame, with what servers add (a trace, the prompt, timings):
LEAST_BYTES = 1_000_000
BYTES_PER_TOKEN = 4_000  # a written token with its log-probability and those of its rivals
BYTES_PER_TEXT = 256_000  # an embedding: 10,000 numbers of 25 digits
BYTES_PER_BYTE = 64  # a sent token with its likelihood: 2 to 8 bytes become up to 150
LISTING_BYTES = 8_000_000  # the models of a large provider
ERROR_BYTES = 100_000
# Before the first question a mistyped address should be said soon; a server that was there may come back.
PROBE_RETRIES = 2
# A server that fails like this may well answer the same request a moment later.
PASSING = frozenset({408, 409, 429, 502, 503, 504})

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Failure:
    """One attempt that brought no answer."""

    message: str
    status: int | None = None
    again: bool = False
    wait_s: float | None = None
    nobody: bool = False  # no connection was made


@dataclass(frozen=True, slots=True)
class _Reply:
    """What came back: the status, the Retry-After and Location headers, and the body."""

    status: int
    retry_after: str
    location: str
    body: bytes


class Endpoint:
    """Requests to one server. ``shown`` is its address without secrets."""

    def __init__(
        self,
        base_url: str | None,
        api_key: str | None,
        *,
        concurrency: int,
        retries: int,
        timeout_s: float,
        sleep: Sleep,
        typed: bool = True,
    ) -> None:
        """``typed`` says that a person named the server; one that a file names is not given OPENAI_API_KEY.

        Raises UsageError when a key is needed and there is none, or when a number makes no sense."""
        if concurrency < 1 or retries < 0 or not timeout_s > 0:
            raise UsageError(
                "concurrency is at least 1, retries at least 0 and timeout_s above 0; "
                f"got {concurrency}, {retries} and {timeout_s:g}"
            )
        named = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI
        url = Url.of(named, "http://localhost:8000/v1")
        key = (api_key or _environment_key(url, typed)).strip()
        if not key and _is_openai(url):
            raise UsageError(
                "OpenAI needs a key and there is none; type: export OPENAI_API_KEY=... (or give api_key=). "
                "A server of your own needs no key: openai:MODEL@http://localhost:8000/v1"
            )
        if not all("!" <= character <= "~" for character in key):
            raise UsageError("the API key holds a space or a character that no key has; copy it again")
        self.shown = url.base
        self.is_openai = _is_openai(url)
        self._secrets = Secrets({key, *url.secrets})
        self._secrets.hide_in_logs()
        self._places = asyncio.Semaphore(concurrency)
        self._large = asyncio.Lock()
        self._retries = retries
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._insists = True
        self._answered = asyncio.Event()  # set once the server has answered anything
        self._clients = _Clients(url, key)

    def __repr__(self) -> str:
        return f"Endpoint({self.shown!r})"

    def for_probing(self) -> Endpoint:
        """The same endpoint, for the first look at a server: 500 is then an answer, and nobody there is soon said."""
        probing = copy.copy(self)
        probing._insists = False
        return probing

    @property
    def root(self) -> str:
        """The server's address without the ``/v1``, where servers keep routes of their own."""
        return self.shown.removesuffix("/v1")

    async def get(self, path: str) -> dict[str, Any]:
        """As ``post``, without a body."""
        return await self._request(path, None)

    async def post(self, path: str, body: Mapping[str, Any], on_text: OnText | None = None) -> dict[str, Any]:
        """The server's answer, a JSON object. ``path`` is relative to the base URL, or a whole address.

        ``on_text`` is given the text so far of a completion that is streamed; it is an answer only when it is whole.
        After the first text a failed request is not made again.

        Raises BackendError after the last attempt. Its ``status`` is None when no answer came at all, and 200 when one
        came that is not a JSON object. It is an UnreachableError when the server has never answered and no connection
        can be made, or the key is refused.
        """
        return await self._request(path, dict(body), on_text)

    async def aclose(self) -> None:
        await self._clients.aclose()

    async def _request(self, path: str, body: dict[str, Any] | None, on_text: OnText | None = None) -> dict[str, Any]:
        sent = b"" if body is None else _as_json(body)
        most_bytes = LISTING_BYTES if body is None else _most_bytes(body, len(sent))
        # The place is kept while waiting: a server that says "too many requests" should see fewer of them.
        async with self._places:
            attempt = 0
            while True:
                attempt += 1
                stream = None if on_text is None else self._stream(on_text)
                answer = await self._attempt(path, sent, most_bytes, stream)
                if not isinstance(answer, _Failure):
                    self._answered.set()
                    return answer
                unknown = not self._answered.is_set()
                hasty = not self._insists and answer.status is None
                retries = PROBE_RETRIES if hasty or (unknown and answer.nobody) else self._retries
                begun = stream is not None and stream.begun
                if begun or not answer.again or attempt > min(retries, self._retries):
                    tried = f" ({attempt} attempts)" if attempt > 1 else ""
                    useless = unknown and (answer.nobody or answer.status in (401, 403))
                    kind = UnreachableError if useless else BackendError
                    raise kind(self.clean(f"{answer.message}{tried}"), status=answer.status)
                await self._sleep(_wait_s(attempt, answer.wait_s))

    def _stream(self, on_text: OnText) -> Stream:
        return Stream(lambda text: on_text(self._secrets.clean_growing(text)), self._said)

    async def _attempt(
        self, path: str, sent: bytes, most_bytes: int, stream: Stream | None
    ) -> dict[str, Any] | _Failure:
        """One request from the connection to the last byte, within the timeout."""
        asked = path if "://" in path else f"{self.shown}/{path}"
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._exchange(asked, sent, most_bytes, stream)
        except TimeoutError:
            return _Failure(f"{asked} gave no whole answer within {self._timeout_s:g} s", again=True)
        except httpx.HTTPError as error:
            why = self._said(f"{type(error).__name__}: {error}")
            nobody = isinstance(error, httpx.ConnectError)
            return _Failure(f"{asked} cannot be reached, or cut the connection: {why}", again=True, nobody=nobody)
        except BodyError as error:
            return _Failure(f"{asked} gave an answer that is not read: it {error}", status=200)
        except Exception as error:  # noqa: BLE001 - whatever a server sends, it fails its own request and nothing else
            why = self._said(f"{type(error).__name__}: {error}")
            return _Failure(f"{asked} gave an answer that cannot be read: {why}", status=200)
        if reply.status not in range(200, 300):
            return self._refusal(asked, reply)
        answer = _parsed(reply.body, self._secrets)
        if isinstance(answer, dict):
            return answer
        said = self._said(_decoded(reply.body))
        return _Failure(f"{asked} answered with something that is not a JSON object: '{said}'", status=200)

    async def _exchange(self, url: str, sent: bytes, most_bytes: int, stream: Stream | None) -> _Reply:
        headers = {"Content-Type": "application/json"} if sent else {}
        with self._clients.one() as client:
            request = client.build_request("POST" if sent else "GET", url, content=sent or None, headers=headers)
            response = await client.send(request, stream=True)
            if not (response.is_success and is_stream(response.headers.get("content-type", ""))):
                stream = None
            try:
                limit = most_bytes if response.is_success else ERROR_BYTES
                body = await read(response, limit, self._large, None if stream is None else stream.feed)
                body = body if stream is None else _as_json(stream.answer())
            except BodyError as error:
                if response.is_success:
                    raise
                body = f"the text {error}".encode()
            finally:
                await response.aclose()
        found = response.headers
        return _Reply(response.status_code, found.get("retry-after", ""), found.get("location", ""), body)

    def _refusal(self, asked: str, reply: _Reply) -> _Failure:
        """A status other than success. Redirects are not followed: the key and the question stay with this server."""
        status, body = reply.status, _parsed(reply.body, self._secrets)
        said = body.get("error") or body if isinstance(body, dict) else body
        code = said.get("code") if isinstance(said, dict) else None
        hint = "; set OPENAI_API_KEY to a valid key, or give api_key=" if status == 401 else ""
        if status in range(300, 400):
            hint = f", a redirect to {self._said(reply.location)}; no redirect is followed: type the final address"
        again = status in PASSING or (status >= 500 and self._insists)
        return _Failure(
            f"{asked} answered {status}: {self._said(_reason(said) or _decoded(reply.body))}{hint}",
            status=status,
            again=again and code != "insufficient_quota",  # waiting does not pay a bill
            wait_s=_retry_after_s(reply.retry_after),
        )

    def clean(self, text: str) -> str:
        """``text`` without this endpoint's secrets."""
        return self._secrets.clean(text)

    def _said(self, text: str) -> str:
        """A text of the server's on one line, short and printable."""
        return one_line(self.clean(text), 300) or "(nothing)"


class _Clients:
    """HTTP clients of one connection each, made as requests need them side by side and used again, the last one first.

    One client for all would look through all of its connections for each request: with 64, half the time of a call.
    """

    def __init__(self, url: Url, key: str) -> None:
        """Raises UsageError for a proxy or certificates of the environment that cannot be used."""
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": ACCEPTED,
            "User-Agent": f"arbitrag/{__version__}",
            **({"Authorization": f"Bearer {key}"} if key else {}),
            **url.headers,
            **(_account() if _is_openai(url) else {}),
        }
        self._query = url.query
        try:
            # Reading the certificate authorities takes 0.07 s; without encryption nobody asks for them.
            plain = url.scheme == "http" and not getproxies()
            self._ssl = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else httpx.create_ssl_context()
            self._all = [self._made()]
        except (ImportError, ValueError, OSError) as error:  # not its text, which may hold a proxy's password
            raise UsageError(
                f"the proxy or the certificates of the environment cannot be used ({type(error).__name__}); "
                "see HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
            ) from None
        self._idle = list(self._all)

    @contextmanager
    def one(self) -> Iterator[httpx.AsyncClient]:
        """A client for one request at a time."""
        if not self._idle:
            self._idle.append(self._made())
            self._all.append(self._idle[0])
        client = self._idle.pop()
        try:
            yield client
        finally:
            self._idle.append(client)

    async def aclose(self) -> None:
        for client in self._all:
            await client.aclose()

    def _made(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            headers=self._headers,
            params=self._query,
            timeout=None,  # each attempt has a deadline of its own
            follow_redirects=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # none is kept
            verify=self._ssl,
        )


def _account() -> dict[str, str]:
    """The headers that name an organisation and a project of OpenAI's."""
    named = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
    return {header: os.environ[variable] for header, variable in named.items() if os.environ.get(variable)}


def _as_json(body: Mapping[str, Any]) -> bytes:
    """A request's body. A lone surrogate, which UTF-8 cannot hold, is sent as a question mark."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


def _most_bytes(body: Mapping[str, Any], sent_bytes: int) -> int:
    """How large an answer may be: by the tokens that may be written, the texts to encode, and the bytes that were sent,
    whose likelihoods may come back."""
    written = body.get("max_tokens") or body.get("max_completion_tokens") or 0
    texts = body.get("input") or ()
    return LEAST_BYTES + BYTES_PER_TOKEN * written + BYTES_PER_TEXT * len(texts) + BYTES_PER_BYTE * sent_bytes


def _decoded(body: bytes) -> str:
    return body.decode("utf-8", "replace")


def _parsed(body: bytes, secrets: Secrets) -> object:
    """JSON, in UTF-8 whatever the Content-Type says (RFC 8259), without the secrets; None for anything else."""
    try:
        return json.loads(secrets.clean_reply(body.decode("utf-8-sig")))
    except (ValueError, RecursionError):
        return None


def _is_openai(url: Url) -> bool:
    return url.scheme == "https" and f".{url.host}".endswith(".openai.com")


def _environment_key(url: Url, typed: bool) -> str:
    """OPENAI_API_KEY, for OpenAI and for servers that a person named, on the command line or in OPENAI_BASE_URL."""
    named = os.environ.get("OPENAI_BASE_URL")
    if typed or _is_openai(url) or (named and Url.of(named).origin == url.origin):
        return os.environ.get("OPENAI_API_KEY") or ""
    return ""


def _reason(body: object) -> str:
    """The message in an error body, in the forms that servers use; empty where there is none."""
    for _ in range(4):  # {"error": {"message": {"detail": ...}}}; a server may nest them without end
        if not isinstance(body, Mapping):
            break
        inner = body.get("message") or body.get("detail") or body.get("error") or ""
        if isinstance(inner, list):
            return json.dumps(inner)
        body = inner
    return body if isinstance(body, str) else ""


def _retry_after_s(value: str | None) -> float | None:
    """The seconds that a Retry-After header asks for, given as a number or as a date; None when it says nothing."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError, OSError):  # the last two for a year that no clock of this machine has
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _wait_s(attempt: int, asked_s: float | None) -> float:
    """How long to wait after a failed attempt (the first is 1): twice as long each time, up to LONGEST_WAIT_S.

    A server may ask for longer, not for less. Both are spread at random, so that callers who failed together do not
    come back together: what was asked for is lengthened, our own wait shortened by up to half.
    """
    own_s = min(FIRST_WAIT_S * 2.0 ** (attempt - 1), LONGEST_WAIT_S)
    if asked_s is None:
        return own_s * random.uniform(0.5, 1.0)
    return min(max(asked_s, own_s), LONGEST_WAIT_S / JITTER) * random.uniform(1.0, JITTER)
