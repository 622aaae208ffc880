"""How often each kind of question in `arbitrag demo` comes out as the demonstration shows it.

For each kind, drawn questions with three passages, answered by the method that the demonstration uses for it, and by
`direct` and `rag`. The questions are others than those that the demonstration was chosen from (training.demonstration).
No bars.

python benchmarks/demo_rates.py --quick --checkpoint FOLDER

Without --checkpoint it asks the embedded model.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from harness.bench import Bench

from arbitrag.errors import ArbitragError
from arbitrag.lab.checkpoint import LabModel, open_checkpoint
from training.demonstration import METHODS, PASSAGES, draw, tried


async def measure(bench: Bench, lab: LabModel, count: int) -> None:
    for kind, method in METHODS.items():
        rng = random.Random(f"rates {bench.options.seed} {kind}")
        found = await tried(lab.llm, [draw(lab.world, kind, rng) for _ in range(count)])
        bench.figure(f"{kind}: {method} correct", sum(each.right for each in found))
        bench.figure("  with the source that the demonstration shows", sum(each.shows for each in found))
        bench.figure("  direct correct", sum(each.direct for each in found))
        bench.figure("  rag correct", sum(each.rag for each in found))
        bench.figure(f"  {method} refused", sum(each.verdict.answer is None for each in found))
    await lab.llm.aclose()


def main() -> None:
    bench = Bench("demo_rates", __doc__)
    bench.parser.add_argument("--checkpoint", type=Path, help="a folder with a lab model; the embedded one without")
    count = bench.pick(smoke=4, quick=50, full=200)
    try:
        asyncio.run(measure(bench, open_checkpoint(bench.options.checkpoint), count))
    except ArbitragError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    bench.finish(questions_of_each_kind=count, passages=PASSAGES)


if __name__ == "__main__":
    main()
