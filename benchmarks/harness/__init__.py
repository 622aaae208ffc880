"""What the benchmarks share: options, bars and tables, models and servers to measure with.

A script in ``benchmarks/`` that imports this may import ``training`` from the root of the repository after it.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
