"""The kit of a method: model, scorer, retriever, encoder and limits. It is shared by every method of a run.

The limits on tokens are the kit's, so they are equal for every method. For each question ``Kit.recording`` gives a
kit with the same parts whose calls are written down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from arbitrag.encode.base import Encoder, Vectors
from arbitrag.encode.reuse import Pool, encode_passages, stored_vectors
from arbitrag.encode.similarity import Similarities, compare
from arbitrag.errors import CapabilityError, ContextError
from arbitrag.llm.base import (
    LLM,
    Distributions,
    Generation,
    Inspection,
    OnText,
    Prompt,
    Sampling,
    Scores,
    context_window_of,
    generated,
)
from arbitrag.prompts import Field, PromptBook, PromptFile
from arbitrag.retrieve.base import Retriever, check_k
from arbitrag.run_options import OPTIONS
from arbitrag.serialization import json_digest, to_plain
from arbitrag.trace import Recorder, Result
from arbitrag.truncation import Fit, fit
from arbitrag.types import Need, Passage, Question

if TYPE_CHECKING:
    import numpy as np

R = TypeVar("R", bound=Result)
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

SMALLEST_CONTEXT = 2048  # tokens that every model in use reads at the least
TEMPLATE_TOKENS = 8  # what a chat template adds to a message, where the server counts only texts


@dataclass(frozen=True)
class Limits:
    """Token limits of a run: for all passages together, for an answer, and for what a method writes for itself.

    The last is for one text on the way to an answer, such as a passage from memory or a consolidation.
    """

    context_tokens: int = OPTIONS["context_tokens"].default
    answer_tokens: int = OPTIONS["answer_tokens"].default
    writing_tokens: int = OPTIONS["writing_tokens"].default


@dataclass(frozen=True)
class Model:
    """A language model as methods see it: with its wording of the prompts, the run's limits, and a recorder."""

    backend: LLM
    role: str
    book: PromptBook
    limits: Limits
    recorder: Recorder
    on_text: OnText | None = field(default=None, compare=False)

    def prompt(self, name: str, **fields: Field) -> Prompt:
        """The prompt called ``name`` in this model's wording."""
        file = self.book.find(name)
        self.recorder.prompts.setdefault(self.role, {})[name] = file.source_text
        return file.render(**fields)

    async def generate(self, prompt: Prompt, **changes: Any) -> Generation:
        """A greedy answer within the run's limit; ``changes`` are fields of ``Sampling``."""
        sampling = Sampling(**{"max_tokens": self.limits.answer_tokens, **changes})
        request = {"prompt": to_plain(prompt), "sampling": to_plain(sampling)}
        return await self.recorder.call(
            "generate",
            self.role,
            self.backend,
            request,
            lambda: generated(self.backend, prompt, sampling, self.on_text),
        )

    async def score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        """The likelihood of each continuation after the prompt."""
        request = {"prompt": to_plain(prompt), "continuations": list(continuations)}
        return await self.recorder.call(
            "score", self.role, self.backend, request, lambda: self.backend.score(prompt, continuations)
        )

    async def inspect(self, prompt: Prompt, layers: Sequence[int]) -> Inspection:
        """Hidden states of the last prompt token."""
        request = {"prompt": to_plain(prompt), "layers": list(layers)}
        return await self.recorder.call(
            "inspect", self.role, self.backend, request, lambda: self.backend.inspect(prompt, layers)
        )

    async def next_token(self, prompts: Sequence[Prompt]) -> Distributions:
        """The next-token distribution after each prompt."""
        request = {"prompts": to_plain(list(prompts))}
        return await self.recorder.call(
            "next_token", self.role, self.backend, request, lambda: self.backend.next_token(prompts)
        )

    async def fit(
        self, passages: Sequence[Passage], prompt: str, *, reply_tokens: int | None = None, **fields: Field
    ) -> Fit:
        """The passages that this model will read in ``prompt``: cut to the run's limit and to its context.

        In the context there stays room for a reply of ``reply_tokens``, which is an answer unless it is given. Raises
        ContextError when the prompt does not fit even without passages.
        """
        request = {"prompt": prompt, "fields": to_plain(fields), "passages": json_digest(passages)}
        if reply_tokens is not None:
            request["reply_tokens"] = reply_tokens
        reply = self.limits.answer_tokens if reply_tokens is None else reply_tokens
        return await self.recorder.call(
            "fit", self.role, self.backend, request, lambda: self._fit(passages, prompt, reply, fields)
        )

    async def _fit(self, passages: Sequence[Passage], prompt: str, reply: int, fields: Mapping[str, Field]) -> Fit:
        form, estimate = self.book.find(prompt), self.backend.count_tokens

        def may_overflow() -> bool:
            """Whether something may have to be left out, even if the estimate is wrong by a factor of two."""
            of_passages = sum(estimate(form.passage_text(n, each)) for n, each in enumerate(passages, 1))
            whole = estimate(form.render(passages=tuple(passages), **fields)) + reply
            return 2 * of_passages > self.limits.context_tokens or 2 * whole > SMALLEST_CONTEXT

        context = await context_window_of(self.backend, may_overflow)
        window = context.tokens
        if context.count is None:
            found = self._fitted(passages, form, reply, fields, window, estimate)
            return replace(found, doubt=context.doubt) if found.dropped or found.cuts else found
        tokens: dict[str, int] = {}
        texts = [form.passage_text(number, each) for number, each in enumerate(passages, 1)]
        ahead = list(accumulate(map(estimate, texts), initial=0))  # those that may be read are counted side by side
        missing = [text for text, before in zip(texts, ahead[:-1], strict=True) if before <= self.limits.context_tokens]
        while True:
            tokens.update(zip(missing, await context.count(missing), strict=True))
            try:
                return self._fitted(passages, form, reply, fields, window, partial(_known_tokens, tokens))
            except _NotCounted as error:
                missing = [error.text]

    def _fitted(
        self,
        passages: Sequence[Passage],
        form: PromptFile,
        reply: int,
        fields: Mapping[str, Field],
        window: int | None,
        count: Callable[[Prompt | str], int],
    ) -> Fit:
        """The passages that fit into the run's limit and the model's ``window``, by this count of tokens."""
        room = self.limits.context_tokens
        if window is not None:
            spent = count(form.render(passages=(), **fields)) + reply
            if spent > window:
                raise self._too_long(spent - reply, reply, window)
            room = min(room, window - spent)
        while True:
            found = fit(passages, room, lambda number, passage: count(form.passage_text(number, passage)))
            if window is None:
                return found
            over = count(form.render(passages=found.kept, **fields)) + reply - window
            if over <= 0:  # pieces counted one by one can come to less than the whole
                return found
            room -= over

    def _too_long(self, tokens: int, reply: int, window: int) -> ContextError:
        return ContextError(
            f"the question takes {tokens:,} tokens and an answer up to {reply:,}, "
            f"but {self.backend.name} reads {window:,} in all; shorten it or use a longer context"
        )


