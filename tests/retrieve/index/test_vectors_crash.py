"""kill -9 while an index with vectors is written: every committed passage is there, and has its vector."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import needs
import numpy as np
import pytest

from arbitrag.encode.base import encoded_text
from arbitrag.encode.hashed import HashEncoder
from arbitrag.errors import IndexFileError
from arbitrag.retrieve import open_index, update_index
from arbitrag.retrieve.index.bm25 import Bm25Index
from arbitrag.retrieve.index.dense import DenseIndex, StoredVectors

pytestmark = needs.signals

# The update in a process of its own, in batches of 10 files; it kills itself at a named step if told to.
_PROGRAM = """
import os, signal, sys
from arbitrag.retrieve.index import ledger, update, vectors
folder, target, step, times = sys.argv[1:]
update._BATCH_FILES = 10
left = int(times)

def killing(real, before):
    def call(*args, **kwargs):
        global left
        result = None if before else real(*args, **kwargs)
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs) if before else result
    return call

if step == "appended":
    vectors.VectorLog.commit = killing(vectors.VectorLog.commit, before=True)
elif step == "vectors":
    vectors.VectorLog.commit = killing(vectors.VectorLog.commit, before=False)
elif step == "settled":
    ledger.Ledger.settle = killing(ledger.Ledger.settle, before=False)
settle = ledger.Ledger.settle
def acknowledge(self, *rest):
    settle(self, *rest)
    print(self.totals()[1], flush=True)
ledger.Ledger.settle = acknowledge
print(0, flush=True)
update.update_index(folder, target, encoder="hash")
"""
FILES = 50


def write_documents(folder: Path, round: int) -> None:
    """50 files of two passages; a round changes 20 of them."""
    folder.mkdir(exist_ok=True)
    for number in range(FILES) if not round else range(round * 7 % 30, round * 7 % 30 + 20):
        parts = [f"Orchard {number} part {part} in round {round}. " + "gate and river " * 60 for part in range(2)]
        (folder / f"{number:03}.txt").write_text("\n\n".join(parts) + "x" * round)


def run(docs: Path, idx: Path, step: str = "", times: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _PROGRAM, str(docs), str(idx), step, str(times)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def assert_every_passage_has_its_vector(idx: Path, at_least: int) -> None:
    texts, vectors = Bm25Index.open(idx, unfinished=True), StoredVectors(idx)
    found = vectors.attach(asyncio.run(texts.retrieve("orchard", 1000)))
    assert len(found) == len(texts) >= at_least
    if found:
        expected = asyncio.run(HashEncoder().encode([encoded_text(each) for each in found], kind="passage"))
        for passage, vector in zip(found, expected, strict=True):
            assert passage.embedding is not None
            np.testing.assert_allclose(passage.embedding, vector, atol=1e-3)
    hits = asyncio.run(DenseIndex(texts, vectors, HashEncoder(), idx).retrieve("orchard", 1000))
    assert {passage.id for passage in hits} == {passage.id for passage in found}


@pytest.mark.parametrize(("step", "committed"), [("appended", 20), ("vectors", 20), ("settled", 40)])
def test_a_crash_at_each_step(tmp_path: Path, step: str, committed: int) -> None:
    docs, idx = tmp_path / "docs", tmp_path / "docs.idx"
    write_documents(docs, 0)
    with run(docs, idx, step, times=2) as process:
        assert process.wait() == -signal.SIGKILL
    assert len(Bm25Index.open(idx, unfinished=True)) == committed
    with pytest.raises(IndexFileError, match=rf"is unfinished: .* was cut short after {committed} passages"):
        open_index(idx)
    assert_every_passage_has_its_vector(idx, committed)
    assert update_index(docs, idx).passages == 100
    assert_every_passage_has_its_vector(idx, 100)


def test_ten_kills_at_random_moments_lose_no_acknowledged_passage(tmp_path: Path) -> None:
    docs, idx = tmp_path / "docs", tmp_path / "docs.idx"
    chance = random.Random(3)
    write_documents(docs, 0)
    with run(docs, idx) as process:
        assert process.wait() == 0
    for round in range(1, 11):
        write_documents(docs, round)
        with run(docs, idx) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.3))
            process.kill()
            process.wait()
        # No passage is added or dropped by a round: each file is there as it was or as it is.
        assert_every_passage_has_its_vector(idx, 100)
    update_index(docs, idx)
    assert_every_passage_has_its_vector(idx, 100)
    fresh = tmp_path / "fresh.idx"
    update_index(docs, fresh, encoder="hash")
    assert Bm25Index.open(idx).identity == Bm25Index.open(fresh).identity
