"""Addresses of encoders, and what every encoder's output is checked for."""

from __future__ import annotations

import numpy as np
import pytest

from arbitrag.encode import open_encoder
from arbitrag.encode.base import checked
from arbitrag.encode.lazy import default_encoder
from arbitrag.errors import BackendError, DataError, MissingExtra, UsageError


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hsh", r"unknown encoder 'hsh'\. Did you mean 'hash'\?"),
        ("st", "'st' names no model; an address looks like st:NAME-OR-PATH"),
        ("onnx:", "'onnx:' names no model"),
        ("openai:", "'openai:' names no model"),
        ("hash:256", "the hash encoder has no models; type: hash"),
    ],
)
def test_an_address_that_is_none(address: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_encoder(address)


def test_a_folder_without_a_model() -> None:
    with pytest.raises(DataError, match=r"nowhere holds no sentence encoder: neither model.onnx nor onnx/model.onnx"):
        open_encoder("onnx:nowhere")


def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sentence_transformers", None)
    with pytest.raises(
        MissingExtra, match=r"st:some/model needs the extra 'dense'; type: pip install 'arbitrag\[dense\]'"
    ):
        open_encoder("st:some/model")


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0, 0.0]], r"was given 2 texts and returned vectors of shape \(1, 2\)"),
        ([1.0, 2.0], r"returned vectors of shape \(2,\)"),
        ([[], []], r"returned vectors of shape \(2, 0\)"),
        ([[1.0, 0.0], [np.nan, 0.0]], "returned a vector that is not finite for: second"),
        ([[np.inf, 0.0], [1.0, 0.0]], "returned a vector that is not finite for: first"),
    ],
)
def test_broken_output_is_an_error(vectors: list[object], message: str) -> None:
    with pytest.raises(BackendError, match=message):
        checked(np.array(vectors), ["first", "second"], "some:model")


async def test_the_default_encoder_is_hash_and_costs_nothing_until_it_is_used() -> None:
    encoder, opened = default_encoder(), open_encoder("hash")
    assert (encoder.name, encoder.identity, encoder.width) == (opened.name, opened.identity, opened.width)
    assert (await encoder.encode(["a word"], kind="query") == await opened.encode(["a word"], kind="query")).all()
    await encoder.aclose()
