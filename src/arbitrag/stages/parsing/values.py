"""Readers of one value in a structured reply, one for each kind: free text, answer, percentage, choice, sources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from arbitrag.prompts import TAGS
from arbitrag.stages.parsing.grammar import Kind, ParseError, Value
from arbitrag.text import as_option, clean_answer, declines, listed, normalize_answer, one_line

T = TypeVar("T")

_PLACEHOLDERS = frozenset({"TEXT", "ANSWER", "REASON", "NUMBERS", "...", "…"})
_OWN_TAG = re.compile(rf"<[^\w<>]*(?:{'|'.join(sorted(TAGS))})\b", re.IGNORECASE)
_FIRST_CLAUSE = re.compile(r"[.,;!]")
_COMMAS = str.maketrans(dict.fromkeys("，、;", ","))
_DIGITS = "0123456789"
_LONGEST_NUMBER = 4  # digits


def free_text(value: Value) -> str:
    """A text that says something of its own: it does not repeat the form, and holds nothing of a prompt."""
    if value.text in _PLACEHOLDERS or normalize_answer(value.text) in value.shown:
        raise ParseError(f"'{value.start}' repeats the form: {one_line(value.text, 40)}")
    if tag := _OWN_TAG.search(value.text):
        raise ParseError(f"'{value.start}' holds a tag of the prompt: {one_line(value.text[tag.start() :], 20)}")
    return value.text


def memory_text(value: Value) -> str:
    """What the model wrote from memory; empty where it says, or begins by saying, that it does not know."""
    text = free_text(value)
    return "" if declines(_FIRST_CLAUSE.split(text, maxsplit=1)[0]) else text


def short_answer(options: Sequence[str] = ()) -> Kind[str]:
    """A short answer, with options the text of the one that it chooses; it may decline (``answer_or_none``)."""

    def read(value: Value) -> str:
        answer = as_option(clean_answer(free_text(value)), options)
        if not answer:
            raise ParseError(f"'{value.start}' says nothing")
        if options and answer not in options and not declines(answer):
            raise ParseError(f"the answer is none of the options: {one_line(answer, 40)}")
        return answer

    return read


def answer_or_none(answer: str) -> str | None:
    """A short answer; None where it declines."""
    return None if declines(answer) else answer


def percent(least: int = 0, most: int = 100) -> Kind[int]:
    """A whole number in these bounds, with or without a per cent sign."""

    def read(value: Value) -> int:
        number = _number(value.text.removesuffix("%").rstrip())
        if number is None or not least <= number <= most:
            raise ParseError(
                f"'{value.start}' is a whole number from {least} to {most}, not '{one_line(value.text, 20)}'"
            )
        return number

    return read


def one_of(choices: Mapping[str, T]) -> Kind[T]:
    """What one of the words stands for, in any case, with or without a full stop."""

    def read(value: Value) -> T:
        word = value.text.rstrip(".").lower()
        if word not in choices:
            known = listed(list(choices), "or")
            raise ParseError(f"'{value.start}' is {known}, not '{one_line(value.text, 40)}'")
        return choices[word]

    return read


@dataclass(frozen=True, slots=True)
class Known:
    """How many documents of each kind the model was shown, which is what it may name as sources."""

    passages: int
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Sources:
    """The numbers, from 1, of passages and of the model's own documents, each once and in order."""

    passages: tuple[int, ...]
    memory: tuple[int, ...]


def sources(known: Known) -> Kind[Sources]:
    """A list such as ``1, passage 3, memory``; ``memory`` alone stands for all that the model wrote."""

    def read(value: Value) -> Sources:
        found: dict[str, set[int]] = {"passage": set(), "memory": set()}
        for each in value.text.translate(_COMMAS).split(","):
            kind, numbers = _source(each.strip(), known)
            found[kind].update(numbers)
        return Sources(tuple(sorted(found["passage"])), tuple(sorted(found["memory"])))

    return read


def _source(text: str, known: Known) -> tuple[str, Sequence[int]]:
    """The kind of a document, ``passage`` or ``memory``, and its numbers."""
    kind = text.rstrip(_DIGITS).rstrip().lower()
    number = _number(text[len(text.rstrip(_DIGITS)) :])
    if kind not in ("", "passage", "memory") or (number is None and kind != "memory"):
        raise ParseError(f"a source is the number of a passage, or memory, not '{one_line(text, 20)}'")
    most = known.memory if kind == "memory" else known.passages
    numbers = range(1, most + 1) if number is None else (number,)
    if not numbers or not all(1 <= each <= most for each in numbers):
        raise ParseError(f"there is no source '{one_line(text, 20)}'")
    return kind or "passage", numbers


def _number(text: str) -> int | None:
    """A whole number in decimal digits, of a length that a reply may need; None for anything else."""
    return int(text) if text.isdigit() and text.isascii() and len(text) <= _LONGEST_NUMBER else None
