"""A run of several systems: the speed-up of batching and shared work, the runner's overhead, kills and faults.

Bars:

- 1,000 of the lab's questions with direct, rag and trustmargin take at most 1/4 of the time of a plain loop. The loop
  makes one row at a time (``await answer(question, system, kit)`` for each system and question in turn), on an engine
  of the same model without a prefix cache and without other requests to batch with. Either engine is in a process of
  its own, as ``arbitrag bench run`` has it. Both sides take the same questions by turns, 250 at a time (60 with
  ``--quick``, where less work is shared: that bar is for the full size only).
- The runner adds at most 1.5 ms to a row over bare calls (``backend.generate`` of prepared prompts, 64 concurrent):
  with a model in this process that waits 5 ms and replies "yes", and with a scripted HTTP server in another process.
- A run of 500 questions with direct and rag that is killed (``kill -9``) 20 times, each time after another number of
  requests, ends with the rows of an uninterrupted one; no finished row is changed or made again. A request for a row
  that the file had already counts as made again.
- Of an endpoint that fails 20% of its requests (429, 500, a timeout, a cut connection, 200 with something else than
  JSON) every row finishes or is a failed row that the report counts; a retry without faults finishes them all.

python benchmarks/runner.py --quick
"""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from harness.bench import Bench
from harness.scripted_server import scripted_server

THREE = ("direct", "rag", "trustmargin")
LATENCY_S = 0.005
CONCURRENCY = 64
BATCH = 250  # questions that each side of the first comparison takes by turns
_ROW = (
    '{{"id": "q{n}", "question": "What is number {n}?", "answers": ["answer {n}"], "passages": [{{"text": "{n}"}}]}}\n'
)
Key = tuple[str, str]


@asynccontextmanager
async def stored(folder: Path, taking_part: Sequence[Any], sets: Sequence[Any], **options: Any) -> AsyncIterator[Any]:
    """A new run file for these systems and sets."""
    from arbitrag.evaluate.run.plan import plan
    from arbitrag.evaluate.run.store import Store

    path = folder / f"{time.perf_counter_ns()}.db"
    with Store.create(path, plan(taking_part, sets, **options)) as store:
        yield store


async def sharing(bench: Bench, folder: Path) -> None:
    """Seconds of the runner and of the plain loop, for the same questions in turns."""
    from arbitrag.data import open_set
    from arbitrag.evaluate.questions import QuestionSet
    from arbitrag.evaluate.run.plan import entries
    from arbitrag.evaluate.run.runner import run
    from arbitrag.lab.model import open_lab, open_world
    from arbitrag.methods import load
    from arbitrag.run import answer, open_kit

    count, batch = bench.pick(smoke=(8, 4), quick=(120, 60), full=(1000, BATCH))
    methods = [load(name)() for name in THREE]
    items = open_set(f"lab:questions?count={count}", seed=bench.options.seed).items
    ours, theirs = [], []
    async with AsyncExitStack() as opened:
        kits = []
        for options in ({}, {"prefix_bytes": 0}):
            model = open_lab(own_process=True, **options)
            opened.push_async_callback(model.aclose)
            kits.append(await opened.enter_async_context(open_kit(model, retriever=open_world())))
        ready, plain = kits
        for kit in kits:  # what the first request of an engine costs is neither side's
            await answer("Who is it?", methods[1], kit)
        taking_part = entries(methods, [ready])
        for start in range(0, count, batch):
            part = QuestionSet(f"lab {start}", items[start : start + batch])
            began = time.perf_counter()
            async with stored(folder, taking_part, [part], passages="retrieved") as store:
                tally = await run(store, taking_part, passages="retrieved", concurrency=CONCURRENCY)
            ours.append(time.perf_counter() - began)
            assert (tally.done, tally.failed) == (3 * len(part.items), 0)
            began = time.perf_counter()
            for method in methods:
                for item in part.items:
                    await answer(item.question, method, plain)
            theirs.append(time.perf_counter() - began)
    bench.ratio("run / plain loop", ours, theirs, at_most=0.25, full_only=True)
    bench.figure("run: rows a second", 3 * count / sum(ours))
    bench.figure("plain loop: rows a second", 3 * count / sum(theirs))


