"""What a caller in Python gave, looked at before anything is opened. Every error names the argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from arbitrag.errors import UsageError, described
from arbitrag.kit import Limits
from arbitrag.llm.base import Price
from arbitrag.methods import method_from
from arbitrag.methods.base import Method
from arbitrag.run_options import OPTIONS, Option
from arbitrag.stages.long_form import Form
from arbitrag.types import Question


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


def _is_address_or(name: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) or (hasattr(value, name) and not isinstance(value, type))


def _are_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(each, str) for pair in value.items() for each in pair)


# An object that is passed in place of an address has this method.
_OBJECTS = {"llm": "generate", "scorer": "score", "encoder": "encode"}


def _fits(name: str, declared: Option) -> Callable[[Any], bool]:
    if name in _OBJECTS:
        return _is_address_or(_OBJECTS[name])
    if declared.kind is dict:
        return _are_texts
    if name == "price":
        return _is(Price)
    return _is(str) if declared.names is None else _is(str, Path)


# By the name of the argument: what fits, and what that is in words.
_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **{name: (_fits(name, declared), declared.in_python) for name, declared in OPTIONS.items() if declared.in_python},
    "limits": (_is(Limits), "Limits(context_tokens=..., answer_tokens=...) of arbitrag.kit"),
    "form": (lambda value: value in get_args(Form), "'short' or 'long'"),
}


def check_arguments(**given: Any) -> None:
    """Raise UsageError for an argument of another kind than it takes; None is what was not given."""
    for name, value in given.items():
        fits, words = _KINDS[name]
        if (value is not None or name in ("llm", "form")) and not fits(value):
            raise UsageError(f"{name}= takes {words}; got {described(value)}")


def question_of(given: Question | str) -> Question:
    """A question, or a text as one."""
    if isinstance(given, Question):
        return given
    if not isinstance(given, str):
        raise UsageError(f"question= takes a text or a Question; got {described(given)}")
    return Question(given)


def chosen_method(given: Method | str) -> Method:
    """A method, or ``trustmargin threshold=-1`` as one, as ``bench run --method`` reads it."""
    if isinstance(given, str):
        return method_from(given, typed=True)
    if isinstance(given, type) or not hasattr(given, "answer"):
        raise UsageError(
            f"method= takes 'trustmargin threshold=-1', or a method such as Rag(k=5); got {described(given)}"
        )
    return given
