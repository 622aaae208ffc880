"""Vectors beside the passages of an index: files that only grow, and a manifest that says how much of them counts.

    vectors/vectors.json     the encoder, the width, the number of rows that are committed, and checksums
    vectors/N-vectors.bin    (rows, width) float16, N is the generation
    vectors/N-sums.bin       (rows,) uint32, the CRC-32 of each row of N-vectors.bin
    vectors/N-keys.bin       (rows,) uint64, the key of the passage of each row
    vectors/N-tags.bin       (entries,) of a metadata entry's hash and the row that has it

Rows are appended and made durable first; then the manifest is replaced in one step, and only then the text index
commits the passages. So a committed passage always has its vector, whenever the process dies. What lies behind the
committed rows is cut off by the next writer.

A key is a hash of a passage's content, and the text index is the only truth about which passages exist: a row whose
key it does not have belongs to a passage that was dropped, changed, or never committed, and is passed over. A passage
that comes back, or whose update was cut short, finds its row again and is not encoded twice.

What is small (12 bytes a row) is compared with its checksum when it is opened, a vector when it is first read: about a
second for all of a million, of which a search that has codes reads 400 (``benchmarks/hybrid.py``).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from arbitrag.errors import IndexFileError
from arbitrag.retrieve.index.manifest import LARGEST, VECTORS, VECTORS_FILE, corrupt, read_sealed, unusable
from arbitrag.storage.checksums import seal
from arbitrag.storage.files import open_plain, read_plain, write_text
from arbitrag.text import printable
from arbitrag.types import Passage

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder

T = TypeVar("T")

_VERSION = 2
EXACT_ROWS = 50_000  # up to here a search computes all products
_ROW = np.dtype("<f2")
_KEY = np.dtype("<u8")
_SUM = np.dtype("<u4")
_TAG = np.dtype([("tag", "<u8"), ("row", "<u8")])
_BLOCK = 2048  # rows multiplied at once: half a megabyte at a width of 256 stays in the processor's cache


@dataclass(frozen=True)
class VectorManifest:
    """``encoder`` is its address, ``identity`` what its vectors depend on; ``rows`` and ``tags`` are those committed.

    ``coded`` rows are in the approximate index of this generation, made when it had ``trained`` rows; 0 without one.
    ``keys_crc``, ``tags_crc`` and ``sums_crc`` are the CRC-32 of what is committed of these files, ``codes_crc`` that
    of the file of the approximate index.
    """

    encoder: str
    identity: str
    width: int
    generation: int = 1
    rows: int = 0
    tags: int = 0
    coded: int = 0
    trained: int = 0
    keys_crc: int = 0
    tags_crc: int = 0
    sums_crc: int = 0
    codes_crc: int = 0
    version: int = _VERSION

    def write(self, folder: Path) -> None:
        write_text(folder / VECTORS_FILE, json.dumps(seal(asdict(self)), indent=2) + "\n")

    def path(self, folder: Path, what: str) -> Path:
        return folder / f"{self.generation}-{what}"

    def check(self, encoder: Encoder, folder: Path) -> None:
        """Raise IndexFileError when the vectors of ``encoder`` cannot be compared with the stored ones."""
        shown = printable(str(folder.parent))
        if encoder.width is not None and encoder.width != self.width:
            raise IndexFileError(
                f"the vectors of {shown} are {self.width} wide, those of {printable(encoder.name)} {encoder.width}; "
                f"give the encoder that it was made with: {printable(self.encoder)}"
            )
        if encoder.identity != self.identity:
            raise IndexFileError(
                f"the vectors of {shown} were made by {printable(self.identity)}, {printable(encoder.name)} is "
                f"{printable(encoder.identity)}; give the encoder that it was made with ({printable(self.encoder)}), "
                "or make another index (-o OTHER.idx)"
            )


def read_vector_manifest(folder: Path) -> VectorManifest:
    """The manifest in the folder ``vectors`` of an index. Raises IndexFileError when it is missing or damaged."""
    try:
        found = json.loads(read_plain(folder / VECTORS_FILE, at_most=LARGEST).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise corrupt(folder.parent, f"{VECTORS}/{VECTORS_FILE} is missing") from None
    except OSError as error:
        raise unusable(folder.parent, f"{VECTORS}/{VECTORS_FILE}", error) from error
    except (ValueError, RecursionError) as error:
        raise corrupt(folder.parent, f"{VECTORS}/{VECTORS_FILE} cannot be read") from error
    if isinstance(found, dict) and isinstance(found.get("version"), int) and found["version"] != _VERSION:
        raise IndexFileError(
            f"the vectors of {printable(str(folder.parent))} have format {found['version']}; this version of arbitrag "
            f"reads format {_VERSION}. Make the index again under another name (-o OTHER.idx)"
        )
    manifest = read_sealed(VectorManifest, found, folder.parent, f"{VECTORS}/{VECTORS_FILE}")
    if manifest.width < 1 or min(manifest.rows, manifest.tags, manifest.coded) < 0:
        raise corrupt(folder.parent, f"{VECTORS}/{VECTORS_FILE} counts below nothing")
    return manifest


def passage_key(passage: Passage) -> int:
    """64 bits of a hash over all that the vector and the filters of a passage depend on, and over its id."""
    content = [passage.id, passage.source, passage.title, passage.text, sorted(passage.metadata.items())]
    # As the text index stores it: half of a surrogate pair becomes a question mark.
    whole = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    digest = hashlib.blake2b(whole, digest_size=8).digest()
    return int.from_bytes(digest, "little")


def tags_of(passage: Passage) -> list[int]:
    """The tags of a passage's metadata."""
    return [tag_of(key, value) for key, value in passage.metadata.items()]


