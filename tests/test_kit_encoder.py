"""The encoder of a kit: where it comes from, what it is not asked twice, and a replay without it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from arbitrag.encode.base import Kind
from arbitrag.encode.hashed import HashEncoder
from arbitrag.encode.lazy import LazyEncoder
from arbitrag.errors import CapabilityError, DataError, IndexFileError, TraceError, UsageError
from arbitrag.kit import Kit
from arbitrag.replay import decide_again, load_trace, save_trace
from arbitrag.retrieve import update_index
from arbitrag.run import answer, check, open_kit
from arbitrag.testing import FixedRetriever, ScriptedLLM
from arbitrag.types import Need, Passage, Question, Strategy, Verdict

TEXTS = ("Oskar Brend directed The Silent Orchard.", "Mira Talven wrote a song.", "The harbour of Olm is deep.")


class Counting(HashEncoder):
    """The hash encoder, and the texts of each call to it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[str]] = []

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        self.calls.append(list(texts))
        return await super().encode(texts, kind=kind)


class Plain:
    """One head of its own: a text's vector is (1, 0) when it is long, else (0.6, 0.8)."""

    name = identity = "plain"
    width = 2

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        return np.array([(1.0, 0.0) if len(text) > 20 else (0.6, 0.8) for text in texts], np.float32)

    async def aclose(self) -> None:
        pass


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": text, "title": f"T{at}"}) + "\n" for at, text in enumerate(TEXTS)))
    update_index(rows, folder / "docs.idx", encoder="hash")
    return folder / "docs.idx"


@pytest.mark.parametrize("mode", ["bm25", "dense", "hybrid"])
async def test_what_an_index_has_encoded_is_not_encoded_again(index: Path, mode: str) -> None:
    encoder = Counting()
    async with open_kit(ScriptedLLM(), index=index, encoder=encoder, mode=mode) as kit:
        found = await kit.retrieve("Who directed The Silent Orchard?", k=3)
        asked = len(encoder.calls)
        vectors = await kit.embed(found)
        assert len(found) >= 1
        assert len(encoder.calls) == asked
        expected = await HashEncoder().encode([f"{each.title}\n{each.text}" for each in found], kind="passage")
        np.testing.assert_allclose(vectors, expected, atol=1e-4)


async def test_the_rest_is_encoded_in_one_call_and_every_vector_stays_at_its_place(index: Path) -> None:
    encoder = Counting()
    new = [Passage("a new passage"), Passage("another one", title="Title")]
    async with open_kit(ScriptedLLM(), index=index, encoder=encoder, mode="bm25") as kit:
        (stored,) = await kit.retrieve("Mira Talven", k=1)
        vectors = await kit.embed([new[0], stored, new[1]])
    assert encoder.calls == [["a new passage", "Title\nanother one"]]
    texts = ["a new passage", f"{stored.title}\n{stored.text}", "Title\nanother one"]
    np.testing.assert_allclose(vectors, await HashEncoder().encode(texts, kind="passage"), atol=1e-4)


async def test_vectors_of_another_encoder_are_not_used(index: Path) -> None:
    async with open_kit(ScriptedLLM(), index=index, mode="bm25") as kit:
        found = await kit.retrieve("Mira Talven", k=1)
    assert found[0].embedding is not None
    other = Kit.of(ScriptedLLM(), encoder=Plain())
    assert (await other.embed(found)).shape == (1, 2)
    unknown = [replace(found[0], embedded_by="")]
    counting = Counting()
    await Kit.of(ScriptedLLM(), encoder=counting).embed(unknown)
    assert len(counting.calls) == 1


async def test_one_head_compares_passages_by_the_vectors_that_they_bring() -> None:
    encoder, seen = Plain(), []
    encode = encoder.encode

    async def counting(texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        seen.append(list(texts))
        return await encode(texts, kind=kind)

    encoder.encode = counting  # type: ignore[method-assign]
    stored = Passage("body", title="Title", embedding=np.array([0.0, 1.0], np.float16), embedded_by="plain")
    foreign = Passage("other", embedding=np.array([0.0, 1.0], np.float16), embedded_by="another")
    kit = Kit.of(ScriptedLLM(), encoder=encoder)
    found = await kit.compare([("a word", "Title\nbody"), ("a word", "other")], [stored, foreign])
    assert seen == [["a word", "other"]]
    assert list(found.heads) == ["dense"]
    assert found.heads["dense"] == pytest.approx((0.8, 1.0))


async def test_no_passages_have_no_vectors() -> None:
    encoder = Counting()
    assert (await Kit.of(ScriptedLLM(), encoder=encoder).embed([])).shape == (0, 256)
    assert encoder.calls == []


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ({"passages": [Passage("x")]}, "hash"),
        ({"passages": [Passage("x")], "encoder": "hash"}, "hash"),
        ({"passages": [Passage("x")], "encoder": Plain()}, "plain"),
    ],
)
async def test_where_the_encoder_comes_from(parts: dict[str, Any], name: str) -> None:
    async with open_kit(ScriptedLLM(), **parts) as kit:
        assert kit.encoder is not None
        assert kit.encoder.name == name


