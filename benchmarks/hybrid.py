"""Hybrid search, top 20 over a million passages with vectors, on two cores; and `index` killed ten times while it runs.

The passages have about 100 made-up words: 60% of each from one of 5,000 topics of 300 words, the rest Zipf distributed.
They are indexed from files of 1,000 with the `hash` encoder. Indexing and searching run in processes of their own,
whose peak resident memory is reported (mapped pages of the index count). The small index has a tenth of the passages;
both get the same queries by turns. Recall compares the dense search with the exact nearest neighbours.

The kills: `index` is ended with SIGKILL at random moments; each time the index must open with every passage that had
been acknowledged (its batch was committed), and every passage with its vector. A last run finishes the index.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from harness.bench import Bench
from harness.steps import Step, main_or_step, run_step, step_command
from harness.words import word

from arbitrag.retrieve import Mode
from arbitrag.retrieve.index.ledger import Ledger

VOCABULARY = 100_000
WORDS = 100
TOPICS, TOPIC_WORDS, TOPICAL = 5_000, 300, 0.6
FILE_PASSAGES = 1_000
K = 20


class Texts:
    """The distribution that passages and queries are drawn from."""

    def __init__(self, seed: int) -> None:
        import numpy as np

        self.rng = np.random.default_rng(seed)
        self.words = [word(rank) for rank in range(VOCABULARY)]
        general = 1 / (np.arange(VOCABULARY) + 2.7)
        self.general = np.cumsum(general / general.sum())
        topical = 1 / (np.arange(TOPIC_WORDS) + 2.7)
        self.topical = np.cumsum(topical / topical.sum())
        # Every topic has its own words; none is among the 500 most frequent, and rarer ones are rarer in topics too.
        ranks = np.random.default_rng(12345).random((TOPICS, TOPIC_WORDS)) ** 2 * (VOCABULARY - 500)
        self.topics = ranks.astype(np.int64) + 500

    def draw(self, topics: Any, count: int, topical: float) -> list[str]:
        """A text of ``count`` words for each topic."""
        import numpy as np

        size = (len(topics), count)
        general = np.searchsorted(self.general, self.rng.random(size)).clip(max=VOCABULARY - 1)
        places = np.searchsorted(self.topical, self.rng.random(size)).clip(max=TOPIC_WORDS - 1)
        ranks = np.where(self.rng.random(size) < topical, self.topics[topics[:, None], places], general)
        return [" ".join([self.words[rank] for rank in row]) for row in ranks.tolist()]


def write_passages(folder: Path, count: int, seed: int) -> None:
    texts_of = Texts(seed)
    folder.mkdir()
    for start in range(0, count, FILE_PASSAGES):
        topics = texts_of.rng.integers(TOPICS, size=FILE_PASSAGES)
        texts = texts_of.draw(topics, WORDS, TOPICAL)
        rows = (
            json.dumps({"id": f"{start + at}", "text": f"{text}.", "tenth": str((start + at) % 10)})
            for at, text in enumerate(texts)
        )
        (folder / f"{start // FILE_PASSAGES:05}.jsonl").write_text("\n".join(rows) + "\n")


def questions(count: int, seed: int) -> list[str]:
    """Eight words each, three quarters of them from one topic."""
    texts_of = Texts(seed + 1)
    return texts_of.draw(texts_of.rng.integers(TOPICS, size=count), 8, 0.75)


def index(docs: str, target: str, batch: str) -> dict[str, object]:
    """Index, and print after each batch how many passages are acknowledged."""
    from arbitrag.retrieve import update_index
    from arbitrag.retrieve.index import update

    update._BATCH_PASSAGES = int(batch)

    settle = Ledger.settle

    def acknowledge(self: Ledger) -> None:
        settle(self)
        print(f"acknowledged {self.totals()[1]}", file=sys.stderr, flush=True)

    Ledger.settle = acknowledge  # type: ignore[method-assign]
    report = update_index(docs, target, encoder="hash")
    return {"seconds": report.seconds, "passages": report.passages}


def query(small: str, large: str, count: str, seed: str) -> dict[str, object]:
    from arbitrag.encode.hashed import HashEncoder
    from arbitrag.retrieve import open_index
    from arbitrag.retrieve.index.dense import StoredVectors, nearest

    asked = questions(int(count), int(seed))

    async def ask() -> dict[str, object]:
        seconds: dict[str, list[float]] = {f"{size} {mode}": [] for size in ("small", "large") for mode in MODES}
        retrievers = {
            f"{size} {mode}": open_index(path, mode=mode)
            for size, path in (("small", small), ("large", large))
            for mode in MODES
        }
        for retriever in retrievers.values():
            for text in asked[:5]:
                await retriever.retrieve(text, K)
        for text in asked:
            for name, retriever in retrievers.items():
                began = time.perf_counter()
                found = await retriever.retrieve(text, K)
                seconds[name].append(time.perf_counter() - began)
                assert len(found) == K or name == "small bm25"  # where fewer may share a word with the question
        began = time.perf_counter()
        filtered = await retrievers["large dense"].retrieve(asked[0], K, {"tenth": "3"})
        assert all(passage.metadata["tenth"] == "3" for passage in filtered)
        first_filter = time.perf_counter() - began
        return {"seconds": seconds, "first_filter": first_filter}

    result = asyncio.run(ask())
    vectors, codes = StoredVectors(Path(large)).current()
    found = 0
    sample = asked[:20]
    for text in sample:
        vector = asyncio.run(HashEncoder().encode([text], kind="query"))[0]
        best, _ = nearest(vectors, codes, vector, K, {})
        exact, _ = nearest(vectors, None, vector, K, {})
        found += len(set(best.tolist()) & set(exact.tolist()))
    return {**result, "recall": found / (K * len(sample))}


def checks(target: str) -> dict[str, object]:
    """The time of the checksums that detect damage: of all text files, of keys and tags, and of every vector."""
    import numpy as np

    from arbitrag.retrieve.index.snapshot import read_commit, verify
    from arbitrag.retrieve.index.vectors import CommittedVectors, read_vector_manifest

    words, folder = Path(target) / "bm25", Path(target) / "vectors"
    began = time.perf_counter()
    verify(words, read_commit(words).files)
    texts = time.perf_counter()
    vectors = CommittedVectors(folder, read_vector_manifest(folder))
    opened = time.perf_counter()
    probe = vectors.take(np.arange(1))[0]
    for start in range(0, len(vectors), FILE_PASSAGES):
        vectors.similarities(probe, range(start, min(start + FILE_PASSAGES, len(vectors))))
    read = time.perf_counter()
    for start in range(0, len(vectors), FILE_PASSAGES):
        vectors.similarities(probe, range(start, min(start + FILE_PASSAGES, len(vectors))))
    again = time.perf_counter() - read
    return {"texts": texts - began, "opened": opened - texts, "vectors": max(0.0, read - opened - again)}


def answer(target: str, count: str, seed: str) -> dict[str, object]:
    """What a user's process does, for its memory: open the index and search it."""
    from arbitrag.retrieve import open_index

    async def ask() -> int:
        retriever = open_index(target)
        return sum([len(await retriever.retrieve(text, K)) for text in questions(int(count), int(seed))])

    return {"found": asyncio.run(ask())}


