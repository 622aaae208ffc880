import asyncio
import math
from collections import Counter
from collections.abc import Callable

import pytest

from arbitrag.errors import UsageError
from arbitrag.retrieve.index import analysis
from arbitrag.retrieve.index.bm25 import Bm25Index
from arbitrag.types import Passage

DOCUMENTS = {
    "a": "cat sat mat",
    "b": "cat cat dog ran far away",
    "c": "dog bird fish tree house road car train plane boat",
    "d": "bird",
}


def index_of(*texts: str, **options: str) -> Bm25Index:
    passages = [Passage(text, id=str(number)) for number, text in enumerate(texts)]
    return Bm25Index.in_memory(passages, **options)


async def ids(index: Bm25Index, query: str, k: int = 10) -> list[str]:
    return [passage.id for passage in await index.retrieve(query, k)]


def bm25(query: str, document: str, corpus: list[str]) -> float:
    counts, lengths = [Counter(text.split()) for text in corpus], [len(text.split()) for text in corpus]
    mean, here = sum(lengths) / len(lengths), Counter(document.split())
    score = 0.0
    for word in query.split():
        n = sum(word in count for count in counts)
        idf = math.log(1 + (len(corpus) - n + 0.5) / (n + 0.5))
        tf, length = here[word], len(document.split())
        score += idf * 2.2 * tf / (tf + 1.2 * (0.25 + 0.75 * length / mean))
    return score


@pytest.mark.parametrize("query", ["cat", "cat dog", "bird cat cat", "bird bird plane", "dog nowhere"])
async def test_scores_are_those_of_the_formula(query: str) -> None:
    index = Bm25Index.in_memory([Passage(text, id=id) for id, text in DOCUMENTS.items()], language="none")
    expected = {id: bm25(query, text, list(DOCUMENTS.values())) for id, text in DOCUMENTS.items()}
    found = {passage.id: passage.score for passage in await index.retrieve(query, 10)}
    assert found == pytest.approx({id: score for id, score in expected.items() if score}, rel=1e-5)
    assert list(found) == sorted(found, key=lambda id: -expected[id])


@pytest.mark.parametrize(("length", "kept"), [(40, 40), (41, 40), (42, 42), (47, 46), (100, 96)])
async def test_lengths_are_exact_up_to_40_words_and_then_rounded_down(length: int, kept: int) -> None:
    text = " ".join(["cat"] + ["x"] * (length - 1))
    (passage,) = await index_of(text, "y", language="none").retrieve("cat", 1)
    idf, mean = math.log(1 + 1.5 / 1.5), (length + 1) / 2
    assert passage.score == pytest.approx(idf * 2.2 / (1 + 1.2 * (0.25 + 0.75 * kept / mean)), rel=1e-5)


async def test_the_title_is_searched_with_the_text() -> None:
    index = Bm25Index.in_memory(
        [Passage("He was born in 1931.", id="1", title="Oskar Brend"), Passage("Brend", id="2")]
    )
    assert await ids(index, "Oskar born") == ["1"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The cafés were closed", "CAFE"),
        ("cafe\u0301s", "cafés"),  # decomposed
        ("Running dogs", "the dog runs"),
        ("straße", "strasse"),
        ("ＡＢＣ company", "abc"),  # full width
        ("C'est l'été", "ete"),
        ("東京都は日本の首都です", "首都"),
        ("東京都は日本の首都です", "東"),
        ("서울은 대한민국의 수도이다", "대한민국"),
        ("カタカナとひらがな", "ひらがな"),
        ("กรุงเทพมหานคร", "กรุงเทพ"),
        ("to be or not to be", "To Be Or Not To Be"),
        ("The Who", "who"),
        ("GPT-4 costs 3.50", "gpt 4"),
        ("emoji 🎉 party", "🎉 party"),
        ("half \ud800 surrogate", "surrogate"),
    ],
)
async def test_a_text_is_found_by_what_a_person_would_type(text: str, query: str) -> None:
    assert (await ids(index_of("nothing alike", text), query))[0] == "1"


async def test_neighbouring_characters_count_for_more_than_scattered_ones() -> None:
    assert (await ids(index_of("京の東にある都", "東京に住む"), "東京"))[0] == "1"


@pytest.mark.parametrize(
    "query",
    [
        "cat AND dog",
        "cat OR bird",
        "NOT cat",
        '"cat dog"',
        '"cat',
        "cat:dog",
        "body:cat",
        "+cat -dog",
        "cat^5",
        "cat~2",
        "(cat",
        "cat)",
        "[a TO cat]",
        "cat*",
        "/cat/",
        "cat\\",
        "cat && dog || !x",
        "IN [cat]",
        "<cat>",
        "cat\x00\x1b[31m",
    ],
)
async def test_nothing_in_a_query_is_syntax(query: str) -> None:
    assert "1" in await ids(index_of("plain", "cat and more"), query)


