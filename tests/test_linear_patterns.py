"""No reply, question or prompt can stop the program by a regular expression that takes more than linear time.

Readers of documents have tests of their own (``retrieve/documents/test_linear_readers.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from linear import patterns_in, superlinear

import arbitrag
from arbitrag import text
from arbitrag.errors import ArbitragError
from arbitrag.evaluate.report import formats
from arbitrag.llm.base import Message
from arbitrag.llm.tokenizer import as_text
from arbitrag.prompts import PromptBook, parse_prompt
from arbitrag.security import addresses
from arbitrag.security.redaction import Secrets
from arbitrag.stages import long_form
from arbitrag.stages.filters import rouge
from arbitrag.stages.parsing import forms
from arbitrag.stages.parsing.grammar import ParseError
from arbitrag.stages.parsing.values import Known
from arbitrag.testing import server
from arbitrag.truncation import fit
from arbitrag.types import Passage, Strategy

Reader = Callable[[str], object]
Around = Sequence[tuple[str, str]]

PACKAGE = Path(arbitrag.__file__).parent
EVERY = frozenset(Strategy)
BOOK = PromptBook()
NO_AROUND: Around = ()


def quietly(read: Callable[..., object], *more: object) -> Reader:
    """A reader of replies that refuses what it cannot read, which is an answer too."""

    def call(reply: str) -> None:
        with suppress(ParseError, ArbitragError):
            read(reply, *more)

    return call


def rendered(name: str) -> Reader:
    """Fills every field of a prompt with the text."""
    file = BOOK.find(name)
    return lambda value: file.render(**dict.fromkeys(file.fields, value))


def shown(name: str) -> Reader:
    """Shows a passage with the text as its title and its text in a prompt."""
    file = BOOK.find(name)
    return lambda value: file.passage_text(1, Passage(f"x{value}x", title=f"x{value}x"))


HEAD = "source: x\nwording: x\n---\n"
KNOWN = Known(5, 2)
ANSWER: Around = [("the answer is", ""), ("answer", ""), ("final", "answer"), ("x\n", "question"), ("<think>", "x")]
OPTION: Around = [("", "x"), ("a", "x"), ("option", ""), ("option", "a"), ("(a", "x"), ("a)", "")]
LINE: Around = [("", ":"), ("group", ":"), ("group:", "x"), ("group: x", "y"), ("answer: x", "y"), ("```", "```")]
CELL: Around = [
    ("group: x", "y | sources: 1"),
    ("group: x |", "y"),
    ("group: x | sources", "1"),
    ("group: x | sources: 1", ""),
]
LISTED: Around = [("1.", "x"), ("1. x", "y"), ("1", "."), ("1. ", "")]
LABEL: Around = [("\n", "answer:"), ("answer", ":"), ("answer", "x"), ("\nanswer", "x"), ("group", "x")]
ADDRESS: Around = [
    ("openai:m@http://", "/v1"),
    ("http://u:", "@h"),
    ("postgres:host=h password='", "x"),
    ("a=", " b"),
]
FENCE: Around = [("<", "passage"), ("<passage", ">"), ("<|", "|>"), ("<p", "x"), ("[", "INST]")]

READERS: dict[str, tuple[Reader, Around]] = {
    "a short answer": (text.clean_answer, ANSWER),
    "thoughts": (text.without_thoughts, [("<think>", ""), (" ", "<think>"), ("<think>x</", "think>")]),
    "whether an answer declines": (text.declines, ANSWER),
    "an option": (lambda reply: text.choose(reply, ("Paris", "a b")), OPTION),
    "what a terminal shows": (text.printable, NO_AROUND),
    "one line": (text.one_line, NO_AROUND),
    "passages from memory": (quietly(forms.passages(3).parse), [("passage:", "x"), ("passage: x", "y")]),
    "a consolidation": (quietly(forms.consolidation(KNOWN).parse), [*LINE, *CELL]),
    "groups": (quietly(forms.groups(KNOWN).parse), [*LINE, *CELL]),
    "a conclusion": (quietly(forms.conclusion(KNOWN).parse), [*LINE, *CELL]),
    "an assessment": (quietly(forms.assessment(EVERY).parse), [*LINE, ("trust:", "x")]),
    "an answer's line": (quietly(forms.answer().parse), LINE),
    "sub-queries": (quietly(forms.queries(9).parse), LISTED),
    "answers to sub-queries": (quietly(forms.answers(9).parse), LISTED),
    "a reflection": (quietly(forms.reflection(9).parse), [*LISTED, ("contradiction:", "x"), ("kind:", "factual")]),
    "evidence": (quietly(forms.EVIDENCE.parse), [("evidence:", "x"), ("evidence: x", "y")]),
    "the form that a prompt shows": (quietly(lambda form: forms.answer().parse("answer: x", form)), [*LINE, *CELL]),
    "a bias": (quietly(forms.BIAS.parse), [("retrieval:", "x"), ("retrieval: 1", "%\ngeneration: 1")]),
    "words of any script": (rouge.words, NO_AROUND),
    "words in ASCII": (rouge.ascii_words, NO_AROUND),
    "cells of a table in Markdown": (lambda each: formats._SIGNS.sub("", each), NO_AROUND),
    "messages as text": (lambda each: as_text([Message("user", each)]), [("User", ":")]),
    "the shown form of an address": (quietly(addresses.shown), ADDRESS),
    "the secrets among words": (lambda each: addresses.secrets_in([each]), [*ADDRESS, ("openai:", ""), (":", "@")]),
    "pairs of a connection": (quietly(addresses.connection_pairs), ADDRESS),
    "an error": (
        Secrets(["secret", "another secret"]).clean,
        [*ADDRESS, ("Basic", ""), ("Bearer x", "y")],
    ),
    "a long answer": (lambda reply: long_form.checked(reply, 3), [("a. [1", "]"), ("[1,", "]"), ("a.", "[1]")]),
    "lone surrogates": (text.encodable, NO_AROUND),
    "tokens of the scripted server": (server._TOKEN.findall, NO_AROUND),
    "a prompt file": (
        quietly(lambda each: parse_prompt("a", Path("a.txt"), each)),
        [(HEAD, ""), (f"{HEAD}=== user\n", "")],
    ),
}


@pytest.mark.parametrize("what", READERS)
def test_what_is_read_from_a_reply_takes_linear_time(what: str) -> None:
    reader, around = READERS[what]
    assert superlinear(reader, *around) == []


@pytest.mark.parametrize("name", ["rag/answer", "trustrag/consolidate"])  # without a form of the reply, and with one
def test_a_prompt_is_filled_in_linear_time(name: str) -> None:
    assert superlinear(rendered(name), *LABEL, *FENCE) == []


def test_a_passage_is_shown_in_linear_time() -> None:
    assert superlinear(shown("trustrag/consolidate"), *LABEL, *FENCE) == []


def test_passages_are_fitted_in_linear_time() -> None:
    """By a count that looks at each text once, as tokenizers do; binary search makes it n log n."""
    assert (
        superlinear(lambda value: fit([Passage(value)], 100, lambda number, passage: len(passage.text)), ("a", "b"))
        == []
    )


# Patterns that meet no document, question or reply, and where they are met by tests of their own.
ELSEWHERE = {
    "cli/bench/difference.py:_HASH": "the settings of a run, of bounded length",
    "cli/doctor.py:_required": "metadata of installed packages",
    "cli/terminal/help.py:_RANGE": "help texts of our own",
    "cli/terminal/help.py:_TYPE": "help texts of our own",
    "cli/terminal/help.py:_WORD": "help texts of our own",
    "cli/terminal/help.py:_pieces": "help texts of our own",
    "evaluate/run/runfile.py:_OF_CONTENT": "errors of sqlite",
    "evaluate/tune/search.py:_TEST": "the names of question sets",
    "lab/documents.py:document_id": "the lab's own names",
    "security/redaction.py:_any_of": "secrets, which are literals in it",
    "security/redaction.py:_forms": "secrets, which the user gave",
    "llm/onnx/optimum.py:_PAST": "names in a model's file",
    "llm/onnx/optimum.py:_STATE": "names in a model's file",
    "llm/tokenizer.py:_TAG": "tokens of a tokenizer's file",
    "llm/tokenizer.py:_any_of": "control tokens, which are literals in it",
}
BY_ANOTHER_TEST = ("retrieve/", "data/", "encode/", "integrations/", "train/")
MEASURED = {
    "security/addresses.py:_HOST",
    "security/addresses.py:_PAIR",
    "security/addresses.py:_PASSWORD",
    "security/addresses.py:_POSTGRES",
    "security/addresses.py:_STRANGE",
    "security/addresses.py:_URL",
    "security/addresses.py:_quoted",
    "security/addresses.py:_secrets_of_url",
    "security/addresses.py:connection_pairs",
    "security/addresses.py:secrets_in",
    "security/addresses.py:shown",
    "evaluate/report/formats.py:_SIGNS",
    "security/redaction.py:_CREDENTIALS",
    "security/redaction.py:_USER_IN_URL",
    "llm/tokenizer.py:_LABEL",
    "stages/long_form.py:_LEADING",
    "stages/long_form.py:_MARK",
    "stages/long_form.py:checked",
    "prompts/__init__.py:_CONTROL",
    "prompts/__init__.py:_FIELD",
    "prompts/__init__.py:_LABEL",
    "prompts/__init__.py:_TAG",
    "prompts/__init__.py:_fences",
    "prompts/__init__.py:_labels",
    "prompts/__init__.py:parse_prompt",
    "truncation.py:_BLANKS",
    "truncation.py:_PIECE",
    "stages/parsing/grammar.py:_CELL",
    "stages/parsing/values.py:_FIRST_CLAUSE",
    "stages/parsing/values.py:_OWN_TAG",
    "stages/filters/rouge.py:_ASCII_WORD",
    "stages/filters/rouge.py:_WORD",
    "testing/server.py:_TOKEN",
    "text.py:SURROGATE",
    "text.py:_ARTICLES",
    "text.py:_LABEL",
    "text.py:_LETTER",
    "text.py:_MARK",
    "text.py:_RUN_ON",
    "text.py:_THOUGHTS",
    "text.py:_UNPRINTABLE",
}


def test_every_pattern_is_measured_or_meets_nothing_untrusted() -> None:
    used = {place for place in patterns_in(PACKAGE) if not place.startswith(BY_ANOTHER_TEST)}
    assert used == MEASURED | ELSEWHERE.keys()
