from pathlib import Path

import pytest

from arbitrag.errors import DataError, UsageError
from arbitrag.retrieve import update_index
from arbitrag.retrieve.documents.ingest import DocumentFile, find_documents
from arbitrag.retrieve.documents.selection import ExcludedPath, ExclusionCounts, Selection, count_exclusions
from arbitrag.retrieve.documents.sources import absolute, with_names

TREE = [
    "a.md",
    "b.txt",
    ".env",
    ".git/config.md",
    "build/made.md",
    "docs/a.md",
    "docs/c [1].md",
    "docs/.drafts/d.md",
    "docs/build/e.md",
    "docs/deep/er/f.md",
    "node_modules/x/README.md",
    "work/pyvenv.cfg",
    "work/lib/g.txt",
    "old.idx/index.json",
    "old.idx/files.sqlite",
    "old.idx/h.txt",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in TREE:
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}")
    return tmp_path / "tree"


def chosen(tree: Path, include: str = "", exclude: str = "") -> tuple[list[str], ExclusionCounts]:
    items = list(find_documents(with_names(absolute([tree])), Selection(include.split(), exclude.split())))
    found = [item.source for item in items if isinstance(item, DocumentFile)]
    return found, count_exclusions(item for item in items if isinstance(item, ExcludedPath))


PLAIN = ["a.md", "b.txt", "docs/a.md", "docs/c [1].md", "docs/deep/er/f.md"]


@pytest.mark.parametrize(
    ("include", "exclude", "found"),
    [
        ("", "", PLAIN),
        ("**", "", PLAIN),  # what is left out by default needs its name
        ("*", "", PLAIN),
        ("*.md", "", ["a.md", "docs/a.md", "docs/c [1].md", "docs/deep/er/f.md"]),
        ("./docs/*.md", "", ["docs/a.md", "docs/c [1].md"]),
        ("docs/**/*.md", "", ["docs/a.md", "docs/c [1].md", "docs/deep/er/f.md"]),
        ("docs/**", "", ["docs/a.md", "docs/c [1].md", "docs/deep/er/f.md"]),
        ("docs", "", ["docs/a.md", "docs/c [1].md", "docs/deep/er/f.md"]),
        ("docs/", "", ["docs/a.md", "docs/c [1].md", "docs/deep/er/f.md"]),
        ("er", "", ["docs/deep/er/f.md"]),
        ("**/er/**", "", ["docs/deep/er/f.md"]),
        ("deep/*", "", []),  # from the source, not from anywhere
        ("?.txt [ab].md", "", ["a.md", "b.txt", "docs/a.md"]),
        ("", "docs", ["a.md", "b.txt"]),
        ("", "docs/*", ["a.md", "b.txt"]),
        ("", "docs/*.md", ["a.md", "b.txt", "docs/deep/er/f.md"]),
        ("", "*.md", ["b.txt"]),
        ("docs *.txt", "a.md", ["b.txt", "docs/c [1].md", "docs/deep/er/f.md"]),
        ("build", "", ["build/made.md", "docs/build/e.md"]),
        ("build/**", "", ["build/made.md"]),
        ("** docs/build", "", ["a.md", "b.txt", "docs/a.md", "docs/c [1].md", "docs/build/e.md", "docs/deep/er/f.md"]),
        (".git", "", [".git/config.md"]),
        (".*", "", [".env", ".git/config.md", "docs/.drafts/d.md"]),
        ("docs/.drafts/*", "", ["docs/.drafts/d.md"]),
        ("docs/*/d.md", "", []),  # a star is no dot
        ("node_modules", "", ["node_modules/x/README.md"]),
        ("work", "", ["work/lib/g.txt"]),
        ("build", "build/made.md", ["docs/build/e.md"]),
    ],
)
def test_globs_are_matched_on_the_path_from_the_source(
    tree: Path, include: str, exclude: str, found: list[str]
) -> None:
    assert sorted(chosen(tree, include, exclude)[0]) == sorted(found)


def test_what_is_left_out_is_counted(tree: Path) -> None:
    found, left = chosen(tree)
    assert found == PLAIN
    assert left == ExclusionCounts(
        {"build": 2, ".git": 1, ".drafts": 1, "node_modules": 1, "old.idx": 1, "work": 1}, hidden_files=1
    )
    assert left.lines(including=False) == [
        "left out by default: build (2), .git, node_modules, .drafts, old.idx, work, 1 hidden file",
        "to index one of these too, name it: --include '**' --include build",
    ]
    _, left = chosen(tree, "*.md build", "er")
    assert (left.excluded, left.not_included) == (1, 1)
    assert left.lines(including=True)[1:] == [
        "to index one of these too, name it: --include node_modules",
        "left out by --exclude: 1 file or folder",
        "matched by no --include: 1 file",
    ]


def test_many_kinds_of_folders_are_summed_up() -> None:
    left = ExclusionCounts({f".{name}": 2 for name in "abcdefgh"}, excluded=1200, not_included=2)
    assert left.lines(including=True) == [
        "left out by default: .a (2), .b (2), .c (2), .d (2), .e (2), .f (2), 4 more folders",
        "to index one of these too, name it: --include .a",
        "left out by --exclude: 1,200 files and folders",
        "matched by no --include: 2 files",
    ]


def test_a_name_that_a_shell_would_read_is_quoted() -> None:
    assert ExclusionCounts({".a b;c": 1}).lines(including=True)[1].endswith("--include '.a b;c'")


@pytest.mark.parametrize("glob", ["", "/", "/docs", "../docs", "docs/../x", "."])
def test_a_glob_that_can_match_nothing_is_refused(glob: str) -> None:
    with pytest.raises(UsageError, match="matches nothing: it is compared with paths from the source"):
        Selection(include=[glob])
    with pytest.raises(UsageError, match="--exclude"):
        Selection(exclude=[glob])


def test_a_source_that_is_given_by_itself_is_never_left_out(tree: Path) -> None:
    items = list(find_documents(with_names(absolute([tree / "build", tree / ".env"])), Selection(["made.md"])))
    assert [item.source for item in items if isinstance(item, DocumentFile)] == [".env", "build/made.md"]


def test_an_index_holds_what_was_chosen_and_says_what_was_not(tree: Path, tmp_path: Path) -> None:
    report = update_index(tree, tmp_path / "x.idx", include=["*.md"], exclude=["deep"])
    assert (report.files, report.left_out.excluded, report.left_out.not_included) == (3, 1, 1)
    (tree / "new.md").write_text("new")
    (tree / "new.txt").write_text("new")
    report = update_index(None, tmp_path / "x.idx")  # the choice is remembered
    assert (report.files, report.added, report.include, report.exclude) == (4, 1, ("*.md",), ("deep",))
    report = update_index(tree, tmp_path / "x.idx", include=(), exclude=())
    assert (report.files, report.added, report.unchanged) == (7, 3, 4)
    update_index(tree, tmp_path / "x.idx", exclude=["docs"])
    assert update_index(tree, tmp_path / "x.idx", replace=True).files == 7
    (tree / "new.md").unlink()
    (tree / "new.txt").unlink()
    with pytest.raises(
        DataError, match=r"no file of a kind that is read .*\nleft out by default: build \(2\)"
    ) as error:
        update_index(tree, tmp_path / "y.idx", include=["*.rst"])
    assert "matched by no --include: 5 files" in str(error.value)
