"""Steps of a benchmark that run in processes of their own, so that each has its own memory.

``run_step`` starts the script again with ``--step NAME ARGUMENTS``; there ``main_or_step`` calls the function of that
step and prints its result as JSON, with the memory that the process took.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Step = Callable[..., dict[str, object]]


def step_command(script: str, step: str, *arguments: object) -> list[str]:
    """The command that runs a step of a script; its arguments arrive as texts."""
    return [sys.executable, script, "--step", step, *map(str, arguments)]


def run_step(script: str, step: str, *arguments: object) -> dict[str, Any]:
    """The result of a step, with its memory in MB: ``peak_mb`` is the highest resident memory of the process,
    ``allocated_mb`` what of it is no mapped file (0 where the system does not tell)."""
    done = subprocess.run(step_command(script, step, *arguments), stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"the step {step} failed")
    return dict(json.loads(done.stdout))


def main_or_step(main: Callable[[], None], steps: Mapping[str, Step]) -> None:
    """Run the step that the command line names, or the benchmark."""
    if sys.argv[1:2] != ["--step"]:
        return main()
    allocated_mb = [0.0]
    threading.Thread(target=_watch, args=(allocated_mb,), daemon=True).start()
    result = steps[sys.argv[2]](*sys.argv[3:])
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**result, "peak_mb": peak_kib / 1024, "allocated_mb": allocated_mb[0]}))
    return None


def _watch(allocated_mb: list[float]) -> None:
    """Keep the highest memory of this process that is no mapped file."""
    status = Path("/proc/self/status")
    while status.exists():
        found = re.search(r"RssAnon:\s+(\d+)", status.read_text())
        allocated_mb[0] = max(allocated_mb[0], int(found[1]) / 1024 if found else 0)
        time.sleep(0.05)
