"""JSON: parse text strictly, write values as plain JSON values, and read these back into dataclasses.

    plain = to_plain(verdict)                      # dict, list, str, int, float, bool, None
    verdict = from_plain(Verdict, plain)           # checked against the types of the fields; nothing is coerced

Plain values may come from elsewhere than JSON (a row of CSV, a column of a database) and may be checked before they
are read, so parsing and reading are two steps. Standard library only: ``docs/log.md`` has the measurements.
"""

from __future__ import annotations

import hashlib
import json
import math
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, TypeVar

from arbitrag.errors import nearest

T = TypeVar("T")
_Reader = Callable[[Any], Any]

NOT_JSON: Mapping[str, Any] = {"json": False}  # metadata of a dataclass field that is left out of JSON

_WORDS: Mapping[Any, str] = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    NoneType: "null",
    list: "a list",
    dict: "an object",
}
_PLAIN = frozenset({str, int, float, bool, NoneType})  # nearly all values that come are of one of these
_SIMPLE = (str, int, float, bool)  # a union would be checked far more slowly


def to_plain(value: Any) -> Any:
    """Dataclasses, enums, mappings and sequences as plain JSON values.

    Raises TypeError for anything else, so that no ``repr`` of an object ever stands in a file as if it were data.
    """
    if value.__class__ in _PLAIN or isinstance(value, _SIMPLE):
        return value
    if isinstance(value, Enum):
        return value.value
    if (names := _written(value.__class__)) is not None:
        found = ((name, getattr(value, name)) for name in names)
        return {name: each if each.__class__ in _PLAIN else to_plain(each) for name, each in found}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [each if each.__class__ in _PLAIN else to_plain(each) for each in value]
    raise TypeError(f"{type(value).__name__} is not a plain value")


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _number(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse(digits)


_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=_number)


def parse_json(text: str) -> Any:
    """``json.loads`` without its extensions: NaN, Infinity and numbers too large are refused, as is absurd nesting.

    Raises ValueError with the reason.
    """
    try:
        return _STRICT.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_together(texts: Iterable[bytes]) -> list[Any]:
    """The values of JSON texts that Arbitrag wrote itself, parsed as one list: half the time of one after the other.

    Raises ValueError for what is not JSON.
    """
    try:
        found: list[Any] = json.loads(b"[%b]" % b",".join(texts))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found


def json_digest(value: Any) -> str:
    """The SHA-256 of a value as JSON, in hexadecimal; files and traces name passages and settings by it."""
    return hashlib.sha256(json.dumps(to_plain(value)).encode()).hexdigest()


def from_plain(kind: type[T], plain: Any, where: str = "") -> T:
    """The value of type ``kind`` that ``plain`` stands for; ``where`` is its name in the error text.

    Raises ValueError for an unknown key (with the nearest name), a missing one, or a value of another type.
    """
    read: Callable[[Any], T] = _reader(typing.cast(Any, kind))
    try:
        return read(plain)
    except _Mismatch as error:
        raise ValueError(error.said(where)) from None


def describe(plain: Any) -> str:
    """What a JSON value is, in words: ``a string``."""
    return _WORDS[type(plain)]


class _Mismatch(Exception):
    """A value is not of its type. ``path`` leads to it, and grows from the value outwards."""

    def __init__(self, problem: str, path: str = "") -> None:
        self.problem, self.path = problem, path

    def within(self, step: str) -> _Mismatch:
        self.path = step + self.path
        return self

    def said(self, where: str) -> str:
        path = (where + self.path).removeprefix(".")
        return f"'{path}' {self.problem}" if path else self.problem


