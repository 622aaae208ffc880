"""What a model returned, as plain JSON values and back, and what it cost: for traces and the response cache."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from arbitrag.llm.base import Distributions, Generation, Inspection, Likelihood, Price, Scores, Tokens
from arbitrag.serialization import to_plain

if TYPE_CHECKING:
    import numpy as np

Request = Literal["generate", "score", "inspect", "next_token"]
ModelResult = Generation | Scores | Inspection | Distributions
M = TypeVar("M", bound=ModelResult)


def encode(result: ModelResult) -> Any:
    """A result as plain JSON values, without its tokens."""
    if isinstance(result, Generation):
        return {"text": result.text, "finish": result.finish, "logprobs": to_plain(result.logprobs)}
    if isinstance(result, Scores):
        return [{"text": each.text, "logprobs": list(each.logprobs)} for each in result.likelihoods]
    if isinstance(result, Inspection):
        return {str(layer): encode_array(state) for layer, state in result.states.items()}
    return encode_array(result.logprobs)


def decode(kind: Request, plain: Any) -> ModelResult:
    """The result that ``encode`` wrote down, marked as cached and free of cost.

    Raises ValueError, TypeError or KeyError for anything else.
    """
    if kind == "generate":
        logprobs = None if plain["logprobs"] is None else tuple(plain["logprobs"])
        if not isinstance(plain["text"], str):
            raise ValueError("a generation without a text")
        return Generation(plain["text"], plain["finish"], logprobs, cached=True)
    if kind == "score":
        return Scores(tuple(Likelihood(each["text"], _logprobs(each["logprobs"])) for each in plain), cached=True)
    if kind == "inspect":
        return Inspection({int(layer): decode_array(state) for layer, state in plain.items()}, cached=True)
    return Distributions(decode_array(plain), cached=True)


def _logprobs(values: list[float]) -> tuple[float, ...]:
    """What a mean can be taken of; raises ValueError for anything else."""
    if not values or not all(isinstance(value, float | int) and value <= 0 for value in values):
        raise ValueError("a likelihood is a list of one or more log-probabilities")
    return tuple(values)


def encode_array(array: np.ndarray) -> dict[str, Any]:
    """An array of any shape as JSON: base64 of little-endian float32, and the shape."""
    return {
        "shape": list(array.shape),
        "float32": base64.b64encode(array.astype("<f4").tobytes()).decode("ascii"),
    }


def decode_array(plain: Mapping[str, Any]) -> np.ndarray:
    """The array that ``encode_array`` wrote down, float32."""
    import numpy

    return numpy.frombuffer(base64.b64decode(plain["float32"]), "<f4").reshape(plain["shape"])


def as_cached(result: M, tokens: Tokens) -> M:
    """The result as it comes from a cache: all prompt tokens are cached, and none is generated."""
    computed = result.computed or tokens
    prompt = computed.prompt_tokens
    return replace(result, tokens=Tokens(prompt, cached_tokens=prompt), cached=True, computed=computed)


def tokens_of_format_1(plain: Mapping[str, int]) -> Tokens:
    """Token counts as they were kept before prompt tokens included the cached ones."""
    return Tokens(plain["read"] + plain["reused"], plain["reused"], plain["written"])


def money_of(tokens: Tokens, price: Price | None) -> float | None:
    """What these tokens cost; None without a price."""
    if price is None:
        return None
    return (
        tokens.uncached_tokens * price.prompt
        + tokens.cached_tokens * price.cached
        + tokens.completion_tokens * price.completion
    ) / 1_000_000
