"""Any server that speaks the OpenAI API: OpenAI itself, vLLM, llama.cpp, Ollama, LM Studio and others.

Chat prompts go to ``/chat/completions`` and plain text to ``/completions``. Likelihoods are offered only where a probe,
made once before the first question, proves that the server returns them (see ``probe`` and docs/backends.md).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arbitrag.errors import ArbitragError, BackendError, CapabilityError, UsageError
from arbitrag.llm.base import (
    Capabilities,
    ContextWindow,
    Distributions,
    Generation,
    Inspection,
    OnText,
    Price,
    Prompt,
    Sampling,
    Scores,
    check_continuations,
)
from arbitrag.llm.http import responses
from arbitrag.llm.http.endpoint import Endpoint, Sleep
from arbitrag.llm.http.probe import (
    BUSY,
    EVERYTHING,
    LIMITS,
    WAYS,
    Facts,
    Part,
    Probe,
    count_by_server,
    wants_other_limit,
)
from arbitrag.llm.http.probe_cache import Kept
from arbitrag.llm.http.scoring import as_json, together
from arbitrag.llm.http.streaming import OPTIONS
from arbitrag.llm.tokenizer import as_text
from arbitrag.registry import in_process
from arbitrag.security.addresses import split_server
from arbitrag.serialization import from_plain, to_plain
from arbitrag.text import one_line
from arbitrag.types import Need

PROBE = 1  # the version of what a probe finds out
BYTES_PER_TOKEN = 4
ESTIMATED = "what fits was estimated (a token for every 4 bytes); the server has no tokenizer to ask"
MOST_COUNTS = 20_000  # texts whose tokens are remembered
# What a chat template adds to a message: its role and the marks around it.
TOKENS_PER_MESSAGE = 4
MOST_TOKENS_PER_MESSAGE, TEMPLATE_TOKENS = 16, 64


def open_openai(rest: str, **options: Any) -> OpenAILLM:
    """The model at ``openai:MODEL`` or ``openai:MODEL@URL``, of which ``rest`` stands behind the colon."""
    model, base_url = split_server(rest)
    return OpenAILLM(model, base_url=base_url or None, **options)


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
        self._facts: Facts | None = None
        self._kept = Kept(f"{PROBE}\n{self.identity}")
        self._from_disk = False
        self._probing = asyncio.Lock()
        self._counts: dict[bytes, int] = {}

    def __repr__(self) -> str:
        return f"OpenAILLM({self.name!r})"

    async def capabilities(self) -> Capabilities:
        """What the server was seen to do; it is asked once, and the answer is kept on disk for a day.

        Raises BackendError when it cannot be reached, refuses the key, or is too busy to be judged; that is not kept.
        """
        return (await self._known(*EVERYTHING)).capabilities

    async def capabilities_of(self, needs: Need, *, fresh: bool = False) -> Capabilities:
        """As ``capabilities``, asking for no more than these needs. A server that speaks this API is taken to generate.

        With ``fresh`` the server is looked at whatever is known, and the evidence says what had been kept.
        """
        if not fresh:
            return (await self._known("scoring") if Need.SCORE in needs else self._at_hand()).capabilities
        kept = self._kept.read()
        self._forget()
        capabilities = (await self._known(*EVERYTHING)).capabilities
        if kept is None:
            return capabilities
        before = f"kept: a result of {kept[1] / 3600:.1f} hours ago was in {self._kept.path}; this one replaces it"
        return replace(capabilities, evidence=(*capabilities.evidence, before))

    async def context_window(self, may_overflow: Callable[[], bool]) -> ContextWindow:
        """The server is asked for its context length and its tokenizer, where a prompt may not fit."""
        if not may_overflow():
            return ContextWindow(doubt=ESTIMATED)
        if self._endpoint.is_openai:  # which has neither
            return ContextWindow(doubt=ESTIMATED)
        facts = await self._known("context", "tokenizes")
        length = facts.context.tokens if facts.context else None
        return ContextWindow(length, self._counted) if facts.tokenizes else ContextWindow(length, doubt=ESTIMATED)

    def _at_hand(self) -> Facts:
        """What is known without asking anybody."""
        if self._facts is None:
            self._facts = self._read_kept()
            self._from_disk = self._facts != Facts()
        return self._facts

    def _read_kept(self) -> Facts:
        kept = self._kept.read()
        if kept is None:
            return Facts()
        try:
            facts = from_plain(Facts, kept[0])
        except ValueError:
            return Facts()
        # A refusal is not believed from a file: the server may have been given what it lacked.
        writes, scores = facts.writing and facts.writing.works, facts.scoring and facts.scoring.way
        return replace(
            facts,
            writing=facts.writing if writes else None,
            scoring=facts.scoring if writes and scores in WAYS else None,
            limit=facts.limit if facts.limit in LIMITS else LIMITS[0],
        )

    async def _known(self, *parts: Part) -> Facts:
        """The facts with these parts, which are asked for where they are missing, once for all callers."""
        async with self._probing:
            before = self._at_hand()
            with self._reading():
                facts = await Probe(self._endpoint, self._model, self._chat, before).learn(*parts)
            self._learned(facts)
            return facts

    def _learned(self, facts: Facts) -> None:
        if facts != self._facts:
            self._facts = facts
            self._kept.write(to_plain(facts))

    def _forget(self) -> None:
        """Believe nothing that was found out before: the server is another one, or somebody wants to know."""
        self._kept.forget()
        self._facts, self._from_disk = Facts(), False

    async def _counted(self, texts: Sequence[str]) -> list[int]:
        """The tokens of texts by the server's tokenizer, each asked for once."""
        digests = [hashlib.sha256(text.encode(errors="replace")).digest() for text in texts]
        new = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in self._counts}
        with self._reading():
            counts = await together(*(count_by_server(self._endpoint, self._model, text) for text in new.values()))
        if len(self._counts) + len(new) > MOST_COUNTS:
            self._counts = {digest: self._counts[digest] for digest in digests if digest in self._counts}
        self._counts.update(zip(new, counts, strict=True))
        return [self._counts[digest] for digest in digests]

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
        return await self._generate(prompt, sampling, None)

    async def stream(self, prompt: Prompt, sampling: Sampling, on_text: OnText) -> Generation:
        """As ``generate``, with the text as the server streams it; one that refuses to stream is asked without."""
        try:
            return await self._generate(prompt, sampling, on_text)
        except BackendError as error:
            if error.status not in (400, 404, 405, 415, 422, 501):
                raise
            return await self._generate(prompt, sampling, None)

    async def _generate(self, prompt: Prompt, sampling: Sampling, on_text: OnText | None) -> Generation:
        prompt = self._prompt(prompt)
        streamed = {} if on_text is None else OPTIONS
        path = "chat/completions" if prompt.messages else "completions"
        request = _Request(self._model, prompt, sampling)
        limit = self._at_hand().limit if prompt.messages else LIMITS[0]
        try:
            answer = await self._endpoint.post(path, request.body(limit) | streamed, on_text)
        except BackendError as error:
            if not prompt.messages or not wants_other_limit(error, limit):
                raise
            other = LIMITS[1 - LIMITS.index(limit)]
            answer = await self._endpoint.post(path, request.body(other) | streamed, on_text)
            self._learned(replace(self._at_hand(), limit=other))
        with self._reading():
            return responses.generation(
                answer, max_tokens=sampling.max_tokens, logprobs=sampling.logprobs, sent=prompt_bytes(prompt)
            )

    async def score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        """As the protocol says; every continuation is one request, all of them at a time.

        Servers do not reuse a prompt's prefix for a request that wants its likelihoods (vLLM says so), so nothing is
        gained by an order. Raises BackendError when the probe did not prove that likelihoods are returned.
        """
        check_continuations(continuations)
        prompt = self._prompt(prompt)
        self._at_hand()
        from_disk = self._from_disk
        try:
            return await self._score(prompt, continuations)
        except BackendError as error:
            if not from_disk or error.status is None or error.status in BUSY:
                raise
        if self._from_disk:  # what was kept may be of another server; callers side by side forget it once
            self._forget()
        return await self._score(prompt, continuations)

    async def _score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        scoring = (await self._known("scoring")).scoring
        if scoring is None or not scoring.way:
            why = "\n  ".join(scoring.lines if scoring else ())
            raise BackendError(f"{self.name} offers no likelihoods\n  {why}")
        with self._reading():
            return await WAYS[scoring.way](self._endpoint, self._model).score(prompt, continuations)

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
            unforeseen = responses.wrong(f"it cannot be read: {type(error).__name__}: {one_line(str(error), 200)}")
            raise self._named(unforeseen) from error

    def _named(self, error: BackendError) -> BackendError:
        """An error about what an answer says, with the model it came from and without secrets."""
        text = str(error)
        named = text if self._endpoint.shown in text else f"{self.name}: {text}"
        return type(error)(self._endpoint.clean(named), status=error.status)

    def _needs_insides(self, what: str) -> CapabilityError:
        return CapabilityError(
            f"{what} cannot be had through an API, and {self.name} is one.\n"
            f"Run the model in this process: type --llm {in_process()}"
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
