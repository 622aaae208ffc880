import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from arbitrag.errors import DataError, IndexFileError, UsageError
from arbitrag.retrieve import open_index, update_index
from arbitrag.retrieve.index import bm25
from arbitrag.retrieve.index.bm25 import Bm25Index
from arbitrag.retrieve.index.update import FileNote, IndexReport
from arbitrag.types import Passage


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "films").mkdir(parents=True)
    (folder / "films" / "orchard.md").write_text("# The Silent Orchard\n\nDirected by Mira Talven in 1931.\n")
    (folder / "notes.txt").write_text("Oskar Brend wrote the music.")
    (folder / "page.html").write_text("<title>Weather</title><p>Rain &amp; wind in Tarnow.</p>")
    (folder / "rows.jsonl").write_text('{"text": "A lighthouse on the coast.", "id": "r1", "region": "north"}\n')
    return folder


@pytest.fixture
def idx(tmp_path: Path) -> Path:
    return tmp_path / "docs.idx"


def search(idx: Path, query: str, k: int = 5) -> list[Passage]:
    return list(asyncio.run(open_index(idx).retrieve(query, k)))


def counts(report: IndexReport) -> tuple[int, int, int, int]:
    return report.added, report.changed, report.dropped, report.unchanged


def later(path: Path, text: str | None = None) -> None:
    """Write a file, or only touch it, with a time of its own."""
    if text is not None:
        path.write_text(text)
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000_000))


def test_every_kind_is_found_with_its_place(docs: Path, idx: Path) -> None:
    report = update_index(docs, idx)
    assert counts(report) == (4, 0, 0, 0)
    assert (report.files, report.passages, report.written, report.skipped, report.notes) == (4, 4, 4, (), ())
    assert [passage.place for passage in search(idx, "Mira Talven")] == ["films/orchard.md:1"]
    assert [passage.title for passage in search(idx, "orchard 1931")] == ["The Silent Orchard"]
    assert [passage.text for passage in search(idx, "rain wind")] == ["Rain & wind in Tarnow."]
    (row,) = search(idx, "lighthouse")
    assert (row.id, row.place, row.metadata) == ("r1", "rows.jsonl:1", {"region": "north"})


