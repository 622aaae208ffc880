"""Child processes of a benchmark, which import this checkout's package and these folders."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment and ``variables``, with the checkout's sources first on PYTHONPATH."""
    paths = [str(ROOT / "src"), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables}


def python(module: str, *arguments: object) -> list[str]:
    """The command ``python -m MODULE ARGUMENTS``, with this interpreter."""
    return [sys.executable, "-m", module, *map(str, arguments)]
