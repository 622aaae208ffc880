"""Parts that other packages bring along, found by their entry points.

    [project.entry-points."arbitrag.methods"]
    second_opinion = "my_package:SecondOpinion"

A name is looked up here only where it is not one of Arbitrag's own, so that importing stays free and no package can
take the place of what comes with it. An entry point names:

- ``arbitrag.methods``: a method's class, called by its own ``name``
- ``arbitrag.backends``, ``arbitrag.encoders``: what makes an ``LLM`` or an ``Encoder`` of the address behind the colon
  (``mykind:ADDRESS``) and of keyword options
- ``arbitrag.retrievers``: what makes a ``Retriever`` of it, and of ``encoder=`` where one was given; the kind consists
  of letters and digits, as other addresses are paths
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, Literal

from arbitrag.errors import ArbitragError, PluginError, nearest
from arbitrag.text import listed, one_line

Group = Literal["methods", "backends", "retrievers", "encoders"]
# What each has to have, beside what it may leave out.
_SHAPES: dict[Group, tuple[str, tuple[str, ...]]] = {
    "methods": ("method", ("name", "needs", "cost", "paper", "answer")),
    "backends": (
        "model",
        ("name", "identity", "wording", "price", "capabilities", "count_tokens", "generate", "aclose"),
    ),
    "retrievers": ("retriever", ("name", "identity", "retrieve", "aclose")),
    "encoders": ("encoder", ("name", "identity", "encode", "aclose")),
}


@dataclass(frozen=True, slots=True)
class Plugin:
    """What an entry point names. ``where`` is its package, in words for an error."""

    group: Group
    name: str
    where: str
    target: Any

    def made(self, *given: Any, **options: Any) -> Any:
        """The part that it makes of these. Raises PluginError for whatever goes wrong in it, ArbitragError as it is."""
        try:
            part = self.target(*given, **options)
        except ArbitragError:
            raise
        except Exception as error:
            raise PluginError(f"{self.where} could not open {self.name}: {_said(error)}") from error
        return _checked(part, self.group, f"{self.where}: {self.name}")


def find(group: Group, name: str) -> Plugin | None:
    """What packages offer under this name; None where none does.

    Raises PluginError when it cannot be loaded, or when several packages offer one.
    """
    offered = list(entry_points(group=f"arbitrag.{group}", name=name))
    if not offered:
        return None
    if len({each.value for each in offered}) > 1:
        packages = listed(sorted(_package(each) for each in offered))
        raise PluginError(f"{packages} each offer '{one_line(name)}' ({group}); remove one of them")
    where = _package(offered[0])
    try:
        target = offered[0].load()
    except Exception as error:
        raise PluginError(
            f"{where} offers '{one_line(name)}' ({group}), but cannot be loaded: {_said(error)}"
        ) from error
    return Plugin(group, name, where, target)


def names(group: Group) -> list[str]:
    """The names under which packages offer something; nothing is loaded."""
    return sorted({each.name for each in entry_points(group=f"arbitrag.{group}")})


def method(name: str) -> type[Any] | None:
    """The class of a method that a package offers, or None."""
    found = find("methods", name)
    if found is None:
        return None
    kind = _method(found.target, f"{found.where}: '{one_line(name)}'")
    if kind.name != name:  # a run file calls a method by its own name
        raise PluginError(f"{found.where} offers the method '{name}', whose own name is '{kind.name}'; call both alike")
    return kind


def method_at(place: str) -> type[Any]:
    """The class of the method at ``package.module:Class``; modules in the working folder are found as well."""
    module, _, attribute = place.partition(":")
    try:
        if find_spec(module.partition(".")[0]) is None and os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # behind all others, so that no file here takes the place of a package
        loaded = import_module(module)
    except Exception as error:
        raise PluginError(
            f"'{one_line(place)}': the module {one_line(module)} cannot be imported: {_said(error)}"
        ) from error
    if not hasattr(loaded, attribute):
        close = nearest(attribute, vars(loaded))
        guess = f"; did you mean '{close}'?" if close else ""
        raise PluginError(f"'{one_line(place)}': the module {module} has no '{one_line(attribute)}'{guess}")
    return _method(getattr(loaded, attribute), f"'{one_line(place)}'")


def _method(kind: Any, where: str) -> type[Any]:
    if not isinstance(kind, type) or not is_dataclass(kind):
        raise PluginError(f"{where} is no method: a method is a frozen dataclass (see examples/plugin)")
    _checked(kind, "methods", where)
    return kind


def _checked(part: Any, group: Group, where: str) -> Any:
    what, needed = _SHAPES[group]
    if missing := [name for name in needed if not hasattr(part, name)]:
        raise PluginError(f"{where} is no {what}: it has no {listed(missing, 'and no')} (see examples/plugin)")
    return part


def _package(entry: EntryPoint) -> str:
    known = entry.dist
    return f"the package {one_line(known.name)} {one_line(known.version)}" if known else f"'{one_line(entry.value)}'"


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {one_line(str(error), 300)}"
