"""Which files have to know a new method, backend, dataset or metric.

Counted by where the present ones are named. A module names one when an identifier or a string of it has its name as a
word (``open_onnx`` and ``"onnx:FOLDER"`` name onnx); docstrings and comments do not count. A page of the docs names one
when its text does. Its own module, folder and prompts, all tests, and the dated log are left out.

    files to touch    those that name the example and each of its siblings: tables and pages that list them all, where
                      a new one is entered
    files that name   those that name the example: an upper bound, since some only use it as an example
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PAGES = ("README.md", "CONTRIBUTING.md", "docs")
NOT_PAGES = ("docs/log.md",)


@dataclass(frozen=True)
class Addition:
    """Something one can add, an example of it, and others of its kind: spellings of each name.

    ``own`` are the beginnings of paths under the package that are the example's own.
    """

    example: tuple[str, ...]
    siblings: tuple[tuple[str, ...], ...]
    own: tuple[str, ...]


ADDITIONS: Mapping[str, Addition] = {
    "method": Addition(
        ("trustrag",),
        (("astute", "AstuteRag"), ("bridge",), ("trustmargin",)),
        ("methods/trustrag", "prompts/trustrag"),
    ),
    "backend": Addition(("onnx",), (("hf",), ("openai",)), ("llm/onnx",)),
    "dataset": Addition(("poisonedrag",), (("realtimeqa", "RealTime QA"),), ("data/poisonedrag",)),
    "metric": Addition(("token_f1", "f1"), (("hotpot_f1", "F1 (HotpotQA)"), ("substring_accuracy", "contains")), ()),
}


@dataclass(frozen=True)
class Places:
    """Files, as paths from the root: those that name the example, and of them those that name its siblings too."""

    named: tuple[str, ...]
    to_touch: tuple[str, ...]


def read(root: Path, package: Path) -> dict[str, str]:
    """What each module of the package names, and each page of the docs says, by its path from ``root``."""
    texts = {path.relative_to(root).as_posix(): _named_in(path) for path in package.rglob("*.py")}
    for page in PAGES:
        found = (root / page).rglob("*.md") if (root / page).is_dir() else [root / page]
        texts |= {
            path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in found if path.is_file()
        }
    return {name: text for name, text in texts.items() if name not in NOT_PAGES}


def places(texts: Mapping[str, str], addition: Addition) -> Places:
    """Where an addition would have to be known, of the texts that ``read`` gives."""
    own = tuple(f"src/arbitrag/{each}" for each in addition.own)
    named = sorted(
        name for name, text in texts.items() if not (own and name.startswith(own)) and _names(text, addition.example)
    )
    listing = [name for name in named if all(_names(texts[name], each) for each in addition.siblings)]
    return Places(tuple(named), tuple(listing))


def _names(text: str, spellings: tuple[str, ...]) -> bool:
    return any(re.search(rf"(?<![a-z0-9]){re.escape(each)}(?![a-z0-9])", text, re.IGNORECASE) for each in spellings)


def _named_in(path: Path) -> str:
    """The identifiers and the texts of a module, one a line, without its docstrings."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""  # a docstring; its turn comes after its statement's
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
        for name in ("id", "attr", "arg", "name", "module"):
            if isinstance(word := getattr(node, name, None), str):
                found.append(word)
    return "\n".join(found)
