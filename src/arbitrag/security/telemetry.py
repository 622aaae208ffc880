"""Turn off the telemetry of libraries before their first import.

ONNX Runtime writes a device id and queues events under the cache folder as soon as it is imported, and reads its switch
only then. The hub's client says in each request what it is used for. Haystack writes a user id and reports pipelines.
"""

from __future__ import annotations

import os
from typing import Any

from arbitrag.errors import BackendError

SWITCHES = {
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "DO_NOT_TRACK": "1",
}


def turn_off() -> None:
    """Set the switches of this process, which its child processes inherit. Call it before a library is imported."""
    os.environ.update(SWITCHES)


def onnxruntime() -> Any:
    """The module onnxruntime, with its reporting off; raises BackendError where it cannot be imported."""
    turn_off()
    try:
        import onnxruntime as module  # type: ignore[import-untyped]
    except ImportError as error:
        raise BackendError(f"onnxruntime cannot be imported: {error}; type: pip install onnxruntime") from None
    if hasattr(module, "disable_telemetry_events"):  # where somebody else imported it before
        module.disable_telemetry_events()
    return module
