"""Open a language model by its address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arbitrag.errors import UsageError, unknown
from arbitrag.llm.base import LLM
from arbitrag.registry import LLMS
from arbitrag.security.trust import FromFile

_VALUES = {bool: "true or false", int: "a whole number", str: "a text"}


def open_llm(address: str, *, source: FromFile | None = None, **options: Any) -> LLM:
    """The model at an address such as ``openai:gpt-4o-mini``, ``hf:Qwen/Qwen3-0.6B``, ``onnx:folder`` or ``lab``.

    ``options`` go to the backend (see its constructor). ``source`` says that the address stands in a file: then it is
    opened only when nothing leaves this machine by it (see ``trust``).

    Raises UsageError for an address that is not one of these or that must be typed again, MissingExtra when the
    backend's packages are not installed, BackendError when the model cannot be loaded.
    """
    kind, _, rest = address.partition(":")
    if source is not None:
        source.check(address)
    row = LLMS.get(kind)
    if row is None:
        from arbitrag import plugins

        plugin = plugins.find("backends", kind)
        if plugin is None:
            known = [*LLMS, *plugins.names("backends")]
            raise unknown("backend", kind, known, hint=f"An address looks like {LLMS['openai'].example}.")
        made: LLM = plugin.made(rest, **options)
        return made
    if row.needs_name and not rest:
        raise UsageError(f"'{address}' names no model; an address looks like {row.example}")
    if row.settings is not None:
        rest, _, settings = rest.partition("?")
        options = {**_settings(kind, row.settings, settings), **options}
    options |= row.from_file if source is not None else {}
    opened: LLM = row.open(*([rest] if row.needs_name else []), **options)
    return opened


def _settings(kind: str, known: Mapping[str, type], text: str) -> dict[str, Any]:
    """``dtype=bfloat16&deterministic=true`` as options of a backend; raises UsageError for a strange name or value."""
    found: dict[str, Any] = {}
    for pair in filter(None, text.split("&")):
        key, _, value = pair.partition("=")
        if key not in known:
            raise unknown(f"setting of {kind}:", key, known)
        wanted = known[key]
        if (
            (wanted is bool and value not in ("true", "false"))
            or (wanted is int and not value.isdecimal())
            or not value
        ):
            raise UsageError(f"{key} in the address is {_VALUES[wanted]}; got '{value}'")
        found[key] = value == "true" if wanted is bool else wanted(value)
    return found
