"""What a run was made with: versions, the commit of a checkout, and the machine."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from arbitrag import __version__

PACKAGES = ("numpy", "onnxruntime", "httpx", "tantivy", "tokenizers", "torch", "transformers", "faiss-cpu")


def provenance() -> Mapping[str, Any]:
    """Plain JSON values; ``commit`` is empty outside a checkout, and ends in ``+`` where files were changed since."""
    return {
        "arbitrag": __version__,
        "commit": commit(Path(str(files("arbitrag")))),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def commit(folder: Path) -> str:
    """The commit of the checkout that ``folder`` is in; empty when git does not keep the folder's files."""
    if not _git(folder, "ls-files", "--", "."):
        return ""
    changed = _git(folder, "status", "--porcelain", "--", ".")
    return _git(folder, "rev-parse", "HEAD") + ("+" if changed else "")


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
