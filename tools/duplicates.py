"""Blocks of code that stand in two places, type names that are defined twice, and files with equal bytes."""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LINES = 8  # the shortest run of equal lines that counts as a block


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """Equal code in two places: a file and its first line, twice, and how many lines of code are equal."""

    first: str
    first_line: int
    second: str
    second_line: int
    lines: int

    def __str__(self) -> str:
        return f"{self.first}:{self.first_line} = {self.second}:{self.second_line} ({self.lines} lines)"


def code_lines(source: str) -> list[tuple[int, str]]:
    """The lines of code with their numbers: without comments, docstrings, imports, indentation and lone brackets."""
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_docstring(node):
            skipped |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
    words: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            words[token.start[0]].append(token.string)
    lines = ((number, " ".join(each)) for number, each in sorted(words.items()) if number not in skipped)
    return [(number, text) for number, text in lines if any(map(str.isalnum, text))]


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def blocks(files: Mapping[str, str], least: int = LINES) -> list[Block]:
    """Every longest run of at least ``least`` equal lines of code in two places, which do not overlap."""
    lines = {name: code_lines(source) for name, source in files.items()}
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, numbered in lines.items():
        texts = [text for _, text in numbered]
        for start in range(len(texts) - least + 1):
            places[tuple(texts[start : start + least])].append((name, start))
    pairs = {
        (one, other)
        for same in places.values()
        for at, one in enumerate(same)
        for other in same[at + 1 :]
        if one[0] != other[0] or other[1] - one[1] >= least
    }
    found = []
    for (first, i), (second, j) in pairs:
        if ((first, i - 1), (second, j - 1)) in pairs:
            continue  # the run began a line earlier
        length = least
        while ((first, i + length - least + 1), (second, j + length - least + 1)) in pairs:
            length += 1
        found.append(Block(first, lines[first][i][0], second, lines[second][j][0], length))
    return sorted(found)


def classes(files: Mapping[str, str]) -> dict[str, list[str]]:
    """Classes that are defined in two places or more, with the places; those in a function or class count too."""
    return _twice(
        (node.name, name)
        for name, source in files.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    )


def aliases(files: Mapping[str, str]) -> dict[str, list[str]]:
    """Type aliases that are defined at the top of two modules or more, with the modules."""
    return _twice(
        (each, name) for name, source in files.items() for node in ast.parse(source).body for each in _alias(node)
    )


def _twice(defined: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for each, where in defined:
        places[each].append(where)
    return {each: where for each, where in sorted(places.items()) if len(where) > 1}


_ALIASING = ("Annotated", "Literal", "Callable", "Mapping", "Union", "Optional")


def _alias(node: ast.stmt) -> Iterable[str]:
    """``Kind = Literal["a", "b"]`` or ``Answer = A | B``: a CamelCase name for a type, of more than one letter."""
    if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
        return
    name, value = node.targets[0].id, node.value
    generic = isinstance(value, ast.Subscript) and ast.unparse(value.value).rpartition(".")[2] in _ALIASING
    union = isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr)
    bare = name.lstrip("_")
    if (generic or union) and len(bare) > 1 and bare[0].isupper() and not bare.isupper():
        yield name


def equal_files(paths: Sequence[Path]) -> list[list[Path]]:
    """Files with the same bytes, in groups; empty ones do not count."""
    groups: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        if path.stat().st_size:
            groups[hashlib.sha256(path.read_bytes()).hexdigest()].append(path)
    return sorted(group for group in groups.values() if len(group) > 1)
