"""Folders of documents that somebody made to hurt: links, pipes, odd names, depth, numbers, and files that lie."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import needs
import pytest
from fault_suite.worker import Worker

if TYPE_CHECKING:
    from fault_suite.worker import Outcome


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "harbour.md").write_text("The harbour is run by Mara Lindqvist.")
    return folder


def _index(worker: Worker, docs: Path) -> Outcome:
    """Index the folder and search it: the good document is found, and what is printed is printable."""
    index = docs.parent / "docs.idx"
    ran = worker.run("index", docs, "-o", index, deadline_s=60)
    assert (ran.status, ran.hung) == (0, False), ran.err
    found = worker.run("search", index, "Who runs the harbour?", "--json")
    assert any("Mara" in row["text"] for row in json.loads(found.out))
    shown = worker.run("search", index, "harbour river text")
    for text in (ran.out, ran.err, shown.out, shown.err):
        assert not [character for character in text if ord(character) < 32 and character != "\n"]
        assert "\u202e" not in text
    return ran


@needs.pipes
@needs.links
def test_links_and_pipes_are_named_and_not_followed(docs: Path, worker: Worker) -> None:
    secret = docs.parent / "secret.txt"
    secret.write_text("The harbour of secrets.")
    (docs / "out.txt").symlink_to(secret)
    (docs / "loop").symlink_to(docs)
    (docs / "self.md").symlink_to("self.md")
    (docs / "device.txt").symlink_to("/dev/zero")
    os.mkfifo(docs / "pipe.txt")
    ran = _index(worker, docs)
    for name in ("out.txt", "loop", "self.md", "device.txt", "pipe.txt"):
        assert f"skipped {name}: " in ran.err
    assert "secrets" not in worker.run("search", docs.parent / "docs.idx", "secrets").out


@needs.any_name
def test_names_that_would_act_on_a_terminal(docs: Path, worker: Worker) -> None:
    names = [
        b"\x1b[2J\x1b]0;owned\x07.md",
        b"a\nb.md",
        b"\xff\xfe.md",
        b"\xff\xfd.md",
        "\u202egpj.md".encode(),
        b"-rf.md",
    ]
    for number, name in enumerate(names):
        with open(os.path.join(os.fsencode(docs), name), "w") as file:
            file.write(f"The river number {number} has text.")
    ran = _index(worker, docs)
    assert "7 added" in ran.out
    rows = json.loads(worker.run("search", docs.parent / "docs.idx", "river", "--json").out)
    assert len({row["source"] for row in rows}) == len(names)  # names that differ in invalid bytes are two


def test_a_file_of_one_endless_line_and_one_of_many_empty_ones(docs: Path, worker: Worker) -> None:
    (docs / "line.txt").write_text("word" * 500_000)
    (docs / "lines.txt").write_text("\n" * 2_000_000 + "The river ends.")
    (docs / "spaces.md").write_text(" \t\u3000\u2028" * 300_000 + "The river ends.")
    (docs / "marks.md").write_text("#" * 300_000 + "\n" + "---\n" * 100_000)
    (docs / "marks.html").write_text("<p>" * 100_000 + "<!--" * 100_000 + "&lt;" * 100_000)
    (docs / "deep.jsonl").write_text('{"text": ' * 50_000)
    _index(worker, docs)


def test_files_that_are_not_what_they_say(docs: Path, worker: Worker) -> None:
    (docs / "zip.pdf").write_bytes(b"PK\x03\x04" + bytes(2000))
    (docs / "cut.pdf").write_bytes(b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\n")
    (docs / "packed.txt").write_bytes(gzip.compress(b"text " * 10_000))
    (docs / "utf16.txt").write_bytes("The river in UTF-16.".encode("utf-16"))
    (docs / "charset.html").write_bytes(b'<meta charset="hex"><p>The river in hex.')
    (docs / "rot.html").write_bytes(b'<meta charset="rot13"><p>The river in rot13.')
    (docs / "rows.jsonl").write_text('{"text": 5}\n{"text": "The river of rows.", "metadata": {"a": [1]}}\nnull\n')
    ran = _index(worker, docs)
    for name in ("zip.pdf", "cut.pdf", "packed.txt"):
        assert f"skipped {name}: " in ran.err


def test_a_deep_folder_and_a_wide_one(docs: Path, worker: Worker) -> None:
    deep = docs
    for _ in range(60):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "river.md").write_text("A river far below.")
    wide = docs / "wide"
    wide.mkdir()
    for number in range(500):
        (wide / f"{number}.md").touch()
    ran = _index(worker, docs)
    assert "2 added" in ran.out


# The superuser reads what nobody may read, so the process lowers its rights, once everything is imported.
_AS_NOBODY = """
import os, sys
from arbitrag.cli import main
warm, docs, index = sys.argv[1:]
assert main(["index", warm, "-o", warm + ".idx"]) == 0
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(["index", docs, "-o", index]))
"""


@needs.permissions
def test_what_may_not_be_read_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others
        place = Path(name)
        place.chmod(0o777)
        for each in ("warm", "docs", "docs/closed"):
            (place / each).mkdir()
        for each in ("warm/a.md", "docs/harbour.md", "docs/locked.md"):
            (place / each).write_text("The harbour is run by Mara Lindqvist.")
        (place / "docs" / "locked.md").chmod(0)
        (place / "docs" / "closed").chmod(0)
        words = [str(place / each) for each in ("warm", "docs", "docs.idx")]
        try:
            ran = subprocess.run(
                [sys.executable, "-c", _AS_NOBODY, *words], capture_output=True, text=True, check=False
            )
        finally:
            (place / "docs" / "closed").chmod(0o700)
    assert ran.returncode == 0, ran.stderr
    assert "skipped locked.md: Permission denied" in ran.stderr
    assert "skipped closed: Permission denied" in ran.stderr
    assert "1 passage of 1 file (1 added, 2 skipped)" in ran.stdout
