"""kill -9 at any moment: what was committed can be searched, and the next run ends where an undisturbed one would."""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import needs
import pytest

from arbitrag.errors import IndexFileError
from arbitrag.retrieve import update_index
from arbitrag.retrieve.index.bm25 import Bm25Index

pytestmark = needs.signals

# The update in a process of its own, in batches of 10 files; it kills itself at a named step if told to.
_PROGRAM = """
import os, signal, sys
from arbitrag.retrieve.index import ledger, manifest, update
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

if step == "proposed":
    ledger.Ledger.propose = killing(ledger.Ledger.propose, before=False)
elif step == "committed":
    ledger.Ledger.settle = killing(ledger.Ledger.settle, before=True)
elif step == "settled":
    ledger.Ledger.settle = killing(ledger.Ledger.settle, before=False)
elif step == "manifest":
    manifest.IndexManifest.write = killing(manifest.IndexManifest.write, before=True)
print("started", flush=True)
update.update_index(folder, target)
"""
FILES = 60
SENTENCE = "Sentence {} of file {} in round {}. "


def write_documents(folder: Path, round: int) -> None:
    """60 files of three passages; in every round after the first, 20 are changed, 10 go and 10 come."""
    folder.mkdir(exist_ok=True)
    if round:
        for path in sorted(folder.iterdir())[:10]:
            path.unlink()
    changed = range(FILES) if not round else range(round * 10 + 10, round * 10 + 30)
    new = range(FILES + round * 10 - 10, FILES + round * 10) if round else range(0)
    for number in [*changed, *new]:
        text = "\n\n".join(SENTENCE.format(part, number, round) + "and more words here. " * 40 for part in range(3))
        (folder / f"{number:04}.txt").write_text(text + "x" * round)


def run(docs: Path, idx: Path, step: str = "", times: int = 1) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _PROGRAM, str(docs), str(idx), step, str(times)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def contents(idx: Path) -> dict[str, list[str]]:
    """The passages of every file that can be found."""
    found = asyncio.run(Bm25Index.open(idx, unfinished=True).retrieve("and more words here", 1000))
    texts: dict[str, list[str]] = {}
    for passage in sorted(found, key=lambda each: (each.source, each.offset)):
        texts.setdefault(passage.source, []).append(passage.text)
    return texts


def assert_whole(texts: dict[str, list[str]]) -> None:
    """Each file is there with all passages of one round, or not at all."""
    for source, passages in texts.items():
        rounds = Counter(passage.split(" in round ")[1].split(".")[0] for passage in passages)
        assert len(passages) == 3, source
        assert len(rounds) == 1, source


def assert_settled(docs: Path, idx: Path, tmp_path: Path) -> None:
    """The index is what one that was never interrupted would be."""
    update_index(docs, idx, replace=True)
    fresh = tmp_path / f"fresh{time.monotonic_ns()}.idx"
    update_index(docs, fresh)
    assert contents(idx) == contents(fresh)
    assert Bm25Index.open(idx).identity == Bm25Index.open(fresh).identity
    assert update_index(docs, idx).unchanged == len(list(docs.iterdir()))


@pytest.mark.parametrize("step", ["proposed", "committed", "settled", "manifest"])
def test_a_crash_at_each_step_of_a_batch(tmp_path: Path, step: str) -> None:
    docs, idx = tmp_path / "docs", tmp_path / "docs.idx"
    write_documents(docs, 0)
    update_index(docs, idx)
    before = contents(idx)
    write_documents(docs, 1)
    times = 1 if step == "manifest" else 2
    with run(docs, idx, step, times) as process:
        assert process.wait() == -signal.SIGKILL
    texts = contents(idx)
    assert_whole(texts)
    changed = sum(texts.get(source) != passages for source, passages in before.items())
    # Ten files are dropped with the first batch, ten are changed with each, ten are new at the end.
    assert changed == {"proposed": 20, "committed": 30, "settled": 30, "manifest": 30}[step]
    assert_settled(docs, idx, tmp_path)


@pytest.mark.parametrize("step", ["proposed", "committed", "settled"])
def test_a_crash_in_the_batch_that_drops_files(tmp_path: Path, step: str) -> None:
    docs, idx = tmp_path / "docs", tmp_path / "docs.idx"
    write_documents(docs, 0)
    update_index(docs, idx)
    before = contents(idx)
    write_documents(docs, 1)
    with run(docs, idx, step) as process:
        assert process.wait() == -signal.SIGKILL
    texts = contents(idx)
    assert_whole(texts)
    # The first batch drops ten files and changes ten.
    assert sum(texts.get(source) != passages for source, passages in before.items()) == (step != "proposed") * 20
    assert_settled(docs, idx, tmp_path)


def test_a_crash_in_a_batch_that_only_drops(tmp_path: Path) -> None:
    docs, idx = tmp_path / "docs", tmp_path / "docs.idx"
    write_documents(docs, 0)
    update_index(docs, idx)
    for path in sorted(docs.iterdir())[:15]:
        path.unlink()
    with run(docs, idx, "committed") as process:
        assert process.wait() == -signal.SIGKILL
    assert len(contents(idx)) == FILES - 15
    assert_settled(docs, idx, tmp_path)


@pytest.mark.parametrize("step", ["proposed", "committed", "settled", "manifest"])
def test_a_crash_while_the_index_is_made(tmp_path: Path, step: str) -> None:
    docs, idx = tmp_path / "docs", tmp_path / "docs.idx"
    write_documents(docs, 0)
    with run(docs, idx, step) as process:
        assert process.wait() == -signal.SIGKILL
    if step == "manifest":
        with pytest.raises(IndexFileError, match="holds nothing yet"):
            Bm25Index.open(idx)
    else:
        passages = {"proposed": 0, "committed": 30, "settled": 30}[step]
        with pytest.raises(
            IndexFileError, match=rf"after {passages} passages.\nWait for it, or finish it: .*index -o "
        ):
            Bm25Index.open(idx)
        assert_whole(contents(idx))
        assert len(Bm25Index.open(idx, unfinished=True)) == passages
        if step == "settled":
            update_index(None, idx)  # the sources are remembered
            assert len(Bm25Index.open(idx)) == 180
    assert_settled(docs, idx, tmp_path)


def test_crashes_at_random_moments(tmp_path: Path) -> None:
    docs, idx = tmp_path / "docs", tmp_path / "docs.idx"
    chance = random.Random(7)
    write_documents(docs, 0)
    update_index(docs, idx)
    kills = 0
    for round in range(1, 5):
        write_documents(docs, round)
        for _ in range(2):
            with run(docs, idx) as process:
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(chance.uniform(0.0, 0.15))
                process.kill()
                kills += process.wait() == -signal.SIGKILL
            assert_whole(contents(idx))
    assert kills
    assert_settled(docs, idx, tmp_path)


def test_the_identity_tells_an_unfinished_update(tmp_path: Path) -> None:
    docs, idx = tmp_path / "docs", tmp_path / "docs.idx"
    write_documents(docs, 0)
    update_index(docs, idx)
    finished = Bm25Index.open(idx).identity
    write_documents(docs, 1)
    with run(docs, idx, "settled") as process:
        process.wait()
    assert Bm25Index.open(idx).identity.startswith(f"{finished}+")
    commit = json.loads((idx / "bm25" / "meta.json").read_bytes())["opstamp"]
    assert Bm25Index.open(idx).identity == f"{finished}+{commit}"
