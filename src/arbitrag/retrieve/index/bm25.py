"""BM25 over passages, on disk or in memory, by tantivy.

A passage's score is the sum over the words of the query, as often as each stands there, of

    idf * (k1 + 1) * tf / (tf + k1 * (1 - b + b * length / mean length)),   idf = ln(1 + (N - n + 0.5) / (n + 0.5))

with k1 = 1.2 and b = 0.75; tf, n and the length count words of title and text together. tantivy keeps a length in
one byte: exact up to 40 words, then rounded down, by at most an eighth. N, n and the mean still count passages that an
update has removed, until tantivy merges the files that hold them.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbitrag.errors import IndexFileError
from arbitrag.retrieve.base import check_k
from arbitrag.retrieve.index import analysis
from arbitrag.retrieve.index.manifest import FILE, WORDS, IndexManifest, corrupt, read_manifest, unfinished_at, unusable
from arbitrag.retrieve.index.snapshot import META, Commit, Damaged, open_snapshot, read_commit
from arbitrag.serialization import parse_together
from arbitrag.text import printable
from arbitrag.types import Passage

if TYPE_CHECKING:
    import tantivy

_QUERY_CHARACTERS = 20_000  # of a longer query only the beginning is searched for
_SOME_TIED = 16  # passages beyond those asked for that are looked at first; ties are common among short ones
_MOST_TIED = 4096  # passages with the score of the last place that are put in order
# A search that is expected to be shorter than this runs on the event loop: a thread would add a fifth and more to it.
_LONGEST_ON_LOOP_S = 0.001
_PER_PASSAGE_S = 0.5e-9  # times the words of the query and 7 more, as measured over 100,000 and 1,000,000 passages
_CHARACTERS_PER_WORD = 6
_STAMPED = (FILE, os.path.join(WORDS, META))  # files that every update writes anew
_SMALLEST_HEAP = 15_000_000
_SYSTEM = re.compile(r"\bos error (\d+)|\bcode: (\d+)")  # how Rust writes what the system said

Stamp = tuple[tuple[int, int, int], ...]


class Bm25Index:
    """A BM25 retriever; open one with ``Bm25Index.open`` or ``Bm25Index.in_memory``.

    Passages with equal scores come in the order of their files and of their place in it. An update by another
    process is seen at the next call.
    """

    def __init__(self, view: _View, name: str, language: str, folder: Path | None = None) -> None:
        self.name = name
        self.identity = view.identity
        self._view = view
        self._analyzer = analysis.analyzer(language)
        self._folder = folder
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: str | Path, *, unfinished: bool = False) -> Bm25Index:
        """The index in the folder ``path``. Nothing is written there.

        With ``unfinished`` one whose first build was cut short can be searched for what it has committed. Raises
        IndexFileError when it is missing, unfinished, damaged, not readable, of another version, or not an index.
        """
        folder = Path(path)
        view, manifest = _open_view(folder, unfinished)
        return cls(view, f"bm25:{printable(str(folder))}", manifest.language, folder)

    @classmethod
    def in_memory(cls, passages: Iterable[Passage], *, language: str = "english", name: str = "") -> Bm25Index:
        """An index of these passages that is gone with the process. Equal scores keep the order of ``passages``."""
        index = new_index(None, language, keyed=True)
        writer = index.writer(_SMALLEST_HEAP, 1)
        summary = hashlib.sha256(language.encode())
        payloads = []
        for place, passage in enumerate(passages):
            writer.add_document(to_document(passage, 0, ("", place), index.schema, place))
            payloads.append(_payload(passage, ("", place)))
            summary.update(payloads[-1])
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        view = _View(index, index.searcher(), f"bm25:{summary.hexdigest()[:16]}", payloads=tuple(payloads))
        return cls(view, name or f"bm25 over {view.searcher.num_docs:,} passages", language)

    def __len__(self) -> int:
        """The number of passages."""
        return self._current().searcher.num_docs

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        """The ``k`` passages with the highest scores, best first; fewer when fewer share a word with the query.

        The query is plain text, nothing in it is syntax. ``where`` keeps only passages whose metadata has each of
        these values; scores do not depend on it. Raises IndexFileError when the index is damaged.
        """
        check_k(k)
        view = self._view
        if not self._is_current(view):
            view = await asyncio.to_thread(self._current)
        if view.search_s(query) <= _LONGEST_ON_LOOP_S:
            return self._search(view, query, k, where or {})
        return await asyncio.to_thread(self._search, view, query, k, where or {})

    def passages_by_key(self, keys: Sequence[int]) -> dict[int, Passage]:
        """The passages with these keys, as far as the index has them; of equal ones the first. See ``vectors``."""
        view = self._current()
        with engine_errors(self._folder):
            return view.by_key(keys)

    async def aclose(self) -> None:
        """Nothing to do: the files are mapped, and let go with the object."""

    def _search(self, view: _View, query: str, k: int, where: Mapping[str, str]) -> tuple[Passage, ...]:
        words = self._analyzer.analyze(analysis.searchable(query[:_QUERY_CHARACTERS]))
        if not words or not view.searcher.num_docs:
            return ()
        with engine_errors(self._folder):
            return view.best(words, k, where)

    def _is_current(self, view: _View) -> bool:
        """Whether the files are those that the view was opened on, or gone."""
        return self._folder is None or _stamp(self._folder) in ((), view.stamp)

    def _current(self) -> _View:
        """The view, opened anew when the files are not those that it was opened on."""
        if self._folder is None:
            return self._view
        with self._lock:
            if not self._is_current(self._view):
                self._view, _ = _open_view(self._folder, unfinished=True)
                self.identity = self._view.identity
            return self._view


@dataclass(frozen=True)
class _View:
    """A snapshot of the index at one commit. ``stamp`` shows whether the files are still the same.

    One in memory has the ``payloads`` of its passages in their order: taking one out of tantivy's store takes longer.
    """

    index: tantivy.Index
    searcher: tantivy.Searcher
    identity: str
    stamp: Stamp = ()
    payloads: tuple[bytes, ...] = ()

    def search_s(self, query: str) -> float:
        """Roughly the seconds that a search for this query takes."""
        words = min(len(query), _QUERY_CHARACTERS) / _CHARACTERS_PER_WORD
        return self.searcher.num_docs * (words + 7) * _PER_PASSAGE_S

    def best(self, words: Sequence[str], k: int, where: Mapping[str, str]) -> tuple[Passage, ...]:
        hits = self._hits(_query(self.index.schema, words, where), k)
        stored = self._stored([address for _, address in hits])
        found = [(-score, order, values) for (score, _), (order, values) in zip(hits, stored, strict=True)]
        found.sort(key=itemgetter(0, 1))
        return tuple(Passage(**values, score=-score) for score, _, values in found[:k])

    def by_key(self, keys: Sequence[int]) -> dict[int, Passage]:
        addresses = addresses_by_key(self.searcher, self.index.schema, keys)
        found = list(zip(keys_at(self.searcher, addresses), self._stored(addresses), strict=True))
        found.sort(key=lambda each: each[1][0], reverse=True)
        return {key: Passage(**values) for key, (_, values) in found}

    def _stored(self, addresses: Sequence[tantivy.DocAddress]) -> list[tuple[Any, dict[str, Any]]]:
        """The fields of the passages at these addresses, each after its order among ties."""
        if self.payloads:
            return _read(self.payloads[place] for place in keys_at(self.searcher, addresses))
        return _read(self.searcher.doc(address).get_first("passage") or b"" for address in addresses)

    def _hits(self, query: tantivy.Query, k: int) -> list[tuple[float, tantivy.DocAddress]]:
        """The best ``k`` and whatever ties with the last of them; scores in six digits.

        Floats are added in an order that depends on how the index is laid out, so the seventh digit is chance, and
        so would be the choice among equals.
        """
        limit, everything = k + _SOME_TIED, self.searcher.num_docs
        while True:
            hits = self.searcher.search(query, min(limit, everything), count=False).hits
            best: list[tuple[float, tantivy.DocAddress]] = []
            for exact, address in hits:
                score = float(f"{exact:.6g}")
                if len(best) >= k and score < best[k - 1][0]:
                    return best
                best.append((score, address))
            if len(hits) < limit or limit >= k + _MOST_TIED:
                return best
            limit = min(limit * 4, k + _MOST_TIED)


def new_index(folder: Path | None, language: str, *, keyed: bool = False) -> tantivy.Index:
    """tantivy's index in a folder, made when it is not there; in memory without one.

    With ``keyed`` its passages can be found by the key under which their vectors are stored.
    """
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body", stored=False, tokenizer_name=analysis.NAME, index_option="freq")
    builder.add_text_field("tags", stored=False, tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("file", indexed=True)
    builder.add_bytes_field("passage", stored=True)
    if keyed:
        builder.add_unsigned_field("key", indexed=True, fast=True)
    index = tantivy.Index(builder.build(), None if folder is None else str(folder))
    index.register_tokenizer(analysis.NAME, analysis.analyzer(language))
    return index


def to_document(
    passage: Passage, file: int, order: tuple[str, int], schema: tantivy.Schema, key: int | None = None
) -> tantivy.Document:
    """A passage as tantivy stores it. ``file`` is the number of the file's version; ``order`` decides among ties.

    ``key`` is that of the passage's vector, for an index that is ``keyed``.
    """
    import tantivy

    values = {
        "body": analysis.searchable(f"{passage.title}\n{passage.text}"),
        "file": file,
        "passage": _payload(passage, order),
        "tags": [_tag(name, value) for name, value in passage.metadata.items()],
    }
    if key is not None:
        values["key"] = key
    return tantivy.Document.from_dict(values, schema)


def of_file(schema: tantivy.Schema, number: int) -> tantivy.Query:
    """All passages of one version of a file."""
    from tantivy import Query

    return Query.term_query(schema, "file", number, "basic")


def keys_at(searcher: tantivy.Searcher, addresses: Sequence[tantivy.DocAddress]) -> list[int]:
    """The keys of the passages at these places."""
    return [int(key or 0) for key in searcher.fast_field_values("key", list(addresses))]


def addresses_by_key(
    searcher: tantivy.Searcher, schema: tantivy.Schema, keys: Sequence[int]
) -> list[tantivy.DocAddress]:
    """Where the passages with these keys lie; those of equal passages are all there, in no order."""
    from tantivy import Occur, Query

    if not keys:
        return []
    query = Query.boolean_query([(Occur.Should, Query.term_query(schema, "key", key)) for key in keys])
    limit = 2 * len(keys)
    while True:
        hits = searcher.search(query, limit, count=False).hits
        if len(hits) < limit:
            return [address for _, address in hits]
        limit *= 8


@contextmanager
def engine_errors(folder: Path | None, *, writing: bool = False) -> Iterator[None]:
    """Errors and panics of tantivy as IndexFileError: its files may have been changed, or its disk be full."""
    try:
        yield
    except Damaged as error:
        raise corrupt(folder or Path(), str(error)) from error
    except (ValueError, OSError) as error:
        raise _engine_error(folder, error, writing) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's; it is no Exception and cannot be imported
            raise
        raise _engine_error(folder, error, writing) from error


def _payload(passage: Passage, order: tuple[str, int]) -> bytes:
    values: dict[str, Any] = {"order": order, "text": passage.text}
    for key in ("id", "title", "source", "line", "offset", "date"):
        value = getattr(passage, key)
        if value or value == 0:
            values[key] = value
    if passage.metadata:
        values["metadata"] = dict(passage.metadata)
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")


def _read(payloads: Iterable[bytes]) -> list[tuple[Any, dict[str, Any]]]:
    """What ``_payload`` wrote: of each passage the order, and the fields."""
    return [(values.pop("order"), values) for values in parse_together(payloads)]


def _query(schema: tantivy.Schema, words: Sequence[str], where: Mapping[str, str]) -> tantivy.Query:
    from tantivy import Occur, Query

    wanted = Query.boolean_query([(Occur.Should, Query.term_query(schema, "body", word, "freq")) for word in words])
    if not where:
        return wanted
    tags = [Query.term_query(schema, "tags", _tag(key, value), "basic") for key, value in where.items()]
    return Query.boolean_query(
        [(Occur.Must, wanted), *((Occur.Must, Query.const_score_query(tag, 0.0)) for tag in tags)]
    )


def _tag(key: str, value: str) -> str:
    """A metadata entry as one word of the same length for any value."""
    return hashlib.blake2b(f"{key}\0{value}".encode("utf-8", "replace"), digest_size=12).hexdigest()


def _open_view(folder: Path, unfinished: bool) -> tuple[_View, IndexManifest]:
    stamp = _stamp(folder)  # before anything is read: what changes from here on is seen next time
    manifest = read_manifest(folder)
    if not (manifest.finished or unfinished):
        raise not_finished(folder)
    with engine_errors(folder):
        index, commit = _snapshot(folder, manifest)
        index.register_tokenizer(analysis.NAME, analysis.analyzer(manifest.language))
        searcher = index.searcher()
    if manifest.finished and commit.number == manifest.commit and commit.crc != manifest.words_crc:
        raise corrupt(folder, f"{WORDS}/{META} is not what was written (another checksum)")
    summary = hashlib.sha256(f"{manifest.passage_tokens} {manifest.language} {manifest.digest}".encode())
    cut_short = "" if commit.number == manifest.commit else f"+{commit.number}"
    return _View(index, searcher, f"bm25:{summary.hexdigest()[:16]}{cut_short}", stamp), manifest


def _snapshot(folder: Path, manifest: IndexManifest) -> tuple[tantivy.Index, Commit]:
    try:
        return open_snapshot(folder / WORDS)
    except FileNotFoundError:
        if not manifest.finished:
            raise unfinished_at(folder, 0) from None
        raise Damaged(f"it has no {WORDS}/{META}") from None


def not_finished(folder: Path) -> IndexFileError:
    """The error for an index whose first build has not ended, with the number of passages that it has so far."""
    try:
        return unfinished_at(folder, len(Bm25Index.open(folder, unfinished=True)))
    except IndexFileError as error:
        return error


def commit_number(words: Path) -> int:
    """The number of the last commit of the tantivy index in a folder; it rises with each."""
    return read_commit(words).number


def _stamp(folder: Path) -> Stamp:
    """What changes with every update; empty when the index is gone, whose open files can still be searched."""
    try:
        stats = [os.stat(os.path.join(folder, name)) for name in _STAMPED]  # pathlib takes three times as long
    except OSError:  # where more is wrong, it is said when it is opened
        return ()
    return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)


def _engine_error(folder: Path | None, error: BaseException, writing: bool) -> IndexFileError:
    first = (str(error).splitlines() or [type(error).__name__])[0][:200]
    if folder is None:
        return IndexFileError(f"tantivy failed in memory: {first}")
    refused = _refused(error)
    if refused is not None:
        return unusable(folder, "", refused, writing=writing)
    if writing:
        return IndexFileError(
            f"the index {printable(str(folder))} could not be written: {printable(first)}.\n"
            "What was there before can still be searched; type the command again."
        )
    return corrupt(folder, first)


def _refused(error: BaseException) -> OSError | None:
    """What the system refused, where that is what an error of tantivy tells; a missing file is no refusal."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (told := _SYSTEM.search(str(error))):
        number = int(told[1] or told[2])
    if number in (None, errno.ENOENT, errno.ENOTDIR, errno.EINVAL):
        return None
    return OSError(number, os.strerror(number))
