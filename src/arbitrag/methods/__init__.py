"""Every method by name. A method is imported when it is used."""

from __future__ import annotations

from importlib import import_module

from arbitrag.errors import unknown
from arbitrag.methods.base import Method, configure, name_and_options

METHODS = {
    "astute": "arbitrag.methods.astute:AstuteRag",
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


def method_from(text: str) -> Method:
    """``trustmargin threshold=-1.0`` as a method; raises UsageError for an unknown method, setting or value."""
    name, options = name_and_options(text)
    return configure(load(name), options)
