from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Literal

import needs
import pytest

from arbitrag.cli.results import ResultFile
from arbitrag.errors import DataError
from arbitrag.evaluate.run import runfile
from arbitrag.evaluate.run.rows import upgrade
from arbitrag.llm.cache import FILE, CachedLLM
from arbitrag.storage.files import check_writable, file_digest, open_plain, read_json, replacing, write_text
from arbitrag.storage.lock import Lock
from arbitrag.testing import ScriptedLLM


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


@needs.links
class TestLinksThatWerePlanted:
    """Nothing is written through a link, a pipe or a device, whoever put it there."""

    @pytest.fixture
    def victim(self, tmp_path: Path) -> Path:
        path = tmp_path / "victim"
        path.write_text("precious")
        return path

    @pytest.mark.parametrize("mode", ["ab", "wb", "xb"])
    @pytest.mark.parametrize("dangling", [False, True])
    def test_a_link_is_not_followed(
        self, tmp_path: Path, victim: Path, mode: Literal["ab", "wb", "xb"], dangling: bool
    ) -> None:
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "nothing" if dangling else victim)
        with pytest.raises((DataError, FileExistsError), match=r"is a link to .*(victim|nothing), and|exists"):
            open_plain(link, mode)
        assert victim.read_text() == "precious"
        assert not (tmp_path / "nothing").exists()

    @needs.pipes
    @pytest.mark.parametrize("mode", ["ab", "wb"])
    def test_a_pipe_is_not_waited_for(self, tmp_path: Path, mode: Literal["ab", "wb"]) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(DataError, match="it is not a regular file, and Arbitrag writes to regular files only"):
            open_plain(tmp_path / "pipe", mode)
        with pytest.raises(DataError, match="it is a pipe or a device; name a file"), replacing(tmp_path / "pipe"):
            pass

    def test_the_modes_do_what_those_of_open_do(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        for mode, text, there in (("xb", b"1", b"1"), ("ab", b"2", b"12"), ("wb", b"3", b"3"), ("ab", b"4", b"34")):
            with open_plain(path, mode) as file:  # type: ignore[arg-type]
                file.write(text)
            assert path.read_bytes() == there
        with open_plain(tmp_path / "b", "wb") as file:
            file.write(b"new")
        assert (tmp_path / "b").read_bytes() == b"new"
        assert (tmp_path / "b").stat().st_mode & 0o777 == 0o666 & ~umask()

    def test_a_replaced_link_leaves_what_it_led_to(self, tmp_path: Path, victim: Path) -> None:
        link = tmp_path / "link"
        link.symlink_to(victim)
        write_text(link, "new")
        assert (link.read_text(), link.is_symlink(), victim.read_text()) == ("new", False, "precious")

    def test_the_lock_of_a_file(self, tmp_path: Path) -> None:
        (tmp_path / ".rows.jsonl.lock").symlink_to(tmp_path / "made")
        with pytest.raises(DataError, match=r"cannot write .*\.rows\.jsonl\.lock: it is a link to .*made"):
            Lock(tmp_path / "rows.jsonl")
        assert not (tmp_path / "made").exists()

    @pytest.mark.parametrize("dangling", [False, True])
    def test_a_file_of_answers(self, tmp_path: Path, victim: Path, dangling: bool) -> None:
        path = tmp_path / "answers.jsonl"
        victim.write_text("")
        path.symlink_to(tmp_path / "made" if dangling else victim)
        with pytest.raises(DataError, match="it is a link to"), ResultFile.opened(path, [], {}):
            pass
        assert victim.read_text() == ""
        assert not (tmp_path / "made").exists()

    def test_a_response_cache(self, tmp_path: Path) -> None:
        (tmp_path / FILE).symlink_to(tmp_path / "made")
        with pytest.raises(DataError, match="it is a link to"):
            CachedLLM(ScriptedLLM({}), tmp_path)
        assert not (tmp_path / "made").exists()

    def test_a_run_file(self, tmp_path: Path) -> None:
        real, link = tmp_path / "real.db", tmp_path / "run.db"
        runfile.create(real, "CREATE TABLE t (a);")
        link.symlink_to(real)
        with pytest.raises(DataError, match=r"it is a link to .*real\.db"):
            runfile.writer(link, upgrade)
        runfile.reader(link).close()  # reading is no harm
        link.unlink()
        link.symlink_to(tmp_path / "made")
        with pytest.raises(DataError, match="is there already"):
            runfile.create(link, "CREATE TABLE t (a);")
        assert not (tmp_path / "made").exists()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_json_file_is_read_as_what_is_expected(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    assert read_json(path, {"a": 1}) == {"a": 1}
    path.write_text('{"é": [1]}', encoding="utf-8")
    assert read_json(path, {}) == {"é": [1]}
    for content, expected in (
        ("[]", "holds a list; expected an object"),
        ("{", "is not JSON: Expecting property name"),
        ("NaN", "is not JSON: NaN is not JSON"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=f"^{re.escape(str(path))} {expected}"):
            read_json(path, {})


def test_the_digest_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert file_digest(tmp_path / "a") == hashlib.sha256(b"abc").hexdigest()
