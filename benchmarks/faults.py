"""Fault injection: kills, faulty endpoints, damaged files, fuzzing, and answers of a gigabyte.

- Kills (SIGKILL) at random moments of `index`, an update of it, `bench run` and `ask -o`, at least 60: nothing that was
  acknowledged is lost, changed or asked for again, and the next run ends with what an uninterrupted one has.
- Faults of an endpoint, at least 100: statuses, resets, drips, lengths, chunks, bombs, charsets, JSON and fields that
  are wrong, strange replies, Retry-After, echoed secrets. Each through `ask`, `ask -o` and `bench run` with `rag` and
  with a method that parses, where it befalls one question of three, and through `doctor`.
- Damaged files, at least 250: every file of an index, run files, traces, answers, caches, models, prompts, questions
  and documents, cut, zeroed, flipped, typed wrongly, replaced by a folder, a link or a pipe.
- Fuzzing: random inputs, at least a million, for everything that reads foreign text.
- The memory of a process for an answer and for a document of 1 GB, packed and plain, over that for small ones.

Everything is counted against five bars of 0: rows lost (also asked again), hangs, foreign exceptions (all that is no
ArbitragError or failed row, and any control character that reaches the terminal), secrets written or shown, and answers
that differ without an error. Each finding is printed when it is made, on standard error. With --keep DIR finished parts
are kept, so that an interrupted run resumes with the next one. The numbers "at least" are bars for the full size only.

    python benchmarks/faults.py --quick
    python benchmarks/faults.py --write --keep finished
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fault_suite.bombs import bomb_memory, document_memory
from fault_suite.damaged_files import damaged_files
from fault_suite.endpoint_commands import always, endpoint_faults
from fault_suite.endpoint_faults import catalogue
from fault_suite.fault_server import FaultServer
from fault_suite.fuzz import fuzz
from fault_suite.kills import kill_all
from fault_suite.problems import Problem, Show
from harness.bench import Bench

BARS = {
    "lost": "rows lost or asked again",
    "hang": "hangs",
    "foreign": "foreign exceptions",
    "secret": "secrets written or shown",
    "different": "answers that differ without an error",
}
_KIND = {"asked again": "lost", "property": "foreign"}  # what the parts call otherwise


@dataclass
class Part:
    """What one part did and found. ``figures`` are its counts, by what was counted."""

    figures: dict[str, float] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    seconds: float = 0.0


def kills(bench: Bench, folder: Path, show: Show) -> Part:
    times, sizes = bench.pick(smoke=(1, (60, 20)), quick=(1, (200, 40)), full=(16, (1500, 400)))
    done = kill_all(folder, bench.options.seed, times, sizes, show)
    return Part({"kills": done.killed}, done.problems)


def endpoints(bench: Bench, folder: Path, show: Show) -> Part:
    every, size = bench.pick(smoke=(130, 1 << 20), quick=(100, 1 << 22), full=(1, 1 << 26))
    with FaultServer(None, always, "127.0.0.2") as elsewhere:
        faults = catalogue(f"http://127.0.0.2:{elsewhere.port}/v1/chat/completions", size)[::every]
        met = endpoint_faults(folder, faults, show)
        problems = list(met.problems)
        if elsewhere.requests:
            what = f"{len(elsewhere.requests)} requests followed a redirect to another host"
            problems.append(Problem("secret", "redirect", "any", what))
    return Part({"endpoint faults": len(faults), "commands against them": met.commands}, problems)


def files(bench: Bench, folder: Path, show: Show) -> Part:
    share = bench.pick(smoke=0.004, quick=0.01, full=1.0)
    done = damaged_files(folder, bench.options.seed, show, share=share)
    return Part({"damaged files": done.damaged, "of them refused": done.refused}, done.problems)


def inputs(bench: Bench, folder: Path, show: Show) -> Part:
    done, problems = fuzz(bench.pick(smoke=1_000, quick=6_000, full=1_015_000), bench.options.seed, show)
    return Part({"random inputs": done}, problems)


def memory(bench: Bench, folder: Path, show: Show) -> Part:
    size = bench.pick(smoke=1 << 22, quick=1 << 27, full=1 << 30)
    answers = {f"memory of an answer: {name}": used for name, used in bomb_memory(folder / "answers", size).items()}
    documents = {f"memory of a document: {name}": used for name, used in document_memory(folder / "docs", size).items()}
    return Part({**answers, **documents})


PARTS: dict[str, Callable[[Bench, Path, Show], Part]] = {
    "kills": kills,
    "endpoints": endpoints,
    "files": files,
    "inputs": inputs,
    "memory": memory,
}
LEAST = {"kills": 60, "endpoint faults": 100, "damaged files": 250, "random inputs": 1_000_000}


def main() -> None:
    bench = Bench("faults", __doc__)
    bench.parser.add_argument("--only", choices=list(PARTS), action="append", help="one part alone; repeatable")
    bench.parser.add_argument("--keep", type=Path, metavar="DIR", help="keep finished parts, and resume after them")
    wanted = bench.options.only or list(PARTS)
    done = {name: _part(bench, name) for name in wanted}
    for name, part in done.items():
        for what, value in part.figures.items():
            if what.startswith("memory"):
                bench.figure(what, value, unit="MB", at_most=100.0)
            else:
                bench.figure(what, value, at_least=LEAST.get(what), full_only=True)
        bench.figure(f"time of the {name}", part.seconds, unit="s")
    problems = [problem for part in done.values() for problem in part.problems]
    counts = Counter(_KIND.get(problem.kind, problem.kind) for problem in problems)
    for kind, what in BARS.items():
        bench.figure(what, counts[kind], at_most=0)
    bench.finish(parts=wanted)


def _part(bench: Bench, name: str) -> Part:
    """Run one part, or load it where it was kept."""
    size = bench.pick(smoke="smoke", quick="quick", full="full")
    kept = bench.options.keep and bench.options.keep / f"{name}-{bench.options.seed}-{size}.json"
    if kept and kept.is_file():
        found = json.loads(kept.read_text(encoding="utf-8"))
        return Part(found["figures"], [Problem(**each) for each in found["problems"]], found["seconds"])
    folder = Path(tempfile.mkdtemp(prefix="arbitrag-faults-"))
    began = time.monotonic()
    try:
        part = PARTS[name](bench, folder, _progress(name))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    part.seconds = time.monotonic() - began
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(asdict(part), indent=1), encoding="utf-8")
    return part


def _progress(name: str) -> Show:
    """Prints the progress on standard error, at most every five seconds."""
    last = [0.0]

    def show(done: int, total: int, what: str) -> None:
        if time.monotonic() - last[0] > 5:
            last[0] = time.monotonic()
            print(f"{name}: {done:,} of {total:,}  {what[:60]}", file=sys.stderr, flush=True)

    return show


if __name__ == "__main__":
    main()
