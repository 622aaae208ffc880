import codecs
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from arbitrag.retrieve.documents.ingest import read_document
from arbitrag.retrieve.documents.readers import NotReadable
from arbitrag.types import Passage


def read(folder: Path, name: str, content: bytes | str, tokens: int = 256) -> tuple[list[Passage], list[str]]:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    document = read_document(path, name, tokens)
    return list(document.passages), document.notes


@pytest.mark.parametrize(
    ("name", "content", "title"),
    [
        ("notes.txt", "# Not a heading\ntext", "notes"),
        ("README", "text", "README"),
        ("a.b.txt", "text", "a.b"),
        ("x.md", "text\n\n## The Heading ##\n\n# Later", "The Heading"),
        ("x.md", "Setext Title\n============\ntext", "Setext Title"),
        ("x.md", "```\n# in code\n```\n# Real\n", "Real"),
        ("x.md", "---\nauthor: A\ntitle: 'From the front'\n---\n# Heading", "From the front"),
        ("x.md", "---\nauthor: A\n---\n# Heading", "Heading"),
        ("x.md", '---\ntitle:\ntitle:"Second" \n---\n# Heading', "Second"),
        ("x.md", "---\ntitle: not closed\n# Heading", "Heading"),
        ("x.md", "no heading at all", "x"),
        ("x.md", "#hashtag is no heading", "x"),
        ("x.md", "#  \n# C#  \ntext", "C"),
        ("x.md", "# a" + " " * 100_000 + "b", "a"),  # a pattern that tries all ways never ends
        ("x.html", "<title> Two\n words </title><h1>No</h1>text", "Two words"),
        ("x.html", "<h1>The <i>first</i></h1>text", "The first"),
        ("x.html", "<p>text", "x"),
        ("x.html", "<title>A &amp;lt; B</title>text", "A &lt; B"),  # decoded once
    ],
)
def test_titles(tmp_path: Path, name: str, content: str, title: str) -> None:
    passages, _ = read(tmp_path, name, content)
    assert {passage.title for passage in passages} == {title}


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>AT&amp;T&#39;s <b>bo</b>ld<br>next</p>tail", "AT&T's bold\nnext\n\ntail"),
        ("<script>var x = '<p>no</p>'</script><style>p {}</style><p>yes", "yes"),
        ("a<!-- no -->b", "ab"),
        ("<ul><li>one<li>two</ul>", "one\ntwo"),
        ("<table><tr><td>1<td>2<tr><td>3<td>4</table>", "1 2\n3 4"),
        ("<pre>line one\nline two</pre>", "line one\nline two"),
        ("many \n\n\t spaces&nbsp;&nbsp; here", "many spaces here"),
        ("<p>unclosed <div>nested </b> wrong", "unclosed\n\nnested wrong"),
        ("<p>y<noscript>no</noscript><template>no</template>es", "yes"),
        ("&lt;script&gt;shown&lt;/script&gt;", "<script>shown</script>"),
        ("<div>" * 3000 + "deep", "deep"),
    ],
)
def test_html_is_read_as_a_browser_shows_it(tmp_path: Path, html: str, text: str) -> None:
    (passage,), _ = read(tmp_path, "x.html", html)
    assert passage.text == text


@pytest.mark.parametrize(
    "html",
    ["<div>" * 200_000, "".join(f"<p><b class=c{n}>" for n in range(600)) + "text", "<script></script><u>" * 501],
)
def test_a_page_that_no_parser_can_bear_is_refused(tmp_path: Path, html: str) -> None:
    with pytest.raises(NotReadable, match="too many elements left open inside each other"):
        read(tmp_path, "x.html", html)


@pytest.mark.parametrize(
    "html",
    [
        "<script>" + "if (a<b) x;" * 1000 + "</script>text",
        "<!--" + "<b>" * 1000 + "-->text",
        "<p>" * 30_000 + "text",
        "<b></b>" * 1000 + "text",
        "</b>" * 1000 + "text",
        "<div><b>" * 499 + "text",
    ],
)
def test_a_page_of_many_elements_is_read(tmp_path: Path, html: str) -> None:
    (passage,), _ = read(tmp_path, "x.html", html)
    assert passage.text == "text"


