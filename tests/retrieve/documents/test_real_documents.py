"""Documents that nobody here wrote: a Linux system's, Python's own, and questions with snippets of web pages."""

import asyncio
import importlib.util
import inspect
import json
import pkgutil
import sys
import warnings
from pathlib import Path

import pytest

from arbitrag.retrieve import open_index, update_index
from arbitrag.retrieve.index.update import IndexReport

pytestmark = pytest.mark.slow

SYSTEM = Path("/usr/share/doc")
QUESTIONS = Path(__file__).parents[4] / "shared" / "data" / "realtimeqa_poisoned.jsonl"
_LOUD = (
    "antigravity",
    "this",
    "idlelib",
    "test",
    "lib2to3",
    "turtledemo",
    "turtle",
    "tkinter",
    "ensurepip",
    "__main__",
)


def write_docstrings(folder: Path) -> int:
    """One text file per module of the standard library that can be imported and has docstrings."""
    folder.mkdir()
    written = 0
    for name in sorted(module for module in sys.stdlib_module_names if not module.startswith(_LOUD)):
        for module in [name, *_submodules(name)]:
            if text := _docstrings(module):
                (folder / f"{module}.txt").write_text(text, encoding="utf-8")
                written += 1
    return written


def _submodules(name: str) -> list[str]:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return []
    found = pkgutil.iter_modules(spec.submodule_search_locations)
    return [f"{name}.{each.name}" for each in found if not each.name.startswith(("_", *_LOUD))]


def _docstrings(name: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated modules and members say so when they are touched
        try:
            module = importlib.import_module(name)
        except (ImportError, AttributeError):
            return ""  # made for another system
        members = [member for _, member in inspect.getmembers(module) if getattr(member, "__module__", "") == name]
        inner = [value for member in members if inspect.isclass(member) for value in vars(member).values()]
        texts = [inspect.getdoc(each) for each in (module, *members, *inner) if each is module or callable(each)]
    return "\n\n".join(dict.fromkeys(text for text in texts if text))


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, IndexReport]:
    """The index of everything that is here; its documents are links, so the system's stay where they are."""
    here = tmp_path_factory.mktemp("real")
    inputs = [here / "python"]
    assert write_docstrings(here / "python") > 200
    (here / "broken").mkdir()
    (here / "broken" / "empty.txt").write_text("")
    (here / "broken" / "binary.txt").write_bytes(b"\0\1\2")
    (here / "broken" / "broken.pdf").write_bytes(b"%PDF-1.7 and no more")
    (here / "broken" / "huge_line.txt").write_text("hugeword " * 1_200_000)
    inputs.append(here / "broken")
    if SYSTEM.is_dir():
        inputs.append(SYSTEM)
    if QUESTIONS.exists():
        (here / "web").mkdir()
        with (here / "web" / "snippets.jsonl").open("w", encoding="utf-8") as file:
            for row in map(json.loads, QUESTIONS.read_text(encoding="utf-8").splitlines()):
                for snippet in row["clean"]:
                    kept = {"text": snippet["text"], "title": snippet["title"], "url": snippet["url"], "for": row["id"]}
                    file.write(json.dumps(kept) + "\n")
        inputs.append(here / "web")
    return here / "real.idx", update_index(inputs, here / "real.idx")


def sources(index: Path, query: str, k: int = 5) -> list[str]:
    return [passage.source for passage in asyncio.run(open_index(index).retrieve(query, k))]


def test_broken_files_are_named_and_the_rest_is_indexed(indexed: tuple[Path, IndexReport]) -> None:
    _, report = indexed
    reasons = {each.source.rsplit("/", 1)[-1]: each.reason for each in report.skipped}
    assert reasons["empty.txt"] == "empty"
    assert reasons["binary.txt"] == "binary, not text"
    assert reasons["broken.pdf"].startswith("not a PDF that can be read")
    assert report.passages > 3000
    if SYSTEM.is_dir() and sum(1 for _ in SYSTEM.iterdir()) > 500:
        assert report.passages > 20_000


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Decode a JSON document from a string that begins with one", "json.decoder.txt"),
        ("return the greatest common divisor of rational numbers, numerator and denominator", "fractions.txt"),
        ("find lines that differ between two sequences, unified diff delta", "difflib.txt"),
        ("mersenne twister random number generator", "random.txt"),
        ("open a zip archive and list its members", "zipfile.txt"),
    ],
)
def test_questions_about_python_find_its_modules(indexed: tuple[Path, IndexReport], query: str, expected: str) -> None:
    assert any(source.endswith(f"python/{expected}") for source in sources(indexed[0], query, 10))


def test_a_huge_line_is_cut_into_passages(indexed: tuple[Path, IndexReport]) -> None:
    found = asyncio.run(open_index(indexed[0]).retrieve("hugeword", 10))
    assert [passage.line for passage in found] == [1] * 10
    assert max(len(passage.text) for passage in found) < 3000


@pytest.mark.skipif(not (SYSTEM / "bash").is_dir(), reason="this system keeps no documents of bash")
def test_a_question_about_the_system_finds_its_document(indexed: tuple[Path, IndexReport]) -> None:
    assert any("/bash/" in source for source in sources(indexed[0], "bash copyright Free Software Foundation license"))


@pytest.mark.skipif(not QUESTIONS.exists(), reason="the shared question sets are not here")
def test_a_question_finds_a_snippet_that_was_collected_for_it(indexed: tuple[Path, IndexReport]) -> None:
    index, asked, found = open_index(indexed[0]), 0, 0
    for row in map(json.loads, QUESTIONS.read_text(encoding="utf-8").splitlines()[:100]):
        passages = asyncio.run(index.retrieve(row["question"], 5))
        asked += 1
        found += any(passage.metadata.get("for") == row["id"] for passage in passages)
    assert found / asked >= 0.9


def test_a_second_run_reads_nothing(indexed: tuple[Path, IndexReport]) -> None:
    index, report = indexed
    here = index.parent
    again = update_index(
        [path for path in (here / "python", here / "broken", SYSTEM, here / "web") if path.is_dir()], index
    )
    assert (again.written, again.added, again.changed, again.dropped) == (0, 0, 0, 0)
    assert again.passages == report.passages