def tag_of(key: str, value: str) -> int:
    """64 bits of a hash over one metadata entry."""
    return int.from_bytes(hashlib.blake2b(json.dumps([key, value]).encode(), digest_size=8).digest(), "little")


class CommittedVectors:
    """The committed rows at one moment, mapped from disk. Later commits do not change it."""

    def __init__(self, folder: Path, manifest: VectorManifest) -> None:
        """Raises IndexFileError when the files are not those that the manifest was written for."""
        self.manifest = manifest
        self._folder = folder
        self._matrix = _mapped(manifest.path(folder, "vectors.bin"), _ROW, (manifest.rows, manifest.width))
        self._sums = self._checked("sums.bin", _SUM, manifest.rows, manifest.sums_crc)
        self._verified = np.zeros(manifest.rows, bool)
        self.keys = self._checked("keys.bin", _KEY, manifest.rows, manifest.keys_crc)
        self._tags = self._checked("tags.bin", _TAG, manifest.tags, manifest.tags_crc)

    def __len__(self) -> int:
        return self.manifest.rows

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of some rows, (rows, width) float32; -1 is the last. Raises IndexFileError for a damaged one."""
        return np.asarray(self.stored(rows), np.float32)

    def stored(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of some rows as they are stored, (rows, width) float16. Raises as ``take``."""
        self._verify(rows)
        return np.asarray(self._matrix[rows])

    def rows_of(self, keys: Sequence[int]) -> np.ndarray:
        """The row of each key, int64; -1 for a key that has none."""
        asked = np.array(keys, _KEY)
        order, ordered = self._by_key
        if not len(order):
            return np.full(len(asked), -1, np.int64)
        places = np.minimum(np.searchsorted(ordered, asked), len(ordered) - 1)
        return np.where(ordered[places] == asked, order[places], -1)

    def rows_where(self, where: Mapping[str, str]) -> np.ndarray:
        """The rows whose passages have each of these metadata entries, rising, int64."""
        order = self._by_tag
        found: np.ndarray | None = None
        for key, value in where.items():
            wanted = np.array(tag_of(key, value), _KEY)
            first, last = (np.searchsorted(self._tags["tag"], wanted, side, sorter=order) for side in ("left", "right"))
            rows = np.unique(self._tags["row"][order[first:last]].astype(np.int64))
            found = rows if found is None else np.intersect1d(found, rows, assume_unique=True)
        return np.arange(len(self), dtype=np.int64) if found is None else found

    def tags_by_row(self) -> Callable[[int], list[int]]:
        """A function from a row to its tags."""
        rows = self._tags["row"]  # rising, as rows are appended one after the other

        def of_row(row: int) -> list[int]:
            first, last = np.searchsorted(rows, [row, row + 1])
            return [int(tag) for tag in self._tags["tag"][first:last]]

        return of_row

    def similarities(self, query: np.ndarray, rows: np.ndarray | range) -> np.ndarray:
        """The dot product of ``query`` (width,) with each of some rows, float32, computed block by block.

        Not by BLAS: for one query its threads mostly wait for each other, and reading is what takes the time.
        """
        scores = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), _BLOCK):
            part = rows[start : start + _BLOCK]
            self._verify(part)
            block = self._singles[part.start : part.stop] if isinstance(part, range) else self._singles[part]
            np.einsum("nw,w->n", np.asarray(block, np.float32), query, out=scores[start : start + len(part)])
        return scores

    @cached_property
    def _singles(self) -> np.ndarray:
        """The rows in single precision while they are few, which are several times faster to read; else as stored."""
        return np.asarray(self._matrix, np.float32) if len(self) <= EXACT_ROWS else self._matrix

    def _verify(self, rows: np.ndarray | range) -> None:
        """Compare those of the rows with their checksums that were not compared before."""
        chosen = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
        if self._verified[chosen].all():
            return
        asked = np.arange(rows.start, rows.stop) if isinstance(rows, range) else np.unique(rows % len(self))
        new = asked[~self._verified[asked]]
        content, size = self._matrix.data.cast("B"), self._matrix.strides[0]
        for row, expected in zip(new.tolist(), self._sums[new].tolist(), strict=True):
            if zlib.crc32(content[row * size : (row + 1) * size]) != expected:
                raise corrupt(self._folder.parent, f"row {row:,} of {VECTORS}/{self._name('vectors.bin')} was changed")
        self._verified[chosen] = True

    def _checked(self, what: str, dtype: np.dtype[Any], count: int, crc: int) -> np.ndarray:
        found = _mapped(self.manifest.path(self._folder, what), dtype, (count,))
        if zlib.crc32(found.data) != crc:
            raise corrupt(self._folder.parent, f"{VECTORS}/{self._name(what)} was changed after it was written")
        return found

    def _name(self, what: str) -> str:
        return self.manifest.path(self._folder, what).name

    @cached_property
    def _by_key(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self.keys, kind="stable")
        return order, self.keys[order]

    @cached_property
    def _by_tag(self) -> np.ndarray:
        return np.argsort(self._tags["tag"], kind="stable")


