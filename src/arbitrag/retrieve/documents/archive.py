"""Zip archives of documents (docx, pptx, xlsx, epub), read within bounds: nothing is unpacked to disk.

Such a file was made by anybody. Members are decompressed in memory, no further than their sizes say, whose sum has a
limit; XML is parsed by expat before anything else sees it.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO
from xml.parsers import expat

from arbitrag.retrieve.documents.readers import NotReadable

MOST_MEMBERS = 20_000
LARGEST_CONTENT = 1 << 26  # bytes of the members that are read, decompressed
_LARGE, _MOST_COMPRESSED = 1 << 22, 200  # bytes from which text has to be compressed less than so many times
_LARGEST_DIRECTORY = 1 << 22  # bytes of the table of members, which is read as a whole
_DEEPEST = 200  # elements inside each other
_END = struct.Struct("<4s4H2LH")  # the record at the end of a zip archive
_LONGEST_END = _END.size + (1 << 16)  # with its comment
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_COMPOUND = b"\xd0\xcf\x11\xe0"  # an encrypted Office document, or one of the format before 2007


def read_members(
    path: Path, kind: str, wanted: Callable[[str], bool], largest: int = LARGEST_CONTENT
) -> dict[str, bytes]:
    """The contents of the members with ``wanted`` names, by name; ``largest`` bytes altogether.

    Raises NotReadable for what is no zip archive, is damaged, encrypted, or larger than the limits; ``kind`` says what
    it was thought to be.
    """
    with path.open("rb") as file:
        _check_directory(file, kind)
        try:
            with zipfile.ZipFile(file) as archive:
                return _contents(archive, wanted, largest)
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, struct.error) as error:
            raise NotReadable(f"not a readable {kind} file ({type(error).__name__})") from error


def pack(members: Mapping[str, bytes]) -> bytes:
    """A zip archive of these members, without compression."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()


def parse_xml(
    content: bytes,
    begins: Callable[[str, dict[str, str]], None] | None = None,
    text: Callable[[str], None] | None = None,
) -> None:
    """Parse XML as a stream of events, one for each element with its attributes and one for each text.

    Raises NotReadable for XML that is broken, declares a document type (and with it entities), or nests too deep.
    """
    parser = expat.ParserCreate()
    depth = 0

    def begin(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise NotReadable(f"its XML has over {_DEEPEST} elements inside each other")
        if begins is not None:
            begins(name, attributes)

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: object) -> None:
        raise NotReadable("its XML declares entities or a document type")

    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.StartDoctypeDeclHandler = refuse
    if text is not None:
        parser.buffer_text = True
        parser.CharacterDataHandler = text
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # an encoding that does not exist, or not for XML
        raise NotReadable(f"its XML is broken ({error})") from error


def _contents(archive: zipfile.ZipFile, wanted: Callable[[str], bool], largest: int) -> dict[str, bytes]:
    infos = {info.filename: info for info in archive.infolist() if wanted(info.filename)}
    if any(info.flag_bits & _ENCRYPTED for info in infos.values()):
        raise NotReadable("encrypted")
    if any(info.compress_type not in _COMPRESSIONS for info in infos.values()):
        raise NotReadable("compressed in a way that is not read")
    size = sum(info.file_size for info in infos.values())
    if size > largest:
        raise NotReadable(f"its text is over {largest >> 20} MB when it is decompressed")
    if size > _LARGE and size > _MOST_COMPRESSED * sum(info.compress_size for info in infos.values()):
        raise NotReadable(f"its text is compressed more than {_MOST_COMPRESSED} times, as no document's is")
    # A member that says it is small is read as far as it says, and fails its checksum.
    return {name: archive.read(info) for name, info in infos.items()}


def _check_directory(file: IO[bytes], kind: str) -> None:
    """Check the size of the archive's directory before ``zipfile`` reads it, which has no limit."""
    if file.read(4) == _COMPOUND:
        raise NotReadable(f"encrypted, or a {kind} file of before 2007")
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LONGEST_END))
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at < _END.size:
        raise NotReadable(f"not a readable {kind} file (no zip archive)")
    _, _, _, _, members, directory, _, _ = _END.unpack_from(tail, at)
    large = members > MOST_MEMBERS or directory > _LARGEST_DIRECTORY
    if large or tail[max(0, at - 20) : at].startswith(b"PK\6\7"):  # which leads to a larger table
        raise NotReadable(f"a zip archive of over {MOST_MEMBERS:,} members")
    file.seek(0)
