"""Bring an index up to date with a folder: read what is new or changed, drop what is gone, survive a crash.

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
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from arbitrag.errors import DataError, IndexFileError, UsageError
from arbitrag.retrieve import analysis
from arbitrag.retrieve.bm25 import (
    addresses_by_key,
    commit_number,
    engine_errors,
    keys_at,
    new_index,
    of_file,
    to_document,
)
from arbitrag.retrieve.ingest import READ, Found, Passed, common_root, read_document, walk
from arbitrag.retrieve.ledger import Ledger, Task, Version, open_ledger
from arbitrag.retrieve.manifest import FILE, VECTORS, WORDS, Manifest, corrupt, has_vectors, read_manifest
from arbitrag.retrieve.readers import Document, NotReadable
from arbitrag.retrieve.selection import Left, LeftOut, Selection, counted
from arbitrag.text import printable
from arbitrag.types import Passage

if TYPE_CHECKING:
    import tantivy

    from arbitrag.encode.base import Encoder
    from arbitrag.retrieve.embedding import Embedder

Progress = Callable[[int, int, str], None]

PASSAGE_TOKENS = 256
_BATCH_PASSAGES = 100_000
_BATCH_FILES = 20_000
_HEAP_BYTES = 100_000_000  # for all threads together
_PROGRESS_EVERY = 1000  # passages within one file


@dataclass(frozen=True, slots=True)
class Named:
    """A file and what is to be said about it."""

    source: str
    reason: str


@dataclass(frozen=True)
class IndexReport:
    """What an update did. Counts are of files with passages (``added``, ``changed`` and ``unchanged`` are all of
    ``files``), but for ``passages``, all that the index holds now, and ``written``, the passages that were read this
    time.

    ``skipped`` names the files that are of no use, also those found so earlier, ``notes`` what was passed over in files
    that were read; ``not_read`` counts files by a suffix that is not read, and ``left_out`` what was not looked at.
    """

    target: Path
    added: int
    changed: int
    dropped: int
    unchanged: int
    skipped: tuple[Named, ...]
    notes: tuple[Named, ...]
    not_read: Mapping[str, int]
    left_out: LeftOut
    files: int
    passages: int
    written: int
    seconds: float


def update_index(
    inputs: str | Path | Sequence[str | Path],
    target: str | Path,
    *,
    passage_tokens: int | None = None,
    language: str | None = None,
    replace_all: bool = False,
    encoder: str | Encoder | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    progress: Progress | None = None,
) -> IndexReport:
    """Make ``target`` an index of exactly the documents in ``inputs``, folders or files; make it if it is new.

    Files whose size and time are the same are not read again. ``passage_tokens`` (256), ``language`` ("english", for
    the stems of words) and ``encoder`` are chosen when an index is made and kept. With an encoder, given by its address
    (``hash``, ``st:MODEL`` ...) or as one of the caller's, passages get vectors too. ``progress`` is called with bytes
    read, bytes to read, and a file. Sources in the index are paths from the given folder, or from the deepest one that
    holds all. ``include`` and ``exclude`` are globs on paths from the given folder (see ``selection``): of what lies in
    folders, only files that an ``include`` matches, where there is one, and that no ``exclude`` matches.

    Raises DataError when there is nothing to index; IndexFileError when ``target`` is no index, is damaged, of another
    version, in use by another process, made with other settings, or would lose every file (``replace_all`` allows it);
    BackendError when the encoder fails, which leaves the index at its last commit.
    """
    began = time.perf_counter()
    given = [inputs] if isinstance(inputs, str | Path) else inputs
    paths, folder = [Path(each) for each in given], Path(target)
    root, selection = common_root(paths), Selection(include, exclude)
    manifest, new = _prepare(folder, paths, root, selection, passage_tokens, language)
    try:
        with open_ledger(folder) as ledger, _embedder(folder, encoder) as embedder:
            update = _Update(folder, manifest, ledger, embedder, progress or (lambda done, total, what: None))
            try:
                return update.run(walk(paths, root, selection), root, replace_all, began)
            finally:
                update.close()
    except BaseException:
        if new and _holds_nothing(folder):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _prepare(
    folder: Path,
    inputs: Sequence[Path],
    root: Path,
    selection: Selection,
    passage_tokens: int | None,
    language: str | None,
) -> tuple[Manifest, bool]:
    """The manifest of the index in ``folder``, and whether it was made just now."""
    if passage_tokens is not None and not 16 <= passage_tokens <= 8192:
        raise UsageError(f"passages of {passage_tokens} tokens; choose 16 to 8192 (256 without a choice)")
    if not _is_vacant(folder):
        manifest = read_manifest(folder)
        _same_settings(folder, manifest, passage_tokens, language)
        return manifest, False
    left: list[Left] = []
    for item in walk(inputs, root, selection):
        if isinstance(item, Found):
            break
        if isinstance(item, Left):
            left.append(item)
    else:
        names = ", ".join(printable(str(path)) for path in inputs)
        why = "\n".join(
            [f"no file of a kind that is read ({READ})", *counted(left).lines(including=selection.including)]
        )
        raise DataError(f"nothing to index in {names}: {why}")
    manifest = Manifest(passage_tokens or PASSAGE_TOKENS, language or "english", str(root))
    analysis.analyzer(manifest.language)
    try:
        (folder / WORDS).mkdir(parents=True, exist_ok=True)
        manifest.write(folder)
    except OSError as error:
        shown = printable(str(folder))
        raise IndexFileError(
            f"the index {shown} cannot be made: {error.strerror}; choose another place (-o)"
        ) from error
    return manifest, True


def _embedder(folder: Path, encoder: str | Encoder | None) -> AbstractContextManager[Embedder | None]:
    """What makes the vectors: by the given encoder, or by the one that the index was made with, if any."""
    if encoder is None and not has_vectors(folder):
        return nullcontext()
    from arbitrag.retrieve.embedding import open_embedder

    return open_embedder(folder, encoder, new=not (folder / WORDS / "meta.json").exists())


def _is_vacant(folder: Path) -> bool:
    """Whether an index can be made here: there is nothing, or only what a crash at the very start leaves."""
    if not folder.exists():
        return True
    return folder.is_dir() and set(os.listdir(folder)) <= {f"{FILE}.tmp", WORDS}


def _same_settings(folder: Path, manifest: Manifest, passage_tokens: int | None, language: str | None) -> None:
    for what, asked, there in (
        ("passages of {} tokens", passage_tokens, manifest.passage_tokens),
        ("the language {}", language, manifest.language),
    ):
        if asked is not None and asked != there:
            raise IndexFileError(
                f"{printable(str(folder))} was made with {what.format(there)}, asked were {asked}; "
                "leave the option out, or make another index (-o OTHER.idx)"
            )


def _holds_nothing(folder: Path) -> bool:
    try:
        return commit_number(folder / WORDS) == 0
    except (OSError, ValueError, KeyError):
        return True


class _Update:
    """One run over one index."""

    def __init__(
        self, folder: Path, manifest: Manifest, ledger: Ledger, embedder: Embedder | None, progress: Progress
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._ledger = ledger
        self._embedder = embedder
        self._progress = progress
        self._counts: Counter[str] = Counter()
        self._skipped: list[Named] = []
        self._notes: list[Named] = []
        self._left: list[Left] = []
        self._batch: list[Version] = []
        self._dropped: list[int] = []
        self._same: list[tuple[int, int]] = []
        with engine_errors(folder):
            self._index = new_index(folder / WORDS, manifest.language, keyed=embedder is not None)
            self._writer: tantivy.IndexWriter | None = None
            searcher = self._index.searcher()
        ledger.recover(commit_number(folder / WORDS))
        _, passages = ledger.totals()
        if passages != searcher.num_docs:
            raise corrupt(folder, f"its file table knows {passages:,} passages, but it holds {searcher.num_docs:,}")

    def run(self, items: Iterator[Found | Passed | Left], root: Path, replace_all: bool, began: float) -> IndexReport:
        not_read: Counter[str] = Counter()
        plan = self._ledger.plan(self._files(items, not_read))
        if plan.recorded and plan.lost == plan.recorded and not replace_all:
            raise self._loses_all(root, plan.lost)
        self._drop_lost()
        done = 0
        for task in self._ledger.tasks():
            self._progress(done, plan.size, task.found.source)
            self._read(task, done, plan.size)
            done += task.found.size
            if self._counts["waiting"] >= _BATCH_PASSAGES or len(self._batch) >= _BATCH_FILES:
                self._commit()
        self._finish(root)
        self._progress(plan.size, plan.size, "")
        self._skipped += [Named(*row) for row in self._ledger.useless()]
        files, passages = self._ledger.totals()
        if not plan.recorded and not passages:
            first = "; ".join(f"{printable(each.source)}: {each.reason}" for each in self._skipped[:3])
            raise DataError(f"nothing to index in {printable(str(root))}: {first}")
        counts = self._counts
        return IndexReport(
            target=self._folder,
            added=counts["added"],
            changed=counts["changed"],
            dropped=counts["dropped"],
            unchanged=files - counts["added"] - counts["changed"],
            skipped=tuple(sorted(self._skipped, key=lambda each: each.source)),
            notes=tuple(self._notes),
            not_read=dict(not_read),
            left_out=counted(self._left),
            files=files,
            passages=passages,
            written=counts["written"],
            seconds=time.perf_counter() - began,
        )

    def _files(self, items: Iterator[Found | Passed | Left], not_read: Counter[str]) -> Iterator[Found]:
        for item in items:
            if isinstance(item, Found):
                yield item
            elif isinstance(item, Left):
                self._left.append(item)
            elif item.named:
                self._skipped.append(Named(item.source, item.reason))
            else:
                not_read[item.reason] += 1

    def _loses_all(self, root: Path, lost: int) -> IndexFileError:
        shown, was, now = (printable(str(path)) for path in (self._folder, self._manifest.root, root))
        way = "If" if was == now else "Give the folder that it was made of, or make another index (-o OTHER.idx); if"
        return IndexFileError(
            f"{shown} holds {lost:,} files of {was}; none of them is in {now} now, so all would be dropped.\n"
            f"{way} that is meant, add --replace-all"
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
            self._skipped.append(Named(found.source, error.strerror or str(error)))
            return
        if old is not None and old.digest == digest:
            self._same.append((old.number, found.mtime_ns))
            return
        number = self._ledger.next_number()
        count, failure = self._add(found, number, done, total)
        if failure is not None:
            self._forget(number, count)
            if not failure.lasting:
                self._skipped.append(Named(found.source, str(failure)))
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
        self._batch.append(Version(number, found.source, found.size, found.mtime_ns, digest, count, reason))

    def _add(self, found: Found, number: int, done: int, total: int) -> tuple[int, NotReadable | None]:
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
            self._notes += [Named(found.source, note) for note in document.notes]
        except NotReadable as failure:
            return count, failure
        return (count, None) if count else (0, NotReadable("holds no text"))

    def _write(self, document: tantivy.Document) -> None:
        with engine_errors(self._folder, writing=True):
            self._open_writer().add_document(document)

    def _commit(self) -> None:
        if self._embedder is not None:
            self._embedder.commit()
        self._ledger.propose(self._batch, self._dropped, commit_number(self._folder / WORDS))
        if self._writer is not None:
            with engine_errors(self._folder, writing=True):
                self._writer.commit()
        self._ledger.settle()
        self._ledger.touch(self._same)
        self._batch, self._dropped, self._same = [], [], []
        self._counts["waiting"] = 0

    def _finish(self, root: Path) -> None:
        self._commit()
        if self._writer is not None:
            with engine_errors(self._folder, writing=True):
                self._writer.wait_merging_threads()
        commit = commit_number(self._folder / WORDS)
        if commit != self._manifest.commit or str(root) != self._manifest.root or not self._manifest.digest:
            files, passages = self._ledger.totals()
            settled = replace(
                self._manifest,
                root=str(root),
                files=files,
                passages=passages,
                digest=self._ledger.digest(),
                commit=commit,
            )
            settled.write(self._folder)
        if self._embedder is not None:
            self._tidy_vectors(self._embedder)

    def _tidy_vectors(self, embedder: Embedder) -> None:
        self._index.reload()
        searcher, schema = self._index.searcher(), self._index.schema

        def is_live(keys: Sequence[int]) -> list[bool]:
            there = set(keys_at(searcher, addresses_by_key(searcher, schema, keys)))
            return [key in there for key in keys]

        if note := embedder.finish(searcher.num_docs, is_live):
            self._notes.append(Named(VECTORS, note))


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