def test_rows_bring_their_metadata_flat_or_as_an_object(tmp_path: Path) -> None:
    row = {"text": "t", "land": "north", "metadata": {"language": "de", "year": 1931, "title": "T", "none": None}}
    plain = {"text": "t", "metadata": "a string"}
    found, _ = read(tmp_path, "x.jsonl", f"{json.dumps(row)}\n{json.dumps(plain)}")
    assert [passage.metadata for passage in found] == [
        {"land": "north", "language": "de", "year": "1931", "title": "T"},
        {"metadata": "a string"},
    ]


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.txt", codecs.BOM_UTF8 + "é".encode(), "é"),
        ("a.txt", "é x".encode("utf-16"), "é x"),
        ("a.txt", codecs.BOM_UTF16_BE + "é x".encode("utf-16-be"), "é x"),
        ("a.txt", "é x".encode("utf-32"), "é x"),
        ("a.txt", b"one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("a.html", b'<meta charset="iso-8859-1"><p>caf\xe9 \x93x\x94', "café “x”"),
        (
            "a.html",
            '<meta http-equiv="Content-Type" content="text/html; charset=shift_jis">日本'.encode("shift_jis"),
            "日本",
        ),
        ("a.html", '<meta charset="no-such-thing">é'.encode(), "é"),
        ("a.html", '<meta charset="utf-16">é'.encode(), "é"),
        ("a.html", '<meta charset="unicode_escape">\\u0041é'.encode(), "\\u0041é"),
    ],
)
def test_encodings(tmp_path: Path, name: str, content: bytes, text: str) -> None:
    (passage,), notes = read(tmp_path, name, content)
    assert passage.text == text
    assert notes == []


def test_a_few_invalid_bytes_are_replaced_and_said(tmp_path: Path) -> None:
    (passage,), notes = read(tmp_path, "a.txt", b"x" * 198 + b" \xff\xfe")  # 2 of 201; of 200 would be 1%
    assert passage.text == "x" * 198 + " \ufffd\ufffd"
    assert notes == ["2 invalid UTF-8 bytes replaced"]


