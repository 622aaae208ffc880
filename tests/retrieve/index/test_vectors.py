"""The files with vectors: what is committed counts, whatever else lies there; and the codes over them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from vector_parts import TableEncoder, write_rows

from arbitrag.encode.base import unit_rows
from arbitrag.errors import IndexFileError
from arbitrag.retrieve import open_index, update_index
from arbitrag.retrieve.index import codes, embedding
from arbitrag.retrieve.index.codes import open_codes, update_codes
from arbitrag.retrieve.index.dense import nearest
from arbitrag.retrieve.index.embedding import SLOW
from arbitrag.retrieve.index.manifest import VECTORS
from arbitrag.retrieve.index.vectors import VectorLog, VectorManifest, open_vectors, passage_key, tag_of
from arbitrag.storage.checksums import seal, unseal
from arbitrag.types import Passage


def new_log(folder: Path, width: int = 2) -> VectorLog:
    folder.mkdir(exist_ok=True)
    manifest = VectorManifest("hash", "hash", width)
    manifest.write(folder)
    return VectorLog(folder, manifest)


def random_rows(count: int, width: int, seed: int = 0) -> np.ndarray:
    """Unit vectors around 40 centres, as passages about 40 subjects have them."""
    chance = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((40, width))
    return unit_rows(centres[chance.integers(40, size=count)] + 0.8 * chance.standard_normal((count, width)))


def test_rows_count_when_they_are_committed(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append([5, 3], [[tag_of("a", "x")], []], np.array([[1, 0], [0, 1]]))
    assert len(open_vectors(tmp_path)) == 0
    log.commit()
    log.append([9], [[]], np.array([[1, 1]]))
    log.close()  # without a commit
    vectors = open_vectors(tmp_path)
    assert vectors.keys.tolist() == [5, 3]
    assert vectors.rows_of([3, 9, 5, 2**64 - 1]).tolist() == [1, -1, 0, -1]
    np.testing.assert_array_equal(vectors.take(np.array([1])), [[0, 1]])
    again = VectorLog(tmp_path, vectors.manifest)
    assert (tmp_path / "1-keys.bin").stat().st_size == 16  # what was not committed is cut off
    again.append([7], [[]], np.array([[0, 1]]))
    again.commit()
    again.close()
    assert open_vectors(tmp_path).keys.tolist() == [5, 3, 7]
    assert vectors.keys.tolist() == [5, 3]  # a view does not change


def test_filters_intersect_and_need_key_and_value(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    tags = [{"lang": "en", "kind": "a"}, {"lang": "de", "kind": "a"}, {"lang": "en", "kind": "b"}, {"kind": "en"}]
    log.append([1, 2, 3, 4], [[tag_of(*entry) for entry in each.items()] for each in tags], np.ones((4, 2)))
    log.commit()
    log.close()
    vectors = open_vectors(tmp_path)
    assert vectors.rows_where({"lang": "en"}).tolist() == [0, 2]
    assert vectors.rows_where({"lang": "en", "kind": "a"}).tolist() == [0]
    assert vectors.rows_where({"lang": "fr"}).tolist() == []
    assert vectors.rows_where({}).tolist() == [0, 1, 2, 3]


def test_compaction_keeps_live_rows_with_their_tags(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    tags = [[tag_of("n", str(n % 2))] for n in range(10)]
    log.append(range(10), tags, np.stack([np.arange(10), np.ones(10)], axis=1))
    log.commit()

    def odd(keys: Sequence[int]) -> list[bool]:
        return [key % 2 == 1 for key in keys]

    log = log.compact(odd)
    log.append([11], [[tag_of("n", "0")]], np.array([[11, 1]]))
    log.commit()
    log.close()
    vectors = open_vectors(tmp_path)
    assert vectors.keys.tolist() == [1, 3, 5, 7, 9, 11]
    assert vectors.take(np.arange(6))[:, 0].tolist() == [1, 3, 5, 7, 9, 11]
    assert vectors.rows_where({"n": "1"}).tolist() == [0, 1, 2, 3, 4]
    assert vectors.rows_where({"n": "0"}).tolist() == [5]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "2-keys.bin",
        "2-sums.bin",
        "2-tags.bin",
        "2-vectors.bin",
        "vectors.json",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"vectors/vectors.json cannot be read"),
        ("[]", r"is not what it should be"),
        (json.dumps({"rows": 3}), r"is not what it should be"),
        ("-1", r"counts below nothing"),
        ("1", r"have format 1; this version of arbitrag reads format 2"),
    ],
)
def test_a_damaged_manifest(tmp_path: Path, content: str, message: str) -> None:
    folder = tmp_path / VECTORS
    log = new_log(folder)
    log.close()
    path = folder / "vectors.json"
    if content in ("-1", "1"):
        name = "rows" if content == "-1" else "version"
        content = json.dumps(seal({**unseal(json.loads(path.read_text())), name: int(content)}))
    path.write_text(content)
    with pytest.raises(IndexFileError, match=message):
        open_vectors(folder)


def test_files_that_were_cut_or_are_gone(tmp_path: Path) -> None:
    folder = tmp_path / VECTORS
    log = new_log(folder)
    log.append([1, 2], [[], []], np.ones((2, 2)))
    log.commit()
    log.close()
    keys = folder / "1-keys.bin"
    keys.write_bytes(keys.read_bytes()[:8])
    with pytest.raises(IndexFileError, match="is damaged"):
        open_vectors(folder)
    with pytest.raises(IndexFileError, match="is damaged"):
        VectorLog(folder, log.manifest)
    keys.unlink()
    with pytest.raises(IndexFileError, match=r"1-keys\.bin is missing"):
        open_vectors(folder)


def test_keys_tell_passages_apart() -> None:
    passage = Passage("text", id="1", title="t", source="s", metadata={"a": "b"}, line=3, score=0.5)
    same = Passage("text", id="1", title="t", source="s", metadata={"a": "b"}, line=4, score=None)
    assert passage_key(passage) == passage_key(same)
    others = [
        Passage("text!", id="1", title="t", source="s", metadata={"a": "b"}),
        Passage("text", id="2", title="t", source="s", metadata={"a": "b"}),
        Passage("text", id="1", title="", source="s", metadata={"a": "b"}),
        Passage("text", id="1", title="t", source="s", metadata={"a": "c"}),
    ]
    assert len({passage_key(passage), *map(passage_key, others)}) == 5


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VectorLog]:
    """3,000 rows of width 32, in an index that has codes from 1,000 on; row n has the tag part = n mod 20."""
    monkeypatch.setattr(codes, "EXACT_ROWS", 1000)
    monkeypatch.setattr("arbitrag.retrieve.index.dense.EXACT_ROWS", 1000)
    log = new_log(tmp_path / VECTORS, 32)
    tags = [[tag_of("part", str(n % 20)), tag_of("half", str(n % 2))] for n in range(3000)]
    log.append(range(3000), tags, random_rows(3000, 32))
    log.commit()
    yield log
    log.close()


def test_codes_find_nearly_all_and_score_exactly(many: VectorLog) -> None:
    pytest.importorskip("faiss")
    assert update_codes(many)
    vectors = open_vectors(many.folder)
    found = open_codes(many.folder, vectors)
    assert found is not None
    assert found.rows == 3000
    hits = 0
    for query in random_rows(30, 32, seed=1):
        exact = vectors.take(np.arange(3000)) @ query
        best = set(np.argsort(-exact, kind="stable")[:20].tolist())
        rows, scores = nearest(vectors, found, query, 20, {})
        np.testing.assert_allclose(scores, exact[rows], atol=2e-6)
        assert (np.diff(scores) <= 0).all()
        hits += len(best & set(rows.tolist()))
        # A filter that leaves few rows is exact; one that leaves many is exact over the candidates.
        few, _ = nearest(vectors, found, query, 20, {"part": "7"})
        assert few.tolist() == [row for row in np.argsort(-np.round(exact, 6), kind="stable") if row % 20 == 7][:20]
        half, _ = nearest(vectors, found, query, 20, {"half": "1"})
        assert all(row % 2 for row in half.tolist())
        assert len(half) == 20
    assert hits / 600 >= 0.98


def test_rows_without_codes_are_found_too_and_codes_follow(many: VectorLog) -> None:
    pytest.importorskip("faiss")
    update_codes(many)
    many.append([4000], [[]], random_rows(1, 32, seed=5))
    many.commit()
    assert update_codes(many)  # one row more is not worth it
    assert many.manifest.coded == 3000
    vectors = open_vectors(many.folder)
    (query,) = random_rows(1, 32, seed=5)
    rows, _ = nearest(vectors, open_codes(many.folder, vectors), query, 1, {})
    assert rows.tolist() == [3000]
    many.append(range(5000, 5300), [[]] * 300, random_rows(300, 32, seed=6))
    many.commit()
    update_codes(many)
    assert (many.manifest.coded, many.manifest.trained) == (3301, 3000)  # added to, not made anew
    with pytest.raises(FileNotFoundError):  # ``settled`` then reads the manifest again
        open_codes(many.folder, vectors)
    rows, _ = nearest(vectors, open_codes(many.folder, open_vectors(many.folder)), query, 5, {})
    assert max(rows.tolist()) <= 3000  # an older view does not see later rows
    many.append(range(10_000, 20_000), [[]] * 10_000, random_rows(10_000, 32, seed=7))
    many.commit()
    update_codes(many)
    assert many.manifest.trained == 13_301


def test_without_faiss_everything_is_read(many: VectorLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert not update_codes(many)
    monkeypatch.setattr(codes, "EXACT_ROWS", 5000)
    assert update_codes(many)  # not needed yet
    monkeypatch.undo()
    pytest.importorskip("faiss")
    monkeypatch.setattr(codes, "EXACT_ROWS", 1000)
    assert update_codes(many)
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert open_codes(many.folder, open_vectors(many.folder)) is None


def test_damaged_codes(many: VectorLog) -> None:
    pytest.importorskip("faiss")
    update_codes(many)
    path = many.folder / "1-3000-codes.faiss"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(IndexFileError, match=r"1-3000-codes\.faiss was changed after it was written"):
        open_codes(many.folder, open_vectors(many.folder))


def test_an_update_removes_dead_rows_and_says_when_faiss_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = TableEncoder({"apple": [1.0, 0.0], "banana": [0.0, 1.0]})
    docs, idx = tmp_path / "docs", tmp_path / "docs.idx"
    write_rows(docs / "rows.jsonl", [{"id": str(n), "text": f"apple {n}"} for n in range(60)])
    update_index(docs, idx, encoder=encoder)
    monkeypatch.setattr(embedding, "_FEW_ROWS", 50)
    monkeypatch.setattr(codes, "EXACT_ROWS", 15)
    monkeypatch.setitem(sys.modules, "faiss", None)
    write_rows(docs / "rows.jsonl", [{"id": str(n), "text": f"apple {n}"} for n in range(20)])
    report = update_index(docs, idx, encoder=encoder)
    assert [(note.source, note.reason) for note in report.notes] == [("vectors", SLOW)]
    assert len(open_vectors(idx / VECTORS)) == 20
    assert open_vectors(idx / VECTORS).manifest.generation == 2
    assert len(encoder.texts) == 61  # the width, and every passage once


async def test_dead_rows_do_not_take_the_place_of_passages(tmp_path: Path) -> None:
    encoder = TableEncoder({"apple": [1.0, 0.0], "banana": [0.6, 0.8]})
    docs, idx = tmp_path / "docs", tmp_path / "docs.idx"
    write_rows(docs / "rows.jsonl", [{"id": str(n), "text": f"apple {n}"} for n in range(100)])
    update_index(docs, idx, encoder=encoder)
    write_rows(docs / "rows.jsonl", [{"id": f"b{n}", "text": f"banana {n}"} for n in range(3)])
    update_index(docs, idx, encoder=encoder)
    assert len(open_vectors(idx / VECTORS)) == 103
    found = await open_index(idx, encoder=encoder, mode="dense").retrieve("apple", 2)
    assert [passage.id for passage in found] == ["b0", "b1"]
