"""What only some systems have is asked for, and marked in tests: nothing of it was run on macOS or Windows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import needs
import pytest

# In the source of a test -> the mark that it needs.
_NEEDS = {
    r"os\.mkfifo": {"pipes"},
    r"\.symlink_to\(|os\.symlink\(": {"links"},
    r"SIGKILL|SIGINT|SIGTERM|os\.kill\(": {"signals", "pipes", "forks"},
    r"os\.fork\(": {"forks"},
    r"\bimport resource\b": {"memory"},
    r"\"bash\", \"-": {"bash"},
    r"os\.fsencode|b\"[^\"]*\\x[89a-f][^\"]*\.(?:md|txt)\"": {"any_name"},
    r"\.chmod\(0\)": {"permissions"},
}
_ALLOWED = ("needs.py", "test_other_systems.py")
# Only some systems have these; others are on all that Python runs on.
_PARTIAL = re.compile(
    r"os\.(?:fork|getuid|geteuid|sched_getaffinity|mkfifo|setsid|killpg|O_NOFOLLOW|O_NONBLOCK|O_CLOEXEC|O_BINARY)\b"
    r"|signal\.(?:SIGKILL|SIGHUP|SIGALRM)\b|\bimport (?:resource|fcntl|pty|termios|pwd|grp)\b"
)


def _marks(decorators: list[ast.expr]) -> set[str]:
    text = " ".join(map(ast.unparse, decorators))
    return set(re.findall(r"needs\.(\w+)", text)) | ({"own"} if "skipif" in text else set())


def _tests(path: Path) -> Iterator[tuple[str, str, set[str]]]:
    """Name, source and marks of every test function of a module, the marks of its class and module among them."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    of_module: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            of_module = _marks([node.value])
    parents: list[ast.Module | ast.ClassDef] = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]
    for parent in parents:
        outer = of_module | (_marks(parent.decorator_list) if isinstance(parent, ast.ClassDef) else set())
        for node in parent.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield node.name, ast.get_source_segment(source, node) or "", outer | _marks(node.decorator_list)


def test_tests_of_what_only_some_systems_have_are_marked(repository: Path) -> None:
    bare = []
    for path in sorted((repository / "tests").rglob("test_*.py")):
        if path.name in _ALLOWED:
            continue
        for name, source, marks in _tests(path):
            for pattern, needed in _NEEDS.items():
                if re.search(pattern, source) and not marks & (needed | {"own"}):
                    bare.append(f"{path.name}::{name} needs @needs.{' or '.join(sorted(needed))}")
    assert bare == []


def test_the_package_asks_before_it_uses_what_only_some_systems_have(repository: Path) -> None:
    """By ``getattr`` or ``hasattr`` on the line."""
    bare = [
        f"{path.name} line {number}: {line.strip()}"
        for path in sorted((repository / "src").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _PARTIAL.search(line)
        and "hasattr" not in line
        and "getattr" not in line
        and not line.strip().startswith("#")
    ]
    assert bare == []


def test_every_mark_is_told_to_contributors(repository: Path) -> None:
    page = (repository / "CONTRIBUTING.md").read_text(encoding="utf-8")
    marks = [name for name, value in vars(needs).items() if isinstance(value, pytest.MarkDecorator)]
    assert len(marks) == 8
    assert [name for name in marks if f"`{name}`" not in page] == []