@cache
def _reader(kind: Any) -> _Reader:
    """The function that reads plain values of a type."""
    if kind is Any:
        return lambda plain: plain
    if is_dataclass(kind):
        return _dataclass_reader(kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (UnionType, typing.Union):
        return _optional_reader(*(each for each in inner if each is not NoneType))
    if origin is typing.Literal:
        return _choice_reader({choice: choice for choice in inner})
    if origin is tuple:
        return _tuple_reader(inner[0])
    if origin is not None:  # a mapping: its keys are strings in JSON
        return _mapping_reader(inner[1])
    if issubclass(kind, Enum):
        return _choice_reader({member.value: member for member in kind})
    return _read_number if kind is float else _exact_reader(kind)


def _exact_reader(kind: type) -> _Reader:
    def read(plain: Any) -> Any:
        return plain if plain.__class__ is kind else _expected(kind, plain)

    return read


def _expected(kind: type, plain: Any) -> typing.NoReturn:
    raise _Mismatch(f"is {describe(plain)}; expected {_WORDS[kind]}")


def _read_number(plain: Any) -> float:
    if plain.__class__ is float:
        return float(plain)
    if plain.__class__ is not int:
        _expected(float, plain)
    try:
        return float(plain)
    except OverflowError:
        raise _Mismatch(f"is a number of {len(str(abs(plain)))} digits") from None


def _choice_reader(choices: Mapping[str, Any]) -> _Reader:
    def read(plain: Any) -> Any:
        if isinstance(plain, str) and plain in choices:
            return choices[plain]
        found = repr(plain) if isinstance(plain, str) else describe(plain)
        raise _Mismatch(f"is {found}; expected one of {', '.join(choices)}")

    return read


def _optional_reader(kind: Any) -> _Reader:
    reader = _reader(kind)
    return lambda plain: None if plain is None else reader(plain)


def _tuple_reader(kind: Any) -> _Reader:
    reader = _reader(kind)

    def read(plain: Any) -> tuple[Any, ...]:
        if plain.__class__ is not list:
            _expected(list, plain)
        found = []
        for position, item in enumerate(plain):
            try:
                found.append(reader(item))
            except _Mismatch as error:
                raise error.within(f"[{position}]") from None
        return tuple(found)

    return read


def _mapping_reader(kind: Any) -> _Reader:
    reader = _reader(kind)

    def read(plain: Any) -> dict[str, Any]:
        if plain.__class__ is not dict:
            _expected(dict, plain)
        found = {}
        for key, item in plain.items():
            try:
                found[key] = reader(item)
            except _Mismatch as error:
                raise error.within(f".{key}") from None
        return found

    return read


def _dataclass_reader(kind: Any) -> _Reader:
    # numpy is named in annotations only, of fields that never are JSON; importing it here would cost every start.
    hints = typing.get_type_hints(kind, localns={"np": SimpleNamespace(ndarray=object)})
    known = {each.name: each for each in _json_fields(kind)}
    readers: dict[str, _Reader] = {}
    needed = {name for name, each in known.items() if each.default is each.default_factory is MISSING}

    def read(plain: Any) -> Any:
        if plain.__class__ is not dict:
            _expected(dict, plain)
        if not plain.keys() <= known.keys():
            raise _unknown(next(key for key in plain if key not in known), known)
        if not needed <= plain.keys():
            raise _Mismatch("is missing", f".{next(name for name in known if name in needed and name not in plain)}")
        values = {}
        for key, item in plain.items():
            try:
                values[key] = readers[key](item)
            except _Mismatch as error:
                raise error.within(f".{key}") from None
        return kind(**values)

    readers.update({name: _reader(hints[name]) for name in known})
    return read


def _unknown(key: str, known: Iterable[str]) -> _Mismatch:
    close = nearest(key, known)
    return _Mismatch("is not known" + (f"; did you mean '{close}'?" if close else ""), f".{key}")


@cache
def _written(kind: type) -> tuple[str, ...] | None:
    """The names of the fields of a dataclass that are written; None for another type."""
    return tuple(each.name for each in _json_fields(kind)) if is_dataclass(kind) else None


def _json_fields(kind: Any) -> list[Field[Any]]:
    return [each for each in fields(kind) if each.metadata.get("json", True)]
