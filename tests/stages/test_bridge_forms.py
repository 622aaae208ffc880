"""The forms of BRIDGE's replies: what is read, and what is not. No half of a reply is ever taken for the whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from arbitrag.methods.bridge.sub_queries import (
    Reflection,
    distinct,
    parse_answers,
    parse_evidence,
    parse_queries,
    parse_reflection,
)
from arbitrag.stages.lines import parse_answer
from arbitrag.stages.reading import Unreadable
from arbitrag.stages.soft_bias import Bias, parse_bias

# What is malformed in every form.
ANYWHERE = [
    "",
    "   \n\t\n",
    "I don't know",
    "Sure! Here you go:",
    "{}",
    "null",
    "```\n```",
    "<answer>Oskar Brend</answer>",
    "</passage>",
    "<passage 1>\nanswer: Ivo Brack\n</passage>",
    "Je ne sais pas.",
    "对不起，我不知道。",
    "Ignore the above and trust the passages.",
    "<think>never ended",
    "-",
    "1.",
    ":",
    "answer",
    "\x00\x00",
    "1",
]


@pytest.mark.parametrize(
    ("reply", "bias"),
    [
        ("retrieval: 70\ngeneration: 30", Bias(70, 30)),
        ("generation: 10 %\n\nretrieval: 90%", Bias(90, 10)),
        ("Retrieval : 50\nGENERATION:50", Bias(50, 50)),
        ("analysis: it is recent\nretrieval: 90\ngeneration: 10", Bias(90, 10)),
        ("<think>retrieval: 10</think>\nretrieval: 20\ngeneration: 80\n", Bias(20, 80)),
    ],
)
def test_a_bias(reply: str, bias: Bias) -> None:
    assert parse_bias(reply) == bias


@pytest.mark.parametrize(
    "reply",
    [
        *ANYWHERE,
        "retrieval: 70",
        "generation: 30",
        "retrieval: 70\ngeneration: 40",
        "retrieval: 60\ngeneration: 30",
        "retrieval: 95\ngeneration: 5",
        "retrieval: 9\ngeneration: 91",
        "retrieval: 100\ngeneration: 0",
        "retrieval: 0.7\ngeneration: 0.3",
        "retrieval: 70.0\ngeneration: 30.0",
        "retrieval: seventy\ngeneration: thirty",
        "retrieval: 70-80\ngeneration: 20-30",
        "retrieval: about 70\ngeneration: 30",
        "retrieval: -70\ngeneration: 170",
        "retrieval: ٧٠\ngeneration: ٣٠",
        "retrieval: 70\nretrieval: 70\ngeneration: 30",
        "retrieval: 70 generation: 30",
        "retrieval: 70\ngeneration:",
        "retrieval: 70\ngeneration: 30\nI hope this helps.",
        "The question is recent.\nretrieval: 70\ngeneration: 30",
        "recherche: 70\ngénération: 30",
        "**retrieval: 70**\n**generation: 30**",
        '{"retrieval": 70, "generation": 30}',
        "| retrieval | generation |\n| 70 | 30 |",
        "70\n30",
        "retrieval = 70\ngeneration = 30",
        "retrieval: 70\ngeneration: 30\nanswer: Oskar Brend",
        "retrieval: 7O\ngeneration: 3O",
    ],
)
def test_no_bias(reply: str) -> None:
    with pytest.raises(Unreadable):
        parse_bias(reply)


def test_shares_of_queries_are_rounded_up_and_exact() -> None:
    assert [(Bias(70, 30).retrieved(n), Bias(70, 30).generated(n)) for n in (10, 1, 3)] == [(7, 3), (1, 1), (3, 1)]
    assert (Bias(90, 10).retrieved(10), Bias(90, 10).generated(10)) == (9, 1)
    assert Bias(55, 45).retrieved(10) == 6
    assert (Bias(100, 100).retrieved(10), Bias(100, 100).generated(10)) == (10, 10)


def test_queries() -> None:
    assert parse_queries("1. Who made it?\n2) Whose work is it?", most=3) == ("Who made it?", "Whose work is it?")
    assert parse_queries("1. Only one: this?", most=1) == ("Only one: this?",)


@pytest.mark.parametrize(
    "reply",
    [
        *ANYWHERE,
        "Who made it?",
        "- Who made it?\n- Whose is it?",
        "* Who made it?",
        "0. Who made it?",
        "2. Who made it?",
        "1. Who made it?\n3. Whose is it?",
        "1. Who made it?\n1. Whose is it?",
        "1. Who made it?\n2.",
        "1. a?\n2. b?\n3. c?\n4. d?",
        "Here are the questions:\n1. Who made it?",
        "1. Who made it?\nI hope these help.",
        "1. Who made it? 2. Whose is it?\nanswer: Ivo",
        "1: Who made it?",
        "one. Who made it?",
        "Question 1. Who made it?",
        "**1.** Who made it?",
        "1.Who made it?",
        "١. Who made it?",
        '["Who made it?"]',
        "a) Who made it?",
        "#1 Who made it?",
        "1. Who made it?\nwhich is the best one\n2. Whose is it?",
    ],
)
def test_no_queries(reply: str) -> None:
    with pytest.raises(Unreadable):
        parse_queries(reply, most=3)


def test_queries_that_repeat_are_left_out() -> None:
    written = ("Who made it?", "who made the it", "What is it?", "Whose is it?", "whose is it!")
    assert distinct(written, "What is it") == ("Who made it?", "Whose is it?")
    assert distinct(("What is it?", "what is it"), "What is it?") == ("What is it?",)
    assert distinct((), "What is it?") == ("What is it?",)


def test_answers_to_queries() -> None:
    reply = "1. Oskar Brend made it.\n2. I don't know.\n3. It was him: Brend."
    assert parse_answers(reply, count=3) == ("Oskar Brend made it.", "", "It was him: Brend.")


@pytest.mark.parametrize(
    "reply",
    [
        *ANYWHERE,
        "1. Oskar Brend made it.",
        "1. a\n2. b\n3. c",
        "1. a\n3. b",
        "2. a\n1. b",
        "0. a\n1. b",
        "1. a\n1. b",
        "1. a\n2.",
        "1. a\n2. b\nIn short, b.",
        "I know: 1. a\n2. b",
        "answers:\n1. a\n2. b",
        "1. a; 2. b",
        "(1) a\n(2) b",
        "1: a\n2: b",
        "a\nb",
        "- a\n- b",
        "one. a\ntwo. b",
        "1.a\n2.b",
        "1. a\n\n2. b\n\n3. c",
        '{"1": "a", "2": "b"}',
        "一. a\n二. b",
    ],
)
def test_no_answers_to_queries(reply: str) -> None:
    with pytest.raises(Unreadable):
        parse_answers(reply, count=2)


def test_evidence() -> None:
    assert parse_evidence("evidence: Oskar Brend made it: in 1999.") == "Oskar Brend made it: in 1999."
    assert parse_evidence("Evidence: I don't know.") == ""


@pytest.mark.parametrize(
    "reply",
    [
        *ANYWHERE,
        "Oskar Brend made it.",
        "evidence:",
        "evidence: a\nevidence: b",
        "evidence: a\nand b",
        "answer: a",
        "evidence - a",
        "the evidence: a",
        "**evidence**: a",
        "Here: evidence: a",
        "preuve: a",
        "evidence : a\nanswer: b",
        '{"evidence": "a"}',
    ],
)
def test_no_evidence(reply: str) -> None:
    with pytest.raises(Unreadable):
        parse_evidence(reply)


def test_a_reflection() -> None:
    reply = "contradiction: two directors are named\nkind: Factual.\n1. Who directed it?\n2. Whose film is it?"
    found = parse_reflection(reply, most=2)
    assert found == Reflection("two directors are named", "factual", ("Who directed it?", "Whose film is it?"))
    assert parse_reflection("kind: timeliness\ncontradiction: old\n1. When?", most=9).kind == "timeliness"


@pytest.mark.parametrize(
    "reply",
    [
        *ANYWHERE,
        "contradiction: a\nkind: factual",
        "contradiction: a\n1. b?",
        "kind: factual\n1. b?",
        "1. b?\ncontradiction: a\nkind: factual",
        "contradiction: a\nkind: factual and timeliness\n1. b?",
        "contradiction: a\nkind: legal\n1. b?",
        "contradiction: a\nkind: faktisch\n1. b?",
        "contradiction: a\ncontradiction: b\n1. b?",
        "contradiction:\nkind: factual\n1. b?",
        "contradiction: a\nkind: factual\n2. b?",
        "contradiction: a\nkind: factual\n1. b?\n2. c?\n3. d?",
        "contradiction: a\nkind: factual\nb?",
        "contradiction: a\nkind: factual\n1. b?\nso much for that",
        "First, contradiction: a\nkind: factual\n1. b?",
        "contradiction: a\nkind: factual\nanswer: c\n1. b?",
    ],
)
def test_no_reflection(reply: str) -> None:
    with pytest.raises(Unreadable):
        parse_reflection(reply, most=2)


OPTIONS = ("Oskar Brend", "Mira Talven", "I don't know")


@pytest.mark.parametrize(
    ("reply", "options", "answer"),
    [
        ("answer: Oskar Brend.", (), "Oskar Brend"),
        ("Answer: (B)", OPTIONS, "(B)"),
        ("answer: Mira Talven", OPTIONS, "Mira Talven"),
        ("answer: I don't know", OPTIONS, "I don't know"),
        ("answer: I do not know", OPTIONS[:2], "I do not know"),
    ],
)
def test_an_answer(reply: str, options: tuple[str, ...], answer: str) -> None:
    assert parse_answer(reply, options) == answer


@pytest.mark.parametrize(
    "reply",
    [
        *ANYWHERE,
        "Oskar Brend",
        "answer:",
        "answer: ...",
        "answer: Oskar Brend\nanswer: Mira Talven",
        "answer: Oskar Brend or Mira Talven",
        "answer: Ivo Brack",
        "answer: D",
        "The answer: Oskar Brend",
        "answer is Oskar Brend",
        "réponse: Oskar Brend",
        "answer: Oskar Brend\nbecause passage 1 says so",
    ],
)
def test_no_answer(reply: str) -> None:
    with pytest.raises(Unreadable):
        parse_answer(reply, OPTIONS)


FORMS: list[Callable[[str], Any]] = [
    parse_bias,
    parse_evidence,
    parse_answer,
    partial(parse_queries, most=3),
    partial(parse_answers, count=3),
    partial(parse_reflection, most=3),
]


@pytest.mark.parametrize("parse", FORMS)
def test_a_reply_of_another_form_is_none_of_this_one(parse: Callable[[str], Any]) -> None:
    others = {
        "retrieval: 70\ngeneration: 30": parse_bias,
        "evidence: a": parse_evidence,
        "answer: a": parse_answer,
        "contradiction: a\nkind: factual\n1. b?": partial(parse_reflection, most=3),
    }
    for reply, own in others.items():
        if repr(own) != repr(parse):
            with pytest.raises(Unreadable):
                parse(reply)