async def overhead(bench: Bench, folder: Path) -> None:
    """The time that the runner adds to the bare call of a row."""
    from arbitrag.llm import open_llm
    from arbitrag.llm.base import Generation, Prompt, Sampling
    from arbitrag.testing import ScriptedLLM

    class Waiting(ScriptedLLM):
        async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
            await asyncio.sleep(LATENCY_S)
            return Generation("yes", "stop")

    count, rounds = bench.pick(smoke=(40, 1), quick=(600, 3), full=(2000, 7))
    await _overhead(bench, folder, "in this process", Waiting(), count, rounds)
    with scripted_server() as server:
        model = open_llm(f"openai:scripted@{server.base_url}")
        try:
            await _overhead(bench, folder, "over HTTP", model, count // 2, rounds)
        finally:
            await model.aclose()


async def _overhead(bench: Bench, folder: Path, where: str, model: Any, count: int, rounds: int) -> None:
    from arbitrag.evaluate.questions import Item, QuestionSet
    from arbitrag.evaluate.run.plan import entries
    from arbitrag.evaluate.run.runner import run
    from arbitrag.kit import Kit
    from arbitrag.llm.base import Sampling
    from arbitrag.methods import load
    from arbitrag.types import Question

    kit = Kit.of(model)
    items = [Item(Question(f"What is number {n}?", id=f"q{n}"), ("yes",)) for n in range(count)]
    prompts = [kit.llm.prompt("direct/answer", question=item.question) for item in items]
    taking_part = entries([load("direct")()], [kit])
    places = asyncio.Semaphore(CONCURRENCY)
    await model.capabilities()

    async def call(prompt: Any) -> None:
        async with places:
            await model.generate(prompt, Sampling())

    extra, bare, cpu = [], [], []
    for _ in range(rounds):
        began, spent = time.perf_counter(), time.process_time()
        await asyncio.gather(*(call(prompt) for prompt in prompts))
        bare.append(time.perf_counter() - began)
        spent = time.process_time() - spent
        async with stored(folder, taking_part, [QuestionSet("yes", items)], passages="retrieved") as store:
            began, later = time.perf_counter(), time.process_time()
            tally = await run(store, taking_part, passages="retrieved", concurrency=CONCURRENCY)
            extra.append((time.perf_counter() - began - bare[-1]) / count * 1000)
            cpu.append((time.process_time() - later - spent) / count * 1000)
        assert (tally.done, tally.failed) == (count, 0)
    bench.figure(f"{where}: bare call", statistics.median(bare) / count * 1000, unit="ms")
    bench.figure(f"{where}: added by the runner, median", statistics.median(extra), unit="ms a row", at_most=1.5)
    bench.figure(f"{where}: added by the runner, worst round", max(extra), unit="ms a row")
    bench.figure(f"{where}: added CPU time, median", statistics.median(cpu), unit="ms a row")


def kills(bench: Bench, folder: Path) -> None:
    """A run that is killed again and again, against an uninterrupted one."""
    from arbitrag.testing import ScriptedServer
    from arbitrag.testing.server import Fault

    count, times = bench.pick(smoke=(12, 1), quick=(120, 4), full=(500, 20))
    rng = random.Random(bench.options.seed)
    questions = folder / "kills.jsonl"
    questions.write_text("".join(_ROW.format(n=n) for n in range(count)))

    def reply(prompt: Any) -> str:
        return f"answer {_asked(prompt)[1]}"

    with ScriptedServer(reply) as server:

        def start(path: Path) -> subprocess.Popen[bytes]:
            words = ["bench", "run", str(path), "--questions", str(questions), "--concurrency", "8"]
            words += ["--llm", f"openai:x@{server.base_url}", "--method", "direct", "--method", "rag"]
            return subprocess.Popen(
                [sys.executable, "-m", "arbitrag", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )

        calm, wild = folder / "calm.db", folder / "wild.db"
        finish(start(calm))
        finished: dict[Key, tuple[Any, ...]] = {}
        lost, changed, again = 0, 0, 0
        share = 2 * count // (times + 1)  # requests between two kills, on average
        for _ in range(times):
            server.requests.clear()
            server.faults = [Fault.slow(0.01)] * (20 * count)
            process = start(wild)
            target, patience = rng.randrange(2 * share), time.monotonic() + rng.uniform(0.0, 4.0)
            while len(server.requests) < target + 3 and process.poll() is None:  # three that look what it can do
                if target == 0 and time.monotonic() > patience:
                    break
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            now = rows_of(wild)
            lost += len(finished.keys() - now.keys())
            changed += sum(now.get(key) != row for key, row in finished.items())
            again += sum(_key(request) in finished for request in server.requests)
            finished = now
        bench.figure("kills: rows finished at the last one", len(finished), unit=f"of {2 * count}")
        server.requests.clear()
        server.faults.clear()
        finish(start(wild))
        now = rows_of(wild)
        changed += sum(now.get(key) != row for key, row in finished.items())
        again += sum(_key(request) in finished for request in server.requests)
        bench.figure("kills: finished rows lost", lost, at_most=0)
        bench.figure("kills: finished rows changed", changed, at_most=0)
        bench.figure("kills: requests for finished rows", again, at_most=0)
        different = sum(row[:-1] != rows_of(calm).get(key, ())[:-1] for key, row in now.items())
        bench.figure("kills: rows unlike the uninterrupted run's", different + abs(2 * count - len(now)), at_most=0)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, err = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the run failed: {err.decode()}")


def rows_of(path: Path) -> dict[Key, tuple[Any, ...]]:
    """What the file holds of each row, with the time at which it was recorded at the end."""
    if not path.exists():
        return {}
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        found = connection.execute(
            "SELECT label, id, answer, strategy, why, error, scores, attempts, cut, recorded "
            "FROM rows JOIN items USING (set_number, place) JOIN systems ON systems.number = system_number"
        ).fetchall()
    finally:
        connection.close()
    return {(label, key): tuple(rest) for label, key, *rest in found}


def _asked(prompt: Any) -> Key:
    """The system and the number that a prompt asks for."""
    from arbitrag.testing import prompt_text

    text = prompt_text(prompt)
    return "rag" if "passage" in text.lower() else "direct", text.rpartition("number ")[2].split("?")[0]


def _key(request: Any) -> Key | None:
    """The row that a request is for; None for one that only looks what the server can do."""
    from arbitrag.llm.base import Prompt

    messages = (request.body or {}).get("messages") or ()
    text = "\n".join(message["content"] for message in messages)
    if "number " not in text:
        return None
    system, number = _asked(Prompt(text=text))
    return system, f"q{number}"


async def faults(bench: Bench, folder: Path) -> None:
    """An endpoint that fails one request in five."""
    from arbitrag.evaluate.questions import Item, QuestionSet
    from arbitrag.evaluate.report.report import report
    from arbitrag.evaluate.run.plan import entries
    from arbitrag.evaluate.run.runner import run
    from arbitrag.kit import Kit
    from arbitrag.llm.http.openai import OpenAILLM
    from arbitrag.methods import load
    from arbitrag.testing import ScriptedServer
    from arbitrag.testing.server import Fault
    from arbitrag.types import Passage, Question

    count = bench.pick(smoke=20, quick=100, full=500)
    rng = random.Random(bench.options.seed)
    kinds = [Fault.busy(), Fault.error(), Fault.slow(3.0), Fault.cut(), Fault.says("<html>busy</html>")]

    async def at_once(seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))

    with ScriptedServer() as server:
        model = OpenAILLM("x", base_url=server.base_url, timeout_s=1.0, retries=1, sleep=at_once)
        await model.capabilities()
        server.faults = [rng.choice(kinds) if rng.random() < 0.2 else None for _ in range(20 * count)]
        items = [
            Item(Question(f"What is number {n}?", id=f"q{n}"), ("yes",), (Passage(f"the fact {n}", id=f"p{n}"),))
            for n in range(count)
        ]
        taking_part = entries([load("direct")(), load("rag")()], [Kit.of(model)])
        async with stored(folder, taking_part, [QuestionSet("yes", items)], passages="given") as store:
            tally = await run(store, taking_part, passages="given", concurrency=CONCURRENCY)
            rows = [row for name in ("direct", "rag") for row in store.rows("yes", name)]
            failed = [row for row in rows if row.error]
            counted = sum(figure.failed for figure in report(store, resamples=100).sets[0].statistics)
            bench.figure("faults: missing rows", 2 * count - len(rows), at_most=0)
            bench.figure("faults: failed rows", len(failed), unit=f"of {2 * count}", at_least=1)
            bench.figure(
                "faults: failed rows, difference to those that the run and the report count",
                abs(tally.failed - len(failed)) + abs(counted - len(failed)),
                unit="off",
                at_most=0,
            )
            bench.figure("faults: kinds of errors in failed rows", len({row.error.split(":")[0] for row in failed}))
            server.faults.clear()
            tally = await run(store, taking_part, passages="given", concurrency=CONCURRENCY, retry=True)
            left = sum(bool(row.error) for name in ("direct", "rag") for row in store.rows("yes", name))
            bench.figure("faults: failed rows after a retry without faults", left, at_most=0)
        await model.aclose()


def main() -> None:
    bench = Bench("runner", __doc__, packages=("numpy", "onnxruntime", "openai"))
    parts: dict[str, Callable[[Path], None]] = {
        "sharing": lambda folder: asyncio.run(sharing(bench, folder)),
        "overhead": lambda folder: asyncio.run(overhead(bench, folder)),
        "kills": lambda folder: kills(bench, folder),
        "faults": lambda folder: asyncio.run(faults(bench, folder)),
    }
    bench.parser.add_argument("--only", choices=list(parts), help="one part alone")
    for name, part in parts.items():
        if bench.options.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                part(Path(folder))
    bench.finish(
        questions=bench.pick(smoke=8, quick=120, full=1000),
        concurrency=CONCURRENCY,
        killed=bench.pick(smoke=1, quick=4, full=20),
        only=bench.options.only,
    )


if __name__ == "__main__":
    main()
