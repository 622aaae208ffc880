from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from arbitrag.errors import DataError
from arbitrag.storage.lines import Piped, TextLine, lines, lines_of


def test_lines_have_numbers_and_end_where_the_next_begins() -> None:
    content = "\ufeffä\r\n\n b\rc \nlast".encode()
    found = list(lines(Piped(content)))
    assert [(line.number, line.text, line.ended) for line in found] == [
        (1, "ä", True),
        (2, "", True),
        (3, " b\rc ", True),
        (4, "last", False),
    ]
    assert [line.end for line in found] == [7, 8, 14, 18]
    assert not any(line.fault for line in found)


def test_a_mark_counts_as_one_only_at_the_beginning() -> None:
    assert [line.text for line in lines(Piped("a\n\ufeffb".encode()))] == ["a", "\ufeffb"]


def test_what_is_no_utf8_is_told_with_its_place() -> None:
    bad, good = lines(Piped(b"caf\xe9!\nb\n"))
    assert bad == TextLine(1, "caf\ufffd!", "not UTF-8 at byte 4", 6)
    assert good == TextLine(2, "b", "", 8)


@pytest.mark.parametrize("rest", [b"\nnext\n", b"\nnext", b"", b"\n"])
def test_a_line_that_is_too_long_has_no_text_and_the_next_one_is_read(rest: bytes) -> None:
    longest = 1 << 20
    fitting, long = b"a" * (longest - 1) + b"\n", b"b" * longest
    first, second, *others = lines_of(BytesIO(fitting + long + b"c" * (2 * longest) + rest), longest)
    assert (first.text, first.fault, first.end) == ("a" * (longest - 1), "", longest)
    assert (second.text, second.fault) == ("", "longer than 1 MB; a line holds one row")
    assert second.end == 4 * longest + rest.startswith(b"\n")
    assert [line.text for line in others] == [rest.decode().strip()] * (b"next" in rest)


def test_a_line_of_exactly_the_bound_is_read() -> None:
    (line,) = lines_of(BytesIO(b"abcd"), 4)
    assert (line.text, line.fault, line.ended) == ("abcd", "", False)
    (line,) = lines_of(BytesIO(b"abcde"), 4)
    assert (line.text, line.end) == ("", 5)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows.txt cannot be read: No such file or directory$"):
        list(lines(tmp_path / "rows.txt"))