def test_only_what_changed_is_read_again(docs: Path, idx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update_index(docs, idx)
    later(docs / "notes.txt", "Lena Ostrow wrote the music.")
    later(docs / "page.html")  # another time, the same bytes
    (docs / "rows.jsonl").unlink()
    (docs / "new.txt").write_text("Something new.")
    read: list[str] = []
    from arbitrag.retrieve.documents import ingest
    from arbitrag.retrieve.index import update

    def noting(path: Path, source: str, tokens: int) -> object:
        read.append(source)
        return real(path, source, tokens)

    real = ingest.read_document
    monkeypatch.setattr(update, "read_document", noting)
    report = update_index(docs, idx)
    assert counts(report) == (1, 1, 1, 2)
    assert (report.files, report.passages, report.written) == (4, 4, 2)
    assert read == ["new.txt", "notes.txt"]
    assert search(idx, "Oskar Brend") == []
    assert search(idx, "lighthouse") == []
    assert [passage.text for passage in search(idx, "music")] == ["Lena Ostrow wrote the music."]
    read.clear()
    assert counts(update_index(docs, idx)) == (0, 0, 0, 4)
    assert read == []


def test_an_update_and_a_fresh_index_are_the_same(docs: Path, idx: Path, tmp_path: Path) -> None:
    update_index(docs, idx)
    later(docs / "notes.txt", "Other words about the orchard, " * 100)
    (docs / "rows.jsonl").unlink()
    update_index(docs, idx)
    fresh = tmp_path / "fresh.idx"
    update_index(docs, fresh)
    assert open_index(idx).identity == open_index(fresh).identity
    for query in ("orchard", "other words", "rain Talven music"):
        # Statistics still count what was dropped, until tantivy merges it away: scores are alike, not equal.
        assert [each.text for each in search(idx, query)] == [each.text for each in search(fresh, query)]


def test_an_open_index_sees_the_update(docs: Path, idx: Path) -> None:
    update_index(docs, idx)
    index = Bm25Index.open(idx)
    before = index.identity
    assert len(index) == 4
    (docs / "new.txt").write_text("A marten in the attic.")
    update_index(docs, idx)
    assert [passage.source for passage in asyncio.run(index.retrieve("marten", 1))] == ["new.txt"]
    assert len(index) == 5
    assert index.identity != before


async def test_a_thread_opens_an_updated_index(docs: Path, idx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checking its files may take a second, in which the event loop would stand still; a short search does not."""
    await asyncio.to_thread(update_index, docs, idx)
    index, on_loop = Bm25Index.open(idx), []
    opened = bm25._open_view

    def open_view(folder: Path, unfinished: bool) -> object:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return opened(folder, unfinished)

    monkeypatch.setattr(bm25, "_open_view", open_view)
    await index.retrieve("Talven", 1)
    assert on_loop == []
    (docs / "new.txt").write_text("A marten in the attic.")
    await asyncio.to_thread(update_index, docs, idx)
    assert [passage.source for passage in await index.retrieve("marten", 1)] == ["new.txt"]
    assert on_loop == [False]


def test_an_open_index_outlives_its_replacement(docs: Path, idx: Path) -> None:
    update_index(docs, idx)
    index = Bm25Index.open(idx)
    shutil.rmtree(idx)
    assert len(asyncio.run(index.retrieve("Talven", 5))) == 1  # its files are still mapped
    (docs / "films" / "orchard.md").write_text("Nobody.")
    update_index(docs, idx)
    assert asyncio.run(index.retrieve("Talven", 5)) == ()


def test_broken_files_are_named_and_the_rest_is_indexed(docs: Path, idx: Path) -> None:
    (docs / "empty.txt").write_text("")
    (docs / "binary.txt").write_bytes(b"a\0b")
    (docs / "blank.md").write_text(" \n ")
    (docs / "bad.jsonl").write_text("{")
    (docs / "broken.pdf").write_bytes(b"%PDF-1.4 nonsense")
    (docs / "nearly.txt").write_bytes(b"one bad byte \xff in many " + b"word " * 100)
    (docs / "image.png").write_bytes(b"\x89PNG")
    expected = (
        FileNote("bad.jsonl", "no usable row; line 1: not JSON"),
        FileNote("binary.txt", "binary, not text"),
        FileNote("blank.md", "holds no text"),
        FileNote("broken.pdf", "not a PDF that can be read (PdfStreamError)"),
        FileNote("empty.txt", "empty"),
    )
    report = update_index(docs, idx)
    assert report.skipped == expected
    assert report.notes == (FileNote("nearly.txt", "1 invalid UTF-8 byte replaced"),)
    assert report.not_read == {".png": 1}
    assert (report.added, report.files) == (5, 5)
    again = update_index(docs, idx)
    assert again.skipped == expected  # named again without being read again
    assert (again.written, again.unchanged) == (0, 5)
    later(docs / "empty.txt", "Not empty any more.")
    mended = update_index(docs, idx)
    assert (counts(mended), len(mended.skipped)) == ((1, 0, 0, 5), 4)


def test_a_file_that_breaks_is_dropped(docs: Path, idx: Path) -> None:
    update_index(docs, idx)
    later(docs / "notes.txt", "now\0binary")
    report = update_index(docs, idx)
    assert (counts(report), report.passages) == ((0, 0, 1, 3), 3)
    assert search(idx, "Oskar") == []


def test_a_file_that_breaks_in_the_middle_leaves_nothing(
    docs: Path, idx: Path, make_pdf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from arbitrag.retrieve.documents import pdf

    make_pdf(docs / "a.pdf", ["Zebra on the first page.", "Zebra on the second."])

    def pages(reader: object, number: int, notes: list[str]) -> str:
        if number:
            raise ZeroDivisionError("surprise")
        return "Zebra on the first page."

    monkeypatch.setattr(pdf, "_page_text", pages)
    report = update_index(docs, idx)
    assert report.skipped == (FileNote("a.pdf", "ZeroDivisionError while reading: surprise"),)
    assert search(idx, "zebra") == []


def test_what_is_not_the_file_s_fault_is_tried_again(docs: Path, idx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pypdf", None)
        (docs / "a.pdf").write_bytes(b"%PDF-1.4 nonsense")
        report = update_index(docs, idx)
        assert "pip install 'arbitrag[pdf]'" in report.skipped[0].reason
    assert update_index(docs, idx).skipped[0].reason.startswith("not a PDF that can be read")


def test_a_file_that_cannot_be_read_now_keeps_its_passages(
    docs: Path, idx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from arbitrag.retrieve.index import update

    update_index(docs, idx)
    later(docs / "notes.txt", "Changed, but shut.")

    def shut(path: str, mode: str) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(update, "open", shut, raising=False)
    report = update_index(docs, idx)
    assert report.skipped == (FileNote("notes.txt", "Permission denied"),)
    assert len(search(idx, "Oskar")) == 1


def test_progress_counts_bytes_up_to_the_end(docs: Path, idx: Path) -> None:
    (docs / "large.txt").write_text("word " * 300_000)
    calls: list[tuple[int, int, str]] = []
    update_index(docs, idx, progress=lambda done, total, what: calls.append((done, total, what)))
    total = sum(path.stat().st_size for path in docs.rglob("*") if path.is_file())
    assert {each[1] for each in calls} == {total}
    assert [each[0] for each in calls] == sorted(each[0] for each in calls)
    assert (calls[0][0], calls[-1]) == (0, (total, total, ""))
    assert sum(each[2] == "large.txt" for each in calls) >= 2


def test_batches_add_up(docs: Path, idx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from arbitrag.retrieve.index import update

    monkeypatch.setattr(update, "_BATCH_FILES", 2)
    for number in range(7):
        (docs / f"{number}.txt").write_text(f"number{number}")
    assert update_index(docs, idx).passages == 11
    assert len(search(idx, "number3")) == 1


def test_several_inputs_and_single_files(docs: Path, idx: Path) -> None:
    update_index([docs / "films", docs / "notes.txt"], idx)
    assert {passage.source for passage in search(idx, "Mira Oskar")} == {"films/orchard.md", "notes.txt"}
    report = update_index([docs / "films"], idx, replace=True)
    assert (counts(report), report.files) == ((0, 0, 1, 1), 1)
    assert search(idx, "Mira")[0].source == "films/orchard.md"  # a source keeps its name


def test_the_index_may_lie_among_the_documents(docs: Path) -> None:
    idx = docs / "docs.idx"
    update_index(docs, idx)
    assert counts(update_index(docs, idx)) == (0, 0, 0, 4)


def test_documents_and_index_may_move_together(docs: Path, idx: Path, tmp_path: Path) -> None:
    update_index(docs, idx)
    moved = tmp_path / "moved"
    docs.rename(moved)
    with pytest.raises(
        DataError, match=r"docs, which the index is made of, does not exist any more; is a disk missing"
    ):
        update_index(None, idx)
    with pytest.raises(UsageError, match=r"is an index of .*docs; .*moved is not part of it"):
        update_index(moved, idx)
    assert counts(update_index(moved, idx, replace=True)) == (0, 0, 0, 4)
    assert json.loads((idx / "index.json").read_text())["sources"] == [{"path": str(moved), "name": "", "folder": True}]


def test_settings_are_kept(docs: Path, idx: Path) -> None:
    update_index(docs, idx, passage_tokens=32, language="none")
    assert search(idx, "Mira") != []
    assert search(idx, "direct") == []  # without stems
    (docs / "long.txt").write_text("One two three four five six. " * 20)
    assert update_index(docs, idx).written == 5  # 32 tokens are four such sentences
    assert update_index(docs, idx, passage_tokens=32, language="none").unchanged == 5


class TestRefusals:
    """Each is one clear error, and leaves what was there as it was."""

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"passage_tokens": 128}, "made with passages of 256 tokens, asked were 128; leave the option out"),
            ({"language": "german"}, "made with the language english, asked were german; leave the option out"),
        ],
    )
    def test_other_settings(self, docs: Path, idx: Path, options: dict[str, object], text: str) -> None:
        update_index(docs, idx)
        with pytest.raises(IndexFileError, match=text):
            update_index(docs, idx, **options)  # type: ignore[arg-type]

    @pytest.mark.parametrize("tokens", [0, 15, 8193])
    def test_passages_of_an_odd_size(self, docs: Path, idx: Path, tokens: int) -> None:
        with pytest.raises(UsageError, match=f"passages of {tokens} tokens; choose 16 to 8192"):
            update_index(docs, idx, passage_tokens=tokens)
        assert not idx.exists()

    def test_an_unknown_language(self, docs: Path, idx: Path) -> None:
        with pytest.raises(UsageError, match="unknown language 'klingon'"):
            update_index(docs, idx, language="klingon")
        assert not idx.exists()

    @pytest.mark.parametrize("names", [[], ["a.png"], [".hidden.md"]])
    def test_nothing_to_index(self, tmp_path: Path, idx: Path, names: Sequence[str]) -> None:
        empty = tmp_path / "empty"
        empty.mkdir()
        for name in names:
            (empty / name).write_text("x")
        with pytest.raises(DataError, match=r"nothing to index in .*empty: no file of a kind that is read"):
            update_index(empty, idx)
        assert not idx.exists()

    def test_only_broken_files(self, tmp_path: Path, idx: Path) -> None:
        folder = tmp_path / "broken"
        folder.mkdir()
        (folder / "a.txt").write_text("")
        (folder / "b.txt").write_bytes(b"\0")
        with pytest.raises(DataError, match=r"nothing to index in .*: a.txt: empty; b.txt: binary, not text"):
            update_index(folder, idx)
        assert not idx.exists()

    def test_a_missing_folder(self, tmp_path: Path, idx: Path) -> None:
        with pytest.raises(DataError, match="nowhere does not exist"):
            update_index(tmp_path / "nowhere", idx)
        assert not idx.exists()

    def test_all_files_gone(self, docs: Path, idx: Path, tmp_path: Path) -> None:
        update_index(docs, idx)
        other = tmp_path / "other"
        other.mkdir()
        (other / "x.txt").write_text("x")
        with pytest.raises(UsageError, match=r"is an index of .*docs; .*other is not part of it.\nAdd it .* --add"):
            update_index(other, idx)
        assert len(search(idx, "Talven")) == 1
        assert counts(update_index(other, idx, replace=True)) == (1, 0, 4, 0)
        (other / "x.txt").rename(other / "y.txt")
        with pytest.raises(IndexFileError, match=r"holds 1 file of .*other; none of them is there now, so all would"):
            update_index(other, idx)
        (other / "y.txt").unlink()
        with pytest.raises(DataError, match=r"nothing to index in .*other: .*\nNo document would be left; remove"):
            update_index(other, idx, replace=True)
        (other / "y.txt").write_text("y")
        assert counts(update_index(other, idx, replace=True)) == (1, 0, 1, 0)

    def test_a_folder_that_is_no_index(self, docs: Path, tmp_path: Path) -> None:
        before = sorted(docs.rglob("*"))
        with pytest.raises(IndexFileError, match=r"is a folder, but not an index: it has no index\.json"):
            update_index(docs, docs)
        assert sorted(docs.rglob("*")) == before

    def test_a_target_that_cannot_be_made(self, docs: Path) -> None:
        with pytest.raises(IndexFileError, match="cannot be made: Not a directory; choose another place"):
            update_index(docs, docs / "notes.txt" / "docs.idx")

    def test_a_failing_progress_leaves_nothing_half_written(self, docs: Path, idx: Path) -> None:
        def progress(done: int, total: int, what: str) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            update_index(docs, idx, progress=progress)
        assert not idx.exists()
        update_index(docs, idx)
        (docs / "new.txt").write_text("new")
        with pytest.raises(KeyboardInterrupt):
            update_index(docs, idx, progress=progress)
        assert counts(update_index(docs, idx)) == (1, 0, 0, 4)

    def test_a_disk_that_is_full(self, docs: Path, idx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from arbitrag.retrieve.index import update

        def full(self: object) -> object:
            raise ValueError("No space left on device (os error 28)")

        update_index(docs, idx)
        (docs / "new.txt").write_text("new")
        monkeypatch.setattr(update._Update, "_open_writer", full)
        with pytest.raises(IndexFileError, match=r"cannot be written: No space left on device.\nThe disk is full"):
            update_index(docs, idx)

    def test_an_index_that_is_being_written(self, docs: Path, idx: Path) -> None:
        update_index(docs, idx)
        code = (
            "import sys; from pathlib import Path\n"
            "from arbitrag.retrieve.index.ledger import open_ledger\n"
            "with open_ledger(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, str(idx)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"held\n"
            with pytest.raises(IndexFileError, match=rf"being written by another process \(pid {other.pid}\); wait"):
                update_index(docs, idx)
            assert len(search(idx, "Talven")) == 1  # reading goes on
            other.communicate()
        assert update_index(docs, idx).unchanged == 4
        assert not (idx / "writer.pid").exists()
