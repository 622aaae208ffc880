"""The parsed address of passages on a server, as each server's ``open_address`` takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arbitrag.errors import UsageError

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder


@dataclass(frozen=True)
class ServerAddress:
    """The parts of an address. An encoder that it names is opened here, and closed with the retriever."""

    kind: str
    place: str
    example: str
    options: Mapping[str, str]
    encoder: Encoder | None
    closes_encoder: bool

    def refuse(self, *names: str) -> None:
        """Raise UsageError for an option that this kind does not have."""
        for name in names:
            if name in self.options:
                raise UsageError(f"{self.kind} has no option '{name}'; an address looks like {self.example}")

    def split(self) -> tuple[str, str]:
        """The server's address, and the name after its last slash."""
        place, query, _ = self.place.partition("?")
        if query:  # perhaps a key, so it is not repeated
            raise UsageError(
                f"the address has an option that {self.kind} does not have; one looks like {self.example}\n"
                f"A key goes into {self.kind.upper()}_API_KEY, user and password before the host."
            )
        url, _, name = place.rpartition("/")
        if not name or "@" in name or ":" in name:  # a piece of the server's own address
            raise UsageError(f"the address names no {self.kind} index; one looks like {self.example}")
        return url, name
