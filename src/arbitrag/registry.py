"""Rows of the tables that say what opens an address, by its first word. What a row names is imported on use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any


@dataclass(frozen=True, slots=True)
class Opener:
    """A kind of address, ``KIND:REST``, or ``KIND`` alone where it is ``bare``.

    ``address`` shows how one is written, for help texts and errors. ``target`` is what opens it, as
    ``"package.module:name"``. ``from_file`` are options for an address that stands in a file, not typed by a person
    (see ``security.trust``).
    """

    address: str
    target: str
    bare: bool = False
    from_file: Mapping[str, Any] = field(default_factory=dict)

    def open(self, *given: Any, **options: Any) -> Any:
        return resolve_name(self.target)(*given, **options)
