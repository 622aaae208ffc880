"""The report of a large run: time and memory for 100,000 rows, five systems on 20,000 questions.

Bars: 5 s and 500 MB, in a process of its own, from the run file to the report as JSON, and on to the HTML page with
its 300 questions. That includes reading and checking the rows, scoring every answer, the intervals of all systems and
pairs, and the tests. The report is made three times, and each must meet the bars.

The run is made up, without a model. Answers are right, partly right, wrong, refused or failed at rates that differ
between the systems; two systems in five agree on most questions, as real ones do; every question has two passages,
which the report must not read.

python benchmarks/report.py --quick
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.bench import Bench

BAR_S, BAR_MB = 5.0, 500.0
SYSTEMS, ROUNDS = 5, 3
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "garnet", "harbour", "indigo", "juniper", "kestrel", "lagoon")
_REPORT = """
import json, sys, time
began = time.perf_counter()
from arbitrag.evaluate.report.report import report
from arbitrag.evaluate.run.store import Store
with Store.open(sys.argv[1]) as store:
    made = report(store)
    text = json.dumps(made.to_dict(), allow_nan=False)
    seconds = time.perf_counter() - began
    from arbitrag.evaluate.report.per_question import question_lists
    from arbitrag.evaluate.report.page import page
    shown = page(made, question_lists(store, made))
    page_seconds = time.perf_counter() - began
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
each = made.sets[0]
print(json.dumps({"seconds": seconds, "cpu_seconds": time.process_time(), "peak_mb": peak,
    "rows": sum(one.rows for one in each.statistics), "resamples": each.resamples,
    "pairs": len(each.pairs), "json_kb": len(text) / 1000,
    "page_seconds": page_seconds, "page_kb": len(shown.encode()) / 1000}))
"""


def fabricate(path: Path, questions: int, seed: int) -> None:
    """A run file with ``SYSTEMS`` rows for each question, the same for the same seed."""
    from arbitrag.evaluate.questions import Item, QuestionSet
    from arbitrag.evaluate.run.store import Row, RunPlan, Store, System
    from arbitrag.types import Passage, Question, Strategy, Usage

    rng = random.Random(seed)
    items = [
        Item(
            Question(f"Who built the {' '.join(rng.choices(_WORDS, k=3))} in {number}?", (), f"q{number}"),
            (" ".join(rng.choices(_WORDS, k=2)), " ".join(rng.choices(_WORDS, k=3))),
            tuple(Passage(" ".join(rng.choices(_WORDS, k=100)), id=f"{number}-{place}") for place in range(2)),
            rng.choice(list(Strategy)[:3]),
            planted=("nobody at all",) if number % 10 == 0 else (),
            group=f"group {number % 7}",
        )
        for number in range(questions)
    ]
    names = [f"method{number}" for number in range(SYSTEMS)]
    plan = RunPlan(
        [System(name, "direct", {"number": number}, "made up") for number, name in enumerate(names)],
        [QuestionSet("made up", items)],
    )
    with Store.create(path, plan) as store, store.together():
        for item in items:
            common = _answer(rng, item.answers, 0.5)
            for number, name in enumerate(names):
                fate = rng.random()
                usage = Usage(1, 0, 0, 1, 1, rng.randrange(200, 2000), 0, rng.randrange(1, 32), rng.random())
                if fate < 0.01:
                    store.record(Row(name, "made up", item.id, error="BackendError: HTTP 500", attempts=4))
                    continue
                refused = fate < 0.05 + 0.02 * number
                answer = common if rng.random() < 0.4 else _answer(rng, item.answers, 0.4 + 0.05 * number)
                store.record(
                    Row(
                        name,
                        "made up",
                        item.id,
                        None if refused else answer,
                        Strategy.REFUSE if refused else rng.choice(list(Strategy)[:3]),
                        why="a sentence that says why this was decided, as long as such sentences are",
                        scores={"prior": rng.gauss(0, 2), "binding": rng.gauss(0, 1), "confidence": rng.random()},
                        standalone=usage,
                        incremental=usage,
                    )
                )


def _answer(rng: random.Random, golds: tuple[str, ...], right: float) -> str:
    chance = rng.random()
    if chance < right:
        return rng.choice(golds)
    wrong = " ".join(rng.choices(_WORDS, k=rng.randrange(1, 5)))
    return f"{golds[0].split()[0]} {wrong}" if chance < right + 0.2 else wrong


def reported(path: Path) -> dict[str, Any]:
    """What the report of a run took, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", _REPORT, str(path)], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    bench = Bench("report", __doc__, packages=("numpy",))
    questions = bench.pick(smoke=100, quick=4_000, full=20_000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        fabricate(path, questions, bench.options.seed)
        made = [reported(path) for _ in range(ROUNDS)]
        megabytes = path.stat().st_size / 1e6
    for number, each in enumerate(made, 1):
        bench.figure(f"report, round {number}", each["seconds"], unit="s", at_most=BAR_S, full_only=True)
    for number, each in enumerate(made, 1):
        bench.figure(
            f"report and its page, round {number}", each["page_seconds"], unit="s", at_most=BAR_S, full_only=True
        )
    bench.figure("CPU time, minimum of the rounds", min(each["cpu_seconds"] for each in made), unit="s")
    peak_mb = max(each["peak_mb"] for each in made)
    bench.figure("peak memory of the process", peak_mb, unit="MB", at_most=BAR_MB, full_only=True)
    sizes = {name: made[0][name] for name in ("rows", "resamples", "pairs", "json_kb", "page_kb")}
    bench.finish(questions=questions, systems=SYSTEMS, file_mb=round(megabytes, 1), **sizes)


if __name__ == "__main__":
    main()
