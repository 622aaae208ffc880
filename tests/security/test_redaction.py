"""Secrets are taken out of texts, errors with all they came from, and what clients log."""

from __future__ import annotations

import io
import logging
import traceback
from collections.abc import Iterator

import pytest

from arbitrag.errors import BackendError
from arbitrag.security.redaction import CLIENTS, Secrets

SECRET = "p@ss/w%rd"


@pytest.mark.parametrize(
    "text",
    [
        "wrong password p@ss/w%rd given",
        "GET /v1?key=p%40ss%2Fw%25rd HTTP/1.1",
        "GET /v1?key=p%40ss%2fw%25rd HTTP/1.1",
        "cannot reach http://anna:p%40ss/w%25rd@host",
        "basic cEBzcy93JXJk",  # the password alone in base64
        "p@ss/w%rdp@ss/w%rd",
    ],
)
def test_a_secret_in_each_form_is_hidden(text: str) -> None:
    cleaned = Secrets([SECRET]).clean(text)
    assert "[hidden]" in cleaned
    assert not any(piece in cleaned for piece in ("p@ss", "w%rd", "w%25rd", "cEBz"))


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("you sent Basic YW5uYTpwQHNz", "you sent Basic [hidden]"),
        ("you sent bearer abcdefgh12345678", "you sent bearer [hidden]"),
        ("http://u:first@SECOND@host/v1", "http://[hidden]@host/v1"),
        ("Basic authentication is needed, or a Bearer token", "Basic authentication is needed, or a Bearer token"),
        ("write to me@example.org about http://host/a", "write to me@example.org about http://host/a"),
    ],
)
def test_credentials_that_are_not_known_are_hidden_by_their_form(text: str, cleaned: str) -> None:
    assert Secrets().clean(text) == cleaned


def test_a_reply_loses_no_word_that_is_a_short_secret() -> None:
    secrets = Secrets(["1", "a-long-secret"])
    assert secrets.clean_reply("1 key: a-long-secret") == "1 key: [hidden]"
    assert secrets.clean("1 key: a-long-secret") == "[hidden] key: [hidden]"


def test_a_reply_that_grows_shows_no_beginning_of_a_secret() -> None:
    secrets = Secrets(["sk-0123456789", "short"])
    whole = "you sent sk-0123456789 and more"
    shown = [secrets.clean_growing(whole[:end]) for end in range(len(whole) + 1)]
    assert shown[-1] == "you sent [hidden] and more"
    assert all("sk-012" not in text for text in shown)
    assert shown[12] == "you sent sk-"  # so little of it may be a word


class Foreign(Exception):
    """As a client's: its text comes from what it holds, not from its arguments."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __str__(self) -> str:
        return f"no answer from {self.url}"


def fail() -> None:
    try:
        try:
            raise Foreign(f"http://u:{SECRET}@host")
        except Foreign as inner:
            raise ValueError(SECRET) from inner
    except ValueError as error:
        raise BackendError(f"failed with {SECRET}") from error


def test_an_error_is_cleaned_with_all_that_it_came_from() -> None:
    with pytest.raises(BackendError) as raised, Secrets([SECRET]).kept():
        fail()
    whole = "".join(traceback.format_exception(raised.value))
    assert SECRET not in whole
    assert "failed with [hidden]" in whole
    assert "ValueError: [hidden]" in whole
    assert "Foreign: no answer from http://[hidden]@host" in whole
    for error in linked(raised.value):
        assert SECRET not in f"{error}{error!r}{error.__dict__}"


def linked(error: BaseException) -> Iterator[BaseException]:
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None:
            yield each
            waiting += [each.__cause__, each.__context__]


@pytest.mark.parametrize("name", [*CLIENTS, "openai._base_client", "httpcore.http11", "psycopg.pool"])
def test_the_logs_of_clients_are_cleaned(name: str) -> None:
    logger = logging.getLogger(name)
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    secrets, others = Secrets([SECRET]), [Secrets([str(n)]) for n in range(9)]
    for each in (secrets, *others):
        each.hide_in_logs()
    try:
        logger.info("HTTP Request: POST %s", f"http://u:{SECRET}@host/v1?key={SECRET}")
        try:
            raise Foreign(SECRET)
        except Foreign:
            logger.exception("it failed")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert SECRET not in out.getvalue()
    assert "HTTP Request: POST http://[hidden]@host/v1?key=[hidden]" in out.getvalue()
    assert "no answer from [hidden]" in out.getvalue()
