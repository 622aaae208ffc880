"""What an address can begin with: one row for each kind of language model, sentence encoder and index.

A new backend is a module of its own and a row here. What opens it is named in a string and imported when an address of
its kind is opened, so this table costs nothing, and what stands below may be listed with what stands above. The
command line's help and completion, the errors that list kinds, and the rules for addresses that stand in a file
(``arbitrag.security.trust``) are all derived from these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

PLUGINS_TAKE = frozenset({"deterministic"})  # of a run's options, what a kind that no row names is given


@dataclass(frozen=True, slots=True)
class Backend:
    """One kind of address.

    ``opens`` (``"module:function"``) is called with what stands behind the colon, and with keyword options.
    ``example`` is an address as an error shows it, and ``forms`` are its short forms for help.
    """

    opens: str
    example: str
    forms: tuple[str, ...] = ()
    needs_name: bool = True  # something stands behind the colon
    server: bool = False  # behind a network; else it computes in this process
    files: bool = False  # a model of the user's own, from its files, which offers all that a method can need
    settings: Mapping[str, type] | None = None  # what may stand behind a "?"; None where that is part of the name
    takes: frozenset[str] = PLUGINS_TAKE  # which options of a run are passed on as keywords
    from_file: Mapping[str, Any] = field(default_factory=dict)  # keywords where a file names the address

    def open(self, *given: Any, **options: Any) -> Any:
        """What ``opens`` names, called."""
        module, _, name = self.opens.partition(":")
        return getattr(import_module(module), name)(*given, **options)


# A model's files must be on this machine already, and no key goes to a server, when a person did not type the address.
_FILES_ONLY = {"local_files_only": True}
_NO_KEY = {"typed": False}

LLMS: Mapping[str, Backend] = {
    "openai": Backend(
        "arbitrag.llm.http.openai:open_openai",
        "openai:MODEL or openai:MODEL@http://host:8000/v1 (any OpenAI-compatible server)",
        ("openai:MODEL", "openai:MODEL@URL"),
        server=True,
        takes=frozenset({"concurrency", "retries"}),
        from_file=_NO_KEY,
    ),
    "hf": Backend(
        "arbitrag.llm.hf.backend:open_hf",
        "hf:NAME-OR-PATH or hf:NAME?dtype=bfloat16 (transformers, in this process)",
        ("hf:MODEL",),
        files=True,
        settings={
            "device": str,
            "dtype": str,
            "revision": str,
            "deterministic": bool,
            "batch_rows": int,
            "prefix_bytes": int,
        },
        from_file=_FILES_ONLY,
    ),
    "onnx": Backend(
        "arbitrag.llm.onnx.backend:open_onnx",
        "onnx:FOLDER or onnx:FOLDER?threads=2 (onnxruntime, in this process)",
        ("onnx:FOLDER",),
        files=True,
        settings={"threads": int, "deterministic": bool, "prefix_bytes": int, "own_process": bool},
        takes=frozenset({"deterministic", "own_process"}),
    ),
    "lab": Backend(
        "arbitrag.lab.model:open_lab",
        "lab (the embedded model)",
        ("lab",),
        needs_name=False,
        takes=frozenset({"deterministic", "own_process"}),
    ),
}

ENCODERS: Mapping[str, Backend] = {
    "hash": Backend(
        "arbitrag.encode.hashed:HashEncoder",
        "hash (no model: words and their spelling, see arbitrag.encode.hashed)",
        ("hash",),
        needs_name=False,
    ),
    "st": Backend(
        "arbitrag.encode.transformer:TransformerEncoder",
        "st:NAME-OR-PATH (sentence-transformers, in this process)",
        ("st:MODEL",),
        files=True,
        from_file=_FILES_ONLY,
    ),
    "bge-m3": Backend(
        "arbitrag.encode.bge_m3:BgeM3Encoder",
        "bge-m3:NAME-OR-PATH (BGE-M3 with its dense, sparse and multi-vector heads, in this process)",
        ("bge-m3:MODEL",),
        files=True,
        from_file=_FILES_ONLY,
    ),
    "onnx": Backend(
        "arbitrag.encode.onnx:OnnxEncoder", "onnx:FOLDER (onnxruntime, in this process)", ("onnx:FOLDER",), files=True
    ),
    "openai": Backend(
        "arbitrag.encode.openai:open_openai",
        "openai:MODEL or openai:MODEL@http://host:8000/v1 (any OpenAI-compatible embeddings endpoint)",
        ("openai:MODEL@URL",),
        server=True,
        from_file=_NO_KEY,
    ),
}

# Beside the path of an index on disk.
INDEXES: Mapping[str, Backend] = {
    "postgres": Backend(
        "arbitrag.retrieve.servers.postgres:open_address",
        "postgres:postgresql://user@host:5432/database?table=passages (full text and pgvector)",
        ("postgres:...",),
        server=True,
    ),
    "elastic": Backend(
        "arbitrag.retrieve.servers.elastic:open_address",
        "elastic:https://host:9200/index (BM25 or vectors)",
        ("elastic:...",),
        server=True,
    ),
    "qdrant": Backend(
        "arbitrag.retrieve.servers.qdrant:open_address",
        "qdrant:http://host:6333/collection?encoder=st:MODEL (vectors)",
        ("qdrant:...",),
        server=True,
    ),
    "lab": Backend("arbitrag.lab.model:open_world", "lab (the embedded world's documents)", ("lab",), needs_name=False),
}


def forms(table: Mapping[str, Backend], *, files: bool = False) -> tuple[str, ...]:
    """The short forms of a table's addresses; with ``files`` of those that run a model of the user's own here."""
    return tuple(form for row in table.values() if row.files or not files for form in row.forms)


def in_process() -> str:
    """The addresses of models in this process, for an error that asks for one: ``hf:MODEL or onnx:FOLDER``."""
    return " or ".join(forms(LLMS, files=True))


def beginnings(table: Mapping[str, Backend]) -> tuple[str, ...]:
    """How the addresses of a table begin: with the kind's colon where a name has to follow."""
    return tuple(f"{kind}:" if row.needs_name else kind for kind, row in table.items())
