"""The table of methods by name. A method's module is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module

from arbitrag.errors import UsageError, unknown
from arbitrag.methods.base import Method, configure, name_and_options, needs_of
from arbitrag.text import listed, one_line
from arbitrag.types import Need

AUTO = "auto"  # the method of those who name none; it answers under the name of the one that it stands for
METHODS = {
    "astute": "arbitrag.methods.astute:AstuteRag",
    "auto": "arbitrag.methods.auto:Auto",
    "bridge": "arbitrag.methods.bridge.method:Bridge",
    "direct": "arbitrag.methods.direct:Direct",
    "rag": "arbitrag.methods.rag:Rag",
    "stack": "arbitrag.methods.stack:Stack",
    "trustmargin": "arbitrag.methods.trustmargin:TrustMargin",
    "trustrag": "arbitrag.methods.trustrag:TrustRag",
}


def load(name: str, *, typed: bool = False) -> type[Method]:
    """The class of the method called ``name``: one of METHODS, or one that an installed package offers.

    ``package.module:Class`` is imported only where it was ``typed`` by a person, on the command line or in Python: in a
    run file or a trace, which may be a stranger's, it is refused, and so it is in the settings of another method.

    Raises UsageError with the nearest name, PluginError for a package whose method cannot be loaded.
    """
    if name not in METHODS:
        return _plugin_method(name, typed)
    module, _, attribute = METHODS[name].partition(":")
    found: type[Method] = getattr(import_module(module), attribute)
    return found


def _plugin_method(name: str, typed: bool) -> type[Method]:
    from arbitrag import plugins

    if ":" in name and typed:
        return plugins.method_at(name)
    if ":" in name:
        raise UsageError(
            f"'{one_line(name)}' names code to import, which is taken only from what you type: --method MODULE:CLASS\n"
            "In the settings of a method and in files, name it by an entry point (see examples/plugin)"
        )
    found = plugins.method(name)
    if found is None:
        hint = "See them: arbitrag methods; one of your own is named as MODULE:CLASS"
        raise unknown("method", name, [*METHODS, *plugins.names("methods")], hint=hint)
    return found


def running_with(offered: Need) -> tuple[str, ...]:
    """The names of the methods that, with default settings, need no more than this."""
    return tuple(name for name in METHODS if name != AUTO and needs_of(load(name)()) in offered)


def configured(name: str, options: Mapping[str, str], *, typed: bool = False) -> Method:
    """The method called ``name`` with options given as text.

    Raises UsageError for an unknown method, setting or value; of a setting it names the methods that have it.
    """
    kind = load(name, typed=typed)
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    if strange := next((option for option in options if option not in known), None):
        others = [each for each in METHODS if strange in (f.name for f in fields(load(each)))]  # type: ignore[arg-type]
        hint = f"It is a setting of {listed(others)}; name the method: --method {others[0]}" if others else ""
        raise unknown(f"option of {kind.name}", strange, known, hint=hint)
    return configure(kind, options)


def method_from(text: str, *, typed: bool = False) -> Method:
    """``trustmargin threshold=-1.0`` as a method; raises UsageError for an unknown method, setting or value.

    ``typed`` says that a person typed it (see ``load``).
    """
    name, options = name_and_options(text)
    return configured(name, options, typed=typed)
