"""Parts for tests of an engine in a process of its own: the embedded model as a runtime, and its codec."""

from __future__ import annotations

from typing import Any

import numpy as np

from arbitrag.lab.model import FOLDER
from arbitrag.llm.engine.runtime import ForwardOutput
from arbitrag.llm.onnx.backend import open_runtime
from arbitrag.llm.tokenizer import TextCodec

WAIT_S = 30.0


def codec() -> TextCodec:
    return TextCodec.from_folder(FOLDER)


class Lab:
    """The embedded model as a runtime that another stands behind; tests change what they need."""

    def __init__(self) -> None:
        self.inner = open_runtime(FOLDER / "model.onnx", threads=1)
        self.info = self.inner.info
        self.rows: list[int] = []  # of every pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def forward(self, ids: np.ndarray, *given: Any, **options: Any) -> ForwardOutput:
        self.rows.append(len(ids))
        return self.inner.forward(ids, *given, **options)
