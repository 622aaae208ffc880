"""No document, row or metadata makes a reader take more than linear time."""

import ast
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from linear import LARGEST_RATIO, growth, superlinear

import arbitrag
from arbitrag.data import formats
from arbitrag.data.trd import draft, nq, plain, wikipedia
from arbitrag.encode import hashed
from arbitrag.retrieve import _KIND as KIND
from arbitrag.retrieve.documents import boilerplate, chunking, html, office, readers, sources
from arbitrag.retrieve.index import analysis, bm25, snapshot
from arbitrag.retrieve.servers import postgres_table

PACKAGE = Path(arbitrag.__file__).parent
FOLDERS = ("retrieve", "integrations", "data", "encode")


def gone_through(pattern: re.Pattern[str]) -> Callable[[str], object]:
    return lambda text: sum(1 for _ in pattern.finditer(text))


def escaped(text: str) -> object:
    return sources.escaped(os.fsdecode(text.encode("utf-8", "replace")))


def charset(text: str) -> object:
    return sum(1 for _ in readers._CHARSET.finditer(text.encode("utf-8", "replace")))


def sentences(text: str) -> object:
    return sum(1 for _ in chunking.sentences(text))


# Every place in these folders where a regular expression is made or used on a text that is not written there: what
# runs it, and what to put around the repeated text (what a match begins with, and what keeps it from ending).
CASES: dict[str, tuple[Callable[[str], object], list[tuple[str, str]]]] = {
    "retrieve/__init__.py _KIND": (KIND.fullmatch, [("elastic:", ""), ("", ":")]),
    "retrieve/index/analysis.py _UNSPACED_RUN": (analysis.searchable, [("中", "a")]),
    "retrieve/documents/boilerplate.py _PART": (boilerplate._is_name, [("a", "-"), ("A", "A")]),
    "retrieve/documents/html.py _GAPS": (html.visible_text, [("<p>", "<p>"), ("a", "b"), ("<pre>", "</pre>")]),
    "retrieve/documents/html.py _LINE_ENDS": (
        html._collapse_space,
        [("\x1e", "a"), ("a\x1d", "\x1d"), ("\x1e \x1e", "")],
    ),
    "retrieve/documents/html.py _SPACES": (html._collapse_space, [("a", "\x1d"), ("a ", "\u2028b")]),
    "retrieve/documents/html.py _TAG": (html.is_too_deep, [("<!--", ""), ("<script>", ""), ("<b", ""), ("", "<title")]),
    "retrieve/documents/office.py _ESCAPED": (
        lambda text: office._ESCAPED.sub(r"\1", text),
        [("\\", ""), ("\\a", "\\")],
    ),
    "retrieve/documents/chunking.py UNSPACED": (chunking.estimate_tokens, [("中", "")]),
    "retrieve/documents/chunking.py _BREAK": (
        sentences,
        [("a.", "x"), ("a.”", "x"), ("\n", "x"), ("。", "x"), ("\n \n", "x")],
    ),
    "retrieve/documents/chunking.py _words": (
        lambda text: sum(1 for _ in chunking._words(text, 64)),
        [("a", "b"), ("a ", "\u2028")],
    ),
    "retrieve/servers/postgres_table.py _NOT_STORABLE": (gone_through(postgres_table._NOT_STORABLE), [("\0", "\0")]),
    "retrieve/servers/postgres_table.py _PORTS": (postgres_table._PORTS.fullmatch, [("1", ""), ("1,", ""), (",", ",")]),
    "retrieve/documents/readers.py _CHARSET": (
        charset,
        [("<meta ", ""), ("<meta charset", "="), ("<meta charset=", ""), ('<meta charset="', ""), ("", "<meta")],
    ),
    "retrieve/documents/readers.py _FENCE": (readers.heading, [("```\n", ""), ("---\n", "x"), ("~~~\n", "\n```")]),
    "retrieve/documents/readers.py _HEADING": (
        readers.heading,
        [("# ", ""), ("#", "a"), ("a\n===", "x"), ("a", "\n=="), ("a\n---\n", "x"), ("   #", "")],
    ),
    "retrieve/index/bm25.py _SYSTEM": (bm25._SYSTEM.search, [("os error ", ""), ("code: ", ""), ("", "os error")]),
    "retrieve/index/snapshot.py _SEGMENT": (snapshot._SEGMENT.fullmatch, [("0", ""), ("-", ""), ("0" * 8, "-")]),
    "retrieve/documents/sources.py _LIKE_AN_ESCAPE": (escaped, [("\\", "x"), ("\\x", "0"), ("\\x00", "")]),
    "data/formats.py _LIST": (gone_through(formats._LIST), [("[", ""), ("[", "]"), ("[ ", "{"), ("\n[", "")]),
    "data/formats.py _keys": (formats._keys, [('"', '"'), ('"a"', ""), ('"a"', "x"), ("{", "}")]),
    "data/trd/draft.py _pattern": (
        lambda text: draft.mentions(text, "a a"),
        [("a", "a"), (" ", "b"), ("a a", "a")],
    ),
    "data/trd/nq.py _TITLE": (gone_through(nq._TITLE), [("?title=", "&"), ("/wiki/", "#"), ("&title", "=")]),
    "data/trd/plain.py _DATE": (plain._DATE.fullmatch, [("2020-", ""), ("2020-10-", "1")]),
    "data/trd/wikipedia.py _WORD": (gone_through(wikipedia._WORD), [("a", " ")]),
    "encode/hashed.py _WORD": (gone_through(hashed._WORD), [("a", " ")]),
}


