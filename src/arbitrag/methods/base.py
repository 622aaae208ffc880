"""The interface of methods: a frozen dataclass of hyper-parameters that answers one question with a kit."""

from __future__ import annotations

import dataclasses
import inspect
import math
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from arbitrag.errors import UsageError, unknown
from arbitrag.kit import Kit
from arbitrag.types import Need, Question, Verdict


class Method(Protocol):
    """A method. ``cost`` says in words what a question costs in model calls; ``paper`` names the source."""

    name: ClassVar[str]
    needs: ClassVar[Need]
    cost: ClassVar[str]
    paper: ClassVar[str]

    async def answer(self, question: Question, kit: Kit) -> Verdict: ...


@runtime_checkable
class Prepared(Protocol):
    """A method that reads files or encodes texts before the first question."""

    async def prepare(self, kit: Kit) -> None:
        """Raises DataError or UsageError when that cannot be read."""
        ...


@runtime_checkable
class Composed(Protocol):
    """A method with parts that its settings name."""

    @property
    def needs_of_parts(self) -> Need:
        """What they ask of a kit, beside what the method itself needs."""
        ...


def needs_of(method: Method) -> Need:
    """The capabilities that a method with these settings requires."""
    return method.needs | method.needs_of_parts if isinstance(method, Composed) else method.needs


def summary(kind: type) -> str:
    """What a method or a part does, in a sentence: the first paragraph of its docstring, on one line."""
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


class NamedPart(Protocol):
    """A dataclass that is chosen by its name, and whose fields are its options."""

    name: ClassVar[str]


P = TypeVar("P", bound=NamedPart)


S = TypeVar("S")


def setting(default: S, meaning: str, choices: Iterable[str] = ()) -> S:
    """A field of a method: its default, and what it means in a few words. ``choices`` are the values that it takes.

    This one declaration feeds Python, ``--set``, ``arbitrag methods NAME`` and the records of runs.
    """
    return dataclasses.field(default=default, metadata={"meaning": meaning, "choices": tuple(choices)})


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """The description of a setting; ``choices`` is empty where it takes any value of its type."""

    name: str
    type: str
    default: Any
    meaning: str
    choices: tuple[str, ...]


def settings_of(kind: type) -> list[Setting]:
    """The settings of a method's class, in their order."""
    return [
        Setting(
            each.name,
            type(each.default).__name__,
            None if each.default is dataclasses.MISSING else each.default,
            each.metadata.get("meaning", ""),
            each.metadata.get("choices", ()),
        )
        for each in dataclasses.fields(kind)
    ]


def settings(method: Method) -> dict[str, Any]:
    """The hyper-parameters of a method, by name."""
    return {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}  # type: ignore[arg-type]


def name_and_options(text: str) -> tuple[str, dict[str, str]]:
    """``trustmargin threshold=-1.0`` as a name and options; raises UsageError for anything else."""
    try:
        name, *changes = shlex.split(text) or [""]
    except ValueError:
        raise UsageError(f"a method is a name and settings behind it; got '{text}'") from None
    pairs = [change.partition("=") for change in changes]
    for change, (key, equals, _) in zip(changes, pairs, strict=True):
        if not (key and equals):
            raise UsageError(f"behind a name stand settings such as threshold=-1.0; got '{change}'")
    return name, {key: value for key, _, value in pairs}


def part_from(text: str, kinds: Mapping[str, type[P]], what: str) -> P:
    """``likelihood least=0.9`` as one of these kinds of part; raises UsageError for one that there is not."""
    name, options = name_and_options(text)
    if name not in kinds:
        raise unknown(what, name, kinds)
    return configure(kinds[name], options)


def configure(kind: type[P], options: Mapping[str, str]) -> P:
    """A method or a part with options given as text (``--set threshold=-1``), read by the type of the field's default.

    Raises UsageError for an option that it lacks, or a value of the wrong type.
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
