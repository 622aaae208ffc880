"""Open a language model by its address."""

from __future__ import annotations

from typing import Any

from arbitrag.errors import UsageError, unknown
from arbitrag.llm.base import LLM

KINDS = {
    "openai": "openai:MODEL or openai:MODEL@http://host:8000/v1 (any OpenAI-compatible server)",
    "hf": "hf:NAME-OR-PATH (transformers, in this process)",
    "onnx": "onnx:FOLDER (onnxruntime, in this process)",
    "lab": "lab (the embedded model)",
}


def open_llm(address: str, **options: Any) -> LLM:
    """The model at an address such as ``openai:gpt-4o-mini``, ``hf:Qwen/Qwen3-0.6B``, ``onnx:folder`` or ``lab``.

    ``options`` go to the backend (see its constructor). Raises UsageError for an address that is not one of these,
    MissingExtra when the backend's packages are not installed, BackendError when the model cannot be loaded.
    """
    kind, _, rest = address.partition(":")
    if kind not in KINDS:
        raise unknown("backend", kind, KINDS, hint=f"An address looks like {KINDS['openai']}.")
    if kind == "lab":
        from arbitrag.lab.model import open_lab

        return open_lab(**options)
    if not rest:
        raise UsageError(f"'{address}' names no model; an address looks like {KINDS[kind]}")
    if kind == "openai":
        from arbitrag.llm.openai import OpenAILLM

        model, _, base_url = rest.partition("@")
        return OpenAILLM(model, base_url=base_url or None, **options)
    if kind == "hf":
        from arbitrag.llm.hf import open_hf

        return open_hf(rest, **options)
    from arbitrag.llm.onnx import open_onnx

    return open_onnx(rest, **options)
