"""What both runtimes on onnxruntime share: opening a session, translating its errors, and logits as numpy arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from arbitrag.errors import BackendError, DataError
from arbitrag.llm.engine.runtime import OutOfMemory, SampledTokens
from arbitrag.llm.onnx import numpy_ops
from arbitrag.security import telemetry

_FAILED_BOUND = "Error in execution"  # a RuntimeError of Python's own, where inputs and outputs are bound


class NumpyLogits:
    """The methods of a ``Runtime`` that take logits, for logits that are numpy arrays."""

    def row(self, logits: np.ndarray, row: int) -> np.ndarray:
        last: np.ndarray = logits[row, -1].copy()
        return last

    def stack(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack(rows)[:, None]

    def sample(
        self, logits: np.ndarray, temperatures: np.ndarray, top_ps: np.ndarray, draws: np.ndarray
    ) -> SampledTokens:
        return numpy_ops.sample(logits[:, -1], temperatures, top_ps, draws)

    def logprobs(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return numpy_ops.token_logprobs(logits, targets)

    def distribution(self, logits: np.ndarray) -> np.ndarray:
        return numpy_ops.log_softmax(logits[:, -1])


@contextmanager
def translate_oom() -> Iterator[None]:
    """Raise OutOfMemory where numpy or onnxruntime cannot allocate, and BackendError for onnxruntime's other errors."""
    try:
        yield
    except MemoryError as error:
        raise OutOfMemory(str(error)) from error
    except Exception as error:
        if "allocate memory" in str(error):
            raise OutOfMemory(str(error)) from error
        if type(error).__module__.startswith("onnxruntime") or str(error).startswith(_FAILED_BOUND):
            raise BackendError(f"onnxruntime failed: {str(error).splitlines()[0]}") from error
        raise


def available_cores() -> int:
    """The number of cores that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def open_session(path: Path, threads: int) -> Any:
    """An InferenceSession on the CPU whose passes take so many threads; raises DataError for what is not a model."""
    onnxruntime = telemetry.onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads leave cores to others
    options.log_severity_level = 4  # nothing but a crash: errors are raised
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001  (each status of onnxruntime is a class of its own, without a common base)
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} is not a model that onnxruntime can open: {reason}") from None
