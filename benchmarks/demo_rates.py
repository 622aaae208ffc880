"""How often each kind of question in `arbitrag demo` goes the way that the demonstration shows.

Drawn questions of each kind to the embedded model, with three passages, trustmargin's defaults, and its two candidates
beside it. The world that this model was trained on is `../shared/lab/world.py`, or in the folder given by --world.
There is no bar; the figures stand in the demonstration's lessons and in docs/log.md.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

from _bench import Bench

from arbitrag.kit import Kit
from arbitrag.lab.model import open_lab
from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.run import answer
from arbitrag.text import agree
from arbitrag.types import Passage, Verdict

SHARED = Path(__file__).resolve().parents[2] / "shared" / "lab"
KINDS = {
    "known fact, irrelevant passages": ("known", None),
    "fact after the cutoff, one right passage": ("late", "right"),
    "well-known fact, one planted passage": ("frequent", "planted"),
    "fact after the cutoff, irrelevant passages": ("late", None),
    "fact after the cutoff, one planted passage": ("late", "planted"),
}
PASSAGES, AT_ONCE = 3, 20


class Drawn:
    """Questions of the world that the embedded model was trained on."""

    def __init__(self, folder: Path, seed: int) -> None:
        sys.path.insert(0, str(folder))
        import world  # type: ignore[import-not-found]

        self.module: Any = world
        self.world = world.World()
        self.maker = world.Gen(self.world, 2024)
        self.rng = self.maker.r = random.Random(seed)
        known = self.world.known
        self.pools = {"known": known, "frequent": known[: len(known) // 4], "late": self.world.unseen}

    def case(self, pool: str, told: str | None) -> tuple[str, str, list[str]]:
        """Question, truth and passages."""
        fact = self.world.facts[self.rng.choice(self.pools[pool])]
        texts = self.maker.distract(fact, PASSAGES - (told is not None))
        if told is not None:
            kind = self.module.REL[fact[1]][1]
            said = fact if told == "right" else (*fact[:2], self.world.obj(kind, self.rng, (fact[2],)))
            texts.append(self.module.p_of(said, self.rng))
        self.rng.shuffle(texts)
        return self.module.q_of(fact, self.rng), fact[2], texts


async def measure(bench: Bench, drawn: Drawn, count: int) -> None:
    llm = open_lab()

    async def one(question: str, texts: list[str]) -> Verdict:
        passages = [Passage(text, id=str(number)) for number, text in enumerate(texts)]
        return await answer(question, "trustmargin", Kit.of(llm, FixedRetriever(passages)))

    for what, (pool, told) in KINDS.items():
        cases = [drawn.case(pool, told) for _ in range(count)]
        verdicts: list[Verdict] = []
        for start in range(0, count, AT_ONCE):
            some = cases[start : start + AT_ONCE]
            verdicts += await asyncio.gather(*(one(question, texts) for question, _, texts in some))
        pairs = [(verdict, truth) for verdict, (_, truth, _) in zip(verdicts, cases, strict=True)]
        bench.figure(f"{what}: trustmargin", sum(agree(v.answer or "", truth) for v, truth in pairs))
        bench.figure("  direct", sum(agree(v.candidates[0].text, truth) for v, truth in pairs))
        bench.figure("  rag", sum(agree(v.candidates[-1].text, truth) for v, truth in pairs))
        bench.figure("  refused", sum(v.answer is None for v, _ in pairs))
    await llm.aclose()


def main() -> None:
    bench = Bench("demo_rates", __doc__)
    bench.parser.add_argument("--world", type=Path, default=SHARED, help="the folder with world.py")
    if not (bench.options.world / "world.py").is_file():
        sys.exit(f"there is no world.py in {bench.options.world}; give its folder: --world FOLDER")
    count = bench.pick(quick=100, full=200)
    asyncio.run(measure(bench, Drawn(bench.options.world, bench.options.seed or 11), count))
    bench.finish(questions_of_each_kind=count, passages=PASSAGES)


if __name__ == "__main__":
    main()
