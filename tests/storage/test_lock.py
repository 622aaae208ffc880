"""The lock of a file that is written: one process at a time, and free again however that ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from arbitrag.errors import DataError
from arbitrag.storage.lock import Lock, is_held


def test_a_second_writer_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with Lock(path):
        with pytest.raises(DataError, match=r"^another process is writing .*rows\.jsonl; wait until it ends"):
            Lock(path)
        assert is_held(path)
        with Lock(tmp_path / "others.jsonl"):
            pass
    assert not is_held(path)
    Lock(path).release()
    assert {each.name for each in tmp_path.iterdir()} == {".rows.jsonl.lock", ".others.jsonl.lock"}
    assert not (tmp_path / ".rows.jsonl.lock").read_bytes()


def test_a_writer_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    script = "import sys, time, pathlib, arbitrag.storage.lock as lock\nheld = lock.Lock(pathlib.Path(sys.argv[1]))\n"
    script += "print('held', flush=True)\ntime.sleep(600)"
    holder = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(DataError, match="another process"):
        Lock(path)
    holder.kill()
    holder.communicate()
    with Lock(path):
        pass


def test_a_lock_that_cannot_be_had(tmp_path: Path) -> None:
    (tmp_path / ".rows.jsonl.lock").mkdir()
    with pytest.raises(DataError, match=r"^cannot write .*rows\.jsonl: its lock cannot be had: unable to open"):
        Lock(tmp_path / "rows.jsonl")
    with pytest.raises(DataError, match=r"the folder .* does not exist"):
        Lock(tmp_path / "no" / "rows.jsonl")
