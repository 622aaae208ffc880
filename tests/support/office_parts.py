"""Small office documents and e-books, member by member, so that a test can spoil any of them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

Members = dict[str, str | bytes]

_OFFICE = "http://schemas.openxmlformats.org"
_R = f'xmlns:r="{_OFFICE}/officeDocument/2006/relationships"'
_W = f'xmlns:w="{_OFFICE}/wordprocessingml/2006/main"'
_P = f'xmlns:p="{_OFFICE}/presentationml/2006/main" xmlns:a="{_OFFICE}/drawingml/2006/main"'
_S = f'xmlns="{_OFFICE}/spreadsheetml/2006/main"'
_TYPES = {
    "word/document.xml": "wordprocessingml.document.main",
    "ppt/presentation.xml": "presentationml.presentation.main",
    "xl/workbook.xml": "spreadsheetml.sheet.main",
}


def zipped(members: Mapping[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def _package(main: str, title: str, parts: Members) -> Members:
    """The members that every office document has, and its own."""
    own = "".join(
        f'<Override PartName="/{name}" ContentType="application/vnd.openxmlformats-officedocument.{_type(name)}+xml"/>'
        for name in parts
        if not name.endswith(".rels")
    )
    core = f"{_OFFICE}/package/2006/metadata/core-properties"
    return {
        "[Content_Types].xml": f'<Types xmlns="{_OFFICE}/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{own}</Types>',
        "_rels/.rels": relations(("rId1", "officeDocument", main)),
        "docProps/core.xml": f'<cp:coreProperties xmlns:cp="{core}" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:title>{escape(title)}</dc:title><dc:creator>nobody</dc:creator></cp:coreProperties>",
    } | parts


def _type(name: str) -> str:
    if name in _TYPES:
        return _TYPES[name]
    kinds = {"ppt/slides": "presentationml.slide", "ppt/notesSlides": "presentationml.notesSlide"}
    kinds |= {"xl/worksheets": "spreadsheetml.worksheet", "xl": "spreadsheetml.sharedStrings"}
    return kinds.get(name.rpartition("/")[0], "wordprocessingml.styles")


def relations(*found: tuple[str, str, str], mode: str = "") -> str:
    rows = (
        f'<Relationship Id="{identity}" Type="{_OFFICE}/officeDocument/2006/relationships/{kind}" '
        f'Target="{target}"{mode}/>'
        for identity, kind, target in found
    )
    return f'<Relationships xmlns="{_OFFICE}/package/2006/relationships">{"".join(rows)}</Relationships>'


def docx(*paragraphs: str, title: str = "", body: str = "") -> Members:
    """``body`` is XML that follows the paragraphs."""
    texts = "".join(f'<w:p><w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>' for text in paragraphs)
    whole = f"<w:document {_W} {_R}><w:body>{texts}{body}</w:body></w:document>"
    return _package("word/document.xml", title, {"word/document.xml": whole})


def word_table(*rows: Sequence[str]) -> str:
    cells = ["".join(f"<w:tc><w:p><w:r><w:t>{escape(cell)}</w:t></w:r></w:p></w:tc>" for cell in row) for row in rows]
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def pptx(*slides: tuple[str, str], title: str = "") -> Members:
    """Slides of a text and the speaker's notes, empty for none."""
    listed = "".join(f'<p:sldId id="{256 + n}" r:id="rId{n}"/>' for n in range(1, len(slides) + 1))
    parts: Members = {
        "ppt/presentation.xml": f"<p:presentation {_P} {_R}><p:sldIdLst>{listed}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": relations(
            *((f"rId{n}", "slide", f"slides/slide{n}.xml") for n in range(1, len(slides) + 1))
        ),
    }
    for number, (text, notes) in enumerate(slides, 1):
        parts[f"ppt/slides/slide{number}.xml"] = f"<p:sld {_P}>{_shapes(text)}</p:sld>"
        if notes:
            parts[f"ppt/notesSlides/notesSlide{number}.xml"] = f"<p:notes {_P}>{_shapes(notes, body=True)}</p:notes>"
            parts[f"ppt/slides/_rels/slide{number}.xml.rels"] = relations(
                ("rId1", "notesSlide", f"../notesSlides/notesSlide{number}.xml")
            )
    return _package("ppt/presentation.xml", title, parts)


def _shapes(text: str, *, body: bool = False) -> str:
    place = '<p:nvPr><p:ph type="body" idx="1"/></p:nvPr>' if body else "<p:nvPr/>"
    lines = "".join(f"<a:p><a:r><a:t>{escape(line)}</a:t></a:r></a:p>" for line in text.split("\n"))
    return (
        '<p:cSld><p:spTree><p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>'
        f'<p:sp><p:nvSpPr><p:cNvPr id="2" name="x"/><p:cNvSpPr/>{place}</p:nvSpPr><p:spPr/>'
        f"<p:txBody><a:bodyPr/>{lines}</p:txBody></p:sp></p:spTree></p:cSld>"
    )


def xlsx(sheets: Mapping[str, str], title: str = "", texts: Sequence[str] = ()) -> Members:
    """Sheets by their names, each the XML of its rows; ``texts`` are those that cells share."""
    names = list(sheets)
    listed = "".join(f'<sheet name="{escape(name)}" sheetId="{n}" r:id="rId{n}"/>' for n, name in enumerate(names, 1))
    related = [(f"rId{n}", "worksheet", f"worksheets/sheet{n}.xml") for n in range(1, len(names) + 1)]
    parts: Members = {"xl/workbook.xml": f"<workbook {_S} {_R}><sheets>{listed}</sheets></workbook>"}
    for number, rows in enumerate(sheets.values(), 1):
        parts[f"xl/worksheets/sheet{number}.xml"] = f"<worksheet {_S}><sheetData>{rows}</sheetData></worksheet>"
    if texts:
        shared = "".join(f"<si><t>{escape(text)}</t></si>" for text in texts)
        parts["xl/sharedStrings.xml"] = f"<sst {_S}>{shared}</sst>"
        related.append(("rIdS", "sharedStrings", "sharedStrings.xml"))
    parts["xl/_rels/workbook.xml.rels"] = relations(*related)
    return _package("xl/workbook.xml", title, parts)


def row(number: int, *cells: str) -> str:
    """A row of texts that stand in their cells."""
    each = "".join(
        f'<c r="{chr(65 + at)}{number}" t="inlineStr"><is><t>{escape(cell)}</t></is></c>'
        for at, cell in enumerate(cells)
        if cell
    )
    return f'<row r="{number}">{each}</row>'


def epub(*pages: str, title: str = "The Book", spine: Sequence[int] | None = None) -> Members:
    order = range(len(pages)) if spine is None else spine
    items = "".join(
        f'<item id="p{n}" href="text/page%20{n}.xhtml" media-type="application/xhtml+xml"/>' for n in range(len(pages))
    )
    members: Members = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
        "OEBPS/book.opf": '<package xmlns="http://www.idpf.org/2007/opf" version="3.0">'
        f'<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{escape(title)}</dc:title></metadata>'
        f'<manifest>{items}<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
        '<item id="pic" href="cover.png" media-type="image/png"/></manifest>'
        f'<spine><itemref idref="nav"/>{"".join(f"""<itemref idref="p{n}"/>""" for n in order)}</spine></package>',
        "OEBPS/nav.xhtml": "<html><body><nav>the contents</nav></body></html>",
    }
    for number, page in enumerate(pages):
        members[f"OEBPS/text/page {number}.xhtml"] = (
            '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "x.dtd">'
            f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{page}</body></html>'
        )
    return members
