"""Open a sentence encoder by its address."""

from __future__ import annotations

from typing import Any

from arbitrag.encode.base import Encoder
from arbitrag.errors import UsageError, unknown
from arbitrag.security.addresses import split_server
from arbitrag.security.trust import FromFile

KINDS = {
    "hash": "hash (no model: words and their spelling, see arbitrag.encode.hashed)",
    "st": "st:NAME-OR-PATH (sentence-transformers, in this process)",
    "bge-m3": "bge-m3:NAME-OR-PATH (BGE-M3 with its dense, sparse and multi-vector heads, in this process)",
    "onnx": "onnx:FOLDER (onnxruntime, in this process)",
    "openai": "openai:MODEL or openai:MODEL@http://host:8000/v1 (any OpenAI-compatible embeddings endpoint)",
}
_FILES_ONLY = {"local_files_only": True}


def default_encoder() -> Encoder:
    """``hash``, which is opened (and numpy imported, 0.15 s) when there is something to encode."""
    from arbitrag.encode.lazy import LaterEncoder

    return LaterEncoder("hash", "hash:256:1", 256)


def open_encoder(address: str, *, source: FromFile | None = None, **options: Any) -> Encoder:
    """The encoder at an address such as ``hash``, ``st:BAAI/bge-small-en-v1.5``, ``bge-m3:BAAI/bge-m3``,
    ``onnx:folder`` or ``openai:MODEL``.

    ``options`` go to the encoder (see its constructor). ``source`` says that the address stands in a file: then it is
    opened only when nothing leaves this machine by it (see ``trust``).

    Raises UsageError for an address that is not one of these or that must be typed again, MissingExtra when the
    encoder's packages are not installed, BackendError when the model cannot be loaded.
    """
    kind, _, rest = address.partition(":")
    local: dict[str, Any] = {}
    if source is not None:
        source.check(address)
        local = {"openai": {"typed": False}, "st": _FILES_ONLY, "bge-m3": _FILES_ONLY}.get(kind, {})
    options |= local
    if kind not in KINDS:
        from arbitrag import plugins

        plugin = plugins.find("encoders", kind)
        if plugin is None:
            known = [*KINDS, *plugins.names("encoders")]
            raise unknown("encoder", kind, known, hint=f"An address looks like {KINDS['st']}.")
        made: Encoder = plugin.made(rest, **options)
        return made
    if kind == "hash":
        if rest:
            raise UsageError(f"'{address}': the hash encoder has no models; type: hash")
        from arbitrag.encode.hashed import HashEncoder

        return HashEncoder(**options)
    if not rest:
        raise UsageError(f"'{address}' names no model; an address looks like {KINDS[kind]}")
    if kind == "st":
        from arbitrag.encode.transformer import TransformerEncoder

        return TransformerEncoder(rest, **options)
    if kind == "bge-m3":
        from arbitrag.encode.bge_m3 import BgeM3Encoder

        return BgeM3Encoder(rest, **options)
    if kind == "onnx":
        from arbitrag.encode.onnx import OnnxEncoder

        return OnnxEncoder(rest, **options)
    from arbitrag.encode.openai import OpenAIEncoder

    model, base_url = split_server(rest)
    return OpenAIEncoder(model, base_url=base_url or None, **options)
