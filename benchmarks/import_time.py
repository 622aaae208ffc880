"""Import time: `import arbitrag` and `arbitrag --help` in fresh processes, against starting Python.

python benchmarks/import_time.py --quick
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable

from harness.bench import Bench, alternate

HEAVY = ("torch", "transformers", "numpy", "openai", "onnxruntime", "tantivy", "pydantic")


def run(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    bench = Bench("import_time", __doc__)
    rounds = bench.pick(smoke=1, quick=15, full=60)
    bare, imported, helped = alternate(
        run("-c", "pass"), run("-c", "import arbitrag"), run("-m", "arbitrag", "--help"), rounds=rounds
    )
    code = f"import sys, arbitrag; print(sum(m in sys.modules for m in {HEAVY}))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    bench.figure("starting Python", statistics.median(bare), unit="s")
    bench.figure(
        "import arbitrag, beyond starting Python",
        statistics.median(imported) - statistics.median(bare),
        unit="s",
        at_most=0.1,
    )
    bench.figure("arbitrag --help, with starting Python", statistics.median(helped), unit="s", at_most=0.35)
    bench.figure("heavy modules loaded by the import", int(found), at_most=0)
    bench.finish(rounds=rounds, heavy=list(HEAVY))


if __name__ == "__main__":
    main()