class _NotCounted(Exception):
    """A text whose tokens have not been counted yet."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def _known_tokens(tokens: Mapping[str, int], text: Prompt | str) -> int:
    """The tokens of a text, or of a prompt's messages and chat template; raises _NotCounted for an uncounted text."""
    if isinstance(text, Prompt):
        parts = [message.text for message in text.messages] if text.text is None else [text.text]
        return sum(_known_tokens(tokens, part) + TEMPLATE_TOKENS for part in parts)
    if text and text not in tokens:
        raise _NotCounted(text)
    return tokens[text] if text else 0


@overload
async def gather(first: Awaitable[A], second: Awaitable[B], /) -> tuple[A, B]: ...
@overload
async def gather(
    first: Awaitable[A], second: Awaitable[B], third: Awaitable[C], fourth: Awaitable[D], /
) -> tuple[A, B, C, D]: ...
@overload
async def gather(*asked: Awaitable[T]) -> list[T]: ...
async def gather(*asked: Awaitable[Any]) -> Any:
    """The results of concurrent calls, in the order of the arguments.

    Unlike with ``asyncio.gather``, when one fails those beside it are cancelled: no call outlives its question.
    """
    tasks = [asyncio.ensure_future(each) for each in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True)
class Kit:
    """The parts of a run; make one with ``Kit.of``. ``where`` is what the metadata of every passage must say.

    ``pools`` are the texts that were encoded for ``nearest``, kept for the length of the run. ``given`` are passages
    that stand in place of what the retriever would find.
    """

    llm: Model
    scorer: Model
    retriever: Retriever | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()
    recorder: Recorder = field(default_factory=Recorder)
    encoder: Encoder | None = None
    pools: dict[str, Pool] = field(default_factory=dict, repr=False)
    given: tuple[Passage, ...] | None = None

    @classmethod
    def of(
        cls,
        llm: LLM,
        retriever: Retriever | None = None,
        *,
        encoder: Encoder | None = None,
        scorer: LLM | None = None,
        where: Mapping[str, str] | None = None,
        limits: Limits = Limits(),
        book: PromptBook | None = None,
        wording: Path | None = None,
    ) -> Kit:
        """A kit of these parts. Without a ``scorer`` the model scores for itself.

        Prompts in the folder ``wording`` go before those that a backend brings along; ``book`` replaces both.
        """
        recorder = Recorder()

        def model(backend: LLM, role: str) -> Model:
            prompts = book or PromptBook.with_wording(wording, backend.wording)
            return Model(backend, role, prompts, limits, recorder)

        writer = model(llm, "llm")
        return cls(
            writer,
            writer if scorer is None else model(scorer, "scorer"),
            retriever,
            dict(where or {}),
            limits,
            recorder,
            encoder,
        )

    @property
    def offers(self) -> Need:
        """What there is beside the models: passages to find, and an encoder."""
        return (Need.RETRIEVE if self.retriever else Need(0)) | (Need.ENCODE if self.encoder else Need(0))

    def recording(self) -> Kit:
        """The same parts with a fresh recorder, for one question."""
        recorder = Recorder()
        llm = replace(self.llm, recorder=recorder)
        scorer = llm if self.scorer is self.llm else replace(self.scorer, recorder=recorder)
        return replace(self, llm=llm, scorer=scorer, recorder=recorder)

    def streaming(self, on_text: OnText | None) -> Kit:
        """The same parts; what the model writes for an answer is given to ``on_text`` as it is written."""
        return replace(self, llm=replace(self.llm, on_text=on_text))

    def with_models(self, change: Callable[[LLM], LLM]) -> Kit:
        """The same parts, with what ``change`` makes of each model."""
        llm = replace(self.llm, backend=change(self.llm.backend))
        scorer = llm if self.scorer is self.llm else replace(self.scorer, backend=change(self.scorer.backend))
        return replace(self, llm=llm, scorer=scorer)

    def with_passages(self, passages: Sequence[Passage]) -> Kit:
        """The same parts, with these passages to find, whatever is asked."""
        return replace(self, given=tuple(passages))

    async def retrieve(self, question: Question | str, k: int) -> tuple[Passage, ...]:
        """At most ``k`` passages for a question, best first. Raises UsageError for a ``k`` below 1."""
        check_k(k)
        if self.given is not None:
            return tuple(passage.encodable() for passage in self.given[:k])
        if self.retriever is None:
            raise CapabilityError("there is nothing to retrieve from; give an index (--index) or passages (--passages)")
        retriever, query = self.retriever, question if isinstance(question, str) else question.text
        request = {"query": query, "k": k, "where": dict(self.where)}

        async def ask() -> tuple[Passage, ...]:
            return tuple(passage.encodable() for passage in await retriever.retrieve(query, k, self.where))

        return await self.recorder.call("retrieve", "retriever", retriever, request, ask)

    async def fit(
        self, passages: Sequence[Passage], prompt: str, *, reply_tokens: int | None = None, **fields: Field
    ) -> Fit:
        """The passages that both the model and the scorer will read in ``prompt``; see ``Model.fit``."""
        found = await self.llm.fit(passages, prompt, reply_tokens=reply_tokens, **fields)
        if self.scorer.role == self.llm.role:
            return found
        return found.then(await self.scorer.fit(found.kept, prompt, reply_tokens=reply_tokens, **fields))

    async def embed(self, passages: Sequence[Passage]) -> np.ndarray:
        """Unit vectors (passages, width) float32.

        What an index stored with this encoder is not computed again, and as exact as it was stored (in 16 bits).
        """
        encoder = self._encoder()
        return await self._vectors({"passages": json_digest(passages)}, lambda: encode_passages(passages, encoder))

    async def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors (texts, width) float32, read as queries."""
        encoder = self._encoder()
        return await self._vectors({"queries": list(texts)}, lambda: encoder.encode(texts, kind="query"))

    async def _vectors(self, request: Mapping[str, Any], encode: Callable[[], Awaitable[np.ndarray]]) -> np.ndarray:
        async def ask() -> Vectors:
            return Vectors(await encode())

        return (await self.recorder.call("embed", "encoder", self._encoder(), request, ask)).rows

    async def compare(self, pairs: Sequence[tuple[str, str]], passages: Sequence[Passage] = ()) -> Similarities:
        """How alike the two texts of each pair are, by each head that the encoder has.

        A text that is what an encoder reads of one of the ``passages`` takes the vector that an index stored for it.
        """
        encoder, request = self._encoder(), {"pairs": [list(pair) for pair in pairs]}
        return await self.recorder.call(
            "compare", "encoder", encoder, request, lambda: compare(pairs, encoder, stored_vectors(passages, encoder))
        )

    async def nearest(
        self, query: str, k: int, pool: str, read: Callable[[], Sequence[Passage]]
    ) -> tuple[Passage, ...]:
        """At most ``k`` passages of a named pool, most like the query first, with the cosine as their score.

        ``read`` gives the passages of the pool. It is called, and they are encoded, once in a run.
        """
        check_k(k)
        encoder = self._encoder()

        async def ask() -> tuple[Passage, ...]:
            if pool not in self.pools:
                self.pools[pool] = Pool(read, encoder)
            return await self.pools[pool].nearest(query, k)

        return await self.recorder.call("retrieve", "examples", encoder, {"query": query, "k": k, "pool": pool}, ask)

    def _encoder(self) -> Encoder:
        if self.encoder is None:
            raise CapabilityError(
                "there is no encoder; give one (--encoder hash, or st:MODEL), or an index with vectors"
            )
        return self.encoder

    async def aclose(self) -> None:
        """Close the models, the retriever and the encoder."""
        parts = [self.llm.backend, self.retriever, self.encoder]
        if self.scorer.backend is not self.llm.backend:
            parts.append(self.scorer.backend)
        await asyncio.gather(*(part.aclose() for part in parts if part is not None))
