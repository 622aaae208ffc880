"""BM25 top 20 over 100,000 and over a million passages: what ``retrieve`` adds to tantivy's own search, and the memory.

Both sides search the same files, 40 queries by turns. Bare tantivy parses the query and fetches the stored bytes of 20
passages. Ours also breaks ties in a fixed order, decodes the passages, looks whether the index was updated, and uses a
thread for a search that is not short. The ratio of both and the time that ours adds per query have bars.

The passages have about 100 words of a Zipf distributed vocabulary of 200,000, made from the seed and streamed to
JSON lines. Building, comparing, and querying for memory run in processes of their own. The bars on memory are for what
a process has allocated itself (the peak of RssAnon); beside it stands the highest resident memory, in which mapped
pages of the index count as well, although the system takes those back when it needs them.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path

from harness.bench import Bench, alternate
from harness.steps import main_or_step, run_step
from harness.words import word

VOCABULARY = 200_000
WORDS = 100
K = 20
QUERIES = 40  # per round


def write_passages(path: Path, count: int, seed: int) -> None:
    """``count`` rows of 80 to 120 words; word number r is drawn with a chance proportional to 1 / (r + 2.7)."""
    import numpy as np

    chance = np.random.default_rng(seed)
    share = 1 / (np.arange(VOCABULARY) + 2.7)
    bounds = np.cumsum(share / share.sum())
    words = [word(rank) for rank in range(VOCABULARY)]
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, count, 5000):
            size = min(5000, count - start)
            lengths = chance.integers(WORDS - 20, WORDS + 21, size=size)
            ranks = np.searchsorted(bounds, chance.random(int(lengths.sum()))).clip(max=VOCABULARY - 1).tolist()
            place = 0
            for length in lengths.tolist():
                text = " ".join([words[rank] for rank in ranks[place : place + length]])
                place += length
                file.write(f'{{"text": "{text}."}}\n')


def questions(count: int, seed: int) -> list[str]:
    """Eight different words each: three frequent ones, as in a question, and five from the vocabulary's upper half."""
    chance = random.Random(seed)
    asked = []
    for _ in range(count):
        ranks: set[int] = set()
        while len(ranks) < 3:
            ranks.add(int(chance.random() ** 3 * 100))
        while len(ranks) < 8:
            ranks.add(int(chance.random() ** 2 * VOCABULARY / 2))
        asked.append(" ".join(word(rank) for rank in sorted(ranks)))
    return asked


def build(folder: str) -> dict[str, object]:
    from arbitrag.retrieve import update_index

    report = update_index(f"{folder}/passages.jsonl", f"{folder}/docs.idx")
    return {"seconds": report.seconds, "passages": report.passages}


def compare(folder: str, rounds: str, seed: str) -> dict[str, object]:
    """Seconds of each round of queries, through ``retrieve`` and through tantivy alone."""
    import tantivy

    from arbitrag.retrieve.index.analysis import NAME, analyzer
    from arbitrag.retrieve.index.bm25 import Bm25Index

    ours = Bm25Index.open(f"{folder}/docs.idx")
    bare = tantivy.Index.open(f"{folder}/docs.idx/bm25")
    bare.register_tokenizer(NAME, analyzer("english"))
    searcher = bare.searcher()
    asked = questions(QUERIES, int(seed) + 1)

    def with_retrieve() -> list[list[float]]:
        async def all_of_them() -> list[list[float]]:
            return [[passage.score or 0.0 for passage in await ours.retrieve(text, K)] for text in asked]

        return asyncio.run(all_of_them())

    def with_tantivy() -> list[list[float]]:
        scores = []
        for text in asked:
            hits = searcher.search(bare.parse_query(text, ["body"]), K, count=False).hits
            passages = [searcher.doc(address).get_first("passage") for _, address in hits]
            assert len(passages) == len(hits)
            scores.append([score for score, _ in hits])
        return scores

    for left, right in zip(with_retrieve(), with_tantivy(), strict=True):
        assert all(abs(a - b) <= 1e-4 * b for a, b in zip(left, right, strict=True)), "the two sides differ"
    seconds = alternate(with_retrieve, with_tantivy, rounds=int(rounds))
    return {"ours": seconds[0], "bare": seconds[1]}


def search(folder: str, rounds: str, seed: str) -> dict[str, object]:
    """Search with ``retrieve`` alone, for the memory of the process."""
    from arbitrag.retrieve.index.bm25 import Bm25Index

    async def ask(texts: list[str]) -> int:
        return sum([len(await index.retrieve(text, K)) for text in texts])

    index = Bm25Index.open(f"{folder}/docs.idx")
    return {"passages": sum(asyncio.run(ask(questions(QUERIES, int(seed) + number))) for number in range(int(rounds)))}


def measure(bench: Bench, count: int, rounds: int) -> None:
    """Build an index of ``count`` passages, search it, and add its figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.perf_counter()
        write_passages(folder / "passages.jsonl", count, bench.options.seed)
        print(f"{count:,} passages written in {time.perf_counter() - began:.0f} s", flush=True)
        built = run_step(__file__, "build", folder)
        assert built["passages"] == count, built
        on_disk = sum(path.stat().st_size for path in (folder / "docs.idx").rglob("*") if path.is_file())
        found = run_step(__file__, "compare", folder, rounds, bench.options.seed)
        searched = run_step(__file__, "search", folder, rounds, bench.options.seed)
    ours, bare = ([seconds / QUERIES * 1000 for seconds in found[side]] for side in ("ours", "bare"))
    size = f"{count:,} passages: "
    bench.ratio(f"{size}retrieve / bare tantivy, top {K}", ours, bare, at_most=1.3)
    bench.difference(f"{size}added by retrieve, a query", ours, bare, unit="ms", at_most=0.6)
    bench.figure(f"{size}a query, median", statistics.median(ours), unit="ms")
    bench.figure(f"{size}building", built["seconds"], unit="s")
    bench.figure(f"{size}building, allocated memory", built["allocated_mb"], unit="MB", at_most=500)
    bench.figure(f"{size}searching, allocated memory", searched["allocated_mb"], unit="MB", at_most=200)
    bench.figure(f"{size}building, resident with mapped files", built["peak_mb"], unit="MB")
    bench.figure(f"{size}searching, resident with mapped files", searched["peak_mb"], unit="MB")
    bench.figure(f"{size}index on disk", on_disk / 1e6, unit="MB")


def main() -> None:
    bench = Bench("bm25", __doc__, packages=["tantivy", "arbitrag"])
    sizes = bench.pick(smoke=(2_000,), quick=(100_000,), full=(100_000, 1_000_000))
    rounds = bench.pick(smoke=2, quick=25, full=25)
    for count in sizes:
        measure(bench, count, rounds)
    bench.finish(passages=sizes, words=WORDS, vocabulary=VOCABULARY, k=K, queries_per_round=QUERIES, rounds=rounds)


if __name__ == "__main__":
    main_or_step(main, {"build": build, "compare": compare, "search": search})
