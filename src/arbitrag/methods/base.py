"""What a method is: a frozen dataclass of hyper-parameters that answers one question with a kit, and holds no state."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Protocol, runtime_checkable

from arbitrag.errors import UsageError, unknown
from arbitrag.kit import Kit
from arbitrag.types import Need, Question, Verdict


class Method(Protocol):
    """``cost`` says in words what a question costs in model calls; ``paper`` names the source."""

    name: ClassVar[str]
    needs: ClassVar[Need]
    cost: ClassVar[str]
    paper: ClassVar[str]

    async def answer(self, question: Question, kit: Kit) -> Verdict: ...


@runtime_checkable
class Prepared(Protocol):
    """A method that has something to read before the first question."""

    async def prepare(self, kit: Kit) -> None:
        """Raises DataError or UsageError when that cannot be read."""
        ...


def settings(method: Method) -> dict[str, Any]:
    """The hyper-parameters of a method, by name."""
    return {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}  # type: ignore[arg-type]


def configure(kind: type[Method], options: dict[str, str]) -> Method:
    """A method with options given as text (``--set threshold=-1``), read by the type of the field's default.

    Raises UsageError for an option that the method lacks, or a value of the wrong type.
    """
    defaults = {f.name: f.default for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, text in options.items():
        if key not in defaults:
            raise unknown(f"option of {kind.name}", key, defaults)
        values[key] = _read(kind.name, key, text, type(defaults[key]))
    return kind(**values)


def _read(method: str, key: str, text: str, wanted: type) -> Any:
    if wanted is bool:
        if text.lower() not in ("true", "false"):
            raise UsageError(f"{method}: {key} is true or false; got '{text}'")
        return text.lower() == "true"
    try:
        value = wanted(text)
    except ValueError:
        kind = {int: "a whole number", float: "a number"}.get(wanted, wanted.__name__)
        raise UsageError(f"{method}: {key} is {kind}; got '{text}'") from None
    if isinstance(value, float) and not math.isfinite(value):  # which no JSON could hold
        raise UsageError(f"{method}: {key} is a finite number; got '{text}'")
    return value
