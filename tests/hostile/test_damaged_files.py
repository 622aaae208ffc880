"""A damaged file is refused, or read as it was: never another answer, never a hang, never a traceback."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import needs
import pytest
from fault_suite.damaged_files import DAMAGES, TYPED, Files, Kind, kinds
from fault_suite.endpoint_commands import always
from fault_suite.fault_server import FaultServer
from fault_suite.worker import Worker

FAST = [
    ("index of words", "index.json", "a wrong type"),
    ("run file", "", "100 bits"),
    ("trace", "", "a wrong type"),
    ("answers", "", "one bit"),
    ("response cache", "responses.sqlite", "a tenth noise"),
]
# A file of each kind, by the end of its name, with damages that went unseen, hung or were called a fault of ours once.
MORE = [
    ("index with vectors", "keys.bin", "all zeros"),
    ("index with vectors", "vectors.json", "gone"),
    ("index with vectors", "vectors.bin", "one bit"),
    ("index of words", ".term", "a tenth zeros"),
    ("index of words", ".store", "one bit"),
    ("index of words", "index.json", "a wrong type"),
    ("index of words", "meta.json", "a folder"),
    ("index of words", "meta.json", "deep JSON"),
    ("index of words", "index.json", "a pipe"),
    ("index of words, updated", "files.sqlite", "half"),
    ("run file", "", "a tenth zeros"),
    ("run file", "", "100 bits"),
    ("run file, resumed", "", "half"),
    ("run file, compared", "", "noise"),
    ("trace", "", "a wrong type"),
    ("trace", "", "deep JSON"),
    ("answers", "", "half"),
    ("answers", "", "a wrong type"),
    ("response cache", "responses.sqlite", "a tenth noise"),
    ("prompts", "answer.txt", "noise"),
    ("questions", "", "a wrong type"),
    ("question table", "", "noise"),
    ("passages", "", "half"),
]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory, worker: Worker) -> Iterator[dict[str, Kind]]:
    with FaultServer(None, always) as server:
        made = kinds(tmp_path_factory.mktemp("originals"), worker, f"http://127.0.0.1:{server.port}/v1")
        yield {kind.name: kind for kind in made}


@pytest.mark.parametrize(("kind", "end", "damage"), FAST)
def test_a_damaged_file_changes_no_answer(
    kind: str, end: str, damage: str, originals: dict[str, Kind], worker: Worker, tmp_path: Path
) -> None:
    _check(kind, end, damage, originals, worker, tmp_path)


@pytest.mark.slow
@needs.pipes
@needs.links
@pytest.mark.parametrize(("kind", "end", "damage"), MORE)
def test_more_damaged_files_change_no_answer(
    kind: str, end: str, damage: str, originals: dict[str, Kind], worker: Worker, tmp_path: Path
) -> None:
    _check(kind, end, damage, originals, worker, tmp_path)


def _check(kind: str, end: str, damage: str, originals: dict[str, Kind], worker: Worker, tmp_path: Path) -> None:
    found = Files(tmp_path, worker, seed=0)
    file = next(file for file in originals[kind].files() if file.endswith(end))
    found.damage(originals[kind], file, damage)
    assert found.problems == []


@pytest.mark.slow
@pytest.mark.parametrize("number", range(6))
def test_damages_drawn_at_random(originals: dict[str, Kind], worker: Worker, tmp_path: Path, number: int) -> None:
    found = Files(tmp_path, worker, seed=100 + number)
    found.run(list(originals.values()), lambda done, total, what: None, share=0.012)
    assert found.problems == []
    assert found.damaged > 10


def test_the_fault_suite_damages_250_files(originals: dict[str, Kind]) -> None:
    assert sum(len(kind.files()) for kind in originals.values()) * len(DAMAGES) >= 250
    assert len(DAMAGES) + len(TYPED) >= 20


def test_tables_whose_names_are_no_text(originals: dict[str, Kind], worker: Worker, tmp_path: Path) -> None:
    """sqlite's message repeats them, and cannot be decoded itself."""
    for kind, end in (
        ("run file", ""),
        ("index of words, updated", "files.sqlite"),
        ("response cache", "responses.sqlite"),
    ):
        found = Files(tmp_path / kind, worker, seed=0)
        file = next(file for file in originals[kind].files() if file.endswith(end))
        found.damage(originals[kind], file, "", by=_with_strange_tables)
        assert found.problems == []
        assert found.refused == 1


def _with_strange_tables(path: Path, rng: random.Random) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET sql = CAST(x'C5C5' AS TEXT), name = CAST(x'C5FF' AS TEXT)")
        database.commit()
