"""A PDF of plain pages, made here so that no binary file lies in the repository."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest


@pytest.fixture
def make_pdf() -> Callable[..., Path]:
    pypdf = pytest.importorskip("pypdf")
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    def make(path: Path, pages: Sequence[str], *, title: str = "", password: str = "") -> Path:
        writer = pypdf.PdfWriter()
        font = DictionaryObject(
            {
                NameObject("/Type"): NameObject("/Font"),
                NameObject("/Subtype"): NameObject("/Type1"),
                NameObject("/BaseFont"): NameObject("/Helvetica"),
            }
        )
        for text in pages:
            page = writer.add_blank_page(300, 300)
            stream = DecodedStreamObject()
            stream.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode())
            page[NameObject("/Contents")] = writer._add_object(stream)
            fonts = DictionaryObject({NameObject("/F1"): writer._add_object(font)})
            page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        if title:
            writer.add_metadata({"/Title": title})
        if password:
            writer.encrypt(password, algorithm="RC4-128")
        writer.write(path)
        return path

    return make
