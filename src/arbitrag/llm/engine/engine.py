"""The in-process model: the ``LLM`` contract over a runtime (the network) and a codec (text to tokens and back).

Concurrent requests are joined into batches and share what begins alike; each keeps its own settings, stop rule, result
and error. Forward passes run in one worker thread, so the event loop stays free, or in another process (see
``llm/engine/remote.py``), which also leaves it Python's lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbitrag.errors import BackendError, ContextError, UsageError
from arbitrag.llm.base import (
    Capabilities,
    Distributions,
    Generation,
    Inspection,
    Likelihood,
    OnText,
    Price,
    Prompt,
    Sampling,
    Scores,
    Tokens,
)
from arbitrag.llm.engine.prefill import Limits
from arbitrag.llm.engine.remote import ProcessWorker
from arbitrag.llm.engine.remote_messages import Elsewhere
from arbitrag.llm.engine.requests import Distribute, Inspect, Request, Score, Write
from arbitrag.llm.engine.runtime import Runtime
from arbitrag.llm.engine.scheduler import Rules
from arbitrag.llm.engine.stops import first_stop, stop_rule
from arbitrag.llm.engine.worker import WINDOW_S, Work, Worker
from arbitrag.llm.tokenizer import Codec
from arbitrag.types import Need

if TYPE_CHECKING:
    import numpy as np

PREFIX_BYTES = 1 << 30


class Engine:
    """One model in this process, or with its network ``Elsewhere``, in a process of its own.

    ``prefix_bytes`` bounds the prefix store (0 keeps nothing). ``deterministic`` serves one request at a time, in the
    order of arrival, and keeps nothing between them, so that a result depends on its request alone and is equal to the
    last bit from run to run; the continuations of one request are still read together. ``window_s`` is how long the
    first request may wait for company while the event loop is busy.
    """

    def __init__(
        self,
        runtime: Runtime | Elsewhere,
        codec: Codec,
        *,
        name: str,
        deterministic: bool = False,
        prefix_bytes: int = PREFIX_BYTES,
        limits: Limits = Limits(),
        window_s: float = WINDOW_S,
        price: Price | None = None,
        wording: Path | None = None,
    ) -> None:
        self.name = name
        self.price = price
        self.wording = wording
        self._codec = codec
        self._rules = Rules(limits, 0 if deterministic else prefix_bytes, deterministic)
        self._worker: Work = (
            ProcessWorker(runtime, self._rules, window_s=window_s)
            if isinstance(runtime, Elsewhere)
            else Worker(runtime, self._rules, window_s=window_s)
        )
        self.facts = self._worker.facts
        self.identity = f"{self.facts.identity} {codec.identity}"

    @property
    def stored_bytes(self) -> int:
        """Bytes in the prefix store; never more than its bound."""
        return self._worker.stored_bytes

    async def capabilities(self) -> Capabilities:
        """Everything but retrieval; hidden states where the network gives them."""
        needs = Need.GENERATE | Need.SCORE | Need.NEXT_TOKEN
        if self.facts.states:
            needs |= Need.INSPECT
        mode = (
            "deterministic: one request at a time, nothing shared between them"
            if self._rules.alone
            else f"prefix store of {self._rules.prefix_bytes / 2**20:,.0f} MiB"
        )
        return Capabilities(needs, self.facts.context_tokens, (*self.facts.evidence, mode), self._codec.identity)

    def count_tokens(self, text: Prompt | str) -> int:
        return len(self._codec.encode(text) if isinstance(text, str) else self._codec.encode_prompt(text))

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        """Write an answer. It ends as "length" where the context ends, too.

        Raises UsageError for impossible settings, ContextError when the prompt alone exceeds the context.
        """
        return await self._generate(prompt, sampling, None)

    async def stream(self, prompt: Prompt, sampling: Sampling, on_text: OnText) -> Generation:
        """As ``generate``, with the text after every step; a model in a process of its own gives it at the end."""
        return await self._generate(prompt, sampling, on_text)

    async def _generate(self, prompt: Prompt, sampling: Sampling, on_text: OnText | None) -> Generation:
        _check(sampling)
        ids = self._prompt_ids(prompt)
        window = self.facts.context_tokens
        room = sampling.max_tokens if window is None else window - len(ids) + 1  # the last token is not read
        request = Write(
            ids,
            sampling=sampling,
            limit=min(sampling.max_tokens, room),
            eos_ids=self._codec.eos_ids,
            stops=self._told(stop_rule(self._codec.decode, sampling.stop), sampling.stop, on_text),
            random=_random(sampling),
            prompt=len(ids),
        )
        written, logprobs, finish, tokens = await self._ask(request)
        text = self._codec.decode(written)
        if (end := first_stop(text, sampling.stop)) is not None:
            text = text[:end]
            logprobs = logprobs[: self._tokens_of(written, end)]
        return Generation(text, finish, tuple(logprobs) if sampling.logprobs else None, tokens)

    def _told(
        self, stops: Callable[[list[int]], bool] | None, stop: Sequence[str], on_text: OnText | None
    ) -> Callable[[list[int]], bool] | None:
        """The stop rule, which looks at every step's text, telling it to the event loop as well."""
        if on_text is None:
            return stops
        loop = asyncio.get_running_loop()

        def look(written: list[int]) -> bool:
            text = self._codec.decode(written)
            with suppress(RuntimeError):  # the loop is gone, and with it whoever listened
                loop.call_soon_threadsafe(on_text, text[: first_stop(text, stop)])
            return stops is not None and stops(written)

        return look

    async def score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        """Likelihoods of the continuations, after what the codec leads in with; the prompt is read once for all.

        ``tokens.uncached_tokens`` counts what was computed: a continuation's last token only has to be predicted.
        Raises UsageError for an empty continuation, ContextError when a continuation does not fit after the prompt.
        """
        ids = self._prompt_ids(prompt)
        texts = [self._codec.encode(self._codec.lead(prompt) + text) for text in continuations]
        for text, given in zip(texts, continuations, strict=True):
            if not given or not text:
                raise UsageError(f"cannot score {given!r}: an empty continuation has no likelihood")
            self._check_ids(text, f"the prompt ({len(ids):,} tokens) and a continuation ({len(text):,})", len(ids))
        if not texts:
            return Scores(())
        logprobs, tokens = await self._ask(Score(ids, continuations=texts))
        found = zip(continuations, logprobs, strict=True)
        return Scores(tuple(Likelihood(text, tuple(each)) for text, each in found), tokens)

    async def inspect(self, prompt: Prompt, layers: Sequence[int]) -> Inspection:
        """Hidden states of the last prompt token; raises UsageError for a layer that the model does not have."""
        if not self.facts.states:
            raise BackendError(f"{self.name} was exported without hidden states")
        if strange := sorted(set(layers) - self.facts.states):
            raise UsageError(f"{self.name} has no layer {strange[0]}; its layers are 0 to {self.facts.layers}")
        states, tokens = await self._ask(Inspect(self._prompt_ids(prompt), tuple(layers)))
        return Inspection({layer: states[layer] for layer in layers}, tokens)

    async def next_token(self, prompts: Sequence[Prompt]) -> Distributions:
        """The distribution after each prompt; they are read together."""
        import numpy

        requests: list[Request] = [Distribute(self._prompt_ids(prompt)) for prompt in prompts]
        if not requests:
            return Distributions(numpy.zeros((0, self.facts.vocabulary), numpy.float32))
        found = await self._ask_all(requests)
        tokens = [each[1] for each in found]
        spent = Tokens(sum(each.prompt_tokens for each in tokens), sum(each.cached_tokens for each in tokens))
        return Distributions(numpy.stack([each[0] for each in found]), spent)

    async def aclose(self) -> None:
        """Fail what is still waiting, end the worker and drop what is stored."""
        await self._worker.aclose()

    async def _ask(self, request: Request) -> Any:
        """The result; when the caller is cancelled, the request is."""
        self._worker.submit([request])
        return await request.future

    async def _ask_all(self, requests: list[Request]) -> list[Any]:
        """The results of several that are read together."""
        self._worker.submit(requests)
        return await asyncio.gather(*(request.future for request in requests))

    def _prompt_ids(self, prompt: Prompt) -> list[int]:
        ids = self._codec.encode_prompt(prompt)
        if not ids:
            raise UsageError("the prompt is empty")
        self._check_ids(ids, f"the prompt ({len(ids):,} tokens)", 0)
        return ids

    def _check_ids(self, ids: Sequence[int], what: str, before: int) -> None:
        window, vocabulary = self.facts.context_tokens, self.facts.vocabulary
        if window is not None and before + len(ids) > window:
            raise ContextError(f"{what} exceeds what {self.name} reads: {window:,} tokens in all; shorten it")
        if not 0 <= min(ids) <= max(ids) < vocabulary:
            strange = next(id for id in ids if not 0 <= id < vocabulary)
            raise BackendError(
                f"the tokenizer of {self.name} gives token {strange}, but the model knows 0 to {vocabulary - 1}: "
                "they do not belong together"
            )

    def _tokens_of(self, ids: Sequence[int], characters: int) -> int:
        """How many of the ids it takes to write that many characters."""
        return next(n for n in range(len(ids) + 1) if len(self._codec.decode(ids[:n])) >= characters)


def _check(sampling: Sampling) -> None:
    if sampling.max_tokens < 1:
        raise UsageError(f"max_tokens is {sampling.max_tokens}; an answer needs at least 1")
    if not 0 <= sampling.temperature < float("inf"):
        raise UsageError(f"temperature is {sampling.temperature}; expected 0 or more")
    if not 0 < sampling.top_p <= 1:
        raise UsageError(f"top_p is {sampling.top_p}; expected more than 0 and at most 1")
    if "" in sampling.stop:
        raise UsageError("a stop text is empty")


def _random(sampling: Sampling) -> np.random.Generator | None:
    """Each request draws from its own generator, so that a seed means the same in any batch; None when greedy."""
    import numpy

    return None if sampling.temperature == 0 else numpy.random.default_rng(sampling.seed)
