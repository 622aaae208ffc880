"""Office documents and e-books that were made to do harm cost one line, little memory, and nothing else."""

import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from office_parts import Members, docx, epub, pptx, row, word_table, xlsx, zipped

from arbitrag.retrieve import update_index
from arbitrag.retrieve.documents import archive, office
from arbitrag.retrieve.documents.ingest import read_document
from arbitrag.retrieve.documents.readers import NotReadable

LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/hostname">]>'


def read(folder: Path, name: str, content: Members | bytes) -> list[str]:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else zipped(content))
    return [passage.text for passage in read_document(path, name, 256).passages]


def refusal(folder: Path, name: str, content: Members | bytes) -> str:
    with pytest.raises(NotReadable) as refused:
        read(folder, name, content)
    assert refused.value.lasting
    return str(refused.value)


def cells(*references: str) -> str:
    return "".join(f'<row><c r="{each}"><v>1</v></c></row>' for each in references)


def deep(depth: int) -> str:
    return "<w:sdt>" * depth + "<w:p/>" + "</w:sdt>" * depth


@pytest.mark.parametrize(
    ("name", "members", "spoilt", "reason"),
    [
        ("a.docx", docx("x"), "word/document.xml", "its XML declares entities or a document type"),
        ("a.docx", docx("x"), "docProps/core.xml", "its XML declares entities or a document type"),
        ("a.docx", docx("x"), "_rels/.rels", "its XML declares entities or a document type"),
        ("a.pptx", pptx(("x", "")), "ppt/slides/slide1.xml", "its XML declares entities or a document type"),
        ("a.xlsx", xlsx({"x": ""}), "xl/workbook.xml", "its XML declares entities or a document type"),
        ("a.epub", epub("x"), "META-INF/container.xml", "its XML declares entities or a document type"),
        ("a.epub", epub("x"), "OEBPS/book.opf", "its XML declares entities or a document type"),
    ],
)
@pytest.mark.parametrize("declaration", [LAUGHS, OUTSIDE, "<!DOCTYPE x>"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_no_document_type_is_accepted(
    tmp_path: Path, name: str, members: Members, spoilt: str, reason: str, declaration: str, encoding: str
) -> None:
    content = f"{declaration}{members[spoilt]!s}".encode(encoding)
    assert refusal(tmp_path, name, members | {spoilt: content}) == reason


def test_entities_in_the_page_of_a_book_stay_text(tmp_path: Path) -> None:
    pages = epub("<p>&c;</p>") | {"OEBPS/text/page 0.xhtml": f"{LAUGHS}<html><body><p>&c; &f;</p></body></html>"}
    assert "ha" not in " ".join(read(tmp_path, "a.epub", pages))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        (docx("x", body=deep(198)), ""),  # with document and body 200, and a paragraph inside
        (docx("x", body=deep(100_000)), "its XML has over 200 elements inside each other"),
        (docx("x", body="<w:p>"), "its XML is broken (mismatched tag"),
        (docx("x\0"), "its XML is broken (not well-formed"),
        (docx("x") | {"word/styles.xml": '<?xml version="1.0" encoding="no-such"?><x/>'}, "its XML is broken (unknown"),
        (docx("x") | {"word/styles.xml": b'<?xml version="1.0" encoding="rot13"?><x/>'}, "its XML is broken ("),
        (docx("x") | {"word/styles.xml": ""}, "its XML is broken (no element found"),
    ],
)
def test_broken_or_deep_xml_is_refused(tmp_path: Path, members: Members, reason: str) -> None:
    if reason:
        assert refusal(tmp_path, "a.docx", members).startswith(reason)
    else:
        assert refusal(tmp_path, "a.docx", members) == "its XML has over 200 elements inside each other"
        assert read(tmp_path, "a.docx", docx("x", body=deep(197))) == ["x"]


