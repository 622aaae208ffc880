"""Plain JSON values back into the dataclasses that ``types.to_plain`` wrote, strictly: nothing is coerced."""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, TypeVar

from arbitrag.errors import nearest
from arbitrag.types import NOT_PLAIN

T = TypeVar("T")

_WORDS: Mapping[Any, str] = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    NoneType: "null",
    list: "a list",
    dict: "an object",
}


def parse_json(text: str) -> Any:
    """``json.loads`` without its extensions: NaN, Infinity and numbers too large are refused, as is absurd nesting.

    Raises ValueError with the reason.
    """

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    def number(digits: str) -> float:
        value = float(digits)
        return value if math.isfinite(value) else refuse(digits)

    try:
        return json.loads(text, parse_constant=refuse, parse_float=number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def from_plain(kind: type[T], plain: Any, where: str = "") -> T:
    """The value of type ``kind`` that ``plain`` stands for; ``where`` is its name in the error text.

    Raises ValueError for an unknown key (with the nearest name), a missing one, or a value of another type.
    """
    value: T = _read(kind, plain, where)
    return value


def describe(plain: Any) -> str:
    """What a JSON value is, in words: ``a string``."""
    return _WORDS[type(plain)]


def _read(kind: Any, plain: Any, where: str) -> Any:
    if kind is Any:
        return plain
    if is_dataclass(kind):
        return _read_dataclass(kind, plain, where)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (UnionType, typing.Union):
        if plain is None and NoneType in inner:
            return None
        (only,) = (each for each in inner if each is not NoneType)
        return _read(only, plain, where)
    if origin is typing.Literal:
        return _one_of(plain, {choice: choice for choice in inner}, where)
    if origin is tuple:
        items = _checked(list, plain, where)
        return tuple(_read(inner[0], item, f"{where}[{position}]") for position, item in enumerate(items))
    if origin is not None:  # a mapping: its keys are strings in JSON
        pairs = _checked(dict, plain, where).items()
        return {key: _read(inner[1], item, f"{where}.{key}") for key, item in pairs}
    if issubclass(kind, Enum):
        return _one_of(plain, {member.value: member for member in kind}, where)
    return _checked(kind, plain, where)


def _checked(kind: type, plain: Any, where: str) -> Any:
    if kind is float and type(plain) is int:
        try:
            return float(plain)
        except OverflowError:
            raise ValueError(f"{_quoted(where)}is a number of {len(str(abs(plain)))} digits") from None
    if type(plain) is not kind:
        raise ValueError(f"{_quoted(where)}is {describe(plain)}; expected {_WORDS[kind]}")
    return plain


def _one_of(plain: Any, choices: Mapping[str, Any], where: str) -> Any:
    if not isinstance(plain, str) or plain not in choices:
        found = repr(plain) if isinstance(plain, str) else describe(plain)
        raise ValueError(f"{_quoted(where)}is {found}; expected one of {', '.join(choices)}")
    return choices[plain]


def _read_dataclass(kind: Any, plain: Any, where: str) -> Any:
    given = _checked(dict, plain, where)
    hints = _hints(kind)
    prefix = f"{where}." if where else ""
    for key in given:
        if key not in hints:
            close = nearest(key, hints)
            raise ValueError(f"'{prefix}{key}' is not known" + (f"; did you mean '{close}'?" if close else ""))
    for each in fields(kind):
        if each.name in hints and each.name not in given and each.default is each.default_factory is MISSING:
            raise ValueError(f"'{prefix}{each.name}' is missing")
    return kind(**{key: _read(hints[key], value, f"{prefix}{key}") for key, value in given.items()})


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    # numpy is named in annotations only, of fields that never are JSON; importing it here would cost every start.
    hints = typing.get_type_hints(kind, localns={"np": SimpleNamespace(ndarray=object)})
    return {each.name: hints[each.name] for each in fields(kind) if each.name not in NOT_PLAIN}


def _quoted(where: str) -> str:
    return f"'{where}' " if where else ""