def open_vectors(folder: Path) -> CommittedVectors:
    """The committed vectors in the folder ``vectors`` of an index.

    Raises IndexFileError when there are none, or when they are damaged.
    """
    return settled(folder, lambda manifest: CommittedVectors(folder, manifest))


def settled(folder: Path, opens: Callable[[VectorManifest], T]) -> T:
    """What ``opens`` gives for the manifest in a folder; tried again when a writer replaced the files meanwhile.

    Raises IndexFileError when they are damaged or cannot be read.
    """
    manifest = read_vector_manifest(folder)
    while True:
        try:
            return opens(manifest)
        except (OSError, ValueError, IndexFileError) as error:
            now = read_vector_manifest(folder)
            if now == manifest:
                raise _told(folder, error) from error
            manifest = now


def _told(folder: Path, error: Exception) -> IndexFileError:
    if isinstance(error, IndexFileError):
        return error
    if isinstance(error, FileNotFoundError):
        return corrupt(folder.parent, f"{VECTORS}/{Path(error.filename).name} is missing")
    if isinstance(error, OSError):
        return unusable(folder.parent, f"{VECTORS}/{Path(error.filename or '').name}", error)
    return corrupt(folder.parent, str(error))


class VectorLog:
    """The files of one index, open for appending. One process at a time: whoever holds the index's ledger."""

    def __init__(self, folder: Path, manifest: VectorManifest) -> None:
        """Cut off what a crash left behind the committed rows.

        Raises IndexFileError when what is committed is damaged, as far as that is known without reading the vectors.
        """
        self.folder = folder
        self.manifest = manifest
        committed = {
            "vectors.bin": manifest.rows * manifest.width * _ROW.itemsize,
            "sums.bin": manifest.rows * _SUM.itemsize,
            "keys.bin": manifest.rows * _KEY.itemsize,
            "tags.bin": manifest.tags * _TAG.itemsize,
        }
        if manifest.rows:
            settled(folder, lambda found: CommittedVectors(folder, found))
        self._files = {name: open_plain(manifest.path(folder, name), "ab") for name in committed}
        self._crcs = {"sums.bin": manifest.sums_crc, "keys.bin": manifest.keys_crc, "tags.bin": manifest.tags_crc}
        for name, size in committed.items():
            if self._files[name].tell() < size:
                self.close()
                raise corrupt(folder.parent, f"{VECTORS}/{name} is shorter than it was")
            self._files[name].truncate(size)
        self._rows, self._tags = manifest.rows, manifest.tags

    def append(self, keys: Sequence[int] | np.ndarray, tags: Sequence[Iterable[int]], vectors: np.ndarray) -> None:
        """Rows that count from the next commit on: their keys, the tags of each, and vectors (rows, width)."""
        entries = np.array([(tag, self._rows + at) for at, of_row in enumerate(tags) for tag in of_row], _TAG)
        rows = [row.tobytes() for row in np.asarray(vectors, _ROW)]
        self._files["vectors.bin"].write(b"".join(rows))
        self._write("sums.bin", np.array([zlib.crc32(row) for row in rows], _SUM))
        self._write("keys.bin", np.asarray(keys, _KEY))
        self._write("tags.bin", entries)
        self._rows += len(keys)
        self._tags += len(entries)

    def _write(self, name: str, values: np.ndarray) -> None:
        content = values.tobytes()
        self._files[name].write(content)
        self._crcs[name] = zlib.crc32(content, self._crcs[name])

    def commit(self, **changes: Any) -> None:
        """Make all appended rows count, from now on and after any crash."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        for name, crc in self._crcs.items():
            changes[f"{name.partition('.')[0]}_crc"] = crc
        self.manifest = replace(self.manifest, rows=self._rows, tags=self._tags, **changes)
        self.manifest.write(self.folder)

    def compact(self, is_live: Callable[[Sequence[int]], Sequence[bool]]) -> VectorLog:
        """Copy the committed rows whose key is live into a new generation, and remove this one.

        Gives the new log; this one is closed. ``is_live`` is asked about a block of keys at a time.
        """
        vectors = CommittedVectors(self.folder, self.manifest)
        fresh = replace(self.manifest, generation=self.manifest.generation + 1, rows=0, tags=0, coded=0, trained=0)
        fresh = replace(fresh, keys_crc=0, tags_crc=0, sums_crc=0, codes_crc=0)
        for name in self._files:
            fresh.path(self.folder, name).unlink(missing_ok=True)  # of a compaction that was cut short
        log = VectorLog(self.folder, fresh)
        of_row = vectors.tags_by_row()
        for start in range(0, len(vectors), _BLOCK):
            keys = [int(key) for key in vectors.keys[start : start + _BLOCK]]
            rows = start + np.flatnonzero(is_live(keys))
            log.append(vectors.keys[rows], [of_row(int(row)) for row in rows], vectors.stored(rows))
        log.commit()
        self.close()
        for path in self.folder.glob(f"{self.manifest.generation}-*"):
            path.unlink()
        return log

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _mapped(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    if 0 in shape:
        return np.empty(shape, dtype)
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{VECTORS}/{path.name} is not a regular file")
    if status.st_size < math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{VECTORS}/{path.name} is shorter than it was")
    return np.memmap(path, dtype, mode="r", shape=shape)
