"""The layers of the package, lowest first, and the imports between its modules.

A component is a folder or a module directly under ``src/arbitrag``. It may import itself and the components of the
layers below its own; never one of its own layer or of a higher one. INSIDE gives the same order for what is in a
component; its own ``__init__`` is above all of that.

An import counts wherever it stands: at the top of a module, in a function, or under TYPE_CHECKING. A module that is
named in a string and imported when it is used (``"arbitrag.methods.rag:Rag"``) is no import: that is how a table lists
what is above it.

The order is stated here and nowhere else: ``tests/test_layers.py`` holds it, ``tools/house.py`` counts by it, and
``docs/architecture.md`` draws it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PACKAGE = "arbitrag"
Order = tuple[tuple[str, ...], ...]  # layers, lowest first, each of names

LAYERS: Order = (
    ("errors",),
    ("serialization", "text"),
    ("display",),
    ("types",),
    ("plugins", "registry"),
    ("run_options",),
    ("security",),
    ("storage",),
    ("llm",),
    ("prompts",),
    ("truncation",),
    ("encode",),
    ("retrieve",),
    ("integrations",),
    ("trace",),
    ("kit",),
    ("stages",),
    ("methods",),
    ("arguments",),
    ("run",),
    ("replay",),
    ("lab",),
    ("evaluate",),
    ("data",),
    ("testing",),
    ("worked_examples",),
    ("cli",),
    ("__init__", "__main__"),
)

REST = "*"  # the parts of a component that its order does not name; these may import one another
INSIDE: Mapping[str, Order] = {
    "llm": (
        ("base",),
        ("results", "tokenizer", "wrapped"),
        ("cache", "engine"),
        ("budget", "hf", "http", "onnx"),
    ),
    "retrieve": (("base", "stored_passage"), ("documents", "fixed", "hybrid"), ("index", "servers")),
    "stages": (("parsing",), ("structured",), ("*",)),
    "evaluate": (("questions",), ("metrics",), ("run",), ("report",), ("tune",)),
    "data": (("*",), ("trd",)),
    "cli": (
        ("terminal",),
        ("config",),
        ("options",),
        ("explain", "foreign", "method_page", "results", "verdict"),
        ("batch",),
        ("ask", "bench", "data", "demo", "doctor", "index", "lab", "methods", "replay", "search", "tune"),
    ),
}

# The component of today at whose height a module of an earlier tree stood, so that such a tree can be counted too.
FORMER: Mapping[str, str] = {
    "address": "security",
    "budget": "stages",
    "files": "storage",
    "hiding": "security",
    "jsonl": "storage",
    "lock": "storage",
    "long_form": "stages",
    "plain": "registry",
    "sealing": "storage",
    "telemetry": "security",
    "told": "registry",
    "train": "worked_examples",
    "trust": "security",
    "worked": "worked_examples",
}

When = Literal["at the top", "in a function", "for types only"]


@dataclass(frozen=True, slots=True, order=True)
class Import:
    """One module of the package imports another; names are below ``arbitrag``, a package's own is its folder's."""

    importer: str
    imported: str
    line: int
    when: When

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} -> {self.imported} ({self.when})"


def modules(package: Path) -> dict[str, Path]:
    """The modules under a folder by their name below it; its own ``__init__`` is called ``__init__``."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"] = path
    return found


def imports(package: Path) -> list[Import]:
    """Every import of one module of the package by another, once for each pair and way."""
    known = modules(package)
    found: set[Import] = set()
    seen: set[tuple[str, str, When]] = set()
    for importer, path in known.items():
        for node, when in _statements(ast.parse(path.read_text(encoding="utf-8"))):
            for imported in _targets(node, importer, path, known):
                if imported != importer and (importer, imported, when) not in seen:
                    seen.add((importer, imported, when))
                    found.add(Import(importer, imported, node.lineno, when))
    return sorted(found)


def _statements(tree: ast.Module) -> Iterable[tuple[ast.Import | ast.ImportFrom, When]]:
    """The import statements of a module in their order, each with when it runs."""
    waiting: list[tuple[ast.AST, When]] = [(tree, "at the top")]
    while waiting:
        node, when = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, when
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and when == "at the top":
            when = "in a function"
        for name, children in reversed(list(ast.iter_fields(node))):
            inner: When = when
            if isinstance(node, ast.If) and name == "body" and "TYPE_CHECKING" in ast.unparse(node.test):
                inner = "for types only"
            several = children if isinstance(children, list) else [children]
            waiting.extend((child, inner) for child in reversed(several) if isinstance(child, ast.AST))