@pytest.mark.parametrize("query", ["", "   ", "?!", "unknownword", "\n", "…"])
async def test_a_query_that_matches_nothing_finds_nothing(query: str) -> None:
    assert await index_of("cat", "dog").retrieve(query, 5) == ()


async def test_a_very_long_query_is_searched_by_its_beginning() -> None:
    index = index_of("cat", "dog")
    assert await ids(index, "cat " + "x " * 50_000 + "dog") == ["0"]


async def test_an_empty_index_finds_nothing() -> None:
    index = Bm25Index.in_memory([])
    assert len(index) == 0
    assert await index.retrieve("cat", 5) == ()


@pytest.mark.parametrize("k", [0, -1])
async def test_k_is_at_least_one(k: int) -> None:
    with pytest.raises(UsageError, match=f"k is {k}"):
        await index_of("cat").retrieve("cat", k)


async def test_k_may_be_larger_than_the_index() -> None:
    assert await ids(index_of("cat", "cat", "dog"), "cat", 10**9) == ["0", "1"]


@pytest.mark.parametrize("k", [1, 7, 499, 500, 501])
async def test_ties_keep_the_given_order(k: int) -> None:
    texts = ["same words here"] * 500 + ["same"]
    assert await ids(index_of(*texts), "same", k) == ["500", *map(str, range(500))][:k]


async def test_passages_come_back_whole() -> None:
    passage = Passage("text", "7", "Title", "a.md", 3, 0, None, "2020-01-02", {"page": "4", "ключ": "значение"})
    (found,) = await Bm25Index.in_memory([passage]).retrieve("text", 1)
    score = found.score
    assert score is not None
    assert score > 0
    assert found == Passage("text", "7", "Title", "a.md", 3, 0, score, "2020-01-02", {"page": "4", "ключ": "значение"})


async def test_where_keeps_only_passages_with_these_values() -> None:
    index = Bm25Index.in_memory(
        [
            Passage("cat", id="1", metadata={"lang": "en", "year": "1931"}),
            Passage("cat", id="2", metadata={"lang": "de", "year": "1931"}),
            Passage("cat", id="3"),
            Passage("dog", id="4", metadata={"lang": "en"}),
        ]
    )
    everything = await index.retrieve("cat", 10)
    found = await index.retrieve("cat", 10, {"year": "1931"})
    assert [passage.id for passage in found] == ["1", "2"]
    assert found[0].score == everything[0].score
    assert [p.id for p in await index.retrieve("cat", 10, {"year": "1931", "lang": "de"})] == ["2"]
    assert await index.retrieve("cat", 10, {"year": "19"}) == ()
    assert [p.id for p in await index.retrieve("cat", 10, {})] == ["1", "2", "3"]


async def test_calls_may_overlap() -> None:
    index = index_of(*(f"word{number}" for number in range(100)))
    found = await asyncio.gather(*(index.retrieve(f"word{number}", 1) for number in range(100)))
    assert [passages[0].id for passages in found] == [str(number) for number in range(100)]
    await index.aclose()


@pytest.mark.parametrize(("length", "threads"), [(22, 0), (23, 1), (20_000, 1), (30_000, 1)])
async def test_only_a_longer_search_leaves_the_event_loop(
    length: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search over 100 passages counts as 0.5 ns * 100 * (length / 6 + 7); the limit here is that of 22 characters."""
    index, used = index_of(*["cat"] * 100), []

    async def to_thread(function: Callable[..., object], *arguments: object) -> object:
        used.append(function)
        return function(*arguments)

    monkeypatch.setattr("asyncio.to_thread", to_thread)
    monkeypatch.setattr("arbitrag.retrieve.index.bm25._LONGEST_ON_LOOP_S", 0.5e-9 * 100 * (22 / 6 + 7))
    assert await ids(index, "cat".ljust(length), 2) == ["0", "1"]
    assert len(used) == threads


def test_the_identity_follows_the_content() -> None:
    assert index_of("cat").identity == index_of("cat").identity
    assert len({index_of("cat").identity, index_of("dog").identity, index_of("cat", language="none").identity}) == 3
    assert index_of("cat", "dog").name == "bm25 over 2 passages"
    assert Bm25Index.in_memory([], name="the world").name == "the world"


def test_an_unknown_language_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown language 'englisch'\. Did you mean 'english'"):
        index_of("cat", language="englisch")


def test_plain_text_is_handed_on_as_it_is() -> None:
    assert analysis.searchable("Plain text.") == "Plain text."
    assert analysis.searchable("東京都") == " 東 京 都 東京 京都 "
