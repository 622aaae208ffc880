"""Search by vectors in an index: exact, filtered, and after changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vector_parts import TableEncoder, write_rows

from arbitrag.encode.hashed import HashEncoder
from arbitrag.errors import BackendError, IndexFileError, UsageError
from arbitrag.retrieve import open_index, update_index
from arbitrag.retrieve.index.bm25 import Bm25Index
from arbitrag.retrieve.index.dense import DenseIndex, StoredVectors
from arbitrag.retrieve.index.manifest import VECTORS
from arbitrag.retrieve.index.vectors import open_vectors, passage_key

TABLE = {"apple": [1.0, 0.0, 0.0], "banana": [3.0, 4.0, 0.0], "cherry": [0.0, 1.0, 0.0], "date": [0.0, 0.0, 1.0]}
ROWS = [
    {"id": "1", "text": "An apple fell.", "lang": "en", "kind": "story"},
    {"id": "2", "text": "Eine banana lag da.", "lang": "de", "kind": "story"},
    {"id": "3", "text": "The cherry is red.", "lang": "en", "kind": "fact"},
]


@pytest.fixture
def encoder() -> TableEncoder:
    return TableEncoder(TABLE)


@pytest.fixture
def idx(tmp_path: Path, encoder: TableEncoder) -> Path:
    write_rows(tmp_path / "docs" / "rows.jsonl", ROWS)
    update_index(tmp_path / "docs", tmp_path / "docs.idx", encoder=encoder)
    return tmp_path / "docs.idx"


async def test_scores_are_cosines_and_passages_carry_their_vectors(idx: Path, encoder: TableEncoder) -> None:
    dense = open_index(idx, encoder=encoder, mode="dense")
    found = await dense.retrieve("apple", 5)
    assert [(passage.id, passage.score) for passage in found] == [
        ("1", pytest.approx(1.0, abs=1e-3)),
        ("2", pytest.approx(0.6, abs=1e-3)),  # stored in half precision
        ("3", 0.0),
    ]
    assert found[0].text == "An apple fell."
    assert found[0].metadata["lang"] == "en"
    assert found[1].embedding is not None
    np.testing.assert_allclose(found[1].embedding, [0.6, 0.8, 0.0], atol=1e-3)
    assert found[1].embedding.dtype == np.float32
    assert [passage.id for passage in await dense.retrieve("cherry", 2)] == ["3", "2"]
    await dense.aclose()
    assert encoder.closed == 0  # it is the caller's


async def test_filters_hold_for_every_mode(idx: Path, encoder: TableEncoder) -> None:
    for mode in ("bm25", "dense", "hybrid"):
        retriever = open_index(idx, encoder=encoder, mode=mode)
        query = "apple banana cherry"
        assert {passage.id for passage in await retriever.retrieve(query, 5, {"lang": "en"})} == {"1", "3"}
        (only,) = await retriever.retrieve(query, 5, {"lang": "en", "kind": "fact"})
        assert only.id == "3"
        assert await retriever.retrieve(query, 5, {"lang": "fr"}) == ()
        assert await retriever.retrieve(query, 5, {"kind": "en"}) == ()


async def test_hybrid_is_the_default_and_fuses_both(idx: Path, encoder: TableEncoder) -> None:
    hybrid = open_index(idx, encoder=encoder)
    found = await hybrid.retrieve("apple", 3)
    # BM25 finds the first only; vectors rank 1, 2, 3.
    assert [(passage.id, passage.score) for passage in found] == [("1", 2 / 61), ("2", 1 / 62), ("3", 1 / 63)]
    assert all(passage.embedding is not None for passage in found)
    assert hybrid.identity.startswith("rrf60x100(bm25:")
    words = await open_index(idx, mode="bm25").retrieve("apple", 3)
    assert [passage.id for passage in words] == ["1"]
    assert words[0].embedding is not None
    np.testing.assert_allclose(words[0].embedding, [1, 0, 0], atol=1e-3)


async def test_a_query_without_a_vector_finds_nothing(idx: Path, encoder: TableEncoder) -> None:
    dense = open_index(idx, encoder=encoder, mode="dense")
    assert await dense.retrieve("nothing of the kind", 5) == ()
    with pytest.raises(UsageError, match="k is 0"):
        await dense.retrieve("apple", 0)


async def test_changed_and_dropped_passages_are_gone_and_new_ones_there(idx: Path, encoder: TableEncoder) -> None:
    dense = open_index(idx, encoder=encoder, mode="dense")
    before = dense.identity
    rows = [ROWS[0], {**ROWS[1], "text": "Now a date."}, {"id": "4", "text": "Another cherry.", "lang": "en"}]
    write_rows(idx.parent / "docs" / "rows.jsonl", rows)
    encoder.texts.clear()
    update_index(idx.parent / "docs", idx, encoder=encoder)
    assert encoder.texts == ["rows\nNow a date.", "rows\nAnother cherry."]  # the first row's vector was there
    assert [passage.id for passage in await dense.retrieve("banana", 5)] == ["4", "1", "2"]
    assert [passage.text for passage in await dense.retrieve("date", 1)] == ["Now a date."]
    assert [passage.id for passage in await dense.retrieve("cherry", 5, {"lang": "en"})] == ["4", "1"]
    assert dense.identity != before


async def test_an_update_opens_the_encoder_that_the_index_was_made_with(tmp_path: Path) -> None:
    docs, idx = tmp_path / "docs", tmp_path / "docs.idx"
    write_rows(docs / "rows.jsonl", ROWS[:1])
    update_index(docs, idx, encoder="hash")
    write_rows(docs / "rows.jsonl", ROWS)
    update_index(docs, idx)
    retriever = open_index(idx, mode="dense")
    assert [passage.id for passage in await retriever.retrieve("red cherries", 1)] == ["3"]
    expected = await HashEncoder().encode(["rows\nThe cherry is red."], kind="passage")
    (found,) = await retriever.retrieve("cherry red", 1)
    assert found.embedding is not None
    np.testing.assert_allclose(found.embedding, expected[0], atol=1e-3)
    await retriever.aclose()


async def test_it_equals_brute_force(tmp_path: Path) -> None:
    words = [f"{a}{b}" for a in ("mira", "tal", "oskar", "brend", "lun") for b in ("ven", "dor", "ika", "os", "ette")]
    rows = [
        {"id": str(n), "text": " ".join(words[(n * m + m) % 25] for m in range(1, 9)), "part": str(n % 3)}
        for n in range(700)
    ]
    write_rows(tmp_path / "docs" / "rows.jsonl", rows)
    update_index(tmp_path / "docs", tmp_path / "docs.idx", encoder="hash")
    dense = open_index(tmp_path / "docs.idx", mode="dense")
    encoder = HashEncoder()
    vectors = (await encoder.encode([f"rows\n{row['text']}" for row in rows], kind="passage")).astype(np.float16)
    for query in ("miraven oskardor", "lunette talika brendos"):
        (asked,) = await encoder.encode([query], kind="query")
        for where in (None, {"part": "1"}):
            scores = vectors.astype(np.float32) @ asked
            kept = [n for n in range(700) if where is None or rows[n]["part"] == where["part"]]
            best = sorted((float(scores[n]) for n in kept), reverse=True)[:20]
            found = await dense.retrieve(query, 20, where)
            np.testing.assert_allclose([passage.score or 0.0 for passage in found], best, atol=2e-6)
            for passage in found:
                assert passage.score == pytest.approx(float(scores[int(passage.id)]), abs=2e-6)
            assert {int(passage.id) % 3 for passage in found} <= ({1} if where else {0, 1, 2})


async def test_equal_passages_come_in_the_order_of_indexing(tmp_path: Path) -> None:
    write_rows(tmp_path / "docs" / "rows.jsonl", [{"id": str(n), "text": "the same words"} for n in range(30)])
    update_index(tmp_path / "docs", tmp_path / "docs.idx", encoder="hash")
    found = await open_index(tmp_path / "docs.idx", mode="dense").retrieve("same words", 7)
    assert [passage.id for passage in found] == [str(n) for n in range(7)]


async def test_a_passage_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    write_rows(tmp_path / "docs" / "rows.jsonl", [ROWS[0]] * 40)
    update_index(tmp_path / "docs", tmp_path / "docs.idx", encoder="hash")
    assert len(open_vectors(tmp_path / "docs.idx" / VECTORS)) == 1
    (found,) = await open_index(tmp_path / "docs.idx", mode="dense").retrieve("apple", 5)
    assert found.text == "An apple fell."


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (TableEncoder({"apple": [1.0, 0.0]}), r"docs\.idx are 3 wide, those of table 2; .* made with: table"),
        (TableEncoder(TABLE, "newer"), r"were made by table, newer is newer; give the encoder that it was made with"),
    ],
)
def test_another_encoder_is_refused(idx: Path, other: TableEncoder, message: str) -> None:
    with pytest.raises(IndexFileError, match=message):
        open_index(idx, encoder=other)
    with pytest.raises(IndexFileError, match=message):
        update_index(idx.parent / "docs", idx, encoder=other)
    assert len(Bm25Index.open(idx)) == 3


async def test_a_width_that_shows_only_in_the_reply_is_refused(
    idx: Path, encoder: TableEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = DenseIndex(Bm25Index.open(idx), StoredVectors(idx), encoder, idx)
    changed = TableEncoder({"apple": [1.0, 0.0], "banana": [1.0, 0.0]})
    monkeypatch.setattr(encoder, "_table", changed._table)
    with pytest.raises(IndexFileError, match=r"docs\.idx are 3 wide, table gave one of 2"):
        await dense.retrieve("apple", 1)
    await dense.aclose()
    assert encoder.closed == 1


def test_a_width_that_shows_only_while_indexing_is_refused(
    idx: Path, encoder: TableEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(idx.parent / "docs" / "more.jsonl", [{"text": "more banana"}])
    monkeypatch.setattr(encoder, "encode", TableEncoder({"banana": [1.0, 0.0]}).encode)
    with pytest.raises(IndexFileError, match=r"docs\.idx are 3 wide; table gave 2 numbers for a passage"):
        update_index(idx.parent / "docs", idx, encoder=encoder)
    assert len(Bm25Index.open(idx)) == 3


def test_an_index_without_vectors_says_so(tmp_path: Path) -> None:
    write_rows(tmp_path / "docs" / "rows.jsonl", ROWS)
    idx = tmp_path / "docs.idx"
    update_index(tmp_path / "docs", idx)
    assert isinstance(open_index(idx), Bm25Index)
    with pytest.raises(IndexFileError, match=r"holds no vectors; leave the mode out, or make one that does"):
        open_index(idx, mode="dense")
    with pytest.raises(IndexFileError, match=r"was made without vectors; leave the encoder out, or make another"):
        update_index(tmp_path / "docs", idx, encoder="hash")
    with pytest.raises(IndexFileError, match=r"is damaged: vectors/vectors.json is missing"):
        StoredVectors(idx)


def test_a_mode_that_is_none(idx: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown mode 'densest'\. Did you mean 'dense'\?"):
        open_index(idx, mode="densest")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="mode=dense is for an index on disk"):
        open_index("postgres://nowhere/db", mode="dense")


def test_an_encoder_that_fails_leaves_the_old_index(idx: Path, encoder: TableEncoder) -> None:
    write_rows(idx.parent / "docs" / "more.jsonl", [{"id": "9", "text": "one more banana"}])
    encoder.fails_after = len(encoder.texts)
    with pytest.raises(BackendError, match="the encoder went away"):
        update_index(idx.parent / "docs", idx, encoder=encoder)
    assert len(Bm25Index.open(idx)) == 3
    encoder.fails_after = None
    assert update_index(idx.parent / "docs", idx, encoder=encoder).passages == 4


def test_an_encoder_that_fails_at_once_leaves_nothing(tmp_path: Path, encoder: TableEncoder) -> None:
    write_rows(tmp_path / "docs" / "rows.jsonl", ROWS)
    encoder.fails_after = 0
    with pytest.raises(BackendError, match="the encoder went away"):
        update_index(tmp_path / "docs", tmp_path / "docs.idx", encoder=encoder)
    assert not (tmp_path / "docs.idx").exists()


async def test_text_that_cannot_be_encoded_keeps_its_vector(tmp_path: Path) -> None:
    write_rows(tmp_path / "docs" / "rows.jsonl", [{"id": "1", "text": "a \ud800 orchard"}])
    update_index(tmp_path / "docs", tmp_path / "docs.idx", encoder="hash")
    (found,) = await open_index(tmp_path / "docs.idx", mode="bm25").retrieve("orchard", 1)
    assert found.embedding is not None
    assert StoredVectors(tmp_path / "docs.idx").current()[0].rows_of([passage_key(found)]).tolist() == [0]