def test_genuine_replacement_characters_are_not_invalid(tmp_path: Path) -> None:
    (passage,), notes = read(tmp_path, "a.txt", "\ufffd\ufffd x")
    assert (passage.text, notes) == ("\ufffd\ufffd x", [])


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.txt", b"", "empty"),
        ("a.txt", b"abc\0def", "binary, not text"),
        ("a.md", b"\x7fELF\x02\x01\x01\x00", "binary, not text"),
        ("a.txt", b"caf\xe9 au lait", "not UTF-8 text (8.3% of its bytes are invalid)"),
        ("a.txt", b"x" * 98 + b" \xff", "not UTF-8 text (1.0% of its bytes are invalid)"),  # exactly the bound
        ("a.html", b"", "empty"),
        ("a.html", b"<script>only</script>", "holds no text"),
        ("a.html", b"\x89PNG\x00\x00", "binary, not text"),
        ("a.pdf", b"not a pdf at all", "not a PDF that can be read (PdfStreamError)"),
        ("a.pdf", b"", "not a PDF that can be read (EmptyFileError)"),
        ("a.jsonl", b"", "empty"),
        ("a.jsonl", b"\n\n", "holds no row"),
        ("a.jsonl", b"{}\0", "binary, not text"),
        ("a.jsonl", b"not json", "no usable row; line 1: not JSON"),
        ("a.jsonl", b"[" * 100_000, "no usable row; line 1: not JSON"),
        ("a.jsonl", b'["text"]', 'no usable row; line 1: a list; expected an object {"text": …}'),
        ("a.jsonl", b"12", 'no usable row; line 1: a number; expected an object {"text": …}'),
        ("a.jsonl", b'{"body": "x", "id": 1}', "no usable row; line 1: has no 'text'; its keys are 'body', 'id'"),
        ("a.jsonl", b"{}", "no usable row; line 1: has no 'text'; its keys are none"),
        ("a.jsonl", b'{"text": ["x"]}', "no usable row; line 1: 'text' is a list; expected a string"),
        ("a.jsonl", b'{"text": null}', "no usable row; line 1: 'text' is empty"),
        ("a.jsonl", b'{"text": " "}', "no usable row; line 1: 'text' is empty"),
        ("a.jsonl", b'{"text": "x", "title": 3}', "no usable row; line 1: 'title' is a number; expected a string"),
        ("a.jsonl", b'{"text": "x", "source": {}}', "no usable row; line 1: 'source' is an object; expected a string"),
        (
            "a.jsonl",
            b'{"text": 1}\n{"text": 2}',
            "no usable row; line 1: 'text' is a number; expected a string",
        ),
    ],
)
def test_a_file_of_no_use_is_refused_with_the_reason(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    with pytest.raises(NotReadable) as refused:
        read(tmp_path, name, content)
    assert str(refused.value) == reason
    assert refused.value.lasting


def test_offsets_and_lines_are_places_in_the_file(tmp_path: Path) -> None:
    text = "# Title\n\n" + "\n\n".join(f"Paragraph {number} says this. And then that." for number in range(50))
    passages, _ = read(tmp_path, "a.md", text, tokens=32)
    assert len(passages) > 10
    for passage in passages:
        assert passage.offset is not None
        assert text[passage.offset :].startswith(passage.text)
        assert text.split("\n")[(passage.line or 0) - 1].startswith(passage.text.split("\n")[0])
        assert passage.source == "a.md"
    assert len({passage.id for passage in passages}) == len(passages)


def test_ids_stay_the_same_as_long_as_the_passage_does(tmp_path: Path) -> None:
    first, _ = read(tmp_path, "a.txt", "Same text.")
    again, _ = read(tmp_path, "a.txt", "Same text.")
    other, _ = read(tmp_path, "b.txt", "Same text.")
    assert first[0].id == again[0].id != other[0].id
    assert len(first[0].id) == 16


def test_rows_of_json_carry_their_fields(tmp_path: Path) -> None:
    rows = [
        {"text": "One.", "title": "T", "id": 7, "date": "2020-01-02", "year": 1931, "tags": ["a"], "none": None},
        {"text": "Two.", "source": "https://example.org/two", "lang": "de"},
        {"text": "w " * 40, "id": "long"},
        {"text": "Three."},
    ]
    content = "\ufeff" + "\n\n".join(json.dumps(row) for row in rows)
    passages, notes = read(tmp_path, "rows.jsonl", content, tokens=26)
    one, two, long, longer, three = passages
    assert one == Passage("One.", "7", "T", "rows.jsonl", 1, 0, None, "2020-01-02", {"year": "1931", "tags": '["a"]'})
    assert (two.source, two.title, two.line, two.offset) == ("https://example.org/two", "two", None, 0)
    assert (long.id, longer.id, long.line, longer.offset) == ("long", "long#2", 5, 40)
    assert (three.title, three.line, len(three.id)) == ("rows", 7, 16)
    assert notes == []


def test_bad_rows_are_named_and_the_others_read(tmp_path: Path) -> None:
    content = "\n".join(["{", '{"text": "good"}', '{"text": 5}', *["[]"] * 30])
    passages, notes = read(tmp_path, "rows.jsonl", content)
    assert [passage.text for passage in passages] == ["good"]
    assert notes[:2] == ["line 1 passed over: not JSON", "line 3 passed over: 'text' is a number; expected a string"]
    assert len(notes) == 21
    assert notes[-1] == "12 more lines passed over"


def test_a_row_beyond_all_measure_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arbitrag.retrieve.documents.readers._LONGEST_ROW", 100)
    content = json.dumps({"text": "x" * 300}) + '\n{"text": "good"}\n'
    passages, notes = read(tmp_path, "rows.jsonl", content)
    assert [(passage.text, passage.line) for passage in passages] == [("good", 2)]
    assert notes == ["line 1 passed over: longer than 0 MB; a line holds one row"]


@pytest.mark.parametrize("extra", [{"title": "x" * 70_000}, {"tag": "x" * 70_000}, {"x" * 70_000: 1}])
def test_what_every_passage_of_a_row_repeats_is_bounded(tmp_path: Path, extra: dict[str, object]) -> None:
    content = json.dumps({"text": "word " * 100_000} | extra) + '\n{"text": "good"}\n'
    passages, notes = read(tmp_path, "rows.jsonl", content)
    assert [passage.text for passage in passages] == ["good"]
    assert notes[0].startswith("line 1 passed over: its title and metadata have 70,00")


def test_a_heading_without_an_end_is_a_short_title(tmp_path: Path) -> None:
    passages, _ = read(tmp_path, "x.md", "# " + "word " * 40_000)
    assert {passage.title for passage in passages} == {("word " * 60).strip()}


def test_a_page_beyond_all_measure_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arbitrag.retrieve.documents.readers.LARGEST_PAGE", 100)
    with pytest.raises(NotReadable, match="an HTML file of over 0 MB"):
        read(tmp_path, "a.html", "x" * 101)


def test_a_pdf_is_read_page_by_page(tmp_path: Path, make_pdf: Callable[..., Path]) -> None:
    make_pdf(tmp_path / "a.pdf", ["First page text.", "", "Third page text."], title="The Title")
    document = read_document(tmp_path / "a.pdf", "a.pdf", 256)
    first, third = document.passages
    assert (first.text, first.title, first.metadata, first.offset) == (
        "First page text.",
        "The Title",
        {"page": "1"},
        0,
    )
    assert (third.text, third.metadata, third.offset) == ("Third page text.", {"page": "3"}, 18)
    assert (first.place, third.place, third.source) == ("a.pdf, page 1", "a.pdf, page 3", "a.pdf")


def test_pages_beyond_what_a_file_of_this_size_may_unpack_to_are_passed_over(
    tmp_path: Path, make_pdf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["First page text.", "Second page text.", "Third page text."]
    path = make_pdf(tmp_path / "a.pdf", texts)
    one = len("BT /F1 12 Tf 20 200 Td (First page text.) Tj ET")
    monkeypatch.setattr("arbitrag.retrieve.documents.pdf._CONTENT_PER_BYTE", 0)
    for allowed, read_pages, note in (
        (3 * one + 1, 3, []),  # the second page has a letter more
        (3 * one, 2, ["page 3 passed over (unpacked, the pages are too large for a file of this size)"]),
        (one, 1, ["pages 2 to 3 passed over (unpacked, the pages are too large for a file of this size)"]),
    ):
        monkeypatch.setattr("arbitrag.retrieve.documents.pdf._CONTENT", allowed)
        document = read_document(path, "a.pdf", 256)
        assert [passage.text for passage in document.passages] == texts[:read_pages]
        assert document.notes == note


def test_a_pdf_without_text_says_so(tmp_path: Path, make_pdf: Callable[..., Path]) -> None:
    make_pdf(tmp_path / "a.pdf", [""])
    with pytest.raises(NotReadable, match="holds no text"):
        list(read_document(tmp_path / "a.pdf", "a.pdf", 256).passages)


def test_an_encrypted_pdf_says_so(tmp_path: Path, make_pdf: Callable[..., Path]) -> None:
    make_pdf(tmp_path / "a.pdf", ["Secret."], password="words")
    with pytest.raises(NotReadable, match="an encrypted PDF"):
        read_document(tmp_path / "a.pdf", "a.pdf", 256)


def test_without_pypdf_a_pdf_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(NotReadable, match=r"type: pip install 'arbitrag\[pdf\]'") as refused:
        read(tmp_path, "a.pdf", b"%PDF-1.4")
    assert not refused.value.lasting


def test_a_file_that_cannot_be_opened_gives_the_system_s_reason(tmp_path: Path) -> None:
    with pytest.raises(NotReadable, match="No such file") as refused:
        read_document(tmp_path / "gone.txt", "gone.txt", 256)
    assert not refused.value.lasting


def test_the_position_is_in_bytes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("word " * 200_000)
    document = read_document(path, "a.txt", 256)
    next(document.passages)
    assert 0 < document.position() < os.path.getsize(path)
    assert sum(1 for _ in document.passages) > 900
    assert document.position() >= os.path.getsize(path)
