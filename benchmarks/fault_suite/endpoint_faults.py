"""Every way in which an endpoint can answer wrongly that the fault suite knows."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from typing import Any

from fault_suite.fault_server import (
    HONEST,
    Fault,
    Request,
    completion,
    drips,
    resets,
    response,
    says,
    sends,
    zeros,
)
from fault_suite.replies import REPLIES


def _echo(connection: socket.socket, request: Request, *, status: str, where: str) -> None:
    """The whole request, secrets and all, in the answer."""
    flat = request.head.replace("\r\n", " ")
    if where == "body":
        connection.sendall(response(json.dumps({"error": {"message": request.head}}), status=status))
    elif where == "plain":
        connection.sendall(response(request.head, status=status, kind="text/plain"))
    elif where == "reason":
        connection.sendall(response("{}", status=f"{status.split()[0]} {flat[:900]}"))
    elif where == "finish":
        text = {"choices": [{"message": {"content": "x"}, "finish_reason": flat}]}
        connection.sendall(response(json.dumps(text)))
    elif where == "error":
        connection.sendall(response(json.dumps({"error": request.head})))
    else:
        connection.sendall(response("{", status=status, X_Echo=flat[:4000]))


def _echoes() -> Iterator[Fault]:
    for status in ("400 Bad Request", "401 Unauthorized", "500 Internal"):
        for where in ("body", "plain", "reason", "header"):
            yield Fault(
                f"echo of the request in the {where}, {status[:3]}",
                lambda c, r, status=status, where=where: _echo(c, r, status=status, where=where),  # type: ignore[misc]
            )
    for where in ("finish", "error"):
        yield Fault(
            f"echo of the request, 200, {where}",
            lambda c, r, where=where: _echo(c, r, status="200 OK", where=where),  # type: ignore[misc]
        )


def _statuses() -> Iterator[Fault]:
    error = json.dumps({"error": {"message": "it broke", "type": "x", "code": "y"}})
    for status in (400, 401, 402, 403, 404, 405, 406, 408, 409, 410, 411, 413, 415, 418, 421, 422, 425, 428, 429, 431):
        yield Fault(f"status {status}", says(error, status=f"{status} No"))
    for status in (451, 500, 501, 502, 503, 504, 507, 511, 529, 599, 600, 799, 999):
        yield Fault(f"status {status}", says(error, status=f"{status} No"))
    for line in ("204 No Content", "205 Reset", "304 Not Modified"):
        yield Fault(f"status {line[:3]} without a body", sends(f"HTTP/1.1 {line}\r\n\r\n".encode()))
    yield Fault("status 206 with a good body", says(completion(HONEST), status="206 Partial"), frozenset({HONEST}))
    for name, body, kind in (
        ("an empty body", b"", "application/json"),
        ("HTML", b"<html><body>" + b"<b>busy</b>" * 1000, "text/html"),
        ("binary", bytes(range(256)) * 40, "application/octet-stream"),
        ("a body of 20 MB", b"x" * 20_000_000, "text/plain"),
        ("an error that is a list", b'{"error": [1, [2, [3]]]}', "application/json"),
        ("an error that is deep", b'{"error":' * 20_000 + b"1" + b"}" * 20_000, "application/json"),
        ("a message that is a number", b'{"message": 1e999}', "application/json"),
        ("controls in the message", json.dumps({"error": "\x1b[2J\x07\u202e\ud800"}).encode(), "application/json"),
    ):
        yield Fault(f"500 with {name}", says(body, status="500 No", kind=kind))
        yield Fault(f"400 with {name}", says(body, status="400 No", kind=kind))


def _redirects(elsewhere: str) -> Iterator[Fault]:
    for status in (301, 302, 303, 307, 308):
        for where, name in ((elsewhere, "another host"), ("/v1/chat/completions", "itself")):
            yield Fault(f"redirect {status} to {name}", sends(_moved(status, where)))
    for where in ("file:///etc/passwd", "http://[::1", "//", "ftp://127.0.0.1/x", "http://127.0.0.1:99999/", "\t\x01"):
        yield Fault(f"redirect 307 to {where!r}", sends(_moved(307, where)))


def _moved(status: int, where: str) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode()


def _connections() -> Iterator[Fault]:
    good = response(completion(HONEST))
    head = good.partition(b"\r\n\r\n")[0]
    yield Fault("closed before the answer", sends())
    yield Fault("reset before the answer", resets())
    for name, end in (("status line", 7), ("header", len(head) - 9), ("body", len(good) - 20), ("end", len(good) - 1)):
        yield Fault(f"closed in the {name}", sends(good[:end]))
        yield Fault(f"reset in the {name}", resets(good[:end]))
    yield Fault("silence", drips(b"", b""))
    yield Fault("silence behind the header", drips(head + b"\r\n\r\n", b""))
    yield Fault("status line that drips", drips(b"HTTP/1.1 200 O", b"K"))
    yield Fault("header that drips", drips(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"))
    yield Fault("headers that drip", drips(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"))
    long = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999999\r\n\r\n"
    yield Fault("body that drips", drips(long, b" "))
    chunked = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    yield Fault("chunks that drip", drips(chunked, b"1\r\n \r\n"))
    yield Fault("error body that drips", drips(long.replace(b"200 OK", b"500 No"), b" "))
    yield Fault("100 Continue that drips", drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"))
    yield Fault("a body without an end", drips(chunked, b"10000\r\n" + b"x" * 65536 + b"\r\n", every_s=0))


def _lengths() -> Iterator[Fault]:
    body = completion(HONEST).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    for name, lines in (
        ("too short a length", b"Content-Length: 20\r\n"),
        ("too long a length", f"Content-Length: {len(body) + 5}\r\n".encode()),
        ("a negative length", b"Content-Length: -1\r\n"),
        ("a length in words", b"Content-Length: many\r\n"),
        ("a length of 10^18", b"Content-Length: 1000000000000000000\r\n"),
        ("a length of 5,000 digits", b"Content-Length: " + b"9" * 5000 + b"\r\n"),
        ("a length of 0", b"Content-Length: 0\r\n"),
        ("two lengths", f"Content-Length: {len(body)}\r\nContent-Length: 7\r\n".encode()),
    ):
        yield Fault(name, sends(head + lines + b"\r\n" + body))
    yield Fault("no length", sends(head + b"\r\n" + body), frozenset({HONEST}))
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    size = f"{len(body):x}\r\n".encode()
    for name, sent in (
        ("a chunk whose size is no number", b"zz\r\n" + body + b"\r\n0\r\n\r\n"),
        ("a chunk of a negative size", b"-5\r\n" + body + b"\r\n0\r\n\r\n"),
        ("a chunk of 16 exabytes", b"FFFFFFFFFFFFFFFF\r\n" + body),
        ("chunks without an end", size + body + b"\r\n"),
        ("a chunk without its line end", size + body + b"0\r\n\r\n"),
        (
            "a chunk extension of a megabyte",
            f"{len(body):x};".encode() + b"x" * 1_000_000 + b"\r\n" + body + b"\r\n0\r\n\r\n",
        ),
        ("chunks that are empty", b"0\r\n\r\n"),
        ("200,000 trailers", size + body + b"\r\n0\r\n" + b"X-T: y\r\n" * 200_000 + b"\r\n"),
    ):
        yield Fault(name, sends(chunked + sent), frozenset({HONEST}))
    both = b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
    yield Fault("chunks and a length", sends(head + both + size + body + b"\r\n0\r\n\r\n"), frozenset({HONEST}))
    yield Fault(
        "an unknown transfer encoding", sends(head + b"Transfer-Encoding: gzip\r\n\r\n" + body), frozenset({HONEST})
    )


def _encodings(bomb_bytes: int) -> Iterator[Fault]:
    body = completion(HONEST).encode()
    for name, wbits in (("gzip", 31), ("deflate", 15), ("deflate", -15)):
        yield Fault(f"a {name} bomb ({wbits})", says(zeros(bomb_bytes, wbits), Content_Encoding=name))
        yield Fault(
            f"a {name} bomb ({wbits}) with status 500",
            says(zeros(bomb_bytes, wbits), status="500 No", Content_Encoding=name),
        )
    nested = gzip.compress(zeros(bomb_bytes, 31))
    yield Fault("a bomb in a bomb", says(nested, Content_Encoding="gzip, gzip"))
    once = gzip.compress(body)
    yield Fault("gzip", says(once, Content_Encoding="gzip"), frozenset({HONEST}))
    twice = frozenset({HONEST})
    yield Fault("gzip in gzip", says(gzip.compress(once), Content_Encoding="gzip, gzip"), twice)
    layers = body
    for _ in range(50):
        layers = gzip.compress(layers, 1)
    yield Fault("50 layers of gzip", says(layers, Content_Encoding=", ".join(["gzip"] * 50)), twice)
    yield Fault("gzip that ends early", says(once[:-10], Content_Encoding="gzip"), twice)
    yield Fault("gzip of two members", says(once + gzip.compress(b" "), Content_Encoding="gzip"), twice)
    for name in ("gzip", "deflate", "br", "zstd"):
        yield Fault(f"{name} that is garbage", says(b"\x1f\x8b" + bytes(range(256)) * 4, Content_Encoding=name))
        yield Fault(f"{name} that is plain", says(body, Content_Encoding=name), twice)
    yield Fault("an unknown content encoding", says(body, Content_Encoding="rot13"), twice)


def _charsets() -> Iterator[Fault]:
    body = completion(HONEST)
    strange = [
        "rot13",
        "hex",
        "undefined",
        "base64",
        "bz2",
        "zip",
        "quopri",
        "uu",
        "idna",
        "punycode",
        "unicode_escape",
        "raw_unicode_escape",
        "mbcs",
        "oem",
    ]
    strange += ["utf-7", "utf-16", "utf-32", "utf-8-sig", "cp037", "charmap", "string_escape", "ISO-2022-JP", "latin-1"]
    strange += ["", '"', "\\x00", "x" * 9000, "utf-8; charset=hex", "../../etc"]
    for name in strange:
        kind = f"application/json; charset={name}"
        yield Fault(f"charset {name[:30]!r}", says(body, kind=kind), frozenset({HONEST}))
        yield Fault(f"charset {name[:30]!r} with status 400", says(body, kind=kind, status="400 No"))
    umlaut = completion("Zürich").replace("\\u00fc", "ü").encode("latin-1")
    yield Fault("bytes that are no UTF-8", says(umlaut), any_answer=True)
    yield Fault("a byte order mark", says(b"\xef\xbb\xbf" + body.encode()), frozenset({HONEST}))
    for encoding in ("utf-16", "utf-32", "utf-16-be"):
        yield Fault(f"a body in {encoding}", says(body.encode(encoding)), frozenset({HONEST}))
    yield Fault("the type text/html", says(body, kind="text/html"), frozenset({HONEST}))
    yield Fault("the type nonsense", says(body, kind=";;=;\x01"), frozenset({HONEST}))
    yield Fault("an event stream", says(f"data: {body}\n\ndata: [DONE]\n\n", kind="text/event-stream"))


def _protocols() -> Iterator[Fault]:
    body = completion(HONEST)
    good = response(body)
    fine = frozenset({HONEST})
    yield Fault("10,000 headers", sends(good.replace(b"\r\n", b"\r\n" + b"X-A: b\r\n" * 10_000, 1)), fine)
    yield Fault(
        "a header of a megabyte", sends(good.replace(b"\r\n", b"\r\nX-A: " + b"b" * 1_000_000 + b"\r\n", 1)), fine
    )
    for name, line in (
        ("a NUL", b"X-A: a\0b"),
        ("no colon", b"nonsense"),
        ("no name", b": b"),
        ("a fold", b"X-A: b\r\n c"),
        ("other bytes", b"X-\xff\xfe: \x80\x81"),
        ("a line feed alone", b"X-A: b\nX-B: c"),
    ):
        yield Fault(f"a header with {name}", sends(good.replace(b"\r\n", b"\r\n" + line + b"\r\n", 1)), fine)
    yield Fault("2,000 times 100 Continue", sends(b"HTTP/1.1 100 Continue\r\n\r\n" * 2_000 + good), fine)
    yield Fault(
        "2,000 times 103 Early Hints", sends(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 2_000 + good), fine
    )
    yield Fault(
        "101 Switching Protocols", sends(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + b"\0" * 100)
    )
    tls = b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03" + bytes(range(120))
    for name, sent in (
        ("a TLS handshake", tls),
        ("a TLS alert", b"\x15\x03\x03\x00\x02\x02\x28"),
        ("an SSH banner", b"SSH-2.0-OpenSSH_9.9\r\n"),
        ("an SMTP banner", b"220 mail ESMTP\r\n"),
        ("HTTP/0.9", b"<html>hello</html>"),
        ("an HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("HTTP/2 frames", b"\x00\x00\x06\x04\x00\x00\x00\x00\x00" + b"\0" * 30),
        ("a status in words", good.replace(b"200", b"abc", 1)),
        ("a status of 20", good.replace(b"200", b"20", 1)),
        ("a status of 2000", good.replace(b"200", b"2000", 1)),
        ("only line ends", b"\r\n" * 5000),
        ("random bytes", bytes((n * 7919) % 256 for n in range(5000))),
        ("a request", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    ):
        yield Fault(f"{name} in place of an answer", sends(sent))
    yield Fault("a version of 9.9", sends(good.replace(b"HTTP/1.1", b"HTTP/9.9", 1)), fine)
    yield Fault("HTTP/1.0", sends(good.replace(b"HTTP/1.1", b"HTTP/1.0", 1)), fine)
    yield Fault("two answers at once", sends(good + response(completion("Rome"))), fine)


def _documents() -> Iterator[Fault]:
    """Bodies that are no completion, or JSON at its edges."""
    for name, body in (
        ("nothing", ""),
        ("spaces", " " * 1000),
        ("an open brace", "{"),
        ("null", "null"),
        ("a list", "[]"),
        ("a number", "1e999"),
        ("a text", '"Paris"'),
        ("100,000 brackets", "[" * 100_000),
        ("100,000 closed brackets", "[" * 100_000 + "]" * 100_000),
        ("100,000 nested objects", '{"a":' * 100_000 + "1" + "}" * 100_000),
        ("choices that are deep", '{"choices": ' + "[" * 50_000 + "]" * 50_000 + "}"),
        ("an integer of 5,000 digits", '{"choices": ' + "9" * 5000 + "}"),
        ("a NUL", '{"choices": "\0"}'),
        ("two objects", completion(HONEST) + completion("Rome")),
        ("garbage behind it", completion(HONEST) + "]]]]"),
        ("single quotes", "{'choices': []}"),
        ("an error", '{"error": {"message": "overloaded"}}'),
        ("an error that is a number", '{"error": 10}'),
    ):
        yield Fault(f"a body of {name}", says(body))
    many = json.dumps({f"k{n}": n for n in range(100_000)})
    yield Fault("a body of 100,000 keys", says(many))
    twice = '{"choices": [], ' + completion(HONEST)[1:]
    yield Fault("a key that stands twice", says(twice), frozenset({HONEST}))


def _fields() -> Iterator[Fault]:
    """A wrong value in the place of each field."""
    fine = frozenset({HONEST})
    values: tuple[Any, ...] = (None, True, -1, 1.5, "x", [], {}, [None], [[]], [{}], {"a": 1})
    for value in values:
        yield Fault(f"choices: {value!r}", says(json.dumps({"choices": value})))
        choice = {"index": 0, "finish_reason": "stop", "message": value}
        yield Fault(f"message: {value!r}", says(json.dumps({"choices": [choice]})))
        text = says(completion(value))
        yield Fault(f"content: {value!r}", text, frozenset({"x"}) if value == "x" else frozenset())
        finish = {"choices": [{"message": {"content": HONEST}, "finish_reason": value}]}
        yield Fault(f"finish_reason: {value!r}", says(json.dumps(finish)), fine)
        yield Fault(f"usage: {value!r}", says(completion(HONEST, usage=value)), fine)
    numbers = ("null", "true", "-1", "1.5", '"9"', "[]", "{}", "NaN", "Infinity", "-Infinity", "1e308", "1e400")
    for number in (*numbers, "9" * 400, "9" * 5000, str(2**63), str(2**31)):
        shown = number if len(number) < 12 else f"{len(number)} digits"
        for name in ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "cached_tokens"):
            inner = f'{{"{name}": {number}}}'
            used = f'{{"prompt_tokens": 5, "prompt_tokens_details": {inner}}}' if name == "cached_tokens" else inner
            body = completion(HONEST, usage="USAGE").replace('"USAGE"', used)
            yield Fault(f"{name}: {shown}", says(body), fine)
        logprobs = completion(HONEST).replace('"index": 0', f'"logprobs": {{"content": [{{"logprob": {number}}}]}}')
        yield Fault(f"logprob: {shown}", says(logprobs), fine)
        yield Fault(
            f"index, id and model: {shown}",
            says(completion(HONEST)[:-1] + f', "id": {number}, "model": {number}}}'),
            fine,
        )


def _replies() -> Iterator[Fault]:
    for name, text in REPLIES.items():
        yield Fault(f"reply: {name}", says(completion(text)), any_answer=True)


def _waits() -> Iterator[Fault]:
    values = ("-1", "0", "0.0001", "1e308", "1e400", "inf", "nan", "9" * 400, "", "soon", "\x7f", "0x10", "١", "--1")
    dates = ("Fri, 31 Dec 9999 23:59:59 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "Mon, 99 Foo 2026 99:99:99 GMT")
    odd = ("Mon, 01 Jan 0001 00:00:00 +2359", "Mon, 01 Jan 99999 00:00:00 GMT", "1 Jan 2026 00:00:00 -99999999")
    for value in (*values, *dates, *odd):
        for status in (429, 503):
            head = response('{"error": "busy"}', status=f"{status} Busy", Retry_After=value)
            yield Fault(f"{status} with Retry-After {value[:34]!r}", sends(head))


def catalogue(elsewhere: str, bomb_bytes: int) -> list[Fault]:
    """Every fault; ``elsewhere`` is an address to which redirects lead, ``bomb_bytes`` the size of unpacked bombs."""
    return [
        *_statuses(),
        *_redirects(elsewhere),
        *_connections(),
        *_lengths(),
        *_encodings(bomb_bytes),
        *_charsets(),
        *_protocols(),
        *_documents(),
        *_fields(),
        *_replies(),
        *_waits(),
        *_echoes(),
    ]
