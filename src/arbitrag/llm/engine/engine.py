"""The in-process inference engine: the ``LLM`` contract over a runtime (the network) and a codec (the tokenizer).

Concurrent requests are batched and share cached prefixes; each keeps its own settings, stop rule, result and error.
Forward passes run in a worker thread, or in a process of its own (``engine/remote.py``), so the event loop stays free.
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
from arbitrag.llm.engine.batch import BatchLimits
from arbitrag.llm.engine.remote import ProcessWorker
from arbitrag.llm.engine.remote_messages import RuntimeSpec
from arbitrag.llm.engine.requests import Generate, Inspect, NextToken, Request, Score
from arbitrag.llm.engine.runtime import Runtime
from arbitrag.llm.engine.scheduler import SchedulerConfig
from arbitrag.llm.engine.stops import first_stop, stop_rule
from arbitrag.llm.engine.worker import BATCHING_WINDOW_S, ThreadWorker, Worker
from arbitrag.llm.tokenizer import Codec
from arbitrag.types import Need

if TYPE_CHECKING:
    import numpy as np

PREFIX_BYTES = 1 << 30


class Engine:
    """A model with continuous batching and prefix caching, in this process or, given a ``RuntimeSpec``, in its own.

    ``prefix_bytes`` is the capacity of the prefix cache (0 turns it off). ``deterministic`` runs one request at a time,
    in the order of arrival, without prefix caching, so that a result depends on its request alone and is equal to the
    last bit from run to run; the continuations of one request are still batched. ``window_s`` is the longest batching
    window, in which the first request waits for others while the event loop is busy.
    """

    def __init__(
        self,
        runtime: Runtime | RuntimeSpec,
        codec: Codec,
        *,
        name: str,
        deterministic: bool = False,
        prefix_bytes: int = PREFIX_BYTES,
        limits: BatchLimits = BatchLimits(),
        window_s: float = BATCHING_WINDOW_S,
        price: Price | None = None,
        wording: Path | None = None,
    ) -> None:
        self.name = name
        self.price = price
        self.wording = wording
        self._codec = codec
        self._config = SchedulerConfig(limits, 0 if deterministic else prefix_bytes, deterministic)
        self._worker: Worker = (
            ProcessWorker(runtime, self._config, window_s=window_s)
            if isinstance(runtime, RuntimeSpec)
            else ThreadWorker(runtime, self._config, window_s=window_s)
        )
        self.info = self._worker.info
        self.identity = f"{self.info.identity} {codec.identity}"

    @property
    def prefix_cache_bytes(self) -> int:
        """Bytes in the prefix cache; never more than its capacity."""
        return self._worker.prefix_cache_bytes

    async def capabilities(self) -> Capabilities:
        """Everything but retrieval; hidden states where the network gives them."""
        needs = Need.GENERATE | Need.SCORE | Need.NEXT_TOKEN
        if self.info.hidden_layers:
            needs |= Need.INSPECT
        mode = (
            "deterministic: one request at a time, nothing shared between them"
            if self._config.one_at_a_time
            else f"prefix cache of {self._config.prefix_bytes / 2**20:,.0f} MiB"
        )
        return Capabilities(needs, self.info.context_tokens, (*self.info.evidence, mode), self._codec.identity)

    def count_tokens(self, text: Prompt | str) -> int:
        return len(self._codec.encode(text) if isinstance(text, str) else self._codec.encode_prompt(text))

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        """Generate a completion. It ends with "length" where the context ends, too.

        Raises UsageError for impossible settings, ContextError when the prompt alone exceeds the context.
        """
        return await self._generate(prompt, sampling, None)

    async def stream(self, prompt: Prompt, sampling: Sampling, on_text: OnText) -> Generation:
        """As ``generate``, with the text after every decode step, or at the end from a process of its own."""
        return await self._generate(prompt, sampling, on_text)

    async def _generate(self, prompt: Prompt, sampling: Sampling, on_text: OnText | None) -> Generation:
        _check(sampling)
        ids = self._prompt_ids(prompt)
        context = self.info.context_tokens
        room = sampling.max_tokens if context is None else context - len(ids) + 1  # no forward pass for the last token
        request = Generate(
            ids,
            sampling=sampling,
            max_new_tokens=min(sampling.max_tokens, room),
            eos_ids=self._codec.eos_ids,
            should_stop=self._streaming(stop_rule(self._codec.decode, sampling.stop), sampling.stop, on_text),
            rng=_rng(sampling),
            prompt_length=len(ids),
        )
        completion, logprobs, finish, tokens = await self._submit(request)
        text = self._codec.decode(completion)
        if (end := first_stop(text, sampling.stop)) is not None:
            text = text[:end]
            logprobs = logprobs[: self._tokens_until(completion, end)]
        return Generation(text, finish, tuple(logprobs) if sampling.logprobs else None, tokens)

    def _streaming(
        self, stops: Callable[[list[int]], bool] | None, stop: Sequence[str], on_text: OnText | None
    ) -> Callable[[list[int]], bool] | None:
        """The stop rule, which after every decode step also passes the text to the event loop."""
        if on_text is None:
            return stops
        loop = asyncio.get_running_loop()

        def check(completion: list[int]) -> bool:
            text = self._codec.decode(completion)
            with suppress(RuntimeError):  # the loop is gone, and with it whoever listened
                loop.call_soon_threadsafe(on_text, text[: first_stop(text, stop)])
            return stops is not None and stops(completion)

        return check

    async def score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        """Likelihoods of the continuations, each with the prompt's lead; the prompt is prefilled once for all.

        ``tokens.uncached_tokens`` were computed: a continuation's last token is predicted without a forward pass.
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
        logprobs, tokens = await self._submit(Score(ids, continuations=texts))
        found = zip(continuations, logprobs, strict=True)
        return Scores(tuple(Likelihood(text, tuple(each)) for text, each in found), tokens)

    async def inspect(self, prompt: Prompt, layers: Sequence[int]) -> Inspection:
        """Hidden states of the last prompt token; raises UsageError for a layer that the model does not have."""
        if not self.info.hidden_layers:
            raise BackendError(f"{self.name} was exported without hidden states")
        if strange := sorted(set(layers) - self.info.hidden_layers):
            raise UsageError(f"{self.name} has no layer {strange[0]}; its layers are 0 to {self.info.layers}")
        states, tokens = await self._submit(Inspect(self._prompt_ids(prompt), tuple(layers)))
        return Inspection({layer: states[layer] for layer in layers}, tokens)

    async def next_token(self, prompts: Sequence[Prompt]) -> Distributions:
        """The next-token distribution after each prompt, all in one batch."""
        import numpy

        requests: list[Request] = [NextToken(self._prompt_ids(prompt)) for prompt in prompts]
        if not requests:
            return Distributions(numpy.zeros((0, self.info.vocabulary), numpy.float32))
        found = await self._submit_all(requests)
        tokens = [each[1] for each in found]
        spent = Tokens(sum(each.prompt_tokens for each in tokens), sum(each.cached_tokens for each in tokens))
        return Distributions(numpy.stack([each[0] for each in found]), spent)

    async def aclose(self) -> None:
        """Fail what is still waiting, end the worker and drop the prefix cache."""
        await self._worker.aclose()

    async def _submit(self, request: Request) -> Any:
        """The result of a request, which is cancelled when its caller is."""
        self._worker.submit([request])
        return await request.future

    async def _submit_all(self, requests: list[Request]) -> list[Any]:
        """The results of several requests, which are batched."""
        self._worker.submit(requests)
        return await asyncio.gather(*(request.future for request in requests))

    def _prompt_ids(self, prompt: Prompt) -> list[int]:
        ids = self._codec.encode_prompt(prompt)
        if not ids:
            raise UsageError("the prompt is empty")
        self._check_ids(ids, f"the prompt ({len(ids):,} tokens)", 0)
        return ids

    def _check_ids(self, ids: Sequence[int], what: str, before: int) -> None:
        context, vocabulary = self.info.context_tokens, self.info.vocabulary
        if context is not None and before + len(ids) > context:
            raise ContextError(f"{what} exceeds the context length of {self.name}, {context:,} tokens; shorten it")
        if not 0 <= min(ids) <= max(ids) < vocabulary:
            strange = next(id for id in ids if not 0 <= id < vocabulary)
            raise BackendError(
                f"the tokenizer of {self.name} gives token {strange}, but the model knows 0 to {vocabulary - 1}: "
                "they do not belong together"
            )

    def _tokens_until(self, ids: Sequence[int], characters: int) -> int:
        """How many of the ids have that many characters of text."""
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


def _rng(sampling: Sampling) -> np.random.Generator | None:
    """A random generator for each request, so that a seed means the same in any batch; None for greedy decoding."""
    import numpy

    return None if sampling.temperature == 0 else numpy.random.default_rng(sampling.seed)
