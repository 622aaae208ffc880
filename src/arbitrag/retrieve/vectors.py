"""Vectors beside the passages of an index: files that only grow, and a manifest that says how much of them counts.

    vectors/vectors.json     the encoder, the width, and the number of rows that are committed
    vectors/N-vectors.bin    (rows, width) float16, N is the generation
    vectors/N-keys.bin       (rows,) uint64, the key of the passage of each row
    vectors/N-tags.bin       (entries,) of a metadata entry's hash and the row that has it

Rows are appended and made durable first; then the manifest is replaced in one step, and only then the text index
commits the passages. So a committed passage always has its vector, whenever the process dies. What lies behind the
committed rows is cut off by the next writer.

A key is a hash of a passage's content, and the text index is the only truth about which passages exist: a row whose
key it does not have belongs to a passage that was dropped, changed, or never committed, and is passed over. A passage
that comes back, or whose update was cut short, finds its row again and is not encoded twice.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from arbitrag.errors import IndexFileError
from arbitrag.files import write_text
from arbitrag.retrieve.manifest import VECTORS, VECTORS_FILE, corrupt
from arbitrag.text import printable
from arbitrag.types import Passage

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder

_VERSION = 1
EXACT_ROWS = 50_000  # up to here a search computes all products
_ROW = np.dtype("<f2")
_KEY = np.dtype("<u8")
_TAG = np.dtype([("tag", "<u8"), ("row", "<u8")])
_BLOCK = 2048  # rows multiplied at once: half a megabyte at a width of 256 stays in the processor's cache


@dataclass(frozen=True)
class VectorManifest:
    """``encoder`` is its address, ``identity`` what its vectors depend on; ``rows`` and ``tags`` are those committed.

    ``coded`` rows are in the approximate index of this generation, made when it had ``trained`` rows; 0 without one.
    """

    encoder: str
    identity: str
    width: int
    generation: int = 1
    rows: int = 0
    tags: int = 0
    coded: int = 0
    trained: int = 0
    version: int = _VERSION

    def write(self, folder: Path) -> None:
        write_text(folder / VECTORS_FILE, json.dumps(asdict(self), indent=2) + "\n")

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
        found = json.loads((folder / VECTORS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise IndexFileError(
            f"the index {printable(str(folder.parent))} holds no vectors; "
            "make one that does: arbitrag index VECTORS -o OTHER.idx --encoder hash"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise corrupt(folder.parent, f"{VECTORS}/{VECTORS_FILE} cannot be read") from error
    kinds = {each.name: int if each.type == "int" else str for each in fields(VectorManifest)}
    if not isinstance(found, dict) or {name: type(value) for name, value in found.items()} != kinds:
        raise corrupt(folder.parent, f"{VECTORS}/{VECTORS_FILE} is not what it should be")
    manifest = VectorManifest(**found)
    if manifest.version != _VERSION:
        raise IndexFileError(
            f"the vectors of {printable(str(folder.parent))} have format {manifest.version}; this version of arbitrag "
            f"reads format {_VERSION}. Make the index again under another name (-o OTHER.idx)"
        )
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


class Vectors:
    """The committed rows at one moment, mapped from disk. Later commits do not change it."""

    def __init__(self, folder: Path, manifest: VectorManifest) -> None:
        """Raises IndexFileError when the files hold less than the manifest says."""
        self.manifest = manifest
        self.matrix = _mapped(manifest.path(folder, "vectors.bin"), _ROW, (manifest.rows, manifest.width))
        self.keys = _mapped(manifest.path(folder, "keys.bin"), _KEY, (manifest.rows,))
        self._tags = _mapped(manifest.path(folder, "tags.bin"), _TAG, (manifest.tags,))

    def __len__(self) -> int:
        return self.manifest.rows

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of some rows, (rows, width) float32."""
        return np.asarray(self.matrix[rows], np.float32)

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
            block = self._singles[part.start : part.stop] if isinstance(part, range) else self._singles[part]
            np.einsum("nw,w->n", np.asarray(block, np.float32), query, out=scores[start : start + len(part)])
        return scores

    @cached_property
    def _singles(self) -> np.ndarray:
        """The rows in single precision while they are few, which are several times faster to read; else as stored."""
        return np.asarray(self.matrix, np.float32) if len(self) <= EXACT_ROWS else self.matrix

    @cached_property
    def _by_key(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self.keys, kind="stable")
        return order, self.keys[order]

    @cached_property
    def _by_tag(self) -> np.ndarray:
        return np.argsort(self._tags["tag"], kind="stable")


