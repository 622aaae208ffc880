"""The grammar of structured replies: lines with a label or a number, and the form that says which of them there are.

    reply   line, line, …                  without the model's thoughts, blank lines, and a code fence around the whole
    line    label: value                   the label in any case, with or without spaces around the colon (: or ：)
            1. value  or  1) value         a numbered line
    value   text | name: text | name: …    a text, and cells behind it (| or ｜)

A ``Form`` lists its fields and builds one value from them. Every form is read by the same strict rules. ``ParseError``
is raised for a line that begins like no field of the form, a label twice, a label that is missing, a line without a
value, a value that repeats the form in place of filling it in, a value with a tag of our prompts, and a value that its
kind (``arbitrag.stages.parsing.values``) cannot read. No part of a reply is ever taken for the whole.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from arbitrag.text import agree, normalize_answer, one_line, without_thoughts

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
D = TypeVar("D")

_DIGITS = "0123456789"  # only these: str.isdigit takes digits of every script
_CELL = re.compile(r"[|｜]\s*(sources|confidence|reason)\s*[:：]", re.IGNORECASE)
_LONGEST_NUMBER = 3  # digits of the number of a line
_SAYS_NOTHING = " .-_*"


class ParseError(ValueError):
    """A reply does not have its form; the text is the reason on one line, such as ``there are two lines 'answer:'``."""


@dataclass(frozen=True, slots=True)
class Parsed(Generic[T_co]):
    """What was read from the reply to a prompt.

    ``lenient`` names each rule, beside the form's own, by which the value was read. ``problems`` has the reason for
    each reply that could not be read: none, one when the second try was read, or two, and then there is no value.
    """

    value: T_co | None
    lenient: tuple[str, ...] = ()
    prompt: str = ""
    problems: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return len(self.problems) == 2

    def value_or(self, default: D) -> T_co | D:
        """The value, or ``default`` where nothing could be read."""
        return default if self.failed else self.value  # type: ignore[return-value]


class Line(NamedTuple):
    """One line of a reply: ``label`` in lower case, or ``number``, or neither of them; and the value behind it."""

    text: str
    label: str
    number: int | None
    value: str


@dataclass(frozen=True, slots=True)
class Value:
    """The text of a line or a cell, never empty, for a reader of one kind of value.

    ``start`` is how the line or cell begins (``answer:``, ``2.``), for error texts; ``shown`` are the texts that the
    prompt's form has in its place. A reader that accepts more than the form adds to ``lenient`` by which rule it did.
    """

    start: str
    text: str
    shown: frozenset[str]
    lenient: list[str]

    def cells(self, *names: str) -> list[Value]:
        """The text before the first bar and the cells behind it, which have these names in this order."""
        text, *rest = (each.strip() for each in _CELL.split(self.text))
        if [name.lower() for name in rest[::2]] != list(names):
            raise ParseError(f"a line is not of the form 'TEXT | {' | '.join(f'{name}: …' for name in names)}'")
        found = [value_of(self.start, text, self.shown, self.lenient)]
        return found + [
            value_of(f"{name}:", each, frozenset(), self.lenient) for name, each in zip(names, rest[1::2], strict=True)
        ]


Kind = Callable[[Value], T]


@dataclass(frozen=True, eq=False, slots=True)
class Field(Generic[T]):
    """Lines of a form: ``label: value``, or numbered from 1 where ``label`` is empty; ``kind`` reads each value.

    There are from ``least`` to ``most`` of them (None: any number), in any order with those of other fields; ``last``
    fields stand behind all others.
    """

    label: str
    kind: Kind[T]
    least: int = 1
    most: int | None = 1
    last: bool = False

    def start(self, before: int = 0) -> str:
        """How the next line of this field begins, where ``before`` of them were read."""
        return f"{self.label}:" if self.label else f"{before + 1}."

    def check(self, count: int) -> None:
        """Raises ParseError for too few or too many lines."""
        if self.least <= count and (self.most is None or count <= self.most):
            return
        if not count:
            raise ParseError(f"there is no line '{self.start()}'")
        lines = f"lines '{self.label}:'" if self.label else "numbered lines"
        asked = f"{'' if self.least == self.most else 'at most '}{self.most}"
        raise ParseError(f"there are {count} {lines}; {asked} were asked for")


class Found:
    """The values that were read, by the field of the form."""

    def __init__(self) -> None:
        self._values: dict[Field[Any], list[Any]] = defaultdict(list)

    def add(self, field: Field[T], value: T) -> None:
        self._values[field].append(value)

    def count(self, field: Field[Any]) -> int:
        return len(self._values[field])

    def all(self, field: Field[T]) -> tuple[T, ...]:
        """The values of every line of a field, in their order."""
        return tuple(self._values[field])

    def one(self, field: Field[T]) -> T:
        """The value of a field that has exactly one line."""
        value: T = self._values[field][0]
        return value


@dataclass(frozen=True, eq=False, slots=True)
class Form(Generic[T_co]):
    """What a reply consists of: the lines of its ``fields``, of which ``build`` makes one value.

    ``build`` raises ParseError for values that contradict one another. A reply that only says ``bare`` (``none``) has
    no line, and is read as such.
    """

    fields: tuple[Field[Any], ...]
    build: Callable[[Found], T_co]
    bare: str = ""

    def parse(self, reply: str, shown: str = "") -> Parsed[T_co]:
        """The value of a reply. ``shown`` is the form that the prompt showed; raises ParseError with the reason."""
        text, found, lenient = _body(reply), Found(), list[str]()
        if self.bare and agree(text.replace("’", "'"), self.bare):
            return Parsed(self.build(found))
        lines = [_line(line) for line in text.splitlines() if line.strip()]
        if not lines:
            raise ParseError("the reply is empty")
        examples = _texts_shown(shown)
        last = ""
        for line in lines:
            field = self._field(line, found)
            start = field.start(found.count(field))
            if last and not field.last:
                raise ParseError(f"a line stands behind '{last}': {one_line(line.text, 60)}")
            last = start if field.last else ""
            found.add(field, field.kind(value_of(start, line.value, examples.get(field.label, frozenset()), lenient)))
        for field in self.fields:
            field.check(found.count(field))
        return Parsed(self.build(found), tuple(lenient))

    def _field(self, line: Line, found: Found) -> Field[Any]:
        """The field to which a line belongs."""
        for field in self.fields:
            count = found.count(field)
            if (line.label == field.label) if field.label else (line.number == count + 1):
                if field.most == count == 1:
                    raise ParseError(f"there are two lines '{field.start()}'")
                return field
        starts = " or ".join(f"'{field.start(found.count(field))}'" for field in self.fields)
        raise ParseError(f"a line does not begin with {starts}: {one_line(line.text, 60)}")


def value_of(start: str, text: str, shown: frozenset[str], lenient: list[str]) -> Value:
    """A value that says something; raises ParseError for one that is blank, or only dots and dashes."""
    if not text.strip(_SAYS_NOTHING):
        raise ParseError(f"'{start}' says nothing")
    return Value(start, text, shown, lenient)


def _body(reply: str) -> str:
    """A reply without its thoughts, and without a code fence around the whole."""
    text = without_thoughts(reply).strip()
    fence, _, inner = text.partition("\n")
    marked = fence.startswith("```") and (fence == "```" or fence[3:].isalnum()) and inner.endswith("\n```")
    return inner.removesuffix("```").strip() if marked else text


def _line(text: str) -> Line:
    """A line by its number, else by the one word before its first colon, else as it stands."""
    stripped = text.strip()
    rest = stripped.lstrip(_DIGITS)
    digits = stripped[: len(stripped) - len(rest)]
    if 0 < len(digits) <= _LONGEST_NUMBER and rest[:1] in (".", ")") and not rest[1:2].strip():
        return Line(text, "", int(digits), rest[1:].strip())
    at = min((place for colon in ":：" if (place := stripped.find(colon)) >= 0), default=-1)
    label = stripped[: max(at, 0)].rstrip()
    if label and not label.split(None, 1)[1:]:
        return Line(text, label.lower(), None, stripped[at + 1 :].strip())
    return Line(text, "", None, stripped)


@lru_cache(maxsize=64)
def _texts_shown(form: str) -> Mapping[str, frozenset[str]]:
    """The texts that a prompt's form shows for the value of a line, by label, and for numbered lines under ``""``."""
    shown: dict[str, set[str]] = defaultdict(set)
    for text in form.splitlines():
        line = _line(text)
        shown[line.label].add(normalize_answer(_CELL.split(line.value)[0]))
    return {label: frozenset(texts) for label, texts in shown.items()}
