"""One OpenAI-compatible server: its address and key, how many requests at a time, when to try again, errors in words.

Requests go through the official client; its own retries are off, so that there is one rule, the one below. Keys, and
whatever else in an address is secret, are taken out of every text that leaves this module.
"""

from __future__ import annotations

import asyncio
import copy
import json
import math
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import openai

from arbitrag.address import Url
from arbitrag.errors import BackendError, UsageError
from arbitrag.hiding import Secrets
from arbitrag.text import one_line

OPENAI = "https://api.openai.com/v1"
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0
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
        self._secrets = Secrets({key, *url.secrets})
        self._secrets.hide_in_logs()
        self._places = asyncio.Semaphore(concurrency)
        self._retries = retries
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._insists = True
        self._client = openai.AsyncOpenAI(
            api_key=key or "no-key",  # the client wants one; a server without keys does not look at it
            base_url=url.base,
            default_query=url.query,
            default_headers=url.headers,
            timeout=timeout_s,
            max_retries=0,
        )

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
        return str(self._client.base_url).rstrip("/").removesuffix("/v1")

    async def get(self, path: str) -> dict[str, Any]:
        """As ``post``, without a body."""
        return await self._request(path, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The server's answer, a JSON object. ``path`` is relative to the base URL, or a whole address.

        Raises BackendError after the last attempt. Its ``status`` is None when no answer came at all, and 200 when one
        came that is not a JSON object.
        """
        return await self._request(path, dict(body))

    async def aclose(self) -> None:
        await self._client.close()

    async def _request(self, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        # The place is kept while waiting: a server that says "too many requests" should see fewer of them.
        async with self._places:
            attempt = 0
            while True:
                attempt += 1
                answer = await self._attempt(path, body)
                if not isinstance(answer, _Failure):
                    return answer
                retries = self._retries if self._insists or answer.status is not None else PROBE_RETRIES
                if not answer.again or attempt > min(retries, self._retries):
                    tried = f" ({attempt} attempts)" if attempt > 1 else ""
                    raise BackendError(self.clean(f"{answer.message}{tried}"), status=answer.status)
                await self._sleep(_wait_s(attempt, answer.wait_s))

    async def _attempt(self, path: str, body: dict[str, Any] | None) -> dict[str, Any] | _Failure:
        asked = self.shown.removesuffix("/v1") + path[len(self.root) :] if "://" in path else f"{self.shown}/{path}"
        try:
            if body is None:
                text = await self._client.get(path, cast_to=str)
            else:
                text = await self._client.post(path, cast_to=str, body=body)
        except openai.APITimeoutError:
            return _Failure(f"{asked} gave no answer within {self._timeout_s:g} s", again=True)
        except openai.APIConnectionError as error:
            why = f"{type(error.__cause__).__name__}: {error.__cause__}" if error.__cause__ else str(error)
            return _Failure(f"{asked} cannot be reached, or cut the connection: {self._said(why)}", again=True)
        except openai.APIStatusError as error:
            return self._refusal(asked, error)
        except openai.OpenAIError as error:
            return _Failure(f"{asked} gave an answer that cannot be read: {self._said(str(error))}", status=200)
        except UnicodeDecodeError:
            text = ""
        try:
            answer = json.loads(self._secrets.clean_reply(text))
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict):
            return answer
        return _Failure(f"{asked} answered with something that is not a JSON object: '{self._said(text)}'", status=200)

    def _refusal(self, asked: str, error: openai.APIStatusError) -> _Failure:
        status, code = error.status_code, getattr(error, "code", None)
        hint = "; set OPENAI_API_KEY to a valid key, or give api_key=" if status == 401 else ""
        again = status in PASSING or (status >= 500 and self._insists)
        return _Failure(
            f"{asked} answered {status}: {self._said(_reason(error.body) or error.response.text)}{hint}",
            status=status,
            again=again and code != "insufficient_quota",  # waiting does not pay a bill
            wait_s=_retry_after_s(error.response.headers.get("retry-after")),
        )

    def clean(self, text: str) -> str:
        """``text`` without this endpoint's secrets."""
        return self._secrets.clean(text)

    def _said(self, text: str) -> str:
        """A text of the server's on one line, short and printable."""
        return one_line(self.clean(text), 300) or "(nothing)"


def _is_openai(url: Url) -> bool:
    return url.scheme == "https" and f".{url.host}".endswith(".openai.com")


def _environment_key(url: Url, typed: bool) -> str:
    """OPENAI_API_KEY, for OpenAI and for servers that a person named, on the command line or in OPENAI_BASE_URL."""
    named = os.environ.get("OPENAI_BASE_URL")
    if typed or _is_openai(url) or (named and Url.of(named).origin == url.origin):
        return os.environ.get("OPENAI_API_KEY") or ""
    return ""


def _reason(body: object) -> str:
    """The message in an error body, in the forms that servers use."""
    if isinstance(body, Mapping):
        inner = body.get("message") or body.get("detail") or body.get("error") or ""
        return inner if isinstance(inner, str) else _reason(inner) or json.dumps(inner, default=str)
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
        except ValueError:
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _wait_s(attempt: int, asked_s: float | None) -> float:
    """How long to wait after a failed attempt (the first is 1): what the server asked for, or twice as long each time.

    The jitter takes up to half away, so that callers who failed together do not come back together.
    """
    if asked_s is not None:
        return min(asked_s, LONGEST_WAIT_S)
    return min(FIRST_WAIT_S * 2.0 ** (attempt - 1), LONGEST_WAIT_S) * random.uniform(0.5, 1.0)
