"""What one `arbitrag ask --method rag` over HTTP costs: CPU seconds beyond starting Python, and requests.

A scripted server in a process of its own answers at once. Each command is a fresh process, measured by its user and
system time, so that waiting costs nothing; an empty `python -c pass`, run by turns with it, is subtracted. The cache of
what is known about servers is a new folder, so that the first command has to probe the server.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.bench import Bench
from harness.scripted_server import Running, scripted_server

ANSWER = "Mira Talven"
QUESTION = "Who runs the harbour of Oru?"
FEW = ["The harbour of Oru is run by Mira Talven.", "Oru lies on the northern coast."]
MANY = [
    f"Notice {n}. " + "The harbour of Oru is run by Mira Talven, as it was in the year before. " * 14 for n in range(20)
]


def cpu_s(command: Sequence[str]) -> float:
    """User and system time of a command and what it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ask(server: Running, passages: Path, method: str = "rag") -> list[str]:
    llm = f"openai:scripted@{server.base_url}"
    return ["-m", "arbitrag", "ask", QUESTION, "--method", method, "--passages", str(passages), "--llm", llm]


def written(folder: Path, name: str, texts: Sequence[str]) -> Path:
    path = folder / name
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def main() -> None:
    bench = Bench("ask_cost", __doc__, packages=("httpx", "typer"))
    rounds = bench.pick(smoke=1, quick=7, full=25)
    with (
        tempfile.TemporaryDirectory() as folder,
        scripted_server(ANSWER) as plain,
        scripted_server(ANSWER, style="ids") as scoring,
    ):
        os.environ["ARBITRAG_CACHE"] = str(Path(folder) / "kept")
        few, many = written(Path(folder), "few.jsonl", FEW), written(Path(folder), "many.jsonl", MANY)
        requests = []
        for what, server, passages, method, most in (
            ("rag", plain, few, "rag", (1, 1)),
            ("rag, passages beyond the limit", plain, many, "rag", (3, 1)),
            ("trustmargin", scoring, few, "trustmargin", (None, 2)),
        ):
            for time, bar in zip(("first", "second"), most, strict=True):
                cpu_s(ask(server, passages, method))
                requests.append((f"requests of {what}, {time} command", len(server.requested()), bar))
        bare, asked = [], []
        for _ in range(rounds):
            bare.append(cpu_s(["-c", "pass"]))
            asked.append(cpu_s(ask(plain, few)))
    beyond = [command - start for command, start in zip(asked, bare, strict=True)]
    bench.figure(
        "ask --method rag, CPU beyond starting Python, median", statistics.median(beyond), unit="s", at_most=1.0
    )
    bench.figure("the same, minimum", min(beyond), unit="s")
    bench.figure("starting Python, CPU, median", statistics.median(bare), unit="s")
    for what, count, bar in requests:
        bench.figure(what, count, at_most=bar)
    bench.finish(rounds=rounds, passages=len(FEW), many_passages=len(MANY))


if __name__ == "__main__":
    main()
