"""Word, PowerPoint and Excel documents, e-books and notebooks: what is read of them, and where it is cited."""

import json
import sys
from pathlib import Path

import pytest
from office_parts import Members, docx, epub, pptx, relations, row, word_table, xlsx, zipped

from arbitrag.retrieve import open_index, update_index
from arbitrag.retrieve.documents.ingest import read_document
from arbitrag.retrieve.documents.readers import NotReadable
from arbitrag.types import Passage


def read(folder: Path, name: str, content: Members | bytes, tokens: int = 256) -> tuple[list[Passage], list[str]]:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else zipped(content))
    document = read_document(path, name, tokens)
    return list(document.passages), document.notes


def test_a_word_document_keeps_its_tables_and_its_title(tmp_path: Path) -> None:
    table = word_table(["Name", "Ton_nage"], ["Zan*tar", "a|b"])
    (passage,), notes = read(tmp_path, "a.docx", docx("A. b & <c>", "# 2. *two*", title=" The\nTitle ", body=table))
    assert passage.text.split("\n\n") == [
        "A. b & <c>",
        "# 2. *two*",
        "| Name | Ton_nage |\n| --- | --- |\n| Zan*tar | a|b |",
    ]
    assert (passage.title, passage.source, passage.line, passage.offset) == ("The Title", "a.docx", None, 0)
    assert (passage.place, notes) == ("a.docx", [])


def test_a_presentation_is_cited_by_slides(tmp_path: Path) -> None:
    deck = pptx(("First slide\n---", ""), ("", ""), ("Third", "Do not forget the tide."), title="Deck")
    passages, _ = read(tmp_path, "a.pptx", deck)
    assert [(passage.place, passage.text) for passage in passages] == [
        ("a.pptx, slide 1", "First slide\n\n---"),
        ("a.pptx, slide 3", "Third\n\nDo not forget the tide."),
    ]
    assert [passage.offset for passage in passages] == [0, 18]
    assert passages[0].metadata == {"slide": "1"}
    assert {passage.title for passage in passages} == {"Deck"}


def test_a_workbook_is_cited_by_sheets(tmp_path: Path) -> None:
    costs = row(1, "Name", "Price") + row(2, "line\n## Fake\n| x", "a|b \\| *c*") + row(9, "", "", "<b>&amp;")
    shared = '<row r="1"><c r="B1" t="s"><v>1</v></c><c r="C1"><v>2.5</v></c><c t="b"><v>1</v></c></row>'
    book = xlsx({"Costs & so": costs, "Empty": "", "Last_one": shared}, texts=["zero", "one"])
    passages, _ = read(tmp_path, "a.xlsx", book)
    assert [(passage.place, passage.text) for passage in passages] == [
        (
            "a.xlsx, sheet Costs & so",
            "Name | Price\nline ## Fake | x | a|b \\| *c*\n|  | <b>&amp;",
        ),
        ("a.xlsx, sheet Last_one", "| one | 2.5 | TRUE"),
    ]
    assert passages[0].title == "a"


def test_a_large_workbook_is_read_without_its_sheets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arbitrag.retrieve.documents.office._MOST_CELLS_APART", 3)
    passages, notes = read(tmp_path, "a.xlsx", xlsx({"A": row(1, "one"), "B": row(1, "two", "three")}))
    assert [passage.place for passage in passages] == ["a.xlsx, sheet A", "a.xlsx, sheet B"]
    assert notes == []
    (passage,), notes = read(tmp_path, "a.xlsx", xlsx({"A": row(1, "one"), "B": row(1, "two", "x", "y")}))
    assert (passage.text, passage.place) == ("A\none\n\nB\ntwo | x | y", "a.xlsx")
    assert notes == ["a large workbook: its passages do not say which sheet they are of"]


def test_a_book_is_read_in_its_order(tmp_path: Path) -> None:
    pages = (
        "<h1>Two</h1><p>Second &eacute;.</p><aside>A footnote.</aside>",
        "<h1>One</h1><p>First.</p>",
        "<p>Never listed.</p>",
    )
    passages, notes = read(tmp_path, "a.epub", epub(*pages, spine=[1, 0, 1]))
    assert [(passage.title, passage.text) for passage in passages] == [
        ("The Book, One", "One\n\nFirst."),
        ("The Book, Two", "Two\n\nSecond é.\n\nA footnote."),
    ]
    assert [passage.offset for passage in passages] == [0, 12]
    assert notes == []


def test_a_page_of_a_book_that_is_of_no_use_is_named(tmp_path: Path) -> None:
    passages, notes = read(tmp_path, "a.epub", epub("<div>" * 30_000, "<p>Good.</p>"))
    assert [passage.text for passage in passages] == ["Good."]
    assert notes == [
        "OEBPS/text/page 0.xhtml passed over: an HTML file with too many elements left open inside each other"
    ]


NOTEBOOK = {
    "nbformat": 4,
    "metadata": {},
    "cells": [
        {"cell_type": "code", "source": "# not a title\nprint(6 * 7)", "outputs": [{"text": ["forty-two"]}]},
        {"cell_type": "markdown", "source": ["# Tide *tables*\n", "\n", "High at noon."]},
        {"cell_type": "raw", "source": "raw"},
        {"cell_type": "markdown", "source": []},
    ],
}


