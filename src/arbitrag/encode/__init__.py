"""Open a sentence encoder by its address."""

from __future__ import annotations

from typing import Any

from arbitrag.encode.base import Encoder
from arbitrag.errors import UsageError, unknown
from arbitrag.registry import ENCODERS
from arbitrag.security.trust import FromFile


def open_encoder(address: str, *, source: FromFile | None = None, **options: Any) -> Encoder:
    """The encoder at an address such as ``hash``, ``st:BAAI/bge-small-en-v1.5``, ``bge-m3:BAAI/bge-m3``,
    ``onnx:folder`` or ``openai:MODEL``.

    ``options`` go to the encoder (see its constructor). ``source`` says that the address stands in a file: then it is
    opened only when nothing leaves this machine by it (see ``trust``).

    Raises UsageError for an address that is not one of these or that must be typed again, MissingExtra when the
    encoder's packages are not installed, BackendError when the model cannot be loaded.
    """
    kind, _, rest = address.partition(":")
    row = ENCODERS.get(kind)
    if source is not None:
        source.check(address)
        options |= {} if row is None else row.from_file
    if row is None:
        from arbitrag import plugins

        plugin = plugins.find("encoders", kind)
        if plugin is None:
            known = [*ENCODERS, *plugins.names("encoders")]
            raise unknown("encoder", kind, known, hint=f"An address looks like {ENCODERS['st'].example}.")
        made: Encoder = plugin.made(rest, **options)
        return made
    if rest and not row.needs_name:
        raise UsageError(f"'{address}': the {kind} encoder has no models; type: {kind}")
    if row.needs_name and not rest:
        raise UsageError(f"'{address}' names no model; an address looks like {row.example}")
    opened: Encoder = row.open(*([rest] if rest else []), **options)
    return opened
