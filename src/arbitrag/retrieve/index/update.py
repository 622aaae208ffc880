"""Update an index from its folders: add new and changed files, remove deleted ones, recover from a crash.

Files are read in the order of their names and committed in batches; a file's passages are always committed together
with the removal of its older ones. How a batch is made safe is told in ``ledger``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from arbitrag.errors import DataError, IndexFileError
from arbitrag.retrieve.documents.ingest import DocumentFile, SkippedFile, find_documents, read_document
from arbitrag.retrieve.documents.readers import Document, NotReadable
from arbitrag.retrieve.documents.selection import ExcludedPath, ExclusionCounts, Selection, count_exclusions
from arbitrag.retrieve.documents.sources import Source, SourceChoice
from arbitrag.retrieve.index.bm25 import (
    addresses_by_key,
    commit_number,
    engine_errors,
    keys_at,
    new_index,
    of_file,
    to_document,
)
from arbitrag.retrieve.index.ledger import Ledger, Task, UpdatePlan, Version, open_ledger
from arbitrag.retrieve.index.manifest import FILE, LEDGER, VECTORS, WORDS, IndexManifest, corrupt
from arbitrag.retrieve.index.prepare import check_words, no_documents, open_vectors_of, prepare
from arbitrag.retrieve.index.snapshot import META, read_commit
from arbitrag.text import printable
from arbitrag.types import Passage

if TYPE_CHECKING:
    import tantivy

    from arbitrag.encode.base import Encoder
    from arbitrag.retrieve.index.embedding import Embedder

Progress = Callable[[int, int, str], None]

_BATCH_PASSAGES = 100_000
_BATCH_FILES = 20_000
_HEAP_BYTES = 100_000_000  # for all threads together
_PROGRESS_EVERY = 1000  # passages within one file


@dataclass(frozen=True, slots=True)
class FileNote:
    """A file with the reason why it was skipped, or a note about it."""

    source: str
    reason: str


@dataclass(frozen=True)
class IndexReport:
    """What an update did. Counts are of files with passages (``added``, ``changed`` and ``unchanged`` are all of
    ``files``), but for ``passages``, all that the index holds now, and ``written``, the passages that were read this
    time.

    ``sources`` are the folders and files that the index is made of, ``include`` and ``exclude`` its globs. ``skipped``
    names the files that are of no use, also those found so earlier, ``notes`` what was passed over in files that were
    read; ``not_read`` counts files by a suffix that is not read, and ``left_out`` what was not looked at.
    """

    target: Path
    sources: tuple[Source, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    added: int
    changed: int
    dropped: int
    unchanged: int
    skipped: tuple[FileNote, ...]
    notes: tuple[FileNote, ...]
    not_read: Mapping[str, int]
    left_out: ExclusionCounts
    files: int
    passages: int
    written: int
    seconds: float


def update_index(
    inputs: str | Path | Sequence[str | Path] | None,
    target: str | Path,
    *,
    passage_tokens: int | None = None,
    language: str | None = None,
    add: bool = False,
    replace: bool = False,
    encoder: str | Encoder | None = None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> IndexReport:
    """Bring the index ``target`` up to date with the folders and files that it is made of; make it if it is new.

    ``inputs`` are folders or files. An index remembers them: without any it is updated from those that it has, and
    others are refused, unless they join them (``add``), or take their place (``replace``, which drops the documents of
    those that are not named). Sources in the index are paths from the given folder; see ``sources`` for several.

    Files whose size and time are the same are not read again. ``passage_tokens`` (256), ``language`` ("english", for
    the stems of words) and ``encoder`` are chosen when an index is made and kept. With an encoder, given by its address
    (``hash``, ``st:MODEL`` ...) or as one of the caller's, passages get vectors too. ``progress`` is called with bytes
    read, bytes to read, and a file. ``include`` and ``exclude`` are globs on paths from the given folder (see
    ``selection``): of what lies in folders, only files that an ``include`` matches, where there is one, and that no
    ``exclude`` matches. They are remembered like the sources; None means as before, or none with ``replace``.

    Raises UsageError for inputs that the index is not made of; DataError when there is nothing to index, or a folder of
    the index does not exist any more; IndexFileError when ``target`` is no index, is damaged, of another version, in
    use by another process, not to be written, made with other settings, or would lose every file of a folder
    (``replace`` allows it); BackendError when the encoder fails, which leaves the index at its last commit.
    """
    began = time.perf_counter()
    given = [inputs] if isinstance(inputs, str | Path) else inputs or []
    folder = Path(target)
    manifest, choice, new = prepare(
        folder,
        given,
        passage_tokens=passage_tokens,
        language=language,
        vectors=encoder is not None,
        add=add,
        replace=replace,
        globs=(include, exclude),
    )
    try:
        with open_ledger(folder) as ledger:
            check_words(folder, manifest)
            manifest, opening = open_vectors_of(folder, manifest, encoder)
            with opening as embedder:
                update = _Update(folder, manifest, ledger, embedder, progress or (lambda done, total, what: None))
                try:
                    return update.run(choice, began)
                finally:
                    update.close()
    except BaseException:
        if new and _holds_nothing(folder):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _holds_nothing(folder: Path) -> bool:
    try:
        with engine_errors(folder):
            return commit_number(folder / WORDS) == 0
    except IndexFileError:
        return True


class _Update:
    """One update of one index."""

    def __init__(
        self, folder: Path, manifest: IndexManifest, ledger: Ledger, embedder: Embedder | None, progress: Progress
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._ledger = ledger
        self._embedder = embedder
        self._progress = progress
        self._counts: Counter[str] = Counter()
        self._skipped: list[FileNote] = []
        self._notes: list[FileNote] = []
        self._left: list[ExcludedPath] = []
        self._batch: list[Version] = []
        self._dropped: list[int] = []
        self._same: list[tuple[int, int]] = []
        with engine_errors(folder):
            self._index = new_index(folder / WORDS, manifest.language, keyed=embedder is not None)
            self._writer: tantivy.IndexWriter | None = None
            searcher = self._index.searcher()
        ledger.recover(self._commit_number())
        if ledger.changed_outside():
            raise corrupt(folder, f"{LEDGER} was changed after it was written")
        _, passages = ledger.totals()
        if passages != searcher.num_docs:
            raise corrupt(folder, f"its file table knows {passages:,} passages, but it holds {searcher.num_docs:,}")

    def run(self, choice: SourceChoice, began: float) -> IndexReport:
        not_read: Counter[str] = Counter()
        selection = Selection(choice.include, choice.exclude)
        plan = self._ledger.plan(self._files(find_documents(choice.sources, selection), not_read))
        self._refuse_losses(choice, plan)
        chosen = replace(self._manifest, sources=choice.sources, include=choice.include, exclude=choice.exclude)
        if chosen != self._manifest:
            # Now, so that a run that is cut short is gone on with by naming none.
            self._manifest = chosen
            self._manifest.write(self._folder)
        self._drop_lost()
        done = 0
        for task in self._ledger.tasks():
            self._progress(done, plan.size, task.found.source)
            self._read(task, done, plan.size)
            done += task.found.size
            if self._counts["waiting"] >= _BATCH_PASSAGES or len(self._batch) >= _BATCH_FILES:
                self._commit()
        self._finish()
        self._progress(plan.size, plan.size, "")
        self._skipped += [FileNote(*row) for row in self._ledger.useless()]
        files, passages = self._ledger.totals()
        if not plan.recorded and not passages:
            first = "; ".join(f"{printable(each.source)}: {each.reason}" for each in self._skipped[:3])
            names = ", ".join(printable(source.path) for source in choice.sources)
            raise DataError(f"nothing to index in {names}: {first}")
        counts = self._counts
        return IndexReport(
            target=self._folder,
            sources=choice.sources,
            include=choice.include,
            exclude=choice.exclude,
            added=counts["added"],
            changed=counts["changed"],
            dropped=counts["dropped"],
            unchanged=files - counts["added"] - counts["changed"],
            skipped=tuple(sorted(self._skipped, key=lambda each: each.source)),
            notes=tuple(self._notes),
            not_read=dict(not_read),
            left_out=count_exclusions(self._left),
            files=files,
            passages=passages,
            written=counts["written"],
            seconds=time.perf_counter() - began,
        )

    def _files(
        self, items: Iterator[DocumentFile | SkippedFile | ExcludedPath], not_read: Counter[str]
    ) -> Iterator[DocumentFile]:
        for item in items:
            if isinstance(item, DocumentFile):
                yield item
            elif isinstance(item, ExcludedPath):
                self._left.append(item)
            elif item.reported:
                self._skipped.append(FileNote(item.source, item.reason))
            else:
                not_read[item.reason] += 1

    def _refuse_losses(self, choice: SourceChoice, plan: UpdatePlan) -> None:
        """Raise when no document of a folder, or none at all, would be left; a disk may be missing."""
        if not choice.replaces:
            for source in self._manifest.sources:
                if source.folder and (lost := plan.emptied.get(source.name)):
                    raise self._loses_all(source, lost)
        if plan.recorded and not plan.seen:
            error = no_documents(choice.sources, self._left, bool(choice.include))
            raise DataError(f"{error}\nNo document would be left; remove the index if that is meant")

    def _loses_all(self, source: Source, lost: int) -> IndexFileError:
        shown, path = printable(str(self._folder)), printable(source.path)
        return IndexFileError(
            f"{shown} holds {lost:,} {'file' if lost == 1 else 'files'} of {path}; none of them is there now, so all "
            "would be dropped. Is a disk missing?\n"
            "If it is meant, name what the index is to hold, with --replace"
        )

    def close(self) -> None:
        """Let go of the writer, and with it of what is not committed."""
        self._writer = None

    def _open_writer(self) -> tantivy.IndexWriter:
        if self._writer is None:
            with engine_errors(self._folder, writing=True):
                self._writer = self._index.writer(_HEAP_BYTES, min(4, os.cpu_count() or 1))
        return self._writer

    def _drop_lost(self) -> None:
        for known in self._ledger.lost():
            self._forget(known.number, known.passages)
            self._dropped.append(known.number)
            self._counts["dropped"] += known.passages > 0

    def _forget(self, number: int, passages: int) -> None:
        if passages:
            with engine_errors(self._folder, writing=True):
                # A deletion by term would take the number for a signed one, which no passage has.
                self._open_writer().delete_documents_by_query(of_file(self._index.schema, number))

    def _read(self, task: Task, done: int, total: int) -> None:
        found, old = task.found, task.old
        try:
            with open(found.path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            self._skipped.append(FileNote(found.source, error.strerror or str(error)))
            return
        if old is not None and old.digest == digest:
            self._same.append((old.number, found.mtime_ns))
            return
        number = self._ledger.next_number()
        count, failure = self._add(found, number, done, total)
        if failure is not None:
            self._forget(number, count)
            if not failure.lasting:
                self._skipped.append(FileNote(found.source, str(failure)))
                return
            count = 0
        if old is not None:
            self._forget(old.number, old.passages)
        kind = "changed" if old is not None and old.passages else "added"
        self._counts[kind] += count > 0
        self._counts["dropped"] += kind == "changed" and not count
        self._counts["written"] += count
        self._counts["waiting"] += count
        reason = str(failure or "")
        version = Version(number, found.source, found.size, found.mtime_ns, digest, count, reason, found.origin)
        self._batch.append(version)

    def _add(self, found: DocumentFile, number: int, done: int, total: int) -> tuple[int, NotReadable | None]:
        """Hand a file's passages to the writer: how many, and why reading stopped if it did."""
        count = 0
        try:
            document = read_document(Path(found.path), found.source, self._manifest.passage_tokens)
            for passage in _guarded(document):
                key = None if self._embedder is None else self._embedder.add(passage)
                self._write(to_document(passage, number, (found.source, count), self._index.schema, key))
                count += 1
                if not count % _PROGRESS_EVERY:
                    self._progress(done + min(document.position(), found.size), total, found.source)
            self._notes += [FileNote(found.source, note) for note in document.notes]
        except NotReadable as failure:
            return count, failure
        return (count, None) if count else (0, NotReadable("holds no text"))

    def _write(self, document: tantivy.Document) -> None:
        with engine_errors(self._folder, writing=True):
            self._open_writer().add_document(document)

    def _commit(self) -> None:
        if self._embedder is not None:
            self._embedder.commit()
        self._ledger.propose(self._batch, self._dropped, self._commit_number())
        if self._writer is not None:
            with engine_errors(self._folder, writing=True):
                self._writer.commit()
            self._share()
        self._ledger.settle()
        self._ledger.touch(self._same)
        self._batch, self._dropped, self._same = [], [], []
        self._counts["waiting"] = 0

    def _commit_number(self) -> int:
        with engine_errors(self._folder):
            return commit_number(self._folder / WORDS)

    def _share(self) -> None:
        """Let whoever may read the index read ``meta.json`` too, which tantivy writes for its owner alone."""
        mode = (self._folder / FILE).stat().st_mode & 0o666
        for name in (META, ".managed.json"):
            with suppress(OSError):
                (self._folder / WORDS / name).chmod(mode)

    def _finish(self) -> None:
        self._commit()
        if self._writer is not None:
            with engine_errors(self._folder, writing=True):
                self._writer.wait_merging_threads()
            self._share()
        if self._embedder is not None:
            self._tidy_vectors(self._embedder)
        with engine_errors(self._folder):
            commit = read_commit(self._folder / WORDS)
        settled = replace(self._manifest, commit=commit.number, words_crc=commit.crc)
        if self._embedder is not None:
            generation, rows = self._embedder.extent()
            settled = replace(settled, generation=generation, rows=rows)
        if commit.number != self._manifest.commit or not self._manifest.finished:
            files, passages = self._ledger.totals()
            settled = replace(settled, files=files, passages=passages, digest=self._ledger.digest())
        if settled != self._manifest:
            settled.write(self._folder)

    def _tidy_vectors(self, embedder: Embedder) -> None:
        self._index.reload()
        searcher, schema = self._index.searcher(), self._index.schema

        def is_live(keys: Sequence[int]) -> list[bool]:
            there = set(keys_at(searcher, addresses_by_key(searcher, schema, keys)))
            return [key in there for key in keys]

        if note := embedder.finish(searcher.num_docs, is_live):
            self._notes.append(FileNote(VECTORS, note))


def _guarded(document: Document) -> Iterator[Passage]:
    """The passages; whatever goes wrong while reading them is a reason that the file is of no use."""
    try:
        yield from document.passages
    except NotReadable:
        raise
    except OSError as error:
        raise NotReadable(error.strerror or str(error), lasting=False) from error
    except Exception as error:
        raise NotReadable(f"{type(error).__name__} while reading: {error}"[:200]) from error
