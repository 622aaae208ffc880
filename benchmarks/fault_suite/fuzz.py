"""Fuzzing: random inputs for everything that reads foreign text.

Each target makes an input from a seed, calls the code, and checks its properties. A finding is an exception that the
code does not announce, a property that does not hold, or an input that takes longer than ``SLOW_S`` of CPU time; it is
reported with its target and seed. Run as a module, this file is the process that does it, so that a hang can be ended.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.processes import environment, python

from fault_suite import fuzz_data, fuzz_texts
from fault_suite.fuzz_inputs import Broken
from fault_suite.problems import Problem, Problems, Show

SLOW_S = 2.0
DEADLINE_S = 120.0  # for a batch, which takes a few seconds
BATCH = 5000


@dataclass(frozen=True)
class Target:
    """``share`` is how many of a million inputs it gets."""

    run: Callable[[random.Random], None]
    share: int


TARGETS: Mapping[str, Target] = {
    "replies": Target(fuzz_texts.replies, 250_000),
    "answers": Target(fuzz_texts.answers, 180_000),
    "terminal": Target(fuzz_texts.terminal, 100_000),
    "verdicts": Target(fuzz_texts.verdicts, 10_000),
    "prompts": Target(fuzz_texts.prompts, 150_000),
    "responses": Target(fuzz_data.responses, 140_000),
    "addresses": Target(fuzz_data.addresses, 60_000),
    "connections": Target(fuzz_data.connections, 10_000),
    "documents": Target(fuzz_data.documents, 30_000),
    "questions": Target(fuzz_data.questions, 30_000),
    "question sets": Target(fuzz_data.question_sets, 12_000),
    "traces": Target(fuzz_data.traces, 5_000),
    "methods": Target(fuzz_data.methods, 8_000),
    "streams": Target(fuzz_data.streams, 15_000),
    "long answers": Target(fuzz_texts.long_answers, 25_000),
    "notebooks": Target(fuzz_texts.notebooks, 5_000),
    "configurations": Target(fuzz_data.configurations, 10_000),
    "json": Target(fuzz_data.json_values, 60_000),
    "chunking": Target(fuzz_texts.chunking, 30_000),
    "answer metrics": Target(fuzz_texts.answer_metrics, 30_000),
}


def batch(name: str, seed: int, start: int, count: int) -> list[dict[str, str]]:
    """Run inputs ``start`` to ``start + count`` of a target and give the findings: at most one for each message."""
    target = TARGETS[name]
    found: dict[str, dict[str, str]] = {}
    for number in range(start, start + count):
        rng = random.Random(f"{name} {seed} {number}")
        began = time.thread_time()
        kind, what = "", ""
        try:
            target.run(rng)
        except Broken as error:
            kind, what = "property", str(error)
        except RecursionError as error:
            kind, what = "foreign", f"RecursionError: {error}"
        except Exception as error:  # noqa: BLE001 - what is foreign is what is looked for
            kind, what = "foreign", f"{type(error).__name__}: {error}"
        spent = time.thread_time() - began
        if spent > SLOW_S:
            kind, what = "hang", f"{spent:.1f} s for one input"
        if kind:
            key = f"{kind} {re.sub(r'[0-9]+', 'N', what)[:20]}"
            found.setdefault(key, {"kind": kind, "what": f"input {number}: {ascii(what)[:400]}"})
    return list(found.values())


def fuzz(count: int, seed: int, show: Show, only: Sequence[str] = ()) -> tuple[int, list[Problem]]:
    """``count`` inputs over all targets by their shares; how many were run, and what they broke."""
    total = sum(target.share for target in TARGETS.values())
    done, problems = 0, Problems()
    for name, target in TARGETS.items():
        if only and name not in only:
            continue
        wanted = max(1, -(-count * target.share // total))
        for start in range(0, wanted, BATCH):
            show(done, count, name)
            part = min(BATCH, wanted - start)
            command = python("fault_suite.fuzz", name, seed, start, part)
            try:
                ran = subprocess.run(
                    command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=environment()
                )
            except subprocess.TimeoutExpired:
                problems.append(Problem("hang", name, "fuzz", f"a batch from {start} of {part} did not end"))
                continue
            if ran.returncode:
                problems.append(Problem("foreign", name, "fuzz", f"the process died: {ran.stderr[-300:]}"))
                continue
            done += part
            for each in json.loads(ran.stdout):
                problems.append(Problem(each["kind"], name, "fuzz", each["what"]))
    return done, problems


if __name__ == "__main__":
    _name, *_numbers = sys.argv[1:]
    print(json.dumps(batch(_name, *map(int, _numbers))))
