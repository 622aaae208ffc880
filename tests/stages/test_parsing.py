"""Structured replies: the grammar that every form shares, then what each form reads, and what it does not.

No part of a reply is ever taken for the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from arbitrag.lab.model import PROMPTS
from arbitrag.prompts import PromptBook
from arbitrag.stages.parsing import forms
from arbitrag.stages.parsing.forms import Bias, Conclusion, Consolidation, Group, Reflection, joint_origin
from arbitrag.stages.parsing.grammar import Form, Parsed, ParseError
from arbitrag.stages.parsing.values import Known, answer_or_none
from arbitrag.text import one_line
from arbitrag.types import Strategy

KNOWN = Known(passages=3, memory=2)
OPTIONS = ("Oskar Brend", "Mira Talven", "I don't know")
ANY = frozenset(Strategy) - {Strategy.REFUSE}
BREND = Group("Oskar Brend", (1, 3), (1, 2), 80)
TALVEN = Group("Mira Talven", (2,), (), 20)


def read(form: Form[Any], reply: str, shown: str = "") -> Any:
    return form.parse(reply, shown).value


def refuses(form: Form[Any], reply: str, shown: str = "") -> str:
    """Why a reply is not read."""
    with pytest.raises(ParseError) as raised:
        form.parse(reply, shown)
    assert "\n" not in str(raised.value)
    assert str(raised.value)
    return str(raised.value)


@dataclass(frozen=True)
class Case:
    """A form, a reply that it reads, and the prompts that show it."""

    form: Form[Any]
    reply: str
    prompts: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        return self.reply.split("\n")


ANSWER = "answer: Oskar Brend"
GROUP = "group: Oskar Brend | sources: 1, memory"
CASES = {
    "passages": Case(forms.passages(2), "passage: Brend made it.", ("trustrag/memory", "astute/recall")),
    "groups": Case(forms.groups(KNOWN), GROUP, ("astute/consolidate",)),
    "consolidation": Case(
        forms.consolidation(KNOWN), f"{GROUP}\ndrop: 2 | reason: conflict", ("trustrag/consolidate",)
    ),
    "conclusion": Case(forms.conclusion(KNOWN), f"{GROUP} | confidence: 80\n{ANSWER}", ("astute/answer",)),
    "assessment": Case(forms.assessment(ANY), f"trust: external\n{ANSWER}", ("trustrag/assess",)),
    "answer": Case(forms.answer(), ANSWER, ("bridge/answer", "bridge/answer_scored")),
    "supported answer": Case(forms.supported_answer([BREND]), ANSWER, ("trustrag/answer",)),
    "evidence": Case(forms.EVIDENCE, "evidence: Brend made it.", ("bridge/recall",)),
    "bias": Case(forms.BIAS, "retrieval: 70\ngeneration: 30", ("bridge/allocate",)),
    "queries": Case(forms.queries(3), "1. Who made it?\n2. Whose is it?", ("bridge/rewrite",)),
    "answers": Case(forms.answers(2), "1. Brend made it.\n2. It is his.", ("bridge/recall_many",)),
    "reflection": Case(
        forms.reflection(3), "contradiction: Brend or Talven\nkind: factual\n1. Who made it?", ("bridge/reflect",)
    ),
}
LINES = [(name, at) for name, case in CASES.items() for at in range(len(case.lines))]
REPEATED = ("passage:", "group:", "drop:")
FREE = ("passage:", "answer:", "evidence:", "contradiction:", "group:", "1.", "2.")  # what holds a free text


def parts(line: str) -> tuple[str, str, str]:
    """How a line begins, its text, and the cells behind it."""
    start, _, value = line.partition(" ")
    text, bar, cells = value.partition(" | ")
    return start, text, bar + cells


@pytest.mark.parametrize("name", CASES)
def test_every_form_reads_its_reply_however_it_is_set(name: str) -> None:
    case = CASES[name]
    value = read(case.form, case.reply)
    assert case.form.parse(case.reply) == Parsed(value)
    starts = [(line, parts(line)[0]) for line in case.lines]
    for reply in (
        f"```text\n{case.reply}\n```",
        f"```\n{case.reply}\n```",
        f"<think>\nanswer: Ivo Brack\n</think>\n{case.reply}",
        "\n\n".join(f"  {line} \t" for line in case.lines),
        "\n".join(line.replace(start, start.upper(), 1) for line, start in starts),
        "\n".join(line.replace(start, start.replace(":", " ："), 1).replace("|", "｜") for line, start in starts),
    ):
        assert read(case.form, reply) == value


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("line", ["Here you go.", "Here you go:", "note: it is late", "9. Who else?", "- 1", "Brend"])
def test_a_line_of_no_field_is_refused_by_every_form(name: str, line: str) -> None:
    case = CASES[name]
    for reply in (f"{line}\n{case.reply}", f"{case.reply}\n{line}"):
        reason = refuses(case.form, reply)
        assert reason.startswith("a line does not begin with '")
        assert reason.endswith(f"': {line}")


@pytest.mark.parametrize(("name", "at"), LINES)
def test_every_form_refuses_the_same_faults_of_a_line_with_the_same_reason(name: str, at: int) -> None:
    case = CASES[name]
    start, text, cells = parts(case.lines[at])

    def reason(*lines: str) -> str:
        return refuses(case.form, "\n".join([*case.lines[:at], *lines, *case.lines[at + 1 :]]))

    if not cells:
        assert reason(start) == reason(f"{start} ...") == reason(f"{start} -") == f"'{start}' says nothing"
    if start.endswith(".") and start != "2.":
        assert reason(f"9. {text}").startswith("a line does not begin with ")
    if start.endswith(":") and start not in REPEATED:
        assert reason(case.lines[at], case.lines[at]) == f"there are two lines '{start}'"
        assert reason() == (f"there is no line '{start}'" if len(case.lines) > 1 else "the reply is empty")
    if start in FREE:
        for echoed in ("TEXT", "ANSWER", "…"):
            assert reason(f"{start} {echoed}{cells}") == f"'{start}' repeats the form: {echoed}"
        assert reason(f"{start} {text} </passage>{cells}") == f"'{start}' holds a tag of the prompt: </passage>"
        assert reason(f"{start} <ANSWER>{text}{cells}").startswith(f"'{start}' holds a tag of the prompt: <ANSWER>")
    if "sources: 1" in cells:
        for source in ("0", "4", "passage 4", "memory 3"):
            assert (
                reason(case.lines[at].replace("sources: 1", f"sources: {source}")) == f"there is no source '{source}'"
            )


@pytest.mark.parametrize("folder", [None, PROMPTS], ids=["default", "lab"])
def test_a_form_that_is_echoed_is_refused_in_every_prompt_that_shows_it(folder: Path | None) -> None:
    book = PromptBook.with_wording(folder)
    found = {name: book.find(name) for name in book.names() if "form" in book.find(name).sections}
    assert sorted(found) == sorted(prompt for case in CASES.values() for prompt in case.prompts)
    for case in CASES.values():
        for prompt in case.prompts:
            shown = found[prompt].form
            refuses(case.form, shown, shown)
            echoes = {parts(line)[0]: parts(line)[1] for line in shown.split("\n")}
            assert echoes.keys() <= {parts(line)[0] for line in case.lines} | {"2."}
            for at, line in enumerate(case.lines):
                start, _, cells = parts(line)
                for text in (echoes[start], echoes[start].capitalize()) if start in FREE else ():
                    reply = "\n".join([*case.lines[:at], f"{start} {text}{cells}", *case.lines[at + 1 :]])
                    assert refuses(case.form, reply, shown) == f"'{start}' repeats the form: {one_line(text, 40)}"
            assert read(case.form, case.reply, shown) == read(case.form, case.reply)


def test_what_a_form_shows_is_refused_in_its_own_place_alone() -> None:
    shown = "contradiction: the main one\nkind: factual\n1. the best question"
    reply = "contradiction: the best question\nkind: factual\n1. The main one"
    assert read(forms.reflection(1), reply, shown) == Reflection("the best question", "factual", ("The main one",))
    reason = refuses(forms.reflection(1), "contradiction: a\nkind: factual\n1. The best question.", shown)
    assert reason == "'1.' repeats the form: The best question."


# What is malformed in every form.
ANYWHERE = [
    "",
    "   \n\t\n",
    "Sure! Here you go:",
    "{}",
    "null",
    "```\n```",
    "<answer>Oskar Brend</answer>",
    "<ANSWER> Oskar Brend </ANSWER>",
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
    "yes",
]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("reply", ANYWHERE)
def test_what_no_form_reads(name: str, reply: str) -> None:
    refuses(CASES[name].form, reply)


@pytest.mark.parametrize("name", CASES)
def test_a_reply_of_another_form_is_none_of_this_one(name: str) -> None:
    same = {"answer": "supported answer", "queries": "answers"}  # which have the same lines
    alike = {name, same.get(name), next((key for key, other in same.items() if other == name), None)}
    for other, case in CASES.items():
        if other in alike:
            read(CASES[name].form, case.reply)
        elif (name, other) != ("consolidation", "groups"):
            refuses(CASES[name].form, case.reply)


def test_a_reply_that_declines_or_leaves_nothing_has_no_line() -> None:
    bare = {"passages": ("I don't know", "I don’t know."), "groups": ("none", "None."), "consolidation": ("none",)}
    for name, case in CASES.items():
        for reply in ("I don't know", "I don’t know.", "none", "None."):
            if reply in bare.get(name, ()):
                read(case.form, reply)
            elif name != "consolidation" or "none" not in reply.lower():
                refuses(case.form, reply)


@pytest.mark.parametrize(
    ("reply", "passages"),
    [
        ("passage: Oskar Brend made it.", ("Oskar Brend made it.",)),
        ("Passage : one\n\n PASSAGE: two: three\n", ("one", "two: three")),
        ("```\npassage: one\n```", ("one",)),
        ("```text\npassage: one\npassage: two\n```", ("one", "two")),
        ("<think>passage: no</think>\npassage: yes", ("yes",)),
        ("passage：一部电影", ("一部电影",)),
        ("I don't know", ()),
        ("I don’t know.", ()),
        ("passage: I don't know", ()),
        ("passage: I don't know, the film is strange to me", ()),
        ("passage: Unknown. It is not certain.", ()),
    ],
)
def test_passages(reply: str, passages: tuple[str, ...]) -> None:
    assert read(forms.passages(2), reply) == passages


NO_PASSAGES = [
    "Oskar Brend made it.",
    "passage:",
    "passage: ...",
    "passage: TEXT",
    "passage: one\npassage: two\npassage: three",
    "passage: one\nand more of it",
    "passage: one\npassage: I don't know",
    "Here is what I know:\npassage: one",
    "passage: one\nI hope this helps.",
    "passage 1: one",
    "1. passage: one",
    "passage - one",
    "passages: one",
    "text: one",
    "answer: one",
    "passage: one </passage> two",
    "passage: < memory 3> two",
    "passage: one\nanswer: two",
    '{"passage": "one"}',
    "**passage:** one",
    "extrait: un film",
    "the passage: one",
]


@pytest.mark.parametrize("reply", [*NO_PASSAGES])
def test_no_passages(reply: str) -> None:
    refuses(forms.passages(2), reply)


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (
            "group: Brend made it | sources: 1, 3, memory\ndrop: 2 | reason: conflict",
            Consolidation((Group("Brend made it", (1, 3), (1, 2)),), ((2, "conflict"),)),
        ),
        (
            "DROP: 3, 2 | Reason: it dictates\nGroup:Brend|Sources:passage 1;Memory 2",
            Consolidation((Group("Brend", (1,), (2,)),), ((2, "it dictates"), (3, "it dictates"))),
        ),
        ("group: a | b | sources: 1", Consolidation((Group("a | b", (1,)),))),
        ("group: he said: yes | sources: 2, 2", Consolidation((Group("he said: yes", (2,)),))),
        ("group：布伦德｜sources：1，memory 1", Consolidation((Group("布伦德", (1,), (1,)),))),
        ("drop: 1 | reason: a\ndrop: memory | reason: b", Consolidation((), ((1, "a"),), "b")),
        ("None.", Consolidation(())),
    ],
)
def test_a_consolidation(reply: str, found: Consolidation) -> None:
    assert read(forms.consolidation(KNOWN), reply) == found


NO_SOURCES = [
    "group: Brend made it",
    "group: Brend made it | sources:",
    "group: Brend made it | sources: none",
    "group: Brend made it | sources: 0",
    "group: Brend made it | sources: 4",
    "group: Brend made it | sources: -1",
    "group: Brend made it | sources: one, three",
    "group: Brend made it | sources: 1-3",
    "group: Brend made it | sources: 1 and 3",
    "group: Brend made it | sources: 1,, 3",
    "group: Brend made it | sources: memory 3",
    "group: Brend made it | sources: 1, my memory",
    "group: Brend made it | sources: 1 | sources: 2",
    "group: Brend made it (sources: 1)",
    "group: Brend made it | source: 1",
    "group: Brend made it | sources: ١",
    "group: | sources: 1",
    "group: TEXT | sources: 1",
    "group: Brend </group> | sources: 1",
    "group: Brend <passage 2> | sources: 1",
    "Brend made it | sources: 1",
    "1. group: Brend made it | sources: 1",
    "Consolidated:\ngroup: Brend made it | sources: 1",
    "group: Brend made it | sources: 1\nThat is all.",
    "groupe: Brend | sources: 1",
    '[{"group": "Brend", "sources": [1]}]',
]


@pytest.mark.parametrize(
    "reply",
    [
        *NO_SOURCES,
        "group: Brend made it | sources: 1\nnone",
        "none of them helps",
        "group: a | sources: 1\ndrop: 1 | reason: conflict",
        "group: a | sources: memory\ndrop: memory | reason: conflict",
        "drop: 2 | reason: conflict\ndrop: 2 | reason: irrelevant",
        "drop: memory | reason: a\ndrop: memory | reason: b",
        "drop: 2",
        "drop: 2 | reason:",
        "drop: 5 | reason: conflict",
        "drop: 2 | conflict",
        "drop: the second | reason: conflict",
        "drop: | reason: conflict",
        "drop: all | reason: conflict",
        "group: a | sources: 1 | confidence: 50",
        "group: a | sources: 1\nanswer: a",
    ],
)
def test_no_consolidation(reply: str) -> None:
    refuses(forms.consolidation(KNOWN), reply)


def test_groups() -> None:
    assert read(forms.groups(KNOWN), "group: a | sources: 1\ngroup: b | sources: memory 1") == (
        Group("a", (1,)),
        Group("b", (), (1,)),
    )
    assert read(forms.groups(KNOWN), "none") == ()


@pytest.mark.parametrize(
    "reply",
    [*NO_SOURCES, "drop: 1 | reason: a", "group: a | sources: 1\ndrop: 2 | reason: b", "group: a"],
)
def test_no_groups(reply: str) -> None:
    refuses(forms.groups(KNOWN), reply)


def test_memory_is_no_source_where_nothing_was_written() -> None:
    refuses(forms.groups(Known(3)), "group: a | sources: 1, memory")
    refuses(forms.consolidation(Known(3)), "drop: memory | reason: a")
    refuses(forms.groups(Known(0, 1)), "group: a | sources: 1")


TWO = "group: Oskar Brend | sources: 1, 3, memory | confidence: 80\ngroup: Mira Talven | sources: 2 | confidence: 20%\n"


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (f"{TWO}answer: Oskar Brend", Conclusion("Oskar Brend", (BREND, TALVEN), Strategy.BOTH)),
        (f"{TWO}\nAnswer: mira talven.", Conclusion("mira talven", (BREND, TALVEN), Strategy.EVIDENCE)),
        (f"```\n{TWO}answer: Oskar Brend\n```", Conclusion("Oskar Brend", (BREND, TALVEN), Strategy.BOTH)),
        (f"{TWO}answer: Talven", Conclusion("Talven", (BREND, TALVEN), Strategy.EVIDENCE)),
        (f"{TWO}answer: I don't know", Conclusion(None, (BREND, TALVEN))),
        ("answer: unknown", Conclusion(None)),
        (
            "group: 1931 | sources: memory 2 | confidence: 0\nanswer: 1931",
            Conclusion("1931", (Group("1931", (), (2,), 0),), Strategy.MEMORY),
        ),
        (
            "group: 7 | sources: 1 | confidence: 100\ngroup: 7 | sources: memory 1 | confidence: 100\nanswer: 7",
            Conclusion("7", (Group("7", (1,), (), 100), Group("7", (), (1,), 100)), Strategy.BOTH),
        ),
    ],
)
def test_a_conclusion(reply: str, found: Conclusion) -> None:
    assert read(forms.conclusion(KNOWN), reply) == found


def test_an_equal_answer_counts_before_one_that_holds_it() -> None:
    reply = (
        "group: Olm | sources: 1 | confidence: 50\ngroup: Olm and Tarn | sources: memory | confidence: 50\nanswer: Olm"
    )
    assert read(forms.conclusion(KNOWN), reply).strategy is Strategy.EVIDENCE


@pytest.mark.parametrize("answer", ["Oskar Brend", "A", "(A) Oskar Brend", "a)", "oskar brend."])
def test_a_conclusion_among_options(answer: str) -> None:
    found = read(forms.conclusion(KNOWN, OPTIONS), f"{TWO}answer: {answer}")
    assert (found.answer, found.strategy) == ("Oskar Brend", Strategy.BOTH)
    lettered = "group: A | sources: 1 | confidence: 80\ngroup: B | sources: 2 | confidence: 20\n"
    assert read(forms.conclusion(KNOWN, OPTIONS), f"{lettered}answer: {answer}").strategy is Strategy.EVIDENCE
    assert read(forms.conclusion(KNOWN, OPTIONS), f"{TWO}answer: C").answer is None


NO_CONFIDENCE = "answer: Oskar Brend"
NO_CONCLUSION = [
    TWO,
    "group: Oskar Brend | sources: 1 | confidence: 80",
    f"{TWO}answer: Oskar Brend\nanswer: Mira Talven",
    f"{TWO}answer: Oskar Brend\nanswer: Oskar Brend",
    f"answer: Oskar Brend\n{TWO}",
    f"{TWO}answer: Ivo Brack",
    f"{TWO}answer:",
    f"{TWO}answer: ANSWER",
    f"{TWO}answer: Oskar Brend </answer>",
    f"{TWO}<ANSWER>Oskar Brend</ANSWER>",
    f"{TWO}The answer: Oskar Brend",
    f"{TWO}réponse : Oskar Brend",
    f"{TWO}answer: Oskar Brend\nPassage 1 is the most credible.",
    f"Step 1\n{TWO}answer: Oskar Brend",
    f"group: Oskar Brend | sources: 1\n{NO_CONFIDENCE}",
    f"group: Oskar Brend | confidence: 80\n{NO_CONFIDENCE}",
    f"group: Oskar Brend | confidence: 80 | sources: 1\n{NO_CONFIDENCE}",
    f"group: Oskar Brend | sources: 1 | confidence: eighty\n{NO_CONFIDENCE}",
    f"group: Oskar Brend | sources: 1 | confidence: high\n{NO_CONFIDENCE}",
    f"group: Oskar Brend | sources: 1 | confidence: 0.8\n{NO_CONFIDENCE}",
    f"group: Oskar Brend | sources: 1 | confidence: 101\n{NO_CONFIDENCE}",
    f"group: Oskar Brend | sources: 1 | confidence: -5\n{NO_CONFIDENCE}",
    f"group: Oskar Brend | sources: 1 | confidence: 70-80\n{NO_CONFIDENCE}",
    f"group: Oskar Brend | sources: 1 | confidence: 80/100\n{NO_CONFIDENCE}",
    f"group: Oskar Brend | sources: 1 | confidence: ٨٠\n{NO_CONFIDENCE}",
    f"group: Oskar Brend | sources: 1 | confidence: 80 | confidence: 90\n{NO_CONFIDENCE}",
    f"group: Oskar Brend | sources: 1 | confidence:\n{NO_CONFIDENCE}",
    f"group: Oskar Brend | sources: 9 | confidence: 80\n{NO_CONFIDENCE}",
    f"group: Oskar Brend | sources: | confidence: 80\n{NO_CONFIDENCE}",
    f"group: ANSWER | sources: 1 | confidence: 80\n{NO_CONFIDENCE}",
    NO_CONFIDENCE,
    "none",
]


@pytest.mark.parametrize("reply", [*NO_CONCLUSION])
def test_no_conclusion(reply: str) -> None:
    refuses(forms.conclusion(KNOWN), reply)


def test_no_conclusion_outside_the_options() -> None:
    form = forms.conclusion(KNOWN, OPTIONS)
    other = "group: Ivo Brack | sources: 1 | confidence: 80\n"
    for reply in (f"{other}answer: Ivo Brack", f"{TWO}answer: D", f"{TWO}answer: Oskar Brend or Mira Talven"):
        refuses(form, reply)


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("trust: external\nanswer: Brend", Conclusion("Brend", strategy=Strategy.EVIDENCE)),
        ("answer: Brend.\n\nTRUST : Memory.", Conclusion("Brend", strategy=Strategy.MEMORY)),
        ("trust: both\nanswer: Brend", Conclusion("Brend", strategy=Strategy.BOTH)),
        ("trust: neither\nanswer: I don't know", Conclusion(None)),
        ("trust: external\nanswer: I don't know", Conclusion(None)),
        ("<think>hm</think>trust: both\nanswer: Brend", Conclusion("Brend", strategy=Strategy.BOTH)),
    ],
)
def test_an_assessment(reply: str, found: Conclusion) -> None:
    assert read(forms.assessment(ANY), reply) == found


def test_an_assessment_among_options() -> None:
    assert read(forms.assessment(ANY, OPTIONS), "trust: both\nanswer: B").answer == "Mira Talven"
    assert read(forms.assessment(ANY, OPTIONS), "trust: both\nanswer: (C)").answer is None
    for answer in ("D", "Ivo Brack", "A or B"):
        refuses(forms.assessment(ANY, OPTIONS), f"trust: both\nanswer: {answer}")


def test_a_source_that_is_not_there_cannot_be_trusted() -> None:
    form = forms.assessment({Strategy.MEMORY})
    assert read(form, "trust: memory\nanswer: Brend").answer == "Brend"
    assert read(form, "trust: external\nanswer: I don't know").answer is None
    refuses(form, "trust: external\nanswer: Brend")
    refuses(form, "trust: both\nanswer: Brend")


@pytest.mark.parametrize(
    "reply",
    [
        "trust: external",
        "answer: Brend",
        "trust: external\nanswer:",
        "trust:\nanswer: Brend",
        "trust: neither\nanswer: Brend",
        "trust: outside\nanswer: Brend",
        "trust: external, memory\nanswer: Brend",
        "trust: external or memory\nanswer: Brend",
        "trust: 80%\nanswer: Brend",
        "trust: external\ntrust: memory\nanswer: Brend",
        "trust: external\nanswer: Brend\nanswer: Talven",
        "trust: external\ntrust: external",
        "trust: external answer: Brend",
        "trust: external\nanswer: ANSWER",
        "trust: external\nanswer: Brend <reply>",
        "I trust: external\nanswer: Brend",
        "trust = external\nanswer = Brend",
        "vertrauen: extern\nantwort: Brend",
        "trust: extern\nanswer: Brend",
        "信任: external\nanswer: Brend",
        "trust: external\nanswer: Brend\nbecause passage 1 says so",
    ],
)
def test_no_assessment(reply: str) -> None:
    refuses(forms.assessment(ANY), reply)


@pytest.mark.parametrize(
    ("reply", "options", "answer"),
    [
        ("answer: Oskar Brend.", (), "Oskar Brend"),
        ("Answer: the answer is 1931", (), "1931"),
        ("answer: I do not know", (), "I do not know"),
        ("answer: A", OPTIONS, "Oskar Brend"),
        ("Answer: (B)", OPTIONS, "Mira Talven"),
        ("answer: Mira Talven", OPTIONS, "Mira Talven"),
        ("answer: I don't know", OPTIONS, "I don't know"),
        ("answer: I do not know", OPTIONS[:2], "I do not know"),
    ],
)
def test_an_answer(reply: str, options: tuple[str, ...], answer: str) -> None:
    assert read(forms.answer(options), reply) == answer
    assert answer_or_none(answer) == (None if answer.startswith("I do") else answer)


NO_ANSWER = [
    "Oskar Brend",
    "answer:",
    "answer: ...",
    "answer: ANSWER",
    "answer: Brend\nanswer: Talven",
    "answer: Brend\nbecause of passage 1",
    "The answer: Brend",
    "answer is Brend",
    "answer - Brend",
    "réponse: Brend",
    "答案: 布伦德",
    "answer: Brend </answer>",
    "final answer: Brend",
    "trust: both\nanswer: Brend",
]


@pytest.mark.parametrize("reply", NO_ANSWER)
def test_no_answer(reply: str) -> None:
    for form in (forms.answer(), forms.answer(OPTIONS), forms.supported_answer([BREND])):
        refuses(form, reply)


@pytest.mark.parametrize("answer", ["Oskar Brend or Mira Talven", "Ivo Brack", "D"])
def test_no_answer_outside_the_options(answer: str) -> None:
    reason = f"the answer is none of the options: {answer}"
    assert refuses(forms.answer(OPTIONS), f"answer: {answer}") == reason
    assert refuses(forms.assessment(ANY, OPTIONS), f"trust: both\nanswer: {answer}") == reason


def test_the_groups_that_hold_an_answer_are_its_sources() -> None:
    groups = [Group("It was Oskar Brend.", (1,)), Group("Mira Talven made it.", (), (1,)), Group("It rained.", (3,))]
    assert read(forms.supported_answer(groups), "answer: Brend") == Conclusion("Brend", (groups[0],), Strategy.EVIDENCE)
    assert read(forms.supported_answer(groups), "answer: Mira Talven").strategy is Strategy.MEMORY
    assert read(forms.supported_answer(groups), "answer: 1931") == Conclusion("1931", tuple(groups), Strategy.BOTH)
    assert read(forms.supported_answer(groups), "answer: I don't know") == Conclusion(None)


def test_what_groups_rest_on_together() -> None:
    evidence, memory = Group("a", (1,)), Group("b", (), (1,))
    assert joint_origin([evidence]) is Strategy.EVIDENCE
    assert joint_origin([memory, memory]) is Strategy.MEMORY
    assert joint_origin([evidence, memory]) is Strategy.BOTH
    assert Group("c", (1,), (1,)).origin is Strategy.BOTH


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
    assert read(forms.BIAS, reply) == bias


@pytest.mark.parametrize(
    "reply",
    [
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
    refuses(forms.BIAS, reply)


def test_shares_of_queries_are_rounded_up_and_exact() -> None:
    assert [(Bias(70, 30).retrieved(n), Bias(70, 30).generated(n)) for n in (10, 1, 3)] == [(7, 3), (1, 1), (3, 1)]
    assert (Bias(90, 10).retrieved(10), Bias(90, 10).generated(10)) == (9, 1)
    assert Bias(55, 45).retrieved(10) == 6
    assert (Bias(100, 100).retrieved(10), Bias(100, 100).generated(10)) == (10, 10)


def test_queries() -> None:
    assert read(forms.queries(3), "1. Who made it?\n2) Whose work is it?") == ("Who made it?", "Whose work is it?")
    assert read(forms.queries(1), "1. Only one: this?") == ("Only one: this?",)


@pytest.mark.parametrize(
    "reply",
    [
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
    refuses(forms.queries(3), reply)


def test_answers_to_queries() -> None:
    reply = "1. Oskar Brend made it.\n2. I don't know.\n3. It was him: Brend."
    assert read(forms.answers(3), reply) == ("Oskar Brend made it.", "", "It was him: Brend.")


@pytest.mark.parametrize(
    "reply",
    [
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
    refuses(forms.answers(2), reply)


def test_evidence() -> None:
    assert read(forms.EVIDENCE, "evidence: Oskar Brend made it: in 1999.") == "Oskar Brend made it: in 1999."
    assert read(forms.EVIDENCE, "Evidence: I don't know.") == ""


@pytest.mark.parametrize(
    "reply",
    [
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
    refuses(forms.EVIDENCE, reply)


def test_a_reflection() -> None:
    reply = "contradiction: two directors are named\nkind: Factual.\n1. Who directed it?\n2. Whose film is it?"
    found = read(forms.reflection(2), reply)
    assert found == Reflection("two directors are named", "factual", ("Who directed it?", "Whose film is it?"))
    assert read(forms.reflection(9), "kind: timeliness\ncontradiction: old\n1. When?").kind == "timeliness"


@pytest.mark.parametrize(
    "reply",
    [
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
    refuses(forms.reflection(2), reply)
