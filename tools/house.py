"""Count how the code is laid out: sizes, folders, imports against the order of the layers, duplicates, files to touch.

    python tools/house.py                       this tree, as a table and lists
    python tools/house.py --compare ../before   another checkout beside it, as a Markdown table

Needs the standard library alone. What counts as what:

    lines                 all lines of the .py files under a folder
    folder                a folder of the package with .py files directly in it; ``__init__.py`` counts
    upward import         against the order in tools/layers.py, wherever in a module it stands (see there)
    import cycle          modules that import one another, imports in functions too, those under TYPE_CHECKING apart
    defined twice         classes, and type aliases at the top of a module, with one name in two places of the package
    duplicated block      8 or more lines of code in a row that are equal in two places, without comments, docstrings,
                          imports and lone brackets; equal files (of any kind) are counted apart
    files to touch        what has to know a new method, backend, dataset or metric (see tools/additions.py)
"""

from __future__ import annotations

import argparse
import ast
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import additions
import duplicates
import layers

HERE = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "training", "tests", "benchmarks", "tools", "examples")
CROWDED = 15  # files in a folder
LONGEST = 5  # that are listed


@dataclass
class Count:
    """What was counted of a tree: rows of a table, and under the name of a row what it is made of."""

    rows: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)

    def row(self, name: str, value: object, found: Sequence[object] = ()) -> None:
        self.rows[name] = f"{value:,}" if isinstance(value, int) else str(value)
        if found:
            self.lists[name] = [str(each) for each in found]


def count(root: Path) -> Count:
    """Count the tree at ``root``; raises SystemExit where it has no package."""
    package = root / "src" / layers.PACKAGE
    if not package.is_dir():
        raise SystemExit(f"{package} is no folder; --root takes the folder of a checkout, which has src/{package.name}")
    made = Count()
    _sizes(made, root)
    _folders(made, package)
    _longest(made, package)
    _imports(made, package)
    _duplicates(made, root, package)
    texts = additions.read(root, package)
    for what, addition in additions.ADDITIONS.items():
        places = additions.places(texts, addition)
        inside = sum(name.startswith("src/") for name in places.to_touch)
        value = f"{len(places.to_touch)} ({inside} in the package)"
        made.row(f"files to touch for a {what}", value, places.to_touch)
        made.row(f"files that name {addition.example[0]}", len(places.named), places.named)
    return made


def _sizes(made: Count, root: Path) -> None:
    lines = {name: sum(_length(path) for path in _python(root / name)) for name in FOLDERS}
    for name, number in lines.items():
        made.row(f"lines in {name}/", number)
    made.row("lines in all", sum(lines.values()))


def _folders(made: Count, package: Path) -> None:
    files = Counter(path.parent.relative_to(package).as_posix() for path in _python(package))
    ranked = [f"{name if name != '.' else package.name} {number}" for name, number in files.most_common()]
    made.row("files in the package", files.total())
    made.row("folders", len(files), ranked)
    made.row("largest folder, files", ranked[0])
    crowded = [
        each for each, number in zip(ranked, sorted(files.values(), reverse=True), strict=True) if number > CROWDED
    ]
    made.row(f"folders with more than {CROWDED} files", len(crowded), crowded)


def _longest(made: Count, package: Path) -> None:
    files = [(_length(path), path.relative_to(package).as_posix()) for path in _python(package)]
    functions = [
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{path.relative_to(package).as_posix()}:{node.name}")
        for path in _python(package)
        for node in ast.walk(ast.parse(_text(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for what, sizes in (("file", files), ("function", functions)):
        ranked = [f"{name} {lines}" for lines, name in sorted(sizes, reverse=True)[:LONGEST]]
        made.row(f"longest {what}, lines", ranked[0] if ranked else "none", ranked)


def _imports(made: Count, package: Path) -> None:
    known, found = layers.modules(package), layers.imports(package)
    upward = layers.upward(found, known)
    pairs = {(each.importer, each.imported) for each in upward}
    made.row("upward imports", len(pairs), upward)
    unplaced = layers.unplaced(known)
    made.row("modules without a place in the order", len(unplaced), unplaced)
    cycles = layers.cycles(found)
    made.row("import cycles", len(cycles), [" <-> ".join(each) for each in cycles])
    typed = [each for each in layers.cycles(found, types_too=True) if each not in cycles]
    made.row("import cycles that need a TYPE_CHECKING import", len(typed), [" <-> ".join(each) for each in typed])
    places: dict[str, set[str]] = defaultdict(set)
    for name in known:
        places[name.rpartition(".")[2]].add(name)
    same = {name: sorted(where) for name, where in sorted(places.items()) if len(where) > 1}
    made.row("module names used in several folders", len(same), [", ".join(where) for where in same.values()])


def _duplicates(made: Count, root: Path, package: Path) -> None:
    own = {path.relative_to(package).as_posix(): _text(path) for path in _python(package)}
    for what, twice in (("classes", duplicates.classes(own)), ("type aliases", duplicates.aliases(own))):
        made.row(f"{what} defined twice", len(twice), [f"{name}: {', '.join(where)}" for name, where in twice.items()])
    _blocks(made, "the package", own)
    others = {
        path.relative_to(root).as_posix(): _text(path)
        for name in FOLDERS
        if name != "src"
        for path in _python(root / name)
    }
    _blocks(made, "tests, benchmarks and tools", others)
    files = [path for path in sorted(package.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    equal = duplicates.equal_files(files)
    listed = [" = ".join(path.relative_to(package).as_posix() for path in group) for group in equal]
    made.row("groups of equal files in the package", len(equal), listed)


def _blocks(made: Count, where: str, files: Mapping[str, str]) -> None:
    found = sorted(duplicates.blocks(files), key=lambda block: -block.lines)
    made.row(f"duplicated blocks in {where}", len(found), found)


def _python(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.py")) if "__pycache__" not in path.parts)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _length(path: Path) -> int:
    return len(_text(path).splitlines())


def table(made: Count) -> str:
    """The rows, and after them what each is made of."""
    width = max(map(len, made.rows))
    rows = [f"{name:<{width}}  {value}" for name, value in made.rows.items()]
    lists = [line for name, found in made.lists.items() for line in (f"\n{name}:", *(f"  {each}" for each in found))]
    return "\n".join([*rows, *lists])


def compared(before: Count, after: Count) -> str:
    """Both trees as the columns of a Markdown table."""
    rows = [f"| {name} | {before.rows.get(name, '–')} | {value} |" for name, value in after.rows.items()]
    return "\n".join(["| | before | after |", "|---|---|---|", *rows])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--root", type=Path, default=HERE, metavar="DIR", help="the checkout to count (default: this one)"
    )
    parser.add_argument(
        "--compare", type=Path, metavar="DIR", help="a checkout of an earlier state: print both as Markdown"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, lists included")
    given = parser.parse_args(arguments)
    made = count(given.root)
    earlier = count(given.compare) if given.compare else None
    if given.json:
        plain: dict[str, Any] = {"rows": made.rows, "lists": made.lists}
        if earlier:
            plain["before"] = {"rows": earlier.rows, "lists": earlier.lists}
        print(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        print(compared(earlier, made) if earlier else table(made))


if __name__ == "__main__":
    main()