def test_a_bomb_is_refused_without_decompressing_it(tmp_path: Path) -> None:
    bomb = docx("x") | {"word/large.xml": b"<x>" + b" " * (1 << 28) + b"</x>"}  # 256 MB in 260 KB
    path = tmp_path / "a.docx"
    path.write_bytes(zipped(bomb))
    del bomb
    assert path.stat().st_size < 300_000
    tracemalloc.start()
    try:
        with pytest.raises(NotReadable, match="its text is over 32 MB when it is decompressed"):
            read_document(path, "a.docx", 256)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_limit_is_on_all_members_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = docx("x" * 500)
    size = sum(len(content) for content in members.values())
    monkeypatch.setitem(office._LARGEST, "docx", size)
    assert "".join(read(tmp_path, "a.docx", members)) == "x" * 500
    monkeypatch.setitem(office._LARGEST, "docx", size - 1)
    assert refusal(tmp_path, "a.docx", members).startswith("its text is over")
    assert read(tmp_path, "b.docx", docx("y") | {"word/media/picture.png": bytes(5 * size)}) == ["y"]  # not read at all


def test_a_small_bomb_is_told_by_its_compression(tmp_path: Path) -> None:
    blank = b"<x>" + b" " * (5 << 20) + b"</x>"
    assert refusal(tmp_path, "a.docx", docx("x") | {"word/x.xml": blank}) == (
        "its text is compressed more than 200 times, as no document's is"
    )
    assert read(tmp_path, "a.docx", docx("x") | {"word/x.xml": blank[: 1 << 20] + b"</x>"}) == ["x"]


def spoil(content: bytes, signature: bytes, offset: int, value: bytes) -> bytes:
    at = content.index(signature) + offset
    return content[:at] + value + content[at + len(value) :]


def test_sizes_that_lie_are_not_believed(tmp_path: Path) -> None:
    content = zipped(docx("x" * 5000))
    small = spoil(content, b"PK\1\2", 24, struct.pack("<L", 10))
    assert refusal(tmp_path, "a.docx", small).startswith("not a readable docx file")
    encrypted = spoil(content, b"PK\1\2", 8, b"\1\0")
    assert refusal(tmp_path, "a.docx", encrypted) == "encrypted"
    checksum = spoil(content, b"PK\1\2", 16, b"\1\2\3\4")
    assert refusal(tmp_path, "a.docx", checksum) == "not a readable docx file (BadZipFile)"
    assert refusal(tmp_path, "a.docx", zipped(docx("x"), zipfile.ZIP_LZMA)) == "compressed in a way that is not read"


def test_a_table_of_members_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_MEMBERS", 50)
    members = docx("x")
    many = members | {f"x{number}": "" for number in range(51 - len(members))}
    assert refusal(tmp_path, "a.docx", many) == "a zip archive of over 50 members"
    many.popitem()
    assert read(tmp_path, "a.docx", many) == ["x"]
    content = zipped(members)
    at = content.rindex(b"PK\5\6")
    larger = content[:at] + b"PK\6\7" + bytes(16) + content[at:]  # points to a table of 64 bit numbers
    assert refusal(tmp_path, "a.docx", larger).startswith("a zip archive of over")
    directory = content[: at + 12] + struct.pack("<L", 1 << 30) + content[at + 16 :]
    assert refusal(tmp_path, "a.docx", directory).startswith("a zip archive of over")


@pytest.mark.parametrize(
    "sheet",
    [
        cells("A1", "XFD1") * 100,
        cells(*["A1"] * 200, "XFD1"),
        cells("XFD1", *["A1"] * 200),
        "<x:row xmlns:x='x'><c r='XFD1'/></x:row>" * 130,
        "<row>" + "<c/>" * 20_000 + "</row>" + "<row/>" * 101,
        "<row><c r='ZZZZZZZZ1'/></row>" * 6,
    ],
)
def test_a_sheet_that_is_a_desert_is_refused(tmp_path: Path, sheet: str) -> None:
    said = refusal(tmp_path, "a.xlsx", xlsx({"x": sheet}))
    assert said == "a sheet of over 2,000,000 cells, the empty ones between them counted"
    hidden = xlsx({"x": row(1, "good")}) | {"xl/styles.xml": f"<worksheet><sheetData>{sheet}</sheetData></worksheet>"}
    assert refusal(tmp_path, "a.xlsx", hidden) == said  # whatever the part is called


