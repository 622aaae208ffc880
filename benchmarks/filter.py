"""The passages that TrustRAG's first stage keeps, by both of its rules, for each number of poisoned passages.

On RealTime QA with poisoned passages (``--data FILE``, by default the one in ../shared/data): the first search results
of a question and texts that assert a wrong answer, five passages in all, shuffled. The texts come as they are, or with
the question prepended, as PoisonedRAG plants them. The encoder is ``hash``, or ``--encoder ADDRESS``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from harness.bench import Bench

from arbitrag.data.reading import open_source
from arbitrag.encode import open_encoder
from arbitrag.encode.base import Encoder
from arbitrag.evaluate.questions import Item
from arbitrag.kit import Kit
from arbitrag.stages.filters import filter_named
from arbitrag.stages.filters.robust import calibrate
from arbitrag.testing import FixedRetriever, ScriptedLLM
from arbitrag.types import Passage

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "realtimeqa_poisoned.jsonl"
K = 5


@dataclass
class Tally:
    """Passages given and kept, and the questions that were left without any."""

    clean: int = 0
    clean_kept: int = 0
    poison: int = 0
    poison_kept: int = 0
    questions: int = 0
    empty: int = 0

    def add(self, item: Item, kept: Iterable[Passage]) -> None:
        ids = {passage.id for passage in kept}
        given = {passage.id for passage in item.passages or ()}
        self.clean += len(given - item.poisoned)
        self.clean_kept += len(ids - item.poisoned)
        self.poison += len(item.poisoned)
        self.poison_kept += len(ids & item.poisoned)
        self.questions += 1
        self.empty += not ids


def prefixed(item: Item) -> Item:
    """The item with the question prepended to every poisoned text."""
    passages = tuple(
        replace(each, text=f"{item.question.text}. {each.text}") if each.id in item.poisoned else each
        for each in item.passages or ()
    )
    return replace(item, passages=passages)


def items(address: str) -> list[Item]:
    return [row.item for row in open_source(address).rows() if row.item is not None]


async def tally(rule: str, given: list[Item], encoder: Encoder) -> Tally:
    kit, found = Kit.of(ScriptedLLM(), FixedRetriever(()), encoder=encoder), Tally()
    kept_by = filter_named(rule)
    for item in given:
        found.add(item, (await kept_by.keep(item.question, item.passages or (), kit)).kept)
    return found


async def measure(bench: Bench, encoder: Encoder) -> int:
    data, count = bench.options.data, 0
    for k in (K, 2 * K):
        lists = [[each.text for each in item.passages or ()] for item in items(f"{data}?poisoned=0&k={k}")]
        vectors = [await encoder.encode(texts, kind="passage") for texts in lists]
        bench.figure(f"{k} clean passages, .90 quantile of the cosine of nearest neighbours", calibrate(vectors))
    for poisoned in bench.pick(smoke=(1,), quick=(0, 1, 3), full=range(K + 1)):
        given = items(f"{data}?poisoned={poisoned}&k={K}&seed={bench.options.seed}")
        count = len(given)
        for form, made in (("plain", given), ("question prepended", [prefixed(item) for item in given])):
            if poisoned == 0 and form != "plain":
                continue
            for rule in ("reference", "robust"):
                found = await tally(rule, made, encoder)
                what = f"{poisoned} of {K} poisoned, {form}, {rule}: " if poisoned else f"none poisoned, {rule}: "
                if found.clean:
                    bar = 0.9 if rule == "robust" else None
                    bench.figure(f"{what}clean kept", found.clean_kept / found.clean, at_least=bar)
                if found.poison:
                    bar = 0.05 if rule == "robust" and form != "plain" else None
                    bench.figure(f"{what}poison kept", found.poison_kept / found.poison, at_most=bar)
                bar = 0 if rule == "robust" and poisoned == 0 else None
                bench.figure(f"{what}no passage left", found.empty / found.questions, at_most=bar)
    return count


def main() -> None:
    bench = Bench("filter", __doc__, packages=("numpy",))
    bench.parser.add_argument("--data", type=Path, default=DATA, help="realtimeqa_poisoned.jsonl")
    bench.parser.add_argument("--encoder", default="hash", help="an encoder's address, such as st:MODEL")
    if not bench.options.data.is_file():
        bench.skip(f"there is no {bench.options.data}")
    questions = asyncio.run(measure(bench, open_encoder(bench.options.encoder)))
    bench.finish(questions=questions, k=K, encoder=bench.options.encoder)


if __name__ == "__main__":
    main()