def open_vectors(folder: Path) -> Vectors:
    """The committed vectors in the folder ``vectors`` of an index.

    Raises IndexFileError when there are none, or when they are damaged.
    """
    for last_try in (False, True):
        manifest = read_vector_manifest(folder)
        try:
            return Vectors(folder, manifest)
        except FileNotFoundError as error:
            # A writer may have begun a new generation between the two reads.
            if last_try:
                raise corrupt(folder.parent, f"{VECTORS}/{error.filename} is missing") from error
        except ValueError as error:
            raise corrupt(folder.parent, str(error)) from error
    raise AssertionError


class VectorLog:
    """The files of one index, open for appending. One process at a time: whoever holds the index's ledger."""

    def __init__(self, folder: Path, manifest: VectorManifest) -> None:
        """Cut off what a crash left behind the committed rows."""
        self.folder = folder
        self.manifest = manifest
        committed = {
            "vectors.bin": manifest.rows * manifest.width * _ROW.itemsize,
            "keys.bin": manifest.rows * _KEY.itemsize,
            "tags.bin": manifest.tags * _TAG.itemsize,
        }
        self._files = {name: open(manifest.path(folder, name), "ab") for name in committed}  # noqa: SIM115
        for name, size in committed.items():
            if self._files[name].tell() < size:
                self.close()
                raise corrupt(folder.parent, f"{VECTORS}/{name} is shorter than it was")
            self._files[name].truncate(size)
        self._rows, self._tags = manifest.rows, manifest.tags

    def append(self, keys: Sequence[int] | np.ndarray, tags: Sequence[Iterable[int]], vectors: np.ndarray) -> None:
        """Rows that count from the next commit on: their keys, the tags of each, and vectors (rows, width)."""
        entries = np.array([(tag, self._rows + at) for at, of_row in enumerate(tags) for tag in of_row], _TAG)
        self._files["vectors.bin"].write(np.asarray(vectors, _ROW).tobytes())
        self._files["keys.bin"].write(np.asarray(keys, _KEY).tobytes())
        self._files["tags.bin"].write(entries.tobytes())
        self._rows += len(keys)
        self._tags += len(entries)

    def commit(self, **changes: Any) -> None:
        """Make all appended rows count, from now on and after any crash."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        self.manifest = replace(self.manifest, rows=self._rows, tags=self._tags, **changes)
        self.manifest.write(self.folder)

    def compact(self, is_live: Callable[[Sequence[int]], Sequence[bool]]) -> VectorLog:
        """Copy the committed rows whose key is live into a new generation, and remove this one.

        Gives the new log; this one is closed. ``is_live`` is asked about a block of keys at a time.
        """
        vectors = Vectors(self.folder, self.manifest)
        fresh = replace(self.manifest, generation=self.manifest.generation + 1, rows=0, tags=0, coded=0, trained=0)
        for name in self._files:
            fresh.path(self.folder, name).unlink(missing_ok=True)  # of a compaction that was cut short
        log = VectorLog(self.folder, fresh)
        of_row = vectors.tags_by_row()
        for start in range(0, len(vectors), _BLOCK):
            keys = [int(key) for key in vectors.keys[start : start + _BLOCK]]
            rows = start + np.flatnonzero(is_live(keys))
            log.append(vectors.keys[rows], [of_row(int(row)) for row in rows], vectors.matrix[rows])
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
    return np.memmap(path, dtype, mode="r", shape=shape)