def test_a_notebook_is_its_text_and_its_code(tmp_path: Path) -> None:
    (passage,), _ = read(tmp_path, "a.ipynb", json.dumps(NOTEBOOK).encode())
    assert passage.text == "# not a title\nprint(6 * 7)\n\n# Tide *tables*\n\nHigh at noon.\n\nraw"
    assert (passage.title, passage.place) == ("Tide *tables*", "a.ipynb:1")
    old = {"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": ["x = 1\n", "y = 2"]}]}]}
    (passage,), _ = read(tmp_path, "old.ipynb", json.dumps(old).encode())
    assert (passage.text, passage.title) == ("x = 1\ny = 2", "old")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.ipynb", b"", "empty"),
        ("a.ipynb", b"{", "not JSON"),
        ("a.ipynb", b"[" * 100_000, "not JSON"),
        ("a.ipynb", b"[1]", "JSON, but not a notebook"),
        ("a.ipynb", b'{"nbformat": 4, "cells": [1, {"source": 5}, {"source": [2]}]}', "holds no text"),
        ("a.docx", b"", "not a readable docx file (no zip archive)"),
        ("a.docx", b"plain text", "not a readable docx file (no zip archive)"),
        ("a.docx", zipped({"x.txt": "y"}), "not a readable docx file"),
        ("a.docx", zipped(docx("x"))[:-400] + zipped(docx("x"))[-22:], "not a readable docx file"),
        ("a.docx", b"\xd0\xcf\x11\xe0" + bytes(600), "encrypted, or a docx file of before 2007"),
        ("a.docx", zipped(docx()), "holds no text"),
        ("a.pptx", zipped(docx("x")), "not a readable pptx file"),
        ("a.pptx", zipped(pptx(("", ""))), "holds no text"),
        ("a.xlsx", zipped(xlsx({"Empty": ""})), "holds no text"),
        ("a.epub", zipped({"mimetype": "x"}), "not a readable epub file (no container.xml)"),
        ("a.epub", zipped(epub() | {"OEBPS/book.opf": "<package/>"}), "holds no text"),
        ("a.epub", zipped(epub("<p>x</p>") | {"META-INF/encryption.xml": "<x><EncryptedKey/></x>"}), "encrypted"),
    ],
)
def test_a_file_of_no_use_is_refused_with_the_reason(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    with pytest.raises(NotReadable) as refused:
        read(tmp_path, name, content)
    assert str(refused.value).startswith(reason)
    assert refused.value.lasting


@pytest.mark.parametrize("kind", ["docx", "pptx", "xlsx"])
def test_without_the_parser_a_document_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setitem(sys.modules, "office_oxide", None)
    with pytest.raises(NotReadable, match=r"type: pip install 'arbitrag\[office\]'") as refused:
        read(tmp_path, f"a.{kind}", docx("x"))
    assert not refused.value.lasting


@pytest.mark.parametrize("stage", ["from_bytes", "to_markdown"])
def test_a_panic_of_the_parser_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    class PanicException(BaseException):
        pass

    class Parser:
        def from_bytes(self, *_: object) -> object:
            if stage == "from_bytes":
                raise PanicException
            return self

        def to_markdown(self) -> str:
            raise PanicException

    monkeypatch.setattr("office_oxide.Document", Parser())
    with pytest.raises(NotReadable, match=r"not a readable docx file \(the parser failed\)"):
        read(tmp_path, "a.docx", docx("x"))


async def test_a_folder_of_all_kinds_is_one_index(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, members in {
        "a.docx": docx("The harbour opens at six."),
        "b.pptx": pptx(("The harbour closes at nine.", "")),
        "c.xlsx": xlsx({"Fees": row(1, "harbour fee", "12")}),
        "d.epub": epub("<p>The harbour in winter.</p>"),
    }.items():
        (folder / name).write_bytes(zipped(members))
    (folder / "e.ipynb").write_text(json.dumps(NOTEBOOK))
    (folder / "broken.docx").write_bytes(zipped(docx("x"))[:100])
    report = update_index(folder, tmp_path / "x.idx")
    assert report.files == 5
    assert [(each.source, each.reason) for each in report.skipped] == [
        ("broken.docx", "not a readable docx file (no zip archive)")
    ]
    index = open_index(tmp_path / "x.idx")
    found = await index.retrieve("harbour", 10)
    await index.aclose()
    assert sorted(passage.place for passage in found) == ["a.docx", "b.pptx, slide 1", "c.xlsx, sheet Fees", "d.epub"]


def test_a_link_out_of_a_document_is_not_followed(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        outside = relations(("rId9", "image", url), ("rId8", "attachedTemplate", url), mode=' TargetMode="External"')
        members = docx("text") | {"word/_rels/document.xml.rels": outside, "word/_rels/settings.xml.rels": outside}
        (passage,), _ = read(tmp_path, "a.docx", members)
        page = f'<link rel="stylesheet" href="{url}"/><img src="{url}"/><p>text</p><iframe src="{url}"></iframe>'
        read(tmp_path, "a.epub", epub(page))
        with pytest.raises(TimeoutError):
            server.accept()
    assert passage.text == "text"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.docx", "a.epub"]
