from __future__ import annotations

import os
from pathlib import Path

import pytest

from arbitrag.errors import DataError
from arbitrag.files import check_writable, replacing, write_text


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    write_text(path, "neu – ß")
    assert path.read_text(encoding="utf-8") == "neu – ß"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_failure_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_half_a_surrogate_pair_becomes_an_escape(tmp_path: Path) -> None:
    write_text(tmp_path / "a.json", '"\ud83d"')
    assert (tmp_path / "a.json").read_text() == r'"\ud83d"'


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the folder .*nowhere does not exist; type: mkdir -p"):
        check_writable(tmp_path / "nowhere" / "a.txt")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="it is a folder"):
        write_text(tmp_path, "x")


def test_an_error_of_the_system_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^cannot write .*: File name too long$"):
        write_text(tmp_path / ("x" * 300), "x")