MODES: tuple[Mode, ...] = ("hybrid", "bm25", "dense")
STEPS: dict[str, Step] = {"index": index, "query": query, "answer": answer, "checks": checks}


def check(target: str) -> tuple[int, int]:
    """Passages in an index, and how many of them have a vector."""
    from arbitrag.retrieve.index.bm25 import Bm25Index, addresses_by_key, keys_at
    from arbitrag.retrieve.index.vectors import open_vectors

    texts, vectors = Bm25Index.open(target, unfinished=True), open_vectors(Path(target) / "vectors")
    view = texts._current()
    live = 0
    for start in range(0, len(vectors), 1000):
        keys = [int(key) for key in vectors.keys[start : start + 1000]]
        live += len(set(keys_at(view.searcher, addresses_by_key(view.searcher, view.index.schema, keys))))
    return len(texts), live


def killed(docs: Path, target: Path, batch: int, after_s: float) -> tuple[int, bool]:
    """Passages acknowledged by a run of `index` that is killed after some seconds, and whether it was still running."""
    acknowledged = [0]

    def listen(lines: Any) -> None:
        for line in lines:
            if line.startswith("acknowledged "):
                acknowledged.append(int(line.split()[1]))

    with subprocess.Popen(
        step_command(__file__, "index", docs, target, batch),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        listener = threading.Thread(target=listen, args=(process.stderr,))
        listener.start()
        time.sleep(after_s)
        running = process.poll() is None
        process.kill()
        listener.join()
    return max(acknowledged), running


def kill_often(docs: Path, target: Path, batch: int, times: int, longest_s: float, seed: int) -> tuple[int, int, int]:
    """Kills that hit a running update, acknowledged passages that were lost, and passages without their vector."""
    chance = random.Random(seed)
    hits = lost = bare = most = 0
    for _ in range(times):
        safe, running = killed(docs, target, batch, chance.uniform(0.2, 1.0) * longest_s)
        hits += running
        most = max(most, safe)
        if not (target / "vectors" / "vectors.json").exists() or not (target / "bm25" / "meta.json").exists():
            lost += most  # nothing had been acknowledged, or all of it is gone
            continue
        passages, live = check(str(target))
        lost, bare = lost + max(0, most - passages), bare + passages - live
        print(f"killed: {most:,} passages acknowledged, {passages:,} there, {live:,} with a vector", flush=True)
    return hits, lost, bare


def main() -> None:
    bench = Bench("hybrid", __doc__, packages=["tantivy", "faiss-cpu", "numpy"])
    seed = bench.options.seed
    count = bench.pick(smoke=2_000, quick=52_000, full=1_000_000)  # up to 50,000 are searched exactly
    kills, longest_s, killed = bench.pick(smoke=(1, 1.0, "small"), quick=(2, 2.0, "small"), full=(10, 60.0, "large"))
    # Passages that are committed together; in full as many as by default.
    batch = bench.pick(smoke=500, quick=2_000, full=100_000)
    asked = bench.pick(smoke=3, quick=30, full=200)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        folder = Path(name)
        write_passages(folder / "small", count // 10, seed)
        write_passages(folder / "large", count, seed)
        print(f"{count:,} passages written", flush=True)
        run_step(__file__, "index", folder / "small", folder / "small.idx", batch)
        built = run_step(__file__, "index", folder / "large", folder / "large.idx", batch)
        assert built["passages"] == count, built
        print(f"indexed in {built['seconds']:.0f} s", flush=True)
        on_disk = sum(path.stat().st_size for path in (folder / "large.idx").rglob("*") if path.is_file())
        found = run_step(__file__, "query", folder / "small.idx", folder / "large.idx", asked, seed)
        answered = run_step(__file__, "answer", folder / "large.idx", asked, seed)
        checked = run_step(__file__, "checks", folder / "large.idx")
        hits, lost, bare = kill_often(folder / killed, folder / "killed.idx", batch // 4, kills, longest_s, seed)
        finished = run_step(__file__, "index", folder / killed, folder / "killed.idx", batch)
        passages, live = check(str(folder / "killed.idx"))
        missing = len(list((folder / killed).iterdir())) * FILE_PASSAGES - min(passages, live)
        assert finished["passages"] == passages
    seconds = found["seconds"]
    large, small = seconds["large hybrid"], seconds["small hybrid"]
    bench.figure("hybrid top 20, p50", statistics.median(large) * 1000, unit="ms", at_most=40, full_only=True)
    bench.figure("hybrid top 20, p95", statistics.quantiles(large, n=20)[-1] * 1000, unit="ms")
    for size in ("small", "large"):
        for mode in MODES:
            bench.figure(f"{size} index, {mode}, p50", statistics.median(seconds[f"{size} {mode}"]) * 1000, unit="ms")
    bench.ratio("10 times the passages, time of a hybrid query", large, small, at_most=2.0)
    bench.figure("recall@20 of the dense search against exact search", found["recall"], at_least=0.95)
    bench.figure("first dense query with a filter", found["first_filter"] * 1000, unit="ms")
    bench.figure("checksums of the text files", checked["texts"] * 1000, unit="ms")
    bench.figure("checksums of keys and tags", checked["opened"] * 1000, unit="ms")
    bench.figure("checksums of all vectors", checked["vectors"] * 1000, unit="ms")
    bench.figure("indexing, seconds", built["seconds"], unit="s")
    bench.figure("indexing, peak memory", built["peak_mb"], unit="MB", at_most=3000, full_only=True)
    bench.figure("searching, peak memory", answered["peak_mb"], unit="MB", at_most=3000, full_only=True)
    bench.figure("searching with six retrievers and exactly, peak memory", found["peak_mb"], unit="MB")
    bench.figure("index on disk", on_disk / 1e6, unit="MB")
    bench.figure("kills that hit a running `index`", hits)
    bench.figure("acknowledged passages lost", lost, at_most=0)
    bench.figure("passages without their vector after the kills", bare, at_most=0)
    bench.figure("passages missing after the last run", missing, at_most=0)
    bench.finish(passages=count, words=WORDS, k=K, questions=asked, width=256, kills=kills)


if __name__ == "__main__":
    main_or_step(main, STEPS)
