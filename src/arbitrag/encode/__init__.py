"""Open a sentence encoder by its address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arbitrag.encode.base import Encoder
from arbitrag.errors import UsageError, unknown
from arbitrag.registry import Opener
from arbitrag.security.trust import FromFile

ENCODERS: Mapping[str, Opener] = {
    "hash": Opener(
        "hash (no model: words and their spelling, see arbitrag.encode.hashed)",
        "arbitrag.encode.hashed:HashEncoder",
        bare=True,
    ),
    "st": Opener(
        "st:NAME-OR-PATH (sentence-transformers, in this process)",
        "arbitrag.encode.transformer:TransformerEncoder",
        from_file={"local_files_only": True},
    ),
    "bge-m3": Opener(
        "bge-m3:NAME-OR-PATH (BGE-M3 with its dense, sparse and multi-vector heads, in this process)",
        "arbitrag.encode.bge_m3:BgeM3Encoder",
        from_file={"local_files_only": True},
    ),
    "onnx": Opener("onnx:FOLDER (onnxruntime, in this process)", "arbitrag.encode.onnx:OnnxEncoder"),
    "openai": Opener(
        "openai:MODEL or openai:MODEL@http://host:8000/v1 (any OpenAI-compatible embeddings endpoint)",
        "arbitrag.encode.openai:open_openai",
        from_file={"typed": False},
    ),
}


def open_encoder(address: str, *, source: FromFile | None = None, **options: Any) -> Encoder:
    """The encoder at an address such as ``hash``, ``st:BAAI/bge-small-en-v1.5``, ``bge-m3:BAAI/bge-m3``,
    ``onnx:folder`` or ``openai:MODEL``.

    ``options`` go to the encoder (see its constructor). ``source`` says that the address stands in a file: then it is
    opened only when nothing leaves this machine by it (see ``trust``).

    Raises UsageError for an address that is not one of these or that must be typed again, MissingExtra when the
    encoder's packages are not installed, BackendError when the model cannot be loaded.
    """
    kind, _, rest = address.partition(":")
    if source is not None:
        source.check(address)
    encoder: Encoder
    if kind not in ENCODERS:
        from arbitrag import plugins

        plugin = plugins.find("encoders", kind)
        if plugin is None:
            known = [*ENCODERS, *plugins.names("encoders")]
            raise unknown("encoder", kind, known, hint=f"An address looks like {ENCODERS['st'].address}.")
        encoder = plugin.made(rest, **options)
        return encoder
    found = ENCODERS[kind]
    if found.bare and rest:
        raise UsageError(f"'{address}': the {kind} encoder has no models; type: {kind}")
    if not found.bare and not rest:
        raise UsageError(f"'{address}' names no model; an address looks like {found.address}")
    if source is not None:
        options.update(found.from_file)
    encoder = found.open(*([] if found.bare else [rest]), **options)
    return encoder
