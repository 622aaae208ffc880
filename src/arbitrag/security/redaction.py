"""Keep secrets out of what leaves the process: texts, errors with their whole chain, and the logs of clients."""

from __future__ import annotations

import base64
import binascii
import html
import json
import logging
import re
import traceback
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from urllib.parse import quote, quote_plus

from arbitrag.errors import ArbitragError
from arbitrag.security.addresses import HIDDEN

SHORT = 6  # characters; no key is that short, a version in an address's query may be
_USER_IN_URL = re.compile(r"(?<=://)[^\s/?#\"'<>]*@")
_CREDENTIALS = re.compile(r"\b(Basic|Bearer) +([A-Za-z0-9+/=._~-]{8,})", re.IGNORECASE)
# The loggers of the clients that are given keys and passwords, and all below them.
CLIENTS = ("httpx", "httpcore", "openai", "elastic_transport", "elasticsearch", "qdrant_client", "psycopg", "aiohttp")


class Secrets:
    """Secret texts, in each form in which a server or a client may repeat them."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        forms = {form for text in texts if text for form in _forms(text)}
        self._known = _any_of(forms)
        long = {form for form in forms if len(form) >= SHORT}
        self._long = _any_of(long)
        # How a text ends that has come to a secret and not to its end, the longest first.
        self._tails = sorted({form[:end] for form in long for end in range(SHORT, len(form))}, key=len, reverse=True)

    def clean(self, text: str) -> str:
        """``text`` without the secrets, and without any user of a URL and credentials of a header."""
        return _without_credentials(self.clean_known(text))

    def clean_known(self, text: str) -> str:
        """``text`` without the secrets alone."""
        return self._known.sub(HIDDEN, text)

    def clean_reply(self, text: str) -> str:
        """A reply, of which nothing but a long secret is taken out: a short one may be a word of the answer."""
        return self._long.sub(HIDDEN, text)

    def clean_growing(self, text: str) -> str:
        """The beginning of a reply that goes on: as ``clean_reply``, and of a long secret not its beginning either."""
        cleaned = self.clean_reply(text)
        tail = next((tail for tail in self._tails if cleaned.endswith(tail)), "")
        return cleaned.removesuffix(tail)

    def clean_error(self, error: BaseException) -> None:
        """Take the secrets out of an error, and out of every error that it came from.

        Those of other packages may hold a request with its address and headers; plain copies of their text, with
        their tracebacks, take their places.
        """
        self._clean_links(error, {id(error)})

    def _clean_links(self, error: BaseException, seen: set[int]) -> None:
        error.args = tuple(self.clean(each) if isinstance(each, str) else each for each in error.args)
        self._link(error, error, seen)

    def _link(self, error: BaseException, before: BaseException, seen: set[int]) -> None:
        """Give ``error`` clean copies of what ``before`` came from."""
        cause, context, suppressed = before.__cause__, before.__context__, before.__suppress_context__
        copied = None if cause is None else self._copy(cause, seen)
        error.__cause__ = copied
        error.__context__ = copied if context is cause else None if context is None else self._copy(context, seen)
        error.__suppress_context__ = suppressed

    def _copy(self, error: BaseException, seen: set[int]) -> BaseException | None:
        if id(error) in seen:
            return None
        seen.add(id(error))
        if isinstance(error, ArbitragError):
            self._clean_links(error, seen)
            return error
        kind = type(error)
        text = "".join(traceback.format_exception_only(error)).strip()
        copy = RedactedError(self.clean(text.removeprefix(f"{kind.__module__}.")))
        copy.__traceback__ = error.__traceback__
        self._link(copy, error, seen)
        return copy

    @contextmanager
    def kept(self) -> Iterator[None]:
        """A context manager: an error that leaves the block has its secrets removed."""
        try:
            yield
        except Exception as error:
            self.clean_error(error)
            raise

    def hide_in_logs(self) -> None:
        """Keep the secrets out of what the clients log, for as long as this object lives."""
        _LOGS.known.add(self)
        names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in CLIENTS]
        for name in (*CLIENTS, *names):
            logging.getLogger(name).addFilter(_LOGS)  # once: a filter that is there is not added again


class RedactedError(Exception):
    """The text of an error of another package, with its secrets removed."""


class _Logs(logging.Filter):
    """A log filter that removes the secrets of every open client from a client library's records."""

    def __init__(self) -> None:
        super().__init__()
        self.known: weakref.WeakSet[Secrets] = weakref.WeakSet()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and not record.exc_text:
            record.exc_text = self._clean("".join(traceback.format_exception(*record.exc_info)).rstrip("\n"))
            record.exc_info = None
        try:
            text = record.getMessage()
        except (TypeError, ValueError):  # a client's own fault; logging says so itself
            return True
        if (cleaned := self._clean(text)) != text:
            record.msg, record.args = cleaned, ()
        return True

    def _clean(self, text: str) -> str:
        for secrets in list(self.known):
            text = secrets.clean_known(text)
        return _without_credentials(text)  # at the end, or it would cut a password in two that another one knows


def _without_credentials(text: str) -> str:
    """``text`` without users of a URL and credentials of a header, known or not."""
    return _CREDENTIALS.sub(_hidden_credentials, _USER_IN_URL.sub(f"{HIDDEN}@", text))


def _hidden_credentials(found: re.Match[str]) -> str:
    """``Basic`` with a user and a password behind it, or ``Bearer`` with what looks like a key; words stay."""
    scheme, value = found[1], found[2]
    if scheme.lower() == "basic":
        try:
            is_secret = b":" in base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
        except binascii.Error:
            is_secret = False
    else:
        is_secret = len(value) >= 16 or not value.isalpha()
    return f"{scheme} {HIDDEN}" if is_secret else found.group()


def _forms(text: str) -> set[str]:
    """The text as it is, and as it stands in a URL (also in one within another), in a page, in repr, and in JSON."""
    once = {quote(text, errors="replace"), quote(text, "", errors="replace"), quote_plus(text, errors="replace")}
    upper = once | {quote(each) for each in once}
    lower = {re.sub(r"%(?:25)?[0-9A-F]{2}", lambda code: code.group().lower(), each) for each in upper}
    plain = {text, html.escape(text), repr(text)[1:-1], *upper, *lower}
    if len(text) >= SHORT:
        plain.add(base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii"))
    escaped = {json.dumps(each, ensure_ascii=ascii)[1:-1] for each in plain for ascii in (True, False)}
    return plain | escaped | {json.dumps(each)[1:-1] for each in escaped}


def _any_of(texts: set[str]) -> re.Pattern[str]:
    """Matches any of the texts; one of a few letters only as a word of its own (and in no number such as 127.0.0.1),
    or it would be found everywhere."""
    bounded = [
        re.escape(text) if len(text) >= SHORT else rf"(?<!\w)(?<!\d\.){re.escape(text)}(?!\w|\.\d)"
        for text in sorted(texts, key=len, reverse=True)
    ]
    return re.compile("|".join(bounded) or r"(?!)")


_LOGS = _Logs()
