import os
import socket
from pathlib import Path

import needs
import pytest

from arbitrag.errors import DataError
from arbitrag.retrieve.documents.ingest import DocumentFile, SkippedFile, find_documents
from arbitrag.retrieve.documents.sources import absolute, with_names


def fill(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")


def found(*inputs: Path) -> list[str]:
    return [item.source for item in find_documents(with_names(absolute(inputs))) if isinstance(item, DocumentFile)]


def passed(*inputs: Path) -> dict[str, str]:
    return {
        item.source: item.reason
        for item in find_documents(with_names(absolute(inputs)))
        if isinstance(item, SkippedFile)
    }


def test_documents_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    fill(tmp_path, "b.md", "a.TXT", "sub/z.html", "sub/deep/y.pdf", "c.jsonl", "README", "x.rst", "m.markdown")
    assert found(tmp_path) == [
        "README", "a.TXT", "b.md", "c.jsonl", "m.markdown", "x.rst", "sub/z.html", "sub/deep/y.pdf"
    ]  # fmt: skip


def test_other_kinds_are_counted_by_their_suffix(tmp_path: Path) -> None:
    fill(tmp_path, "a.md", "b.PNG", "c.py")
    kinds = [item for item in find_documents(with_names(absolute([tmp_path]))) if isinstance(item, SkippedFile)]
    assert kinds == [SkippedFile("b.PNG", ".png", reported=False), SkippedFile("c.py", ".py", reported=False)]


def test_hidden_things_and_other_indexes_are_passed_over(tmp_path: Path) -> None:
    fill(tmp_path, "a.md", ".git/b.md", ".hidden.md", "docs.idx/index.json", "docs.idx/files.sqlite", "docs.idx/x.txt")
    assert found(tmp_path) == ["a.md"]
    assert passed(tmp_path) == {}


@needs.links
def test_links(tmp_path: Path) -> None:
    fill(tmp_path, "docs/a.md", "elsewhere/b.md")
    docs = tmp_path / "docs"
    (docs / "loop").symlink_to(docs)
    (docs / "link.md").symlink_to("a.md")
    (docs / "out.md").symlink_to(tmp_path / "elsewhere" / "b.md")
    (docs / "broken.md").symlink_to(tmp_path / "nothing")
    (docs / "self.md").symlink_to(docs / "self.md")
    assert found(docs) == ["a.md", "link.md"]
    assert passed(docs) == {
        "loop": "a link to a folder; give that folder itself",
        "out.md": "a link out of the folder; give that file itself",
        "broken.md": "a link that leads nowhere",
        "self.md": "a link that leads nowhere",
    }
    (tmp_path / "entry").symlink_to(docs)
    assert found(tmp_path / "entry") == ["a.md", "link.md"]
    assert found(docs, docs / "out.md") == ["docs/out.md", "docs/a.md", "docs/link.md"]  # given by itself


@needs.pipes
def test_special_files_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    short = os.path.relpath(tmp_path / "socket.txt")
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.bind(min(short, str(tmp_path / "socket.txt"), key=len))
        except OSError:
            pytest.skip("the path of the temporary folder is too long for a socket")
        assert passed(tmp_path) == {"pipe.txt": "not a regular file", "socket.txt": "not a regular file"}
        assert found(tmp_path) == []


def test_an_unreadable_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "a.md", "shut/b.md")
    real = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("shut"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert found(tmp_path) == ["a.md"]
    assert passed(tmp_path) == {"shut": "Permission denied"}


def test_several_inputs_are_named_after_themselves(tmp_path: Path) -> None:
    fill(tmp_path, "one/a.md", "two/b.md", "two/c.py", "d.md")
    assert found(tmp_path / "one", tmp_path / "two") == ["one/a.md", "two/b.md"]
    assert found(tmp_path / "two", tmp_path / "two" / "b.md") == ["two/b.md"]  # each once
    assert found(tmp_path / "two", tmp_path / "two" / "c.py") == ["two/c.py", "two/b.md"]
    assert found(tmp_path / "two" / "c.py") == ["c.py"]  # given by itself: read as text


@needs.any_name
def test_names_that_are_not_utf8_are_written_as_escapes(tmp_path: Path) -> None:
    try:
        with open(os.fsencode(tmp_path) + b"/caf\xe9.md", "w") as file:
            file.write("text")
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    (item,) = find_documents(with_names(absolute([tmp_path])))
    assert isinstance(item, DocumentFile)
    assert item.source == "caf\\xe9.md"
    assert os.path.exists(item.path)


@needs.any_name
def test_names_that_differ_in_bytes_or_backslashes_are_different_sources(tmp_path: Path) -> None:
    names = [
        b"caf\xe9.md",
        b"caf\xe8.md",
        b"caf\\xe9.md",
        b"caf\\x5cxe9.md",
        b"a\\b.md",
        b"\\xe\xe9.md",
        b"caf\xc3\xa9.md",
    ]
    try:
        for name in names:
            with open(os.fsencode(tmp_path) + b"/" + name, "w") as file:
                file.write("text")
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    sources = found(tmp_path)
    assert len(set(sources)) == len(names)
    assert set(sources) == {
        "caf\\xe9.md", "caf\\xe8.md", "caf\\x5cxe9.md", "caf\\x5cx5cxe9.md", "a\\b.md", "\\xe\\xe9.md", "café.md"
    }  # fmt: skip


def test_an_input_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere does not exist; give a folder or a file to index"):
        absolute([tmp_path, tmp_path / "nowhere"])
