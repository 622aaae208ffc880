"""The ``onnx:`` backend: decoder-only ONNX models with a KV cache, on onnxruntime, without torch.

Two layouts of a file are supported: that of ``graph.py``, whose cache is written in place (``runtime.py``), and that of
optimum's and transformers.js' exports (``optimum.py``).
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbitrag.errors import DataError
from arbitrag.llm.base import Price
from arbitrag.llm.engine.remote_messages import RuntimeSpec
from arbitrag.llm.onnx.optimum import OptimumRuntime
from arbitrag.llm.onnx.runtime import InPlaceRuntime, in_place, small
from arbitrag.llm.onnx.session import available_cores, open_session
from arbitrag.llm.tokenizer import TextCodec
from arbitrag.storage.files import file_digest, read_json
from arbitrag.storage.model_manifest import Manifest, read_manifest

if TYPE_CHECKING:
    from arbitrag.llm.engine.engine import Engine

_FILES = ("model.onnx", "onnx/model.onnx")


def open_onnx(
    folder: str | Path,
    *,
    threads: int | None = None,
    name: str = "",
    wording: Path | None = None,
    price: Price | None = None,
    own_process: bool = False,
    **options: Any,
) -> Engine:
    """The model in a folder with ``model.onnx`` (or ``onnx/model.onnx``) and its ``tokenizer.json``.

    ``threads`` run one forward pass, by default as many as there are cores for this process. With ``own_process`` the
    runtime is in another process, which is faster where many questions are under way (see ``llm.engine.remote``).
    Further ``options`` are the engine's. Raises DataError for a file that is missing, damaged or not what the manifest
    lists, and BackendError for a model that this backend cannot drive.
    """
    from arbitrag.llm.engine.engine import Engine

    folder = Path(folder)
    path = find_model(folder)
    manifest = read_manifest(folder)
    if manifest is not None:
        manifest.verify(folder)
    identity, context = _identity(folder, path, manifest), _context(folder, manifest)
    opened = partial(open_runtime, path, identity=identity, threads=threads, context=context)
    codec = partial(TextCodec.from_folder, folder)
    runtime = RuntimeSpec(opened, codec) if own_process else opened()
    return Engine(runtime, codec(), name=name or f"onnx:{folder}", wording=wording, price=price, **options)


def find_model(folder: Path) -> Path:
    """The model file in a folder; raises DataError when there is none."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; make one from a checkpoint: python -m arbitrag.llm.onnx.export")
    for name in _FILES:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} has neither {' nor '.join(_FILES)}; make it: python -m arbitrag.llm.onnx.export")


def open_runtime(
    path: Path, *, identity: str = "", threads: int | None = None, context: int | None = None
) -> OptimumRuntime | InPlaceRuntime:
    """The network in a file, in either layout; ``identity`` is the hash that names it, by default that of the file.

    Raises DataError for a file that is no model and BackendError for one that cannot be driven.
    """
    name = f"onnx:{identity or file_digest(path)[:16]}:fp32"
    threads = threads or available_cores()
    session = open_session(path, 1 if small(path) else threads)
    if in_place(session):
        return InPlaceRuntime(path, session, identity=name, threads=threads, context=context)
    return OptimumRuntime(path, open_session(path, threads) if small(path) else session, identity=name, context=context)


def _identity(folder: Path, path: Path, manifest: Manifest | None) -> str:
    """A hash of all that decides an answer: the network, its weights, the tokenizer and the chat template."""
    names = [path.name, f"{path.name}_data", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
    files = [path.parent / name for name in names[:2]] + [folder / name for name in names[2:]]
    known = {} if manifest is None else {folder / name: value for name, value in manifest.files.items()}
    hashes = [known.get(file) or file_digest(file) for file in files if file.is_file()]
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:16]


def _context(folder: Path, manifest: Manifest | None) -> int | None:
    """The context length in tokens, by the manifest, else by ``config.json``."""
    if manifest is not None:
        return manifest.context_tokens
    found = read_json(folder / "config.json", {}).get("max_position_embeddings")
    return found if isinstance(found, int) else None
