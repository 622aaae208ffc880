"""Open a language model by its address."""

from __future__ import annotations

from typing import Any

from arbitrag.errors import UsageError, unknown
from arbitrag.llm.base import LLM
from arbitrag.security.addresses import split_server
from arbitrag.security.trust import FromFile

KINDS = {
    "openai": "openai:MODEL or openai:MODEL@http://host:8000/v1 (any OpenAI-compatible server)",
    "hf": "hf:NAME-OR-PATH or hf:NAME?dtype=bfloat16 (transformers, in this process)",
    "onnx": "onnx:FOLDER or onnx:FOLDER?threads=2 (onnxruntime, in this process)",
    "lab": "lab (the embedded model)",
}
# What may stand after a ? in an address; a backend's constructor says what each means, and takes more from Python.
SETTINGS: dict[str, dict[str, type]] = {
    "hf": {"device": str, "dtype": str, "revision": str, "deterministic": bool, "batch_rows": int, "prefix_bytes": int},
    "onnx": {"threads": int, "deterministic": bool, "prefix_bytes": int, "own_process": bool},
}
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
    if kind not in KINDS:
        from arbitrag import plugins

        plugin = plugins.find("backends", kind)
        if plugin is None:
            known = [*KINDS, *plugins.names("backends")]
            raise unknown("backend", kind, known, hint=f"An address looks like {KINDS['openai']}.")
        made: LLM = plugin.made(rest, **options)
        return made
    if kind == "lab":
        from arbitrag.lab.model import open_lab

        return open_lab(**options)
    if not rest:
        raise UsageError(f"'{address}' names no model; an address looks like {KINDS[kind]}")
    if kind == "openai":
        from arbitrag.llm.http.openai import OpenAILLM

        model, base_url = split_server(rest)
        options |= {} if source is None else {"typed": False}
        return OpenAILLM(model, base_url=base_url or None, **options)
    name, _, settings = rest.partition("?")
    options = {**_settings(kind, settings), **options}
    if kind == "hf":
        options |= {} if source is None else {"local_files_only": True}
        from arbitrag.llm.hf.backend import open_hf

        return open_hf(name, **options)
    from arbitrag.llm.onnx.backend import open_onnx

    return open_onnx(name, **options)


def _settings(kind: str, text: str) -> dict[str, Any]:
    """``dtype=bfloat16&deterministic=true`` as options of a backend; raises UsageError for a strange name or value."""
    found: dict[str, Any] = {}
    for pair in filter(None, text.split("&")):
        key, _, value = pair.partition("=")
        if key not in SETTINGS[kind]:
            raise unknown(f"setting of {kind}:", key, SETTINGS[kind])
        wanted = SETTINGS[kind][key]
        if (
            (wanted is bool and value not in ("true", "false"))
            or (wanted is int and not value.isdecimal())
            or not value
        ):
            raise UsageError(f"{key} in the address is {_VALUES[wanted]}; got '{value}'")
        found[key] = value == "true" if wanted is bool else wanted(value)
    return found
