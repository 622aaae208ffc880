"""Options of a question set, as they stand behind the ``?`` of its address: ``FILE?poisoned=1&k=5``."""

from __future__ import annotations

import dataclasses
import math
import typing
from types import NoneType
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, urlencode

from arbitrag.errors import UsageError, unknown
from arbitrag.text import one_line

T = TypeVar("T", bound="Options")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options that only some formats have come in subclasses; ``always`` are those that the name of a set shows."""

    always: ClassVar[tuple[str, ...]] = ()

    def shown(self) -> str:
        """The options that differ from their defaults, and those to show always, as in an address."""
        fields = dataclasses.fields(self)
        values = {f.name: getattr(self, f.name) for f in fields if f.name in self.always}
        values |= {f.name: getattr(self, f.name) for f in fields if getattr(self, f.name) != f.default}
        return urlencode({name: _written(value) for name, value in values.items()}, safe=",")


def options_from(kind: type[T], query: str, what: str) -> T:
    """The options that a query spells; ``what`` names the set in errors.

    Raises UsageError for an unknown option, one that comes twice, or a value of the wrong type.
    """
    hints = typing.get_type_hints(kind)
    known = [f.name for f in dataclasses.fields(kind)]
    values: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise unknown(f"option of {what}", name, known)
        if name in values:
            raise UsageError(f"{what}: the option {name} is given twice")
        values[name] = _read(f"{what}: {name}", text, hints[name])
    return kind(**values)


def _read(where: str, text: str, wanted: Any) -> Any:
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is typing.Literal:
        if text not in inner:
            raise UsageError(f"{where} is one of {', '.join(inner)}; got '{one_line(text)}'")
        return text
    if origin is tuple:
        return tuple(_read(where, each, inner[0]) for each in text.split(","))
    if origin is not None:  # a value or None, which no address spells
        (wanted,) = (each for each in inner if each is not NoneType)
    try:
        value = wanted(text)
    except ValueError:
        value = math.nan
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{where} is {'a whole number' if wanted is int else 'a number'}; got '{one_line(text)}'")
    return value


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(_written(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
