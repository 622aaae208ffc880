"""What an index is made of: remembered, added to, replaced, and never dropped without being asked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

import needs
import pytest

from arbitrag.errors import DataError, IndexFileError, UsageError
from arbitrag.retrieve import open_index, update_index
from arbitrag.retrieve.documents.sources import Source, choose, escaped, with_names


def fill(folder: Path, *names: str, text: str = "word") -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text} {folder.name} {name}")
    return folder


def sources(idx: Path) -> set[str]:
    return {passage.source for passage in asyncio.run(open_index(idx).retrieve("word", 100))}


@pytest.fixture
def idx(tmp_path: Path) -> Path:
    return tmp_path / "x.idx"


class TestAnUpdate:
    def test_another_folder_does_not_take_the_place_of_the_first(self, tmp_path: Path, idx: Path) -> None:
        a = fill(tmp_path / "a", "one.md", "shared.md")
        b = fill(tmp_path / "b", "shared.md", "two.md")
        update_index(a, idx)
        with pytest.raises(UsageError) as refused:
            update_index(b, idx)
        assert str(refused.value) == (
            f"{idx} is an index of {a}; {b} is not part of it.\n"
            "Add it and keep the rest: --add. Or make it an index of exactly what you name, and drop the rest: "
            "--replace.\nOr make another index: -o OTHER.idx"
        )
        assert sources(idx) == {"one.md", "shared.md"}

    def test_an_added_folder_joins_and_changes_no_citation(self, tmp_path: Path, idx: Path) -> None:
        a = fill(tmp_path / "a", "one.md", "shared.md")
        b = fill(tmp_path / "b", "shared.md", "two.md")
        update_index(a, idx)
        report = update_index(b, idx, add=True)
        assert (report.added, report.unchanged, report.dropped) == (2, 2, 0)
        assert sources(idx) == {"one.md", "shared.md", "b/shared.md", "b/two.md"}
        assert report.sources == (Source(str(a), "", True), Source(str(b), "b", True))

    def test_without_sources_all_of_them_are_looked_at(self, tmp_path: Path, idx: Path) -> None:
        a, b = fill(tmp_path / "a", "one.md"), fill(tmp_path / "b", "two.md")
        update_index([a, b], idx)
        assert sources(idx) == {"a/one.md", "b/two.md"}
        fill(a, "new.md")
        (b / "two.md").write_text("word changed")
        for inputs in (None, (), [], a, [b, a]):  # some or all of them mean the same
            report = update_index(inputs, idx)
            first = inputs is None
            assert (report.added, report.changed, report.dropped) == (int(first), int(first), 0)
        assert sources(idx) == {"a/one.md", "a/new.md", "b/two.md"}

    def test_replacing_keeps_what_is_named_again(self, tmp_path: Path, idx: Path) -> None:
        a, b, c = (fill(tmp_path / name, f"{name}.md") for name in "abc")
        update_index([a, b], idx)
        report = update_index([b, c], idx, replace=True)
        assert (report.added, report.unchanged, report.dropped) == (1, 1, 1)
        assert sources(idx) == {"b/b.md", "c/c.md"}
        update_index(None, idx)
        assert sources(idx) == {"b/b.md", "c/c.md"}

    @needs.links
    def test_a_folder_is_the_same_under_another_name(
        self, tmp_path: Path, idx: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        a = fill(tmp_path / "a", "one.md")
        (tmp_path / "link").symlink_to(a)
        update_index(a, idx)
        monkeypatch.chdir(tmp_path)
        for name in ("a", "./a/", "b/../a", "link"):
            (tmp_path / "b").mkdir(exist_ok=True)
            assert update_index(name, idx).unchanged == 1

    def test_a_new_index_needs_sources(self, idx: Path) -> None:
        with pytest.raises(UsageError, match="nothing to index was given; type: arbitrag index FOLDER"):
            update_index(None, idx)

    @pytest.mark.parametrize("add", [True, False])
    def test_nothing_is_neither_added_nor_taken(self, tmp_path: Path, idx: Path, add: bool) -> None:
        update_index(fill(tmp_path / "a", "one.md"), idx)
        with pytest.raises(UsageError, match="nothing to index was given"):
            update_index(None, idx, add=add, replace=not add)

    def test_both_ways_at_once(self, tmp_path: Path, idx: Path) -> None:
        a = fill(tmp_path / "a", "one.md")
        with pytest.raises(UsageError, match="choose one: --add keeps"):
            update_index(a, idx, add=True, replace=True)

    def test_a_run_that_was_cut_short_is_gone_on_with(
        self, tmp_path: Path, idx: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        a, b = fill(tmp_path / "a", "one.md"), fill(tmp_path / "b", "two.md", "three.md")
        update_index(a, idx)
        from arbitrag.retrieve.index import update

        def stop(self: object, *rest: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(update._Update, "_read", stop)
            with pytest.raises(KeyboardInterrupt):
                update_index(b, idx, add=True)
        assert update_index(None, idx).added == 2
        assert sources(idx) == {"one.md", "b/two.md", "b/three.md"}


class TestWhatIsMissing:
    def test_a_folder_that_is_gone_stops_the_update(self, tmp_path: Path, idx: Path) -> None:
        a, b = fill(tmp_path / "a", "one.md"), fill(tmp_path / "b", "two.md")
        update_index([a, b], idx)
        b.rename(tmp_path / "c")
        with pytest.raises(DataError, match=r"b, which the index is made of, does not exist any more"):
            update_index(None, idx)
        assert sources(idx) == {"a/one.md", "b/two.md"}
        update_index(a, idx, replace=True)
        assert sources(idx) == {"a/one.md"}

    def test_a_folder_that_became_empty_stops_it_too(self, tmp_path: Path, idx: Path) -> None:
        a, b = fill(tmp_path / "a", "one.md"), fill(tmp_path / "b", "two.md", "three.md")
        update_index([a, b], idx)
        for path in b.iterdir():
            path.unlink()
        for inputs in (None, fill(tmp_path / "c", "four.md")):
            with pytest.raises(IndexFileError, match=r"holds 2 files of .*/b; none of them is there now"):
                update_index(inputs, idx, add=inputs is not None)
        assert sources(idx) == {"a/one.md", "b/two.md", "b/three.md"}
        update_index([a, b], idx, replace=True)
        assert sources(idx) == {"a/one.md"}

    def test_a_file_that_is_gone_is_a_document_that_is_gone(self, tmp_path: Path, idx: Path) -> None:
        docs = fill(tmp_path / "docs", "one.md", "two.md", "three.md")
        update_index(sorted(docs.glob("t*.md")), idx)
        (docs / "two.md").unlink()
        assert update_index(None, idx).dropped == 1
        assert sources(idx) == {"three.md"}
        (docs / "three.md").unlink()
        with pytest.raises(DataError, match=r"nothing to index in .*\nNo document would be left"):
            update_index(None, idx)
        fill(docs, "two.md")
        assert update_index(None, idx).added == 1


class TestNames:
    """No two documents share a source, and no name changes because of a later folder."""

    def walked(self, tmp_path: Path, inputs: Iterable[Path], added: Iterable[Path] = ()) -> set[str]:
        idx = tmp_path / f"{os.urandom(4).hex()}.idx"
        count = update_index(list(inputs), idx).files
        for path in added:
            count = update_index(path, idx, add=True).files
        found = sources(idx)
        assert len(found) == count
        return found

    def test_equal_names_are_told_apart_by_the_folders_above(self, tmp_path: Path) -> None:
        left, right = fill(tmp_path / "left" / "docs", "x.md"), fill(tmp_path / "right" / "docs", "x.md")
        assert self.walked(tmp_path, [left, right]) == {"left/docs/x.md", "right/docs/x.md"}
        assert self.walked(tmp_path, [left], [right]) == {"x.md", "docs/x.md"}
        third = fill(tmp_path / "third" / "docs", "x.md")
        assert self.walked(tmp_path, [left], [right, third]) == {"x.md", "docs/x.md", "third/docs/x.md"}

    def test_files_with_equal_names(self, tmp_path: Path) -> None:
        a, b = fill(tmp_path / "a", "x.md"), fill(tmp_path / "b", "x.md")
        assert self.walked(tmp_path, [a / "x.md", b / "x.md"]) == {"a/x.md", "b/x.md"}
        assert self.walked(tmp_path, [a / "x.md"], [b / "x.md"]) == {"x.md", "b/x.md"}

    def test_a_folder_of_the_first_is_called_like_the_second(self, tmp_path: Path) -> None:
        a, b = fill(tmp_path / "a", "one.md", "b/x.md"), fill(tmp_path / "b", "x.md")
        parent = tmp_path.name
        assert self.walked(tmp_path, [a], [b]) == {"one.md", "b/x.md", f"{parent}/b/x.md"}

    def test_one_that_comes_to_be_called_so_later(self, tmp_path: Path, idx: Path) -> None:
        a, b = fill(tmp_path / "a", "one.md"), fill(tmp_path / "b", "x.md")
        update_index(a, idx)
        update_index(b, idx, add=True)
        fill(a, "b/x.md", "b/y.md")
        update_index(None, idx)
        assert sources(idx) == {"one.md", "b/x.md", "./b/x.md", "./b/y.md"}

    def test_a_folder_inside_another_is_named_by_its_place(self, tmp_path: Path, idx: Path) -> None:
        docs = fill(tmp_path / "docs", "one.md", "films/x.md", ".hidden/y.md", "notes.log")
        update_index(docs, idx)
        report = update_index([docs / "films", docs / ".hidden", docs / "notes.log"], idx, add=True)
        assert (report.added, report.unchanged) == (2, 2)
        assert sources(idx) == {"one.md", "films/x.md", ".hidden/y.md", "notes.log"}

    def test_a_folder_around_another(self, tmp_path: Path) -> None:
        docs = fill(tmp_path / "docs", "one.md", "films/x.md")
        assert self.walked(tmp_path, [docs / "films"], [docs]) == {"x.md", "docs/one.md"}

    def test_the_order_of_what_is_given_does_not_matter(self, tmp_path: Path) -> None:
        folders = [fill(tmp_path / name, "x.md") for name in ("p/docs", "q/docs", "r", "r/s", "docs")]
        names = {source.path: source.name for source in with_names([str(each) for each in folders])}
        again = {source.path: source.name for source in with_names([str(each) for each in reversed(folders)])}
        assert names == again
        parent = tmp_path.name
        assert list(names.values()) == ["p/docs", "q/docs", "r", "r/s", f"{parent}/docs"]

    def test_the_root_of_a_disk_has_a_name(self) -> None:
        assert [source.name for source in with_names(["/", "/usr"])] == ["root", "root/usr"]

    def test_a_number_where_nothing_else_tells_them_apart(self, tmp_path: Path) -> None:
        outer = fill(tmp_path / "a", "docs/x.md")
        parts = (tmp_path / "docs").parts[1:]
        for count in range(1, len(parts) + 1):
            outer.joinpath(*parts[-count:]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs").mkdir()
        kept = (Source(str(outer), "", True),)
        (_, found) = with_names([str(tmp_path / "docs")], kept)
        assert found.name == "docs-2"

    @pytest.mark.parametrize(
        ("raw", "text"),
        [
            (b"plain.md", "plain.md"),
            (b"caf\xe9", "caf\\xe9"),
            (b"caf\\xe9", "caf\\x5cxe9"),
            (b"a\\b", "a\\b"),
            (b"\\xE9", "\\xE9"),  # escapes are written with small letters
        ],
    )
    def test_bytes_that_are_not_utf8(self, raw: bytes, text: str) -> None:
        assert escaped(os.fsdecode(raw)) == text


def test_many_sources_are_listed_in_short(tmp_path: Path) -> None:
    has = [Source(f"/docs/{number}", f"{number}", True) for number in range(5)]
    with pytest.raises(UsageError, match=r"is an index of /docs/0, /docs/1, /docs/2 and 2 more; /.* is not part of it"):
        choose(Path("x.idx"), [tmp_path], has, add=False, replace=False)