def patterns() -> set[str]:
    """``file NAME`` of every regular expression: the constant that holds it, or the function that uses it."""
    found = set()
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for statement in tree.body:
                if any(_is_pattern(node) for node in ast.walk(statement)):
                    found.add(f"{path.relative_to(PACKAGE).as_posix()} {_name(statement)}")
    return found


def _is_pattern(node: ast.AST) -> bool:
    """A call of ``re``, but for those that go through a text which is written there."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.value
    if not isinstance(called, ast.Name) or called.id != "re":
        return False
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    written = [isinstance(argument, ast.Constant) for argument in node.args]
    return node.func.attr != "escape" and (node.func.attr == "compile" or not all(written))


def _name(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.targets[0])
    assert isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return statement.name


def test_every_pattern_has_a_case() -> None:
    assert patterns() == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_a_pattern_takes_linear_time(case: str) -> None:
    function, around = CASES[case]
    assert superlinear(function, *around) == []


FRONT = [("---\n", ""), ("---\ntitle: ", "\n---"), ("---\ntitle:", "\n"), ("---\ntitle: '", "'\nx: y\n--")]


def test_front_matter_takes_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_LONGEST_FRONT", 1 << 20)
    assert superlinear(readers.heading, *FRONT) == []


def test_front_matter_of_spaces_is_read_at_once() -> None:
    assert readers.heading("---\ntitle:" + " " * 4000) == ""  # 4 KB that a pattern tried in every way for minutes


@pytest.mark.parametrize(
    "unit",
    [
        "<pre>",
        "<h1>",
        "<td>",
        "<li>",
        "<select>",
        "<div><pre>",
        "<table>",
        "<nav>",
        "<p>",
        "<header><h1>",
        "<div class=menu>",
        "<main><article>",
        "<a href=x>",
        "<title>",
        "<svg>",
    ],
)
def test_elements_inside_each_other_take_linear_time(unit: str) -> None:
    def nested(size: int) -> str:
        return unit * (size // 2 // len(unit)) + "word\n" * (size // 10)

    assert growth(html.visible_text, nested) <= LARGEST_RATIO


@pytest.mark.parametrize("unit", ["a. ", "a", " ", "\n", "\u2028", "。", "a b\n\n", "# a\n", "\"'"])
def test_cutting_takes_linear_time(unit: str) -> None:
    def cut(text: str) -> object:
        return sum(1 for _ in chunking.cut(text, 64))

    assert growth(cut, lambda size: unit * (size // len(unit))) <= LARGEST_RATIO
