"""Every method by name. A method is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module

from arbitrag.errors import unknown
from arbitrag.methods.base import Method, configure, name_and_options, needs_of
from arbitrag.text import listed
from arbitrag.types import Need

AUTO = "auto"  # the method of those who name none; it answers under the name of the one that it stands for
METHODS = {
    "astute": "arbitrag.methods.astute:AstuteRag",
    "auto": "arbitrag.methods.auto:Auto",
    "bridge": "arbitrag.methods.bridge:Bridge",
    "direct": "arbitrag.methods.direct:Direct",
    "rag": "arbitrag.methods.rag:Rag",
    "stack": "arbitrag.methods.stack:Stack",
    "trustmargin": "arbitrag.methods.trustmargin:TrustMargin",
    "trustrag": "arbitrag.methods.trustrag:TrustRag",
}


def load(name: str) -> type[Method]:
    """The class of the method called ``name``; raises UsageError with the nearest name."""
    if name not in METHODS:
        raise unknown("method", name, METHODS, hint="See them: arbitrag methods")
    module, _, attribute = METHODS[name].partition(":")
    found: type[Method] = getattr(import_module(module), attribute)
    return found


def running_with(offered: Need) -> tuple[str, ...]:
    """The names of the methods that, with default settings, need no more than this."""
    return tuple(name for name in METHODS if name != AUTO and needs_of(load(name)()) in offered)


def configured(name: str, options: Mapping[str, str]) -> Method:
    """The method called ``name`` with options given as text.

    Raises UsageError for an unknown method, setting or value; of a setting it names the methods that have it.
    """
    kind = load(name)
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    if strange := next((option for option in options if option not in known), None):
        others = [each for each in METHODS if strange in (f.name for f in fields(load(each)))]  # type: ignore[arg-type]
        hint = f"It is a setting of {listed(others)}; name the method: --method {others[0]}" if others else ""
        raise unknown(f"option of {kind.name}", strange, known, hint=hint)
    return configure(kind, options)


def method_from(text: str) -> Method:
    """``trustmargin threshold=-1.0`` as a method; raises UsageError for an unknown method, setting or value."""
    name, options = name_and_options(text)
    return configured(name, options)
