"""The table of methods, and options given as text."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from arbitrag.errors import UsageError
from arbitrag.kit import Kit
from arbitrag.methods import AUTO, METHODS, load
from arbitrag.methods.base import configure, settings
from arbitrag.methods.rag import Rag
from arbitrag.methods.trustmargin import TrustMargin
from arbitrag.types import Need, Question, Verdict


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_a_frozen_dataclass_that_says_what_it_is(name: str) -> None:
    kind: Any = load(name)
    assert kind.__dataclass_params__.frozen
    assert kind.name == ("rag" if name == AUTO else name)
    assert isinstance(kind.needs, Need)
    assert kind.cost
    assert kind.paper
    fields = {field.name for field in dataclasses.fields(kind)}
    assert not fields & {"name", "needs", "cost", "paper"}
    assert settings(kind()).keys() == fields


def test_an_unknown_method_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match=r"unknown method 'trustmargn'\. Did you mean 'trustmargin'"):
        load("trustmargn")


@dataclass(frozen=True)
class Example:
    name: ClassVar[str] = "example"
    needs: ClassVar[Need] = Need.GENERATE
    cost: ClassVar[str] = ""
    paper: ClassVar[str] = ""

    rounds: int = 2
    threshold: float = -1.5
    strict: bool = False
    rule: str = "robust"

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Example()),
        ({"rounds": "7"}, Example(rounds=7)),
        ({"threshold": "-1"}, Example(threshold=-1.0)),
        ({"threshold": "1e-3", "rounds": " 3 "}, Example(threshold=0.001, rounds=3)),
        ({"strict": "true"}, Example(strict=True)),
        ({"strict": "FALSE"}, Example(strict=False)),
        ({"rule": "reference"}, Example(rule="reference")),
        ({"rule": ""}, Example(rule="")),
    ],
)
def test_options_are_read_by_the_type_of_the_default(options: dict[str, str], expected: Example) -> None:
    made = configure(Example, options)
    assert made == expected
    assert {type(value) for value in settings(made).values()} == {int, float, bool, str}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rounds": "2.5"}, "example: rounds is a whole number; got '2.5'"),
        ({"rounds": ""}, "example: rounds is a whole number; got ''"),
        ({"threshold": "low"}, "example: threshold is a number; got 'low'"),
        ({"threshold": "nan"}, "example: threshold is a finite number; got 'nan'"),
        ({"threshold": "-inf"}, "example: threshold is a finite number; got '-inf'"),
        ({"strict": "yes"}, "example: strict is true or false; got 'yes'"),
        ({"treshold": "1"}, "unknown option of example 'treshold'. Did you mean 'threshold'?"),
        ({"needs": "1"}, "unknown option of example 'needs'."),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        configure(Example, options)
    assert str(caught.value).startswith(text)


def test_the_paper_s_defaults() -> None:
    assert settings(TrustMargin()) == {"weight": 0.5, "threshold": -1.5, "k": 20, "candidate": "rag"}
    assert settings(Rag()) == {"k": 20}


@pytest.mark.parametrize("name", [name for name in METHODS if name != "direct"])
def test_no_method_takes_fewer_than_one_passage(name: str) -> None:
    """Before any question is asked, whichever way the method is made."""
    with pytest.raises(UsageError, match=r"1 or more"):
        configure(load(name), {"k": "0"})
    assert settings(configure(load(name), {"k": "1"}))["k"] == 1
