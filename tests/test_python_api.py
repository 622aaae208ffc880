"""What Python takes: any retriever, lists, methods with settings; named and typed arguments; errors that name them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import arbitrag
from arbitrag import Kit, Passage, Question
from arbitrag.errors import BackendError, CapabilityError, UsageError
from arbitrag.integrations.objects import retriever_of
from arbitrag.kit import Limits
from arbitrag.methods.rag import Rag
from arbitrag.run import answer_all, open_kit
from arbitrag.testing import FixedRetriever, ScriptedLLM

TEXTS = ["Oskar Brend directed it.", "It was shown in 1987."]


class Awaited:
    """Somebody's own retriever: one async method, and nothing else."""

    async def retrieve(self, query: str, k: int) -> list[str]:
        return [f"about {query}", *TEXTS][:k]


class Blocking:
    def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> Sequence[Passage]:
        return [Passage(f"{query} {dict(where or {})}", id="mine", source="my.md", score=0.5)]


async def found(index: Any, **parts: Any) -> list[tuple[str, str]]:
    async with open_kit(ScriptedLLM(), index=index, **parts) as kit:
        return [(passage.id, passage.text) for passage in await kit.retrieve("harbours", 3)]


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (TEXTS, [("1", TEXTS[0]), ("2", TEXTS[1])]),
        ((Passage("One.", id="a"), "Two."), [("a", "One."), ("2", "Two.")]),
        ([], []),
        (FixedRetriever([Passage("One.", id="a")]), [("a", "One.")]),
        (Awaited(), [("1", "about harbours"), ("2", TEXTS[0]), ("3", TEXTS[1])]),
        (Blocking(), [("mine", "harbours {}")]),
        (SimpleNamespace(invoke=lambda query: [SimpleNamespace(id="x", page_content="A chain.", metadata={})]), None),
    ],
    ids=["texts", "mixed", "nothing", "ours", "awaited", "blocking", "a chain"],
)
async def test_index_takes_what_gives_passages(index: Any, expected: list[tuple[str, str]] | None) -> None:
    assert await found(index) == (expected if expected is not None else [("x", "A chain.")])


async def test_a_retriever_of_ones_own_is_filtered_where_it_can_be() -> None:
    assert await found(Blocking(), where={"language": "de"}) == [("mine", "harbours {'language': 'de'}")]
    with pytest.raises(CapabilityError, match=r"(?s)own:Awaited was asked for .*third parameter, where"):
        await found(Awaited(), where={"language": "de"})


async def test_what_a_retriever_of_ones_own_does_wrong_is_named() -> None:
    class Wrong:
        def retrieve(self, query: str, k: int) -> list[Any]:
            return [7]

    class Broken:
        def retrieve(self, query: str, k: int) -> list[str]:
            raise KeyError("harbour")

    with pytest.raises(UsageError, match=r"Wrong\.retrieve: it= takes passages|its item 1 is an int"):
        await found(Wrong())
    with pytest.raises(BackendError, match="own:Broken failed: KeyError: 'harbour'"):
        await found(Broken())


def test_frameworks_are_told_apart_by_what_they_offer() -> None:
    llamaindex = SimpleNamespace(aretrieve=lambda query: [], retrieve=lambda query: [])
    haystack = SimpleNamespace(run=lambda query: {"documents": []})
    kinds = [retriever_of(each).name.partition(":")[0] for each in (llamaindex, haystack, Awaited())]
    assert kinds == ["llamaindex", "haystack", "own"]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("trustmargin threshold=-1", {"weight": 0.5, "threshold": -1.0, "k": 20, "candidate": "rag"}),
        ("rag k=3", {"k": 3}),
        (Rag(k=4), {"k": 4}),
    ],
)
async def test_methods_come_with_settings(method: Any, settings: dict[str, Any]) -> None:
    llm = ScriptedLLM({"": "x"}, lambda prompt, text: -1.0)
    kit = Kit.of(llm, FixedRetriever([Passage("x")]))
    assert (await arbitrag.answer("Who?", method, kit)).trace.settings == settings
    (row,) = [row async for row in answer_all([Question("Who?")], method, kit)]
    assert row.trace.settings == settings


