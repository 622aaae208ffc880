"""Sentence encoders of the sentence-transformers library, in this process (extra ``dense``)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbitrag.encode.base import Kind, checked, prompt_for
from arbitrag.errors import BackendError, MissingExtra
from arbitrag.security import telemetry
from arbitrag.serialization import json_digest
from arbitrag.storage.model_manifest import hash_files
from arbitrag.text import one_line

if TYPE_CHECKING:
    import numpy as np


class TransformerEncoder:
    """The encoder ``st:NAME-OR-PATH``. Texts longer than the model reads are cut by the library."""

    def __init__(self, model: str, *, device: str | None = None, batch: int = 32, **options: Any) -> None:
        """Load it; code that comes with a model is not run. ``options`` go to ``SentenceTransformer``
        (``truncate_dim``, ``model_kwargs``, ``revision`` ...).

        Raises MissingExtra without the library, BackendError when there is no such model.
        """
        telemetry.turn_off()
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise MissingExtra("dense", f"st:{model}") from error
        try:
            self._model = SentenceTransformer(model, device=device, **{"trust_remote_code": False, **options})
            width = self._model.get_embedding_dimension()
        except Exception as error:  # (the library raises whatever its parts raise)
            raise BackendError(f"st:{model} cannot be loaded: {one_line(str(error), 300)}") from error
        if width is None:
            raise BackendError(f"st:{model} does not say how wide its vectors are; it is not a sentence encoder")
        self._width = width
        self._batch = batch
        self._lock = threading.Lock()
        self.name = f"st:{model}"
        self.identity = f"st:{_revision(model, self._model)}:{width}:{self._model.dtype}"

    @property
    def width(self) -> int:
        return self._width

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        """Unit vectors (texts, width) float32, with the model's own prompt for queries or passages."""
        import numpy as np

        if not texts:
            return np.empty((0, self._width), np.float32)
        return await asyncio.to_thread(self._encode, texts, kind)

    async def aclose(self) -> None:
        pass

    def _encode(self, texts: Sequence[str], kind: Kind) -> np.ndarray:
        encode = self._model.encode_query if kind == "query" else self._model.encode_document
        # The library takes its own empty "document" prompt before a model's "passage".
        prompt = prompt_for(kind, self._model.prompts)
        with self._lock:
            try:
                vectors = encode(
                    list(texts), prompt=prompt, batch_size=self._batch, show_progress_bar=False, convert_to_tensor=True
                )
            except Exception as error:
                raise BackendError(f"{self.name} failed: {one_line(str(error), 300)}") from error
        return checked(vectors.float().cpu().numpy(), texts, self.name)


def _revision(name: str, model: Any) -> str:
    """What the weights are: the hash of a folder's files, or the commit of a downloaded model."""
    folder = Path(name)
    if folder.is_dir():
        return json_digest(dict(sorted(hash_files(folder).items())))[:16]
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    return f"{name}@{getattr(config, '_commit_hash', None) or 'unknown'}"