async def test_an_index_brings_its_encoder_along_and_opens_it_when_it_is_needed(index: Path) -> None:
    async with open_kit(ScriptedLLM(), index=index, mode="bm25") as kit:
        assert isinstance(kit.encoder, LazyEncoder)
        found = await kit.retrieve("Mira Talven", k=1)
        await kit.embed(found)
        assert kit.encoder._opened is None
        assert (await kit.embed_queries(["who?"])).shape == (1, 256)
        assert kit.encoder._opened is not None
        assert set((await kit.compare([("a word", "a word")])).heads) == {"dense", "sparse", "multi"}
    async with open_kit(ScriptedLLM(), index=index) as kit:
        assert isinstance(kit.encoder, HashEncoder)


async def test_an_encoder_that_changed_since_the_index_was_made_is_refused() -> None:
    with pytest.raises(IndexFileError, match="was made by hash:256:0, and hash is now hash:256:1"):
        await LazyEncoder("hash", "hash:256:0", 256).encode(["x"], kind="query")


async def test_a_mode_without_an_index_is_refused() -> None:
    with pytest.raises(UsageError, match="a mode is for searching an index"):
        async with open_kit(ScriptedLLM(), mode="dense"):
            pass


@dataclass(frozen=True)
class Compares:
    """Answers with the encoder's numbers; trusts memory when they are above the threshold."""

    name: ClassVar[str] = "compares"
    needs: ClassVar[Need] = Need.ENCODE
    cost: ClassVar[str] = "nothing"
    paper: ClassVar[str] = "none"

    threshold: float = 0.5

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        (query,) = await kit.embed_queries([question.text])
        (passage,) = await kit.embed([Passage("Mira Talven wrote")])
        heads = (await kit.compare([(question.text, "Mira Talven wrote"), ("", "x")])).heads
        (near,) = await kit.nearest(question.text, 1, "pool", lambda: [Passage("a far one"), Passage("Talven wrote")])
        strategy = Strategy.MEMORY if query @ passage > self.threshold else Strategy.EVIDENCE
        scores = {name: value for name, values in heads.items() for value in values}
        return Verdict(near.text, strategy, "so", scores={**scores, "cosine": float(query @ passage)})


async def test_the_need_is_checked_before_the_first_question() -> None:
    with pytest.raises(CapabilityError, match=r"compares compares texts, and there is no encoder\.\nGive one \(--enc"):
        await check(Compares(), Kit.of(ScriptedLLM()))
    await check(Compares(), Kit.of(ScriptedLLM(), encoder=Plain()))
    with pytest.raises(CapabilityError, match="there is no encoder"):
        await Kit.of(ScriptedLLM()).embed_queries(["x"])


async def test_a_replay_needs_no_encoder(tmp_path: Path) -> None:
    first = await answer("What did Mira Talven write?", Compares(), Kit.of(ScriptedLLM(), encoder=Counting()))
    assert first.answer == "Talven wrote"
    assert first.strategy is Strategy.MEMORY
    assert (first.usage.calls, first.usage.steps) == (0, 0)
    save_trace(first.trace, tmp_path / "trace.json")
    trace = load_trace(tmp_path / "trace.json")
    assert trace.encoder == "hash"
    again = await decide_again(trace, method=Compares)
    assert (again.answer, again.strategy, again.scores) == (first.answer, first.strategy, first.scores)
    other = await decide_again(trace, {"threshold": "1.5"}, method=Compares)
    assert other.strategy is Strategy.EVIDENCE
    with pytest.raises(TraceError, match="holds no such embed call"):
        await decide_again(replace(trace, question=Question("another")), method=Compares)


async def test_a_pool_is_read_and_encoded_once_in_a_run() -> None:
    encoder, reads = Counting(), []

    def read() -> list[Passage]:
        reads.append(1)
        return [Passage("red apple", id="0"), Passage("green pear", id="1"), Passage("red apple", id="2")]

    kit = Kit.of(ScriptedLLM(), encoder=encoder)
    first = await kit.recording().nearest("a red apple", 2, "fruit", read)
    again = await kit.recording().nearest("green pear", 5, "fruit", read)
    assert [each.id for each in first] == ["0", "2"]
    assert [each.id for each in again] == ["1", "0", "2"]
    assert again[0].score == 1.0
    assert reads == [1]
    assert encoder.calls == [["red apple", "green pear", "red apple"], ["a red apple"], ["green pear"]]
    with pytest.raises(UsageError, match="k is 0"):
        await kit.nearest("x", 0, "fruit", read)
    with pytest.raises(DataError, match="no examples"):
        await kit.nearest("x", 1, "empty", list)


async def test_an_encoder_with_one_head_gives_one() -> None:
    found = await Kit.of(ScriptedLLM(), encoder=Plain()).compare([("short", "a text that is longer"), (" ", "short")])
    assert list(found.heads) == ["dense"]
    assert found.heads["dense"] == pytest.approx((0.6, 0.0))


async def test_passages_given_as_a_list_have_no_vectors_yet() -> None:
    kit = Kit.of(ScriptedLLM(), FixedRetriever([Passage(TEXTS[0])]), encoder=HashEncoder())
    assert (await kit.embed(await kit.retrieve("x", k=1))).shape == (1, 256)
