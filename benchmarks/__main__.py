"""Run the benchmarks one after the other, and say how long each takes: ``python benchmarks --smoke``.

python benchmarks --quick batching bm25

With --smoke (``make bench-smoke``) each runs at its smallest size, to see that it still runs; nothing is measured. A
benchmark that lacks something that cannot be made here is skipped, with its reason.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

from harness.bench import SKIPPED

LIMIT_S = 300
SHOWN = 4000  # characters of what a failed one printed last


def main() -> None:
    scripts = {script.stem: script for script in sorted(Path(__file__).parent.glob("[!_]*.py"))}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*scripts, []], metavar="NAME", help="all without a name")
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--smoke", dest="size", action="store_const", const="--smoke", help="smallest sizes, no bars")
    size.add_argument("--quick", dest="size", action="store_const", const="--quick", help="small sizes, with bars")
    options = parser.parse_args()
    names = options.names or list(scripts)
    if failed := [name for name in names if not runs(scripts[name], options.size)]:
        sys.exit(f"these benchmarks failed: {', '.join(failed)}")


def runs(script: Path, size: str) -> bool:
    """Run one, print a line about it, and all that it printed where it failed."""
    began, cpu_s = time.perf_counter(), children_cpu_s()
    try:
        command = [sys.executable, str(script), size]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        print(f"{script.stem:<20} not done after {LIMIT_S} s", flush=True)
        return False
    seconds, cpu_s = time.perf_counter() - began, children_cpu_s() - cpu_s
    passed = {0: "passed", SKIPPED: done.stdout.strip().rpartition("\n")[2]}.get(done.returncode, "")
    print(f"{script.stem:<20} {seconds:5.1f} s  {cpu_s:5.1f} CPU s  {passed or 'FAILED'}", flush=True)
    if not passed:
        print((done.stdout + done.stderr)[-SHOWN:], file=sys.stderr, flush=True)
    return bool(passed)


def children_cpu_s() -> float:
    """User and system time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
