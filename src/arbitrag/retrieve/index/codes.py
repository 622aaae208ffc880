"""Approximate nearest-neighbour search: compact codes of all vectors, then exact products for the best of them.

Every pair of dimensions becomes one of 16 points (4 bits), and faiss compares a query with 32 codes at a time in the
processor's registers ("fast scan" product quantisation; Jegou et al. 2011, "Product quantization for nearest neighbor
search"; André et al. 2015, "Cache locality is not enough"). A million vectors of width 256 are 64 MB and take about
3 ms. The candidates are then compared by their stored vectors, so that the scores are exact and only the choice is not.

Why not a graph (HNSW): over 200k vectors of the ``hash`` encoder, on two cores, a graph of 32 links took 65 s to build
and found .40 of the true first 20 in 1.8 ms; these codes took 7 s and found .99 in 1 ms. Rows are added to them without
a rebuild. All codes are read for each query, so from some ten million passages on a server is the better place.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from arbitrag.retrieve.index.manifest import VECTORS, corrupt
from arbitrag.retrieve.index.vectors import EXACT_ROWS, CommittedVectors, VectorLog, VectorManifest
from arbitrag.storage.files import open_reading, replacing
from arbitrag.text import one_line

CANDIDATES = 400
_SUFFIX = "codes.faiss"
_CHUNK = 1 << 20
_SAMPLE = 16_384  # rows that the 16 points of each pair are fitted to
_ROUNDS = 10
_BLOCK = 16_384
_STALE = 4  # an index that grew this much since its codes were fitted gets new ones


class Codes:
    """The codes of the first ``rows`` rows of an index."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self.rows: int = index.ntotal

    def candidates(self, query: np.ndarray, count: int) -> np.ndarray:
        """About the ``count`` rows nearest to ``query`` (width,), int64."""
        _, rows = self._index.search(query[None], min(count, self.rows))
        return np.asarray(rows[0][rows[0] >= 0], np.int64)


def open_codes(folder: Path, vectors: CommittedVectors) -> Codes | None:
    """The codes of these vectors; None when they have none, or without faiss, which only makes searching slower.

    Raises IndexFileError when the file is damaged, OSError when it is missing or cannot be read.
    """
    if not vectors.manifest.coded:
        return None
    try:
        import faiss  # noqa: F401
    except ImportError:
        return None
    return Codes(_read(folder, vectors))


def _read(folder: Path, vectors: CommittedVectors) -> Any:
    import faiss

    manifest = vectors.manifest
    path = _path(folder, manifest)
    check_codes(folder, manifest)
    try:
        index = faiss.read_index(str(path))
    except RuntimeError as error:
        raise corrupt(folder.parent, f"{VECTORS}/{path.name} cannot be read: {one_line(str(error))}") from None
    if index.d != manifest.width or index.ntotal != manifest.coded:
        raise corrupt(folder.parent, f"{VECTORS}/{path.name} does not fit to the vectors beside it")
    return index


def update_codes(log: VectorLog) -> bool:
    """Bring the codes up to the committed rows where that pays; False when it would but faiss is not installed."""
    manifest, folder = log.manifest, log.folder
    behind = manifest.rows - manifest.coded
    if manifest.rows <= EXACT_ROWS or behind <= EXACT_ROWS // 5:
        return True
    try:
        import faiss
    except ImportError:
        return False
    vectors = CommittedVectors(folder, manifest)
    fresh = not manifest.coded or manifest.rows > _STALE * manifest.trained
    index = _fitted(vectors) if fresh else _read(folder, vectors)
    for start in range(index.ntotal, manifest.rows, _BLOCK):
        index.add(vectors.take(np.arange(start, min(start + _BLOCK, manifest.rows))))
    content = faiss.serialize_index(index).data
    # Each has a name of its own, so that a reader has the codes that its manifest speaks of.
    with replacing(_path(folder, replace(manifest, coded=manifest.rows))) as file:
        file.write(content)
    log.commit(coded=manifest.rows, trained=manifest.rows if fresh else manifest.trained, codes_crc=zlib.crc32(content))
    for old in folder.glob(f"*{_SUFFIX}"):
        if old != _path(folder, log.manifest):
            old.unlink()
    return True


def _fitted(vectors: CommittedVectors) -> Any:
    """An empty index whose points are fitted to a sample of the rows, the same sample each time."""
    import faiss

    width = vectors.manifest.width
    parts = width // 2 if width % 2 == 0 else width
    index = faiss.IndexPQFastScan(width, parts, 4, faiss.METRIC_INNER_PRODUCT)
    index.pq.cp.niter = _ROUNDS
    rows = np.unique(np.linspace(0, len(vectors) - 1, min(_SAMPLE, len(vectors))).astype(np.int64))
    threads = faiss.omp_get_max_threads()
    # The fits are so small that threads would mostly wait for each other: 0.3 s with one, 2 to 20 s with two.
    faiss.omp_set_num_threads(1)
    try:
        index.train(vectors.take(rows))
    finally:
        faiss.omp_set_num_threads(threads)
    return index


def check_codes(folder: Path, manifest: VectorManifest) -> None:
    """Raise IndexFileError when the file with the codes is damaged, OSError when it is missing or cannot be read."""
    path = _path(folder, manifest)
    if manifest.coded and _crc(path) != manifest.codes_crc:
        raise corrupt(folder.parent, f"{VECTORS}/{path.name} was changed after it was written")


def _path(folder: Path, manifest: VectorManifest) -> Path:
    return manifest.path(folder, f"{manifest.coded}-{_SUFFIX}")


def _crc(path: Path) -> int:
    found = 0
    with open_reading(path) as file:
        while chunk := file.read(_CHUNK):
            found = zlib.crc32(chunk, found)
    return found