def _targets(node: ast.Import | ast.ImportFrom, importer: str, path: Path, known: Mapping[str, Path]) -> list[str]:
    """The modules of the package that a statement names; ``from arbitrag import __version__`` names none."""
    if isinstance(node, ast.Import):
        named = [alias.name for alias in node.names]
    else:
        base = node.module or ""
        if node.level:
            here = [PACKAGE, *importer.split(".")] if importer != "__init__" else [PACKAGE]
            here = here if path.stem == "__init__" else here[:-1]
            base = ".".join([*here[: len(here) - node.level + 1], *filter(None, [node.module])])
        named = [f"{base}.{alias.name}" for alias in node.names if not (base == PACKAGE and alias.name[:2] == "__")]
    found = []
    for name in named:
        top, _, inner = name.partition(".")
        if top == PACKAGE:
            while inner and inner not in known:
                inner = inner.rpartition(".")[0]
            found.append(inner or "__init__")
    return found


def component(module: str) -> str:
    """The component that a module is in, by its present name."""
    first = module.partition(".")[0]
    return FORMER.get(first, first)


def upward(found: Iterable[Import], known: Iterable[str]) -> list[Import]:
    """The imports that break the order. A component that has no place in it is not judged: see ``unplaced``."""
    places, inside = _places(LAYERS), _inside(known)
    return [each for each in found if _breaks(each, places, inside)]


def _inside(known: Iterable[str]) -> Mapping[str, Order]:
    """INSIDE; nothing for an earlier tree, whose components had other parts."""
    return {} if any(module.partition(".")[0] in FORMER for module in known) else INSIDE


def _breaks(each: Import, places: Mapping[str, int], inside: Mapping[str, Order]) -> bool:
    above, below = component(each.importer), component(each.imported)
    if above != below:
        return above in places and below in places and places[below] >= places[above]
    if above not in inside:
        return False
    order = {**_places(inside[above]), "": len(inside[above])}
    one, other = (part if part in order else REST for part in (_part(each.importer), _part(each.imported)))
    return one != other and order[other] >= order[one]


def _places(order: Order) -> dict[str, int]:
    return {name: place for place, layer in enumerate(order) for name in layer}


def _part(module: str) -> str:
    """The folder or module directly in its component; nothing for the component's own ``__init__``."""
    return module.partition(".")[2].partition(".")[0]


def unplaced(known: Iterable[str]) -> list[str]:
    """Modules that the order does not name: of no component in LAYERS, or of none of the parts in INSIDE."""
    names = [*known]
    places, inside = _places(LAYERS), _inside(names)
    return [
        module
        for module in names
        if component(module) not in places
        or (_part(module) and not _named(_part(module), inside.get(component(module))))
    ]


def _named(part: str, order: Order | None) -> bool:
    return order is None or any({part, REST} & {*layer} for layer in order)


def cycles(found: Iterable[Import], *, types_too: bool = False) -> list[list[str]]:
    """Modules that import one another, directly or around a corner: the strongly connected components of two or more.

    Imports for types only do not run; they count with ``types_too``.
    """
    following: dict[str, list[str]] = {}
    leading: dict[str, list[str]] = {}
    for each in found:
        if types_too or each.when != "for types only":
            following.setdefault(each.importer, []).append(each.imported)
            leading.setdefault(each.imported, []).append(each.importer)
    names = sorted({*following, *leading})
    finished: dict[str, None] = {}
    for name in names:
        _visit(name, following, finished)
    groups: list[list[str]] = []
    taken: dict[str, None] = {}
    for name in reversed(finished):
        if name not in taken:
            before = len(taken)
            _visit(name, leading, taken)
            groups.append(sorted([*taken][before:]))
    return sorted(group for group in groups if len(group) > 1)


def _visit(start: str, edges: Mapping[str, Sequence[str]], done: dict[str, None]) -> None:
    """Depth first from ``start``: every module that is reached and not yet in ``done`` joins it when it is left."""
    path = [(start, iter(edges.get(start, ())))] if start not in done else []
    entered = {start}
    while path:
        name, rest = path[-1]
        step = next((each for each in rest if each not in done and each not in entered), None)
        if step is None:
            done[name] = None
            path.pop()
        else:
            entered.add(step)
            path.append((step, iter(edges.get(step, ()))))
