"""The memory that a command takes for an answer, or a document, of a gigabyte: its peak over that for a small one."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from harness.processes import environment

from fault_suite.endpoint_commands import always
from fault_suite.fault_server import Fault, FaultServer, says, zeros

_PROGRAM = """
import json, resource, sys
from arbitrag.cli import main
from fault_suite.worker import shorten_waits
shorten_waits()
status = main(sys.argv[1:])
unit = 1 if sys.platform == "darwin" else 1024
print(json.dumps([status, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit]), file=sys.stderr)
"""
DEADLINE_S = 300.0
MB = 1 << 20


def bombs(size: int) -> list[Fault]:
    """``size`` is in bytes, unpacked. The last one is not packed: the server sends it as it is."""
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"

    def pours(connection: object, request: object) -> None:
        connection.sendall(plain)  # type: ignore[attr-defined]
        block = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        for _ in range(size // 0x100000):
            connection.sendall(block)  # type: ignore[attr-defined]

    packed = zeros(size, 31)
    return [
        Fault("gzip", says(packed, Content_Encoding="gzip")),
        Fault("gzip, status 500", says(packed, status="500 No", Content_Encoding="gzip")),
        Fault("deflate", says(zeros(size, 15), Content_Encoding="deflate")),
        Fault("gzip in gzip", says(zeros_twice(packed), Content_Encoding="gzip, gzip")),
        Fault("not packed", pours),
    ]


def zeros_twice(packed: bytes) -> bytes:
    import gzip

    return gzip.compress(packed, 6)


def peak(fault: Fault | None, folder: Path, questions: int = 4) -> tuple[int, int]:
    """Exit status and peak memory in bytes of an ``ask`` of a few questions, all of which meet the fault."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = folder / "asked.txt"
    asked.write_text("".join(f"What is {number}?\n" for number in range(questions)))
    with FaultServer(fault, always) as server:
        words = ["ask", "--questions", str(asked), "--llm", f"openai:m@http://127.0.0.1:{server.port}/v1"]
        return _measured([*words, "--method", "direct"])


def _measured(words: list[str]) -> tuple[int, int]:
    """Exit status and peak memory in bytes of a command."""
    command = [sys.executable, "-c", _PROGRAM, *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=environment())
    status, size = json.loads(ran.stderr.splitlines()[-1])
    return int(status), int(size)


def _office_bomb(path: Path, size: int) -> None:
    """A Word document of a megabyte whose text is ``size`` bytes."""
    kinds = '<Default Extension="xml" ContentType="application/xml"/>'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    words = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    members = {
        "[Content_Types].xml": f'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">{kinds}</Types>',
        "_rels/.rels": f'<Relationships><Relationship Type="{office}" Target="word/document.xml"/></Relationships>',
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
        with archive.open("word/document.xml", "w", force_zip64=True) as file:
            file.write(f'<w:document xmlns:w="{words}"><w:body><w:p><w:r><w:t>'.encode())
            for _ in range(size >> 20):
                file.write(b"a bomb. " * (1 << 17))
            file.write(b"</w:t></w:r></w:p></w:body></w:document>")


def _page_bomb(path: Path, size: int) -> None:
    """A page of elements that are open inside each other; small on disk too, but not in a tree."""
    path.write_bytes(b"<div><b>" * (min(size, 1 << 24) // 8))


def index_peak(folder: Path, bomb: Callable[[Path], None] | None) -> int:
    """The peak memory in bytes of ``index`` over a folder of one small document, and perhaps a bomb."""
    docs = folder / "docs"
    docs.mkdir(parents=True)
    (docs / "small.md").write_text("A small document.")
    (docs / "small.html").write_text("<p>A small page.")
    if bomb is not None:
        bomb(docs)
    return _measured(["index", str(docs), "-o", str(folder / "docs.idx")])[1]


def document_memory(folder: Path, size: int) -> dict[str, float]:
    """MB over the peak of an index without them, for documents that are large when they are unpacked."""
    usual = index_peak(folder / "usual", None)
    made: dict[str, Callable[[Path], None]] = {
        "docx": lambda docs: _office_bomb(docs / "bomb.docx", size),
        "html": lambda docs: _page_bomb(docs / "bomb.html", size),
    }
    return {name: (index_peak(folder / name, make) - usual) / MB for name, make in made.items()}


def bomb_memory(folder: Path, size: int) -> dict[str, float]:
    """MB over the peak of honest answers, for each bomb."""
    _, usual = peak(None, folder)
    return {bomb.name: (peak(bomb, folder)[1] - usual) / MB for bomb in bombs(size)}
