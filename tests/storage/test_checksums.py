"""A checksum over what a file says: damage is seen, another layout is not, and older files have none."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from arbitrag.errors import TraceError
from arbitrag.llm.http.probe_cache import SWITCH, Kept
from arbitrag.replay import load_trace
from arbitrag.storage.checksums import KEY, seal, unseal
from arbitrag.testing import ScriptedServer

if TYPE_CHECKING:
    from tests.conftest import Command

ROW: dict[str, Any] = {"id": "q1", "answer": "Zürich \ud800", "score": -1.0e-7, "run": {"k": [1, None, True]}}


def test_what_was_sealed_is_what_is_read() -> None:
    assert list(seal(ROW)) == [*ROW, KEY]
    assert unseal(seal(ROW)) == ROW
    assert unseal(ROW) == ROW  # written before there were checksums
    assert len(seal(ROW)[KEY]) == 8


def test_the_layout_of_a_file_does_not_count() -> None:
    written = json.dumps(seal(ROW), indent=3, sort_keys=True, ensure_ascii=True)
    assert unseal(json.loads(written)) == ROW


@pytest.mark.parametrize(
    "changed",
    [{"answer": "Zurich \ud800"}, {"score": -1.0e-8}, {"run": {"k": [1, None, 1.5]}}, {KEY: None}, {"new": 1}],
)
def test_any_other_value_is_seen(changed: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match="changed or damaged"):
        unseal({**seal(ROW), **changed})


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    path = tmp_path / "asked.txt"
    path.write_text("".join(f"What is number {number}?\n" for number in range(3)))
    return path


def test_no_flipped_bit_of_a_row_is_kept(asked: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "rows.jsonl"
    with ScriptedServer() as server:
        words = ("ask", "--questions", asked, "-o", out, "--llm", f"openai:m@{server.base_url}", "--method", "direct")
        assert command(*words).status == 0
        whole = out.read_bytes()
        assert command(*words).status == 0
        assert out.read_bytes() == whole
        rng = random.Random(0)
        for _ in range(40):
            content = bytearray(whole)
            content[rng.randrange(len(content) - 1)] ^= 1 << rng.randrange(8)
            out.write_bytes(content)
            ran = command(*words)
            if ran.status == 0:  # the bit was in the end of a line, so that its question was asked again
                rows = [json.loads(line) for line in out.read_text().splitlines()]
                assert [row["answer"] for row in rows] == ["yes"] * 3
            else:
                assert ran.status in (1, 2)
                assert "line" in ran.err


def test_a_row_that_was_changed_says_what_to_do(asked: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "rows.jsonl"
    with ScriptedServer() as server:
        words = ("ask", "--questions", asked, "-o", out, "--llm", f"openai:m@{server.base_url}", "--method", "direct")
        command(*words)
        out.write_text(out.read_text().replace('"answer": "yes"', '"answer": "no!"', 1))
        ran = command(*words)
    assert ran.status == 1
    assert f"DataError: {out} line 1 cannot be kept: it was changed or damaged after it was written" in ran.err
    assert "Delete the line, and its question is asked again; or give -o another file" in ran.err


def test_a_trace_that_was_changed_is_not_replayed(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "trace.json"
    with ScriptedServer() as server:
        ran = command("ask", "Who?", "--llm", f"openai:m@{server.base_url}", "--method", "direct", "--trace", path)
    assert ran.status == 0
    path.write_text(path.read_text().replace('"text": "yes"', '"text": "no!"'))
    with pytest.raises(TraceError, match="changed or damaged after it was written") as caught:
        load_trace(path)
    assert f"delete the line '{KEY}' in it" in str(caught.value)
    plain = json.loads(path.read_text())
    del plain[KEY]
    path.write_text(json.dumps(plain))
    assert load_trace(path).calls[0].result["text"] == "no!"


def test_a_cached_answer_that_was_changed_is_not_given(tmp_path: Path, command: Command) -> None:
    import sqlite3

    with ScriptedServer() as server:
        words = ("ask", "Who?", "--llm", f"openai:m@{server.base_url}", "--method", "direct", "--cache", tmp_path)
        assert command(*words).status == 0
        connection = sqlite3.connect(tmp_path / "responses.sqlite")
        with connection:
            changed = connection.execute("UPDATE responses SET answer = replace(answer, 'yes', 'no!')").rowcount
        connection.close()
        assert changed == 1
        ran = command(*words)
    assert ran.status == 1
    assert "holds an entry that cannot be read; delete the file, and its answers are asked for again" in ran.err


def test_what_was_kept_of_a_server_is_not_believed_when_it_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, str(tmp_path))
    kept = Kept("openai:m@http://127.0.0.1:1/v1")
    kept.write({"context_tokens": 4096})
    assert kept.path is not None
    found = kept.read()
    assert found is not None
    assert found[0] == {"context_tokens": 4096}
    whole = kept.path.read_text()
    for changed in (whole.replace("4096", "4097"), "[]", "null", whole[:-9]):
        kept.path.write_text(changed)
        assert kept.read() is None
