"""Addresses of models: what stands before the @ and after the ?, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from arbitrag.errors import UsageError
from arbitrag.llm import open_llm


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Every model that would have been opened, with its options."""
    calls: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr("arbitrag.llm.hf.backend.open_hf", lambda name, **options: calls.append((name, options)))
    monkeypatch.setattr("arbitrag.llm.onnx.backend.open_onnx", lambda name, **options: calls.append((name, options)))
    monkeypatch.setattr("arbitrag.llm.http.openai.OpenAILLM", lambda name, **options: calls.append((name, options)))
    return calls


@pytest.mark.parametrize(
    ("address", "name", "options"),
    [
        ("hf:org/model", "org/model", {}),
        ("hf:org/model?dtype=bfloat16&device=cuda:1", "org/model", {"dtype": "bfloat16", "device": "cuda:1"}),
        ("hf:org/model?deterministic=true&batch_rows=4", "org/model", {"deterministic": True, "batch_rows": 4}),
        ("onnx:folder?threads=2&deterministic=false", "folder", {"threads": 2, "deterministic": False}),
        ("openai:gpt-4o-mini", "gpt-4o-mini", {"base_url": None}),
        ("openai:m@http://h:1/v1", "m", {"base_url": "http://h:1/v1"}),
        ("openai:m@http://me:secret@h/v1", "m", {"base_url": "http://me:secret@h/v1"}),
        ("openai:@cf/meta/m@https://h/v1", "@cf/meta/m", {"base_url": "https://h/v1"}),
    ],
)
def test_an_address_is_taken_apart(
    opened: list[tuple[str, dict[str, Any]]], address: str, name: str, options: dict[str, Any]
) -> None:
    open_llm(address)
    assert opened == [(name, options)]


def test_an_option_in_python_goes_before_the_address(opened: list[tuple[str, dict[str, Any]]]) -> None:
    open_llm("hf:m?dtype=float16", dtype="float32")
    assert opened == [("m", {"dtype": "float32"})]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("hf:m?dtyp=float16", "unknown setting of hf: 'dtyp'. Did you mean 'dtype'?"),
        ("onnx:f?threads=two", "threads in the address is a whole number; got 'two'"),
        ("hf:m?deterministic=yes", "deterministic in the address is true or false; got 'yes'"),
        ("hf:m?dtype=", "dtype in the address is a text; got ''"),
        ("ollama:m", "unknown backend 'ollama'"),
        ("hf:", "'hf:' names no model"),
    ],
)
def test_a_strange_address_is_refused(address: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_llm(address)
    assert says in str(caught.value)
