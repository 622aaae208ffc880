"""Run every benchmark at its smallest size, to see that it still runs: ``make bench-smoke``. Nothing is measured.

A benchmark that ends with SKIPPED lacks something that cannot be made here, and says what.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from _bench import SKIPPED

LIMIT_S = 300
SHOWN = 4000  # characters of what a failed one printed last


def main() -> None:
    scripts = sorted(Path(__file__).parent.glob("[!_]*.py"))
    chosen = [script for script in scripts if not sys.argv[1:] or script.stem in sys.argv[1:]]
    if failed := [script.stem for script in chosen if not runs(script)]:
        sys.exit(f"these benchmarks do not run: {', '.join(failed)}")


def runs(script: Path) -> bool:
    """Runs one, prints a line about it, and all that it printed where it failed."""
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, str(script), "--smoke"], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        print(f"{script.stem:<20} not done after {LIMIT_S} s", flush=True)
        return False
    seconds = time.perf_counter() - began
    told = {0: "runs", SKIPPED: done.stdout.strip().rpartition("\n")[2]}.get(done.returncode, "FAILED")
    print(f"{script.stem:<20} {seconds:5.1f} s  {told}", flush=True)
    if told == "FAILED":
        print((done.stdout + done.stderr)[-SHOWN:], file=sys.stderr, flush=True)
    return told != "FAILED"


if __name__ == "__main__":
    main()
