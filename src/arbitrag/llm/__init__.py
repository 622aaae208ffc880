"""Open a language model by its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from arbitrag.errors import UsageError, unknown
from arbitrag.llm.base import LLM
from arbitrag.registry import Opener
from arbitrag.security.trust import FromFile


@dataclass(frozen=True, slots=True)
class Backend(Opener):
    """A kind of model. Its function takes what stands behind the colon, unless it is ``bare``, and options.

    ``settings`` are the options that may stand in the address, after a ``?``; ``run_options`` those that a run gives
    it: ``concurrency`` and ``retries`` where requests go to a server, ``own_process`` and ``deterministic`` where the
    model computes here. ``folder`` says that the rest of an address may be a folder with a manifest.
    """

    settings: Mapping[str, type] = field(default_factory=dict)
    run_options: frozenset[str] = frozenset({"deterministic"})
    folder: bool = False


BACKENDS: Mapping[str, Backend] = {
    "openai": Backend(
        "openai:MODEL or openai:MODEL@http://host:8000/v1 (any OpenAI-compatible server)",
        "arbitrag.llm.http.openai:open_openai",
        from_file={"typed": False},
        run_options=frozenset({"concurrency", "retries"}),
    ),
    "hf": Backend(
        "hf:NAME-OR-PATH or hf:NAME?dtype=bfloat16 (transformers, in this process)",
        "arbitrag.llm.hf.backend:open_hf",
        from_file={"local_files_only": True},
        settings={
            "device": str,
            "dtype": str,
            "revision": str,
            "deterministic": bool,
            "batch_rows": int,
            "prefix_bytes": int,
        },
        folder=True,
    ),
    "onnx": Backend(
        "onnx:FOLDER or onnx:FOLDER?threads=2 (onnxruntime, in this process)",
        "arbitrag.llm.onnx.backend:open_onnx",
        settings={"threads": int, "deterministic": bool, "prefix_bytes": int, "own_process": bool},
        run_options=frozenset({"deterministic", "own_process"}),
        folder=True,
    ),
    "lab": Backend(
        "lab (the embedded model)",
        "arbitrag.lab.model:open_lab",
        bare=True,
        run_options=frozenset({"deterministic", "own_process"}),
    ),
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
    model: LLM
    if kind not in BACKENDS:
        from arbitrag import plugins

        plugin = plugins.find("backends", kind)
        if plugin is None:
            known = [*BACKENDS, *plugins.names("backends")]
            raise unknown("backend", kind, known, hint=f"An address looks like {BACKENDS['openai'].address}.")
        model = plugin.made(rest, **options)
        return model
    backend = BACKENDS[kind]
    if backend.bare:
        model = backend.open(**options)
        return model
    if not rest:
        raise UsageError(f"'{address}' names no model; an address looks like {backend.address}")
    if backend.settings:
        rest, _, settings = rest.partition("?")
        options = {**_settings(kind, settings), **options}
    if source is not None:
        options.update(backend.from_file)
    model = backend.open(rest, **options)
    return model


def _settings(kind: str, text: str) -> dict[str, Any]:
    """``dtype=bfloat16&deterministic=true`` as options of a backend; raises UsageError for a strange name or value."""
    known = BACKENDS[kind].settings
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