def test_every_argument_of_open_kit_is_one_of_ask() -> None:
    """Named and typed in both, so that an editor completes them; this holds the two together."""
    kit, ask = (inspect.signature(each).parameters for each in (arbitrag.open_kit, arbitrag.ask))
    assert [name for name in ask if name not in ("question", "method", "form")] == list(kit)
    for name, parameter in kit.items():
        assert (ask[name].annotation, ask[name].default) == (parameter.annotation, parameter.default)
        assert ask[name].kind is inspect.Parameter.KEYWORD_ONLY


class NoModel:
    def __repr__(self) -> str:  # of the same text in every process: test names hold it
        return "NoModel()"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"llm": 5}, "llm= takes an address such as 'openai:gpt-4o-mini', 'hf:MODEL' or 'lab', or a model; got an int"),
        ({"llm": None}, "llm= takes .*; got None"),
        ({"llm": ScriptedLLM}, r"llm= takes .*; got the class ScriptedLLM; make one of it: ScriptedLLM\(\.\.\.\)"),
        ({"scorer": NoModel()}, "scorer= takes an address .*; got a NoModel"),
        ({"encoder": 5}, "encoder= takes an address such as 'hash' .*; got an int"),
        (
            {"index": 5},
            r"index= takes an address, a path, a retriever \(.*\), or a list of .*; got an int",
        ),
        ({"index": {"a": "b"}}, "index= takes .*; got a dict"),
        ({"index": [5]}, "index= takes passages or texts; its item 1 is an int"),
        ({"passages": "One text."}, "passages= takes a list of passages or texts; got a str"),
        ({"passages": [None]}, "passages= takes passages or texts; its item 1 is None"),
        ({"retriever": Awaited}, r"retriever= takes .*; got the class Awaited; make one of it: Awaited\(\.\.\.\)"),
        ({"where": {"year": 1987}}, "where= takes a mapping of texts .*; got a dict"),
        ({"limits": 500}, "limits= takes Limits.*; got an int"),
        ({"wording": 5}, "wording= takes the path of a folder; got an int"),
        ({"cache": True}, "cache= takes the path of a folder; got a bool"),
        ({"price": 0.5}, "price= takes Price.*; got a float"),
        ({"mode": 5, "index": "docs.idx"}, "mode= takes 'bm25', 'dense' or 'hybrid'; got an int"),
        ({"mode": "dense", "index": TEXTS}, "a mode is for searching an index; give its address"),
        ({"question": 5}, "question= takes a text or a Question; got an int"),
        ({"method": 5}, "method= takes 'trustmargin threshold=-1', or a method .*; got an int"),
        ({"method": Rag}, r"method= takes .*; got the class Rag; make one of it: Rag\(\.\.\.\)"),
        ({"form": "lnog"}, "form= takes 'short' or 'long'; got a str"),
        ({"method": "rag kk=1"}, "unknown option of rag 'kk'"),
    ],
    ids=str,
)
def test_an_error_names_the_argument(given: dict[str, Any], message: str) -> None:
    parts: dict[str, Any] = {"question": "Who?", "method": "direct", "llm": ScriptedLLM(["x"]), **given}
    with pytest.raises(UsageError, match=message):
        arbitrag.ask(**parts)


def test_everything_together(tmp_path: Path) -> None:
    llm = ScriptedLLM({"": "Oskar Brend"})
    verdict = arbitrag.ask(
        "Who directed it?", "rag k=1", llm=llm, index=TEXTS, limits=Limits(answer_tokens=8), cache=tmp_path
    )
    assert (verdict.answer, [passage.text for passage in verdict.kept]) == ("Oskar Brend", TEXTS[:1])
