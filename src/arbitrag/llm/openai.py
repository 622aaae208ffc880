"""Any server that speaks the OpenAI API: OpenAI itself, vLLM, llama.cpp, Ollama, LM Studio and others.

Chat prompts go to ``/chat/completions`` and plain text to ``/completions``. Likelihoods are offered only where a probe,
made once before the first question, proves that the server returns them (see ``probe`` and docs/backends.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arbitrag.errors import ArbitragError, BackendError, CapabilityError, UsageError
from arbitrag.llm import replies
from arbitrag.llm.base import (
    Distributions,
    Generation,
    Inspection,
    Offer,
    Price,
    Prompt,
    Sampling,
    Scores,
    check_continuations,
)
from arbitrag.llm.endpoint import Endpoint, Sleep
from arbitrag.llm.probe import Findings, Probe, wants_other_limit
from arbitrag.llm.scoring import as_json
from arbitrag.llm.tokenizer import as_text
from arbitrag.text import one_line

BYTES_PER_TOKEN = 4
# What a chat template adds to a message: its role and the marks around it.
TOKENS_PER_MESSAGE = 4
MOST_TOKENS_PER_MESSAGE, TEMPLATE_TOKENS = 16, 64


class OpenAILLM:
    """One model behind an OpenAI-compatible address.

    llm = OpenAILLM("gpt-4o-mini")
    llm = OpenAILLM("qwen3", base_url="http://localhost:8000/v1")
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        concurrency: int = 64,
        retries: int = 5,
        timeout_s: float = 120.0,
        price: Price | None = None,
        wording: Path | None = None,
        chat: bool = True,
        typed: bool = True,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """``base_url`` falls back on OPENAI_BASE_URL and then OpenAI, ``api_key`` on OPENAI_API_KEY.

        At most ``concurrency`` requests are under way at a time. One that fails in a way that may pass (408, 409, 429,
        5xx, no connection, no answer within ``timeout_s``) is tried ``retries`` times more, after the Retry-After that
        the server asks for, or after 0.5 s, 1 s, 2 s ... up to a minute. ``chat=False`` is for a base model without a
        chat template: messages are sent as plain text to ``/completions``. ``typed`` says that a person named the
        server: one that a file names is not given OPENAI_API_KEY. ``sleep`` is for tests.

        Raises UsageError when the address needs a key and there is none; nothing is sent before the first call.
        """
        if not model:
            raise UsageError("the address names no model; it looks like openai:gpt-4o-mini")
        self._endpoint = Endpoint(
            base_url, api_key, concurrency=concurrency, retries=retries, timeout_s=timeout_s, sleep=sleep, typed=typed
        )
        self.name = f"openai:{model}" + (f"@{self._endpoint.shown}" if base_url else "")
        self.identity = f"openai:{model}@{self._endpoint.shown}" + ("" if chat else "#plain")
        self.wording = wording
        self.price = price
        self._model = model
        self._chat = chat
        self._max_tokens = "max_tokens"
        self._findings: Findings | None = None
        self._probing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"OpenAILLM({self.name!r})"

    async def offer(self) -> Offer:
        """What the server was seen to do; it is asked once.

        Raises BackendError when it cannot be reached, refuses the key, or is too busy to be judged; that is not kept.
        """
        return (await self._found()).offer

    async def _found(self) -> Findings:
        async with self._probing:
            if self._findings is None:
                with self._reading():
                    self._findings = await Probe(self._endpoint, self._model, self._chat, self._max_tokens).run()
                self._max_tokens = self._findings.max_tokens
            return self._findings

    def count_tokens(self, text: Prompt | str) -> int:
        """An estimate: a token for every 4 bytes of UTF-8, and 4 more for each message."""
        if isinstance(text, str):
            return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)
        if text.text is not None:
            return self.count_tokens(text.text)
        return sum(self.count_tokens(message.text) + TOKENS_PER_MESSAGE for message in text.messages)

    def most_tokens(self, text: Prompt | str) -> int:
        """More tokens than the server can count, whatever its tokenizer: no token is shorter than a byte.

        A prompt's chat template is taken to add no more than 16 tokens to a message and 64 in all.
        """
        if isinstance(text, str):
            return len(text.encode(errors="replace"))
        if text.text is not None:
            return self.most_tokens(text.text) + TEMPLATE_TOKENS
        return TEMPLATE_TOKENS + sum(
            self.most_tokens(message.text) + MOST_TOKENS_PER_MESSAGE for message in text.messages
        )

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        """Raises BackendError when the server fails after all retries, withholds the text, or sends none."""
        prompt = self._prompt(prompt)
        path = "chat/completions" if prompt.messages else "completions"
        name = self._max_tokens if prompt.messages else "max_tokens"
        request = _Request(self._model, prompt, sampling)
        try:
            answer = await self._endpoint.post(path, request.body(name))
        except BackendError as error:
            if not prompt.messages or not wants_other_limit(error, name):
                raise
            self._max_tokens = "max_completion_tokens"
            answer = await self._endpoint.post(path, request.body(self._max_tokens))
        with self._reading():
            return replies.generation(
                answer, max_tokens=sampling.max_tokens, logprobs=sampling.logprobs, sent=prompt_bytes(prompt)
            )

    async def score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        """As the protocol says; every continuation is one request, all of them at a time.

        Servers do not reuse a prompt's prefix for a request that wants its likelihoods (vLLM says so), so nothing is
        gained by an order. Raises BackendError when the probe did not prove that likelihoods are returned.
        """
        check_continuations(continuations)
        findings = await self._found()
        if findings.way is None:
            why = "\n  ".join(line for line in findings.offer.evidence if line.startswith("score:"))
            raise BackendError(f"{self.name} offers no likelihoods\n  {why}")
        with self._reading():
            return await findings.way.score(self._prompt(prompt), continuations)

    async def inspect(self, prompt: Prompt, layers: Sequence[int]) -> Inspection:
        raise self._needs_insides("hidden states")

    async def next_token(self, prompts: Sequence[Prompt]) -> Distributions:
        raise self._needs_insides("next-token distributions")

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    def _prompt(self, prompt: Prompt) -> Prompt:
        """Messages as the text that the in-process engines make of them, where the model knows no chat."""
        return prompt if self._chat or not prompt.messages else Prompt(text=as_text(prompt.messages), lead=" ")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Around everything that reads answers: whatever a server sends, the error that comes of it is a BackendError.

        It names the model, and the type of an error that nobody foresaw.
        """
        try:
            yield
        except BackendError as error:
            raise self._named(error) from None
        except ArbitragError:
            raise
        except Exception as error:  # what came from outside fails its own call, and no other
            unforeseen = replies.wrong(f"it cannot be read: {type(error).__name__}: {one_line(str(error), 200)}")
            raise self._named(unforeseen) from error

    def _named(self, error: BackendError) -> BackendError:
        """An error about what an answer says, with the model it came from and without secrets."""
        text = str(error)
        named = text if self._endpoint.shown in text else f"{self.name}: {text}"
        return BackendError(self._endpoint.clean(named), status=error.status)

    def _needs_insides(self, what: str) -> CapabilityError:
        return CapabilityError(
            f"{what} cannot be had through an API, and {self.name} is one.\n"
            "Run the model in this process: type --llm hf:MODEL (or onnx:FOLDER)"
        )


def prompt_bytes(prompt: Prompt) -> int:
    """The bytes of a prompt's texts, which its tokens cannot outnumber."""
    texts = [message.text for message in prompt.messages] if prompt.text is None else [prompt.text]
    return sum(len(text.encode(errors="replace")) for text in texts)


@dataclass(frozen=True)
class _Request:
    """A generation as the API has it, but for the name of the limit, which servers disagree on."""

    model: str
    prompt: Prompt
    sampling: Sampling

    def body(self, limit: str) -> dict[str, Any]:
        sampling, chat = self.sampling, bool(self.prompt.messages)
        body: dict[str, Any] = {"model": self.model, "temperature": sampling.temperature, limit: sampling.max_tokens}
        body |= {"messages": as_json(self.prompt)} if chat else {"prompt": self.prompt.text}
        if sampling.top_p != 1.0:
            body["top_p"] = sampling.top_p
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if sampling.logprobs:
            body["logprobs"] = True if chat else 1
        return body
