"""Every system on TRD-lab's test questions: accuracy by scenario, refusals, sources, calls, steps and seconds.

python benchmarks/systems.py trd-lab --quick

FOLDER is what ``arbitrag data build-trd --from lab --llm lab -o trd-lab`` made; without one, the set is built first, in
a temporary folder. Without --checkpoint the embedded model answers. Rows are kept in --run FILE (a temporary file
without it), so that a run that was stopped can be resumed.

Below the table stand the differences that the papers predict, each with its 95% interval: a bootstrap over facts, since
the questions about one fact are not independent. --ablations adds those of BRIDGE and TrustRAG.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
from harness.bench import Bench

from arbitrag.errors import ArbitragError
from arbitrag.types import Strategy

SYSTEMS = (
    "direct",
    "rag",
    "trustmargin",
    "trustrag resolve=false",  # its first stage alone
    "trustrag filter=none",  # its second stage alone
    "trustrag",
    "astute",
    "bridge",
    "stack",
)
ABLATIONS = (
    "bridge allocator=false",
    "bridge tree=false",
    "trustrag conflict_removal=false",
    "trustrag internal_knowledge=false",
    "trustrag self_assessment=false",
)
AT_ONCE = 24
MISLED = (Strategy.MEMORY.value, Strategy.REFUSE.value)  # scenarios in which every passage is wrong


def methods(specifications: Sequence[str]) -> list[Any]:
    """Methods with their settings, as ``--method "trustrag filter=none"`` names them."""
    from arbitrag.methods import method_from

    return [method_from(each) for each in specifications]


async def made(bench: Bench, folder: Path, file: Path) -> None:
    """Run every system, print the report, and add its figures."""
    from arbitrag.data import open_set
    from arbitrag.encode import open_encoder
    from arbitrag.evaluate.report.formats import text
    from arbitrag.evaluate.report.measure import measure
    from arbitrag.evaluate.report.report import report
    from arbitrag.evaluate.run.plan import entries, plan
    from arbitrag.evaluate.run.runner import run
    from arbitrag.lab.checkpoint import open_checkpoint
    from arbitrag.run import open_kit

    options = bench.options
    named = [*SYSTEMS, *(ABLATIONS if options.ablations else ())]
    lab = open_checkpoint(options.checkpoint)
    questions = open_set(str(folder / "test.jsonl"), limit=bench.pick(smoke=2, quick=40, full=None), seed=options.seed)
    async with AsyncExitStack() as opened:
        opened.push_async_callback(lab.llm.aclose)
        kit = await opened.enter_async_context(open_kit(lab.llm, encoder=open_encoder("hash")))
        taking_part = entries(methods(named), [kit])
        planned = plan(taking_part, [questions], passages="given", seed=options.seed)
        with store_at(file, planned) as store:
            tally = await run(store, taking_part, passages="given", concurrency=AT_ONCE, show=progress)
            print(file=sys.stderr)
            found = report(store, name=questions.name, command="python benchmarks/systems.py")
            print(text(found))
            expected(bench, measure(store, questions.name, [each.name for each in store.systems]))
    bench.figure("failed rows", tally.failed, at_most=0)
    answered = {each.system: each.answered.accuracy for each in found.sets[0].statistics}
    bench.finish(questions=len(questions.items), model=lab.manifest.name, accuracy=answered)


def built(folder: Path, size: int) -> Path:
    """A TRD set from the lab, validated by the embedded model."""
    command = ["data", "build-trd", "--from", "lab", "--llm", "lab", "-o", str(folder), "--size", str(size)]
    subprocess.run([sys.executable, "-m", "arbitrag", *command], check=True, stdout=subprocess.DEVNULL)
    return folder


def store_at(file: Path, planned: Any) -> Any:
    """The run to go on with, or a new one."""
    from arbitrag.evaluate.run.store import Store

    return Store.open(file, write=True) if file.exists() else Store.create(file, planned)


def expected(bench: Bench, measured: Any) -> None:
    """The claims of the papers, each as a difference in points of accuracy and the ends of its interval."""
    facts = [item.id.partition("-")[0] for item in measured.items]
    scenarios = np.array([item.scenario.value for item in measured.items])
    right = {name: 100.0 * flags for name, flags in measured.right.items()}

    def differ(what: str, left: str, other: str, where: np.ndarray) -> None:
        if not where.any():  # a few questions need not have every scenario
            return
        low, mean, high = interval((right[left] - right[other])[where], [facts[at] for at in np.flatnonzero(where)])
        bench.figure(f"{what}: points", mean)
        bench.figure("  from", low)
        bench.figure("  to", high)

    everywhere = np.ones(len(facts), bool)
    refuse, misled = scenarios == Strategy.REFUSE.value, np.isin(scenarios, MISLED)
    for other in ("direct", "rag", "trustmargin", "trustrag", "astute"):
        differ(f"bridge - {other}", "bridge", other, everywhere)
    for other in ("rag", "astute"):
        differ(f"bridge - {other}, where to refuse is right", "bridge", other, refuse)
    for other in ("direct", "rag"):
        differ(f"trustmargin - {other}", "trustmargin", other, everywhere)
    differ("trustrag - rag, poisoned facts of memory", "trustrag", "rag", scenarios == Strategy.MEMORY.value)
    differ("astute - direct, where every passage misleads", "astute", "direct", misled)


def interval(values: np.ndarray, facts: Sequence[str], resamples: int = 10_000) -> tuple[float, float, float]:
    """Low end, mean and high end: percentile bootstrap over facts, each with all of its questions."""
    _, number = np.unique(facts, return_inverse=True)
    sums, sizes = np.bincount(number, values), np.bincount(number)
    drawn = np.random.default_rng(0).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), resamples)
    means = (drawn @ sums) / (drawn @ sizes)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(values.mean()), float(high)


def progress(tally: Any) -> None:
    print(f"\r{tally.done + tally.before} of {tally.total + tally.before} rows", end="", file=sys.stderr, flush=True)


def main() -> None:
    bench = Bench("systems", __doc__)
    bench.parser.add_argument("folder", type=Path, nargs="?", help="a TRD set; built from the lab without one")
    bench.parser.add_argument("--checkpoint", type=Path, help="a folder with a lab model; the embedded one without")
    bench.parser.add_argument("--run", type=Path, help="the run file to keep, or to go on with")
    bench.parser.add_argument("--ablations", action="store_true", help="those of BRIDGE and TrustRAG, too")
    with tempfile.TemporaryDirectory() as folder:
        try:
            questions = bench.options.folder or built(
                Path(folder, "trd-lab"), bench.pick(smoke=120, quick=1200, full=4000)
            )
            asyncio.run(made(bench, questions, bench.options.run or Path(folder, "systems.db")))
        except ArbitragError as error:
            sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
