"""An encoder over an OpenAI-compatible embeddings endpoint: OpenAI itself, vLLM, Ollama, llama.cpp and others."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arbitrag.encode.base import Kind, checked
from arbitrag.errors import BackendError, UsageError
from arbitrag.llm.http.endpoint import Endpoint, Sleep
from arbitrag.security.addresses import split_server
from arbitrag.text import one_line


def open_openai(rest: str, **options: Any) -> OpenAIEncoder:
    """The encoder at ``openai:MODEL`` or ``openai:MODEL@URL``, of which ``rest`` stands behind the colon."""
    model, base_url = split_server(rest)
    return OpenAIEncoder(model, base_url=base_url or None, **options)


class OpenAIEncoder:
    """One embedding model behind an OpenAI-compatible address.

    encoder = OpenAIEncoder("text-embedding-3-small")
    encoder = OpenAIEncoder("bge-m3", base_url="http://localhost:11434/v1")
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        dimensions: int | None = None,
        prompts: Mapping[Kind, str] | None = None,
        batch: int = 128,
        concurrency: int = 8,
        retries: int = 5,
        timeout_s: float = 120.0,
        typed: bool = True,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """``dimensions`` asks a model that can shorten its vectors for this width.

        ``prompts`` are put in front of queries and passages, for models that want it ({"query": "query: "}). Requests
        hold up to ``batch`` texts; the rest is as for ``OpenAILLM``. Raises UsageError when the address needs a key and
        there is none.
        """
        if not model or batch < 1:
            raise UsageError("an embeddings model has a name and a batch of at least 1 text, as in openai:bge-m3@URL")
        self._endpoint = Endpoint(
            base_url, api_key, concurrency=concurrency, retries=retries, timeout_s=timeout_s, sleep=sleep, typed=typed
        )
        self._model = model
        self._dimensions = dimensions
        self._prompts = dict(prompts or {})
        self._batch = batch
        self._width = dimensions
        self.name = f"openai:{model}" + (f"@{self._endpoint.shown}" if base_url else "")
        # The address is no part of it: the same model may be served elsewhere when an index is asked.
        self.identity = f"openai:{model}:{dimensions or 'full'}" + "".join(
            f":{kind}={prompt!r}" for kind, prompt in sorted(self._prompts.items())
        )

    @property
    def width(self) -> int | None:
        return self._width

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        """Unit vectors (texts, width) float32. Raises BackendError when the server fails after all retries."""
        prompt = self._prompts.get(kind, "")
        parts = [texts[start : start + self._batch] for start in range(0, len(texts), self._batch)]
        # A server refuses the empty text; a space is the nearest thing to it.
        tasks = [asyncio.ensure_future(self._ask([prompt + text or " " for text in part])) for part in parts]
        try:
            rows = await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # when one has failed, the others would be asked for nothing
                task.cancel()
        widths = {part.shape[1] for part in rows} | ({self._width} if self._width else set())
        if len(widths) > 1:
            raise BackendError(
                f"{self.name} returned vectors of different widths: {', '.join(map(str, sorted(widths)))}"
            )
        if not rows:
            return np.empty((0, self._width or 0), np.float32)
        self._width = rows[0].shape[1]
        return np.concatenate(rows)

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def _ask(self, texts: Sequence[str]) -> np.ndarray:
        body: dict[str, Any] = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        if self._dimensions is not None:
            body["dimensions"] = self._dimensions
        reply = await self._endpoint.post("embeddings", body)
        try:
            # The form promises an index for each vector and not that they come in order.
            places = {int(item["index"]): _vector(item["embedding"]) for item in reply["data"]}
            rows = np.stack([places[index] for index in range(len(texts))])
        except Exception as error:  # noqa: BLE001 - what came from outside fails its own call, and no other
            why = one_line(self._endpoint.clean(f"{type(error).__name__}: {error}"), 200)
            raise BackendError(f"{self.name} did not return one vector for each of {len(texts)} texts: {why}") from None
        return checked(rows, texts, self.name)


def _vector(value: object) -> np.ndarray:
    """A list of numbers, or their base64 form, which some servers send whatever was asked."""
    if isinstance(value, str):
        try:
            return np.frombuffer(base64.b64decode(value, validate=True), "<f4")
        except binascii.Error:
            raise ValueError("an embedding is neither numbers nor base64") from None
    return np.asarray(value, dtype=np.float32)
