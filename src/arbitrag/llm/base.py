"""What a language model can be asked, in rising order of access: text, likelihoods, insides.

A backend answers one request at a time from the caller's point of view; joining concurrent requests into batches
is its own business. It never answers with NaN, and never with an empty string in place of an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from arbitrag.errors import UsageError
from arbitrag.types import Need

if TYPE_CHECKING:
    import numpy as np

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is given: chat messages, or plain text to continue (exactly one of the two).

    ``lead`` stands between the prompt and an answer. It is empty after chat messages, where the template ends the
    turn, and usually one space after plain text that ends in ``Answer:``.
    """

    messages: tuple[Message, ...] = ()
    text: str | None = None
    lead: str = ""

    def __post_init__(self) -> None:
        if (self.text is None) == (not self.messages):
            raise ValueError("a prompt is either messages or text")

    @classmethod
    def user(cls, text: str) -> Prompt:
        """One user message."""
        return cls(messages=(Message("user", text),))


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to write. ``temperature`` 0 is greedy; ``stop`` texts end the answer and are not part of it.

    ``logprobs`` asks for the log-probability of every written token; a backend that cannot give them raises.
    """

    max_tokens: int = 32
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one request, counted as in OpenAI's usage.

    ``prompt_tokens`` include ``cached_tokens``, those taken from a prefix or response cache. Raises ValueError for more
    cached tokens than prompt tokens.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __post_init__(self) -> None:
        if self.cached_tokens > self.prompt_tokens:
            raise ValueError(f"{self.cached_tokens} cached tokens are more than the {self.prompt_tokens} of the prompt")

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that were computed."""
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True)
class Generation:
    """A written text. ``logprobs`` holds one natural-log probability per written token when they were asked for.

    An answer from a cache has ``cached`` set, and ``computed`` is what it cost when it was computed (so for all kinds).
    ``doubt`` says what of a server's report on tokens cannot be, and was not counted.
    """

    text: str
    finish: Literal["stop", "length"]
    logprobs: tuple[float, ...] | None = None
    tokens: Tokens = Tokens()
    cached: bool = False
    computed: Tokens | None = None
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Likelihood:
    """How likely a continuation is: one natural-log probability per token of ``text``."""

    text: str
    logprobs: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean log-probability per token (TrustMargin's l)."""
        return sum(self.logprobs) / len(self.logprobs)

    @property
    def total(self) -> float:
        return sum(self.logprobs)


@dataclass(frozen=True, slots=True)
class Scores:
    """The likelihoods of several continuations of one prompt, in the order in which they were asked."""

    likelihoods: tuple[Likelihood, ...]
    tokens: Tokens = Tokens()
    cached: bool = False
    computed: Tokens | None = None
    doubt: str = ""

    @property
    def means(self) -> tuple[float, ...]:
        return tuple(likelihood.mean for likelihood in self.likelihoods)


@dataclass(frozen=True, slots=True)
class Inspection:
    """Hidden states of the last prompt token: ``states[layer]`` has shape (width,), float32.

    Layer 0 is the embedding; layer n is the output of block n; the last is after the final normalisation, as
    transformers' ``output_hidden_states`` has it.
    """

    states: Mapping[int, np.ndarray]
    tokens: Tokens = Tokens()
    cached: bool = False
    computed: Tokens | None = None


@dataclass(frozen=True, slots=True)
class Distributions:
    """Next-token natural-log probabilities, shape (prompts, vocabulary), float32."""

    logprobs: np.ndarray
    tokens: Tokens = Tokens()
    cached: bool = False
    computed: Tokens | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model can be asked for, and how that was found out (printed by ``doctor``).

    ``refused`` has those lines of ``evidence`` that say why something is not offered, by what that is.

    ``vocabulary`` identifies the tokenizer, so that methods that mix two models can tell when they disagree.
    """

    needs: Need
    context_tokens: int | None = None
    evidence: tuple[str, ...] = ()
    vocabulary: str = ""
    refused: Mapping[Need, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Price:
    """Money per million tokens: ``prompt`` is that of uncached prompt tokens, ``cached`` that of cached ones."""

    prompt: float
    completion: float
    cached: float = 0.0


class LLM(Protocol):
    """One model. Calls are safe to make concurrently from one event loop.

    ``name`` is what ``open_llm`` was given, without secrets. ``identity`` names everything that decides an answer
    (model, revision or file hash, precision), for cache keys and run records. ``wording`` is a folder of prompt files
    that fit this model better than the ones that come with Arbitrag, or None.
    """

    name: str
    identity: str
    wording: Path | None
    price: Price | None

    async def capabilities(self) -> Capabilities:
        """What this backend can do; an HTTP endpoint is probed on the first call, and the answer is kept."""
        ...

    def count_tokens(self, text: Prompt | str) -> int:
        """Tokens in a text, or in a prompt with everything that the chat template adds.

        An HTTP backend without a tokenizer estimates, and its capabilities say so.
        """
        ...

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation: ...

    async def score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        """Likelihoods of ``prompt.lead + continuation``, each tokenised on its own and appended to the prompt's tokens.

        Raises UsageError for an empty continuation and BackendError where the backend offers no likelihoods.
        """
        ...

    async def inspect(self, prompt: Prompt, layers: Sequence[int]) -> Inspection: ...

    async def next_token(self, prompts: Sequence[Prompt]) -> Distributions: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """A model's context length, where it is known, and how tokens are counted against it.

    ``count`` gives the tokens of texts by the model's own tokenizer, in the order asked; without it they are those of
    ``count_tokens``, and ``doubt`` says why these are no more than an estimate (empty where they are exact).
    """

    tokens: int | None = None
    count: Callable[[Sequence[str]], Awaitable[Sequence[int]]] | None = None
    doubt: str = ""


@runtime_checkable
class Remote(Protocol):
    """What a model behind a network has beside ``LLM``: it is asked for no more than is needed."""

    async def capabilities_of(self, needs: Need, *, fresh: bool = False) -> Capabilities:
        """What it offers of these needs; ``fresh`` believes nothing that was found out before."""
        ...

    async def context_window(self, may_overflow: Callable[[], bool]) -> ContextWindow:
        """Its context window. Nothing is asked, and nothing is known, where no prompt ``may_overflow``."""
        ...


async def capabilities_of(llm: LLM, needs: Need, *, fresh: bool = False) -> Capabilities:
    """What a model offers of these needs; it may say more where nobody has to be asked."""
    return await llm.capabilities_of(needs, fresh=fresh) if isinstance(llm, Remote) else await llm.capabilities()


async def context_window_of(llm: LLM, may_overflow: Callable[[], bool]) -> ContextWindow:
    """A model's context window; ``may_overflow`` says whether a prompt may not fit, by ``count_tokens``."""
    if isinstance(llm, Remote):
        return await llm.context_window(may_overflow)
    return ContextWindow((await llm.capabilities()).context_tokens)


OnText = Callable[[str], None]


@runtime_checkable
class Streams(Protocol):
    """A backend that gives a text while it is written; one that does not just answers."""

    async def stream(self, prompt: Prompt, sampling: Sampling, on_text: OnText) -> Generation:
        """As ``generate``; ``on_text`` is given the whole text so far, as often as there is more of it.

        It is called in the event loop. What it was given is no answer until the call returns; a failure in the middle
        raises.
        """
        ...


async def generated(llm: LLM, prompt: Prompt, sampling: Sampling, on_text: OnText | None) -> Generation:
    """A text, streamed where somebody listens, the backend can, and no log-probabilities are wanted."""
    if on_text is None or sampling.logprobs or not isinstance(llm, Streams):
        return await llm.generate(prompt, sampling)
    return await llm.stream(prompt, sampling, on_text)


def check_continuations(continuations: Sequence[str]) -> None:
    """Raise UsageError for a continuation without text."""
    if not all(continuations):
        raise UsageError("cannot score '': an empty continuation has no likelihood")
