"""Retrieval quality on the lab's corpus: recall and MRR of bm25, dense and hybrid search.

A corpus of 50,000 documents (`arbitrag lab retrieval` writes it) is indexed with the `hash` encoder and searched with
questions of every kind, multi-hop ones among them, which name only the first subject. Relevant are all documents that
state a fact of the question; beside recall stands the share of questions with at least one document for each of their
facts. No bars.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.bench import Bench

from arbitrag.evaluate.metrics.ranking import Ranked, ranking
from arbitrag.evaluate.metrics.ratios import mean
from arbitrag.lab.corpus import Corpus, Label, Recipe, document_row
from arbitrag.lab.questions import KINDS, questions
from arbitrag.lab.relevance import Relevant, relevant
from arbitrag.lab.world import SEED, open_world
from arbitrag.retrieve import MODES, open_index, update_index

CUTS, DEPTH = (1, 5, 20), 20


async def found_by(index: Path, mode: str, asked: Sequence[Relevant]) -> list[list[str]]:
    """The ids of the first documents for every question, best first."""
    retriever = open_index(index, mode=mode)  # type: ignore[arg-type]  # one of MODES
    found = []
    for each in asked:
        passages = await retriever.retrieve(each.question.question, DEPTH)
        found.append([passage.id for passage in passages])
    await retriever.aclose()
    return found


def measure(bench: Bench, mode: str, kind: str, pairs: Sequence[tuple[Relevant, list[str]]]) -> None:
    lists = [Ranked(tuple(one in each.ids for one in ids), len(each.ids)) for each, ids in pairs]
    for k in CUTS:
        bench.figure(f"{kind}, {mode}: recall@{k}", ranking(lists, k).recall or 0.0)
    bench.figure(f"{kind}, {mode}: MRR@{DEPTH}", ranking(lists, DEPTH).reciprocal_rank or 0.0)
    covered = mean([float(each.complete(ids)) for each, ids in pairs])
    bench.figure(f"{kind}, {mode}: every fact covered in the first {DEPTH}", covered or 0.0)


def main() -> None:
    bench = Bench("lab_retrieval", __doc__)
    size, count = bench.pick(quick=8_000, full=50_000), bench.pick(smoke=20, quick=200, full=1_000)
    world = open_world(SEED)
    labels: list[Label] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for passage, label in Corpus(world, Recipe(size, bench.options.seed)):
                labels.append(label)
                file.write(json.dumps(document_row(passage), ensure_ascii=False) + "\n")
        index = Path(folder) / "lab.idx"
        update_index(path, index, encoder="hash")
        asked = relevant(labels, questions(world, count, seed=bench.options.seed))
        for mode in MODES:
            pairs = list(zip(asked, asyncio.run(found_by(index, mode, asked)), strict=True))
            measure(bench, mode, "all", pairs)
            for kind in KINDS:
                measure(bench, mode, kind, [pair for pair in pairs if pair[0].question.kind == kind])
    bench.finish(documents=size, questions=count, world=SEED)


if __name__ == "__main__":
    main()
