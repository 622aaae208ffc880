"""What of an address may be stored: an allow-list, by the grammar of each kind of address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbitrag.errors import UsageError
from arbitrag.security.addresses import Url, connection_pairs, secrets_in, shown, split_server, without_secrets


@pytest.mark.parametrize(
    ("text", "base", "user", "password"),
    [
        ("http://u:first@SECOND@host/v1", "http://host/v1", "u", "first@SECOND"),  # the last @ ends the user
        ("http://u:a:b%2F%25@host:1", "http://host:1", "u", "a:b/%"),
        ("http://key@[::1]:8000/v1/", "http://[::1]:8000/v1", "key", ""),
        ("https://HOST/v1?api_key=x&api-version=2", "https://host/v1", "", ""),
    ],
)
def test_a_url_is_taken_apart(text: str, base: str, user: str, password: str) -> None:
    url = Url.of(text)
    assert (url.base, url.user, url.password) == (base, user, password)
    assert "first" not in repr(url)


@pytest.mark.parametrize(
    "text",
    [
        "http://u:pa/ss@host/v1",  # the host would be u, and half of the password its path
        "http://u:12/34@host/v1",
        "http://u:12?34@host/v1",
        "http://u:12#34@host/v1",
        "http://good\\@evil/v1",
        "http://good\t.evil/v1",
        "ftp://host/v1",
    ],
)
def test_a_url_that_is_not_clear_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError, match="this is not a server's address") as raised:
        Url.of(text)
    assert "34" not in str(raised.value)
    assert "u:" not in str(raised.value)


def test_the_header_and_the_secrets_of_a_url() -> None:
    url = Url.of("http://anna:p%40ss@host/v1?api_key=k%20y&api-version=2024-10-21")
    assert url.headers == {"Authorization": "Basic YW5uYTpwQHNz"}
    assert url.query == {"api_key": "k y", "api-version": "2024-10-21"}
    assert {"p%40ss", "p@ss", "k y", "YW5uYTpwQHNz"} <= url.secrets
    assert not url.secrets & {"anna", "2024-10-21"}
    assert "anna" in Url.of("http://anna@host").secrets  # then it stands for a password
    assert Url.of("http://host").headers == {}


@pytest.mark.parametrize(
    ("address", "stored"),
    [
        ("lab", "lab"),
        ("docs.idx", "docs.idx"),
        ("onnx:folder?threads=2", "onnx:folder?threads=2"),
        ("openai:@cf/meta/m", "openai:@cf/meta/m"),
        ("openai:m@http://u:first@SECOND@host:8000/v1", "openai:m@http://host:8000/v1"),
        ("openai:m@https://u:p@h/v1?api_key=k&api-version=2024-10-21", "openai:m@https://h/v1?api-version=2024-10-21"),
        ("--llm=openai:m@https://u:p@h/v1", "--llm=openai:m@https://h/v1"),
        ("openai:m@http://u:pa/ss@h/v1", "openai:m@http://[hidden]"),
        ("openai:m@http://u:12/34@h/v1", "openai:m@http://[hidden]"),
        ("openai:m@http://u:12?34@h/v1", "openai:m@http://[hidden]"),
        ("openai:m@http://u:12#34@h/v1", "openai:m@http://[hidden]"),
        ("openai:m@http://h:secret/v1", "openai:m@http://[hidden]"),
        ("postgres:postgresql://u:p@ss@h:1,h2/db?password=x&sslmode=on", "postgres:postgresql://h:1,h2/db?sslmode=on"),
        ("postgres://u:p@h/db?table=a.b", "postgres://h/db?table=a.b"),
        ("postgres:host=h password=secret dbname=x", "postgres:host=h dbname=x"),
        ("postgres:host=h password = 'se \\' cret' dbname=x?table=t", "postgres:host=h dbname=x?table=t"),
        ("postgres:password=a?b host='a b'", "postgres:host='a b'"),
        ("postgres:host=h password='open", "postgres:[hidden]"),
        ("postgresql:password=x://y host=h sslpassword=z", "postgresql:host=h"),
        ("elastic:https://u:p@h:9200/index?mode=text", "elastic:https://h:9200/index?mode=text"),
        (
            "qdrant:http://:p@h/c?encoder=openai:m@http://u:q@g/v1",
            "qdrant:http://h/c?encoder=openai:m@http://g/v1",
        ),
    ],
)
def test_what_is_stored_of_an_address(address: str, stored: str) -> None:
    assert shown(address) == stored
    assert shown(stored) == stored


def test_a_command_line_says_where_something_was_left_out() -> None:
    words = ["run", "--llm", "openai:m@https://me:pass@host/v1?key=abc", "--index", "postgres:host=h password=x", "a b"]
    assert without_secrets(words) == (
        "run --llm 'openai:m@https://[hidden]@host/v1?[hidden]' --index 'postgres:host=h [hidden]' 'a b'"
    )


_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@given(_TEXTS, st.sampled_from(["'{}'", "{}"]), st.lists(st.sampled_from([" ", "\t", ""]), min_size=2, max_size=2))
def test_pairs_are_read_as_libpq_reads_them(password: str, form: str, spaces: list[str]) -> None:
    conninfo = pytest.importorskip("psycopg.conninfo")
    escaped = "".join(f"\\{each}" if each in "'\\" or each.isspace() else each for each in password)
    text = f"host=h password{spaces[0]}={spaces[1]}{form.format(escaped)} dbname=x"
    try:
        wanted = conninfo.conninfo_to_dict(text)
    except Exception:  # noqa: BLE001  (what libpq refuses may be refused or read here; nothing is opened with it)
        return
    assert connection_pairs(text) == wanted


@given(_TEXTS)
def test_no_password_is_stored(password: str) -> None:
    secret = f"S3cr{password}eT"
    for address in (f"openai:m@http://u:{secret}@host/v1", f"postgres:postgresql://u:{secret}@host/db"):
        stored = shown(address)
        assert "S3cr" not in stored
        assert "eT" not in stored


def test_model_and_server() -> None:
    assert split_server("@cf/m@https://u@h/v1") == ("@cf/m", "https://u@h/v1")
    assert split_server("gpt-4o-mini") == ("gpt-4o-mini", "")


@pytest.mark.parametrize(
    "address",
    [
        "openai:m@://u:secret@h/v1",
        "openai:m@http>://u:secret@h",
        "://secret@h",
        "h://://s:secret@h",
        "openai:m@u:secret@h",
    ],
)
def test_a_password_behind_a_scheme_that_is_none_is_not_shown(address: str) -> None:
    assert "secret" not in shown(address)
    assert "secret" not in shown(address, mark="[hidden]")


def test_half_of_a_surrogate_pair_in_an_option() -> None:
    assert shown("postgres://u:secret@h/db?table=\ud800") == "postgres://h/db?table=%3F"


@pytest.mark.parametrize(
    ("word", "secrets"),
    [
        ("docs.idx", set()),
        ("openai:m@https://host/v1?api-version=2024", set()),
        ("openai:m@http://u:first@SECOND@h/v1?key=k", {"first@SECOND", "k"}),
        ("openai:m@http://u:p%40ss@h", {"p%40ss", "p@ss"}),
        ("--llm=openai:m@http://tok@h", {"tok"}),
        ("openai:m@http://u:pa/ss@h", {"u", "pa", "ss", "pa/ss"}),
        ("openai:m@u:pass@h", {"pass"}),
        ("postgres:host=h user=me password='se cret' dbname=x", {"se cret"}),
        ("postgres:host=h password='open", {"host", "h", "password", "open"}),
        ("postgres:password=q?encoder=openai:m@http://u:p@h", {"q", "p"}),
        ("qdrant:http://:q@h/c?encoder=openai:m@http://u:p@g", {"q", "p"}),
    ],
)
def test_the_secrets_among_words(word: str, secrets: set[str]) -> None:
    assert secrets_in([word]) == secrets


@pytest.mark.parametrize(
    "pairs", ["host= password=secret", "dbname='host=h password=secret'", "host=h dbname= password=secret"]
)
def test_a_value_that_swallowed_the_next_pair_is_not_shown(pairs: str) -> None:
    assert "secret" not in shown(f"postgres:{pairs}")