def test_a_text_that_a_million_cells_show_is_counted_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(office._LARGEST, "xlsx", 10_000)
    shared = "".join(f'<row r="{n}"><c r="A{n}" t="s"><v>1</v></c></row>' for n in range(1, 11))
    book = xlsx({"x": shared}, texts=["no", "y" * 1000])
    assert "".join(read(tmp_path, "a.xlsx", book)).count("y") == 10_000
    book = xlsx({"x": shared}, texts=["no", "y" * 1001])
    assert refusal(tmp_path, "a.xlsx", book).startswith("a sheet whose cells show over")
    twice = book | {"xl/other.xml": book["xl/sharedStrings.xml"]}
    assert refusal(tmp_path, "a.xlsx", twice) == "a workbook with two tables of texts"


def listed_again(members: Members, part: str, element: str, times: int) -> Members:
    text = str(members[part])
    begin = text.index(f"<{element} ")
    one = text[begin : text.index("/>", begin) + 2]
    return members | {part: text.replace(one, one * times)}


@pytest.mark.parametrize(
    ("name", "members", "part", "element"),
    [
        ("a.pptx", pptx(("y" * 5000, "")), "ppt/presentation.xml", "p:sldId"),
        ("a.pptx", pptx(("y", "z" * 5000)), "ppt/presentation.xml", "p:sldId"),
        ("a.xlsx", xlsx({"x": row(1, "y" * 5000)}), "xl/workbook.xml", "sheet"),
    ],
)
def test_a_part_that_is_listed_again_and_again_is_counted_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, members: Members, part: str, element: str
) -> None:
    monkeypatch.setitem(office._LARGEST, name[2:], 100_000)
    assert read(tmp_path, name, listed_again(members, part, element, 10))
    said = refusal(tmp_path, name, listed_again(members, part, element, 20))
    assert said.startswith("its slides or sheets come to over")


@pytest.mark.parametrize("make", [lambda: docx("a b"), lambda: pptx(("a", "b")), lambda: xlsx({"s": row(1, "a")})])
def test_no_damage_ends_the_program(tmp_path: Path, make: Callable[[], Members]) -> None:
    """Every member cut short, doubled, emptied and left out: each time passages, or one reason."""
    members = make()
    kind = "docx" if "word/document.xml" in members else "pptx" if "ppt/presentation.xml" in members else "xlsx"
    for name, content in members.items():
        text = str(content)
        for spoilt in (text[: len(text) // 2], text + text, "", "<x/>", text.replace('"', '"\uffff', 1), text.upper()):
            _tried(tmp_path / f"a.{kind}", members | {name: spoilt})
        _tried(tmp_path / f"a.{kind}", {key: value for key, value in members.items() if key != name})


def _tried(path: Path, members: Members) -> None:
    path.write_bytes(zipped(members))
    with suppress(NotReadable):
        list(read_document(path, path.name, 256).passages)


def test_every_hostile_file_is_one_line_of_an_index(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "good.md").write_text("good")
    (folder / "laughs.docx").write_bytes(zipped(docx("x") | {"word/document.xml": LAUGHS + "<x>&c;</x>"}))
    (folder / "wide.xlsx").write_bytes(zipped(xlsx({"x": cells("XFD1") * 20_000})))
    (folder / "short.epub").write_bytes(zipped(epub("<p>x</p>"))[:-30])
    (folder / "book.pptx").write_bytes(b"\xd0\xcf\x11\xe0" + bytes(100))
    report = update_index(folder, tmp_path / "x.idx")
    assert report.files == 1
    assert [each.source for each in report.skipped] == ["book.pptx", "laughs.docx", "short.epub", "wide.xlsx"]
    assert all(len(each.reason) <= 200 and "\n" not in each.reason for each in report.skipped)


def test_reading_starts_nothing_and_writes_nothing(tmp_path: Path) -> None:
    """Audited by Python; the parser itself imports no function that connects or starts a process."""
    files = {
        "a.docx": docx("x", body=word_table(["y"])),
        "a.pptx": pptx(("x", "y")),
        "a.xlsx": xlsx({"s": row(1, "x")}),
        "a.epub": epub("<p>x</p>"),
    }
    for name, members in files.items():
        (tmp_path / name).write_bytes(zipped(members))
    seen: list[str] = []
    watching = True

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching and (
            event.startswith(("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.mkdir", "shutil."))
            or (event == "open" and isinstance(arguments[2], int) and arguments[2] & 3)
        ):
            seen.append(event)

    sys.addaudithook(watch)
    try:
        for name in files:
            assert list(read_document(tmp_path / name, name, 256).passages)
    finally:
        watching = False
    assert seen == []
