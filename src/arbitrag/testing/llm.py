"""A scripted model for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from arbitrag.errors import BackendError
from arbitrag.llm.base import (
    Capabilities,
    Distributions,
    Generation,
    Inspection,
    Likelihood,
    Price,
    Prompt,
    Sampling,
    Scores,
    Tokens,
    check_continuations,
)
from arbitrag.types import Need

Reply = str | Exception
Replies = Sequence[Reply] | Mapping[str, Reply] | Callable[[Prompt], Reply]
Likelihoods = Mapping[str, float] | Callable[[Prompt, str], float]


class ScriptedLLM:
    """A model that answers from a script.

    ``replies``: texts in the order of the calls; or a mapping from a piece of the prompt to the reply (the first piece
    that occurs wins); or a function of the prompt. A reply that is an exception is raised. ``likelihoods`` gives the
    mean log-probability of a continuation, by its text or by a function of prompt and text; without them the model
    offers no scores. ``prompts`` keeps every prompt that was asked.
    """

    def __init__(
        self,
        replies: Replies = (),
        likelihoods: Likelihoods | None = None,
        *,
        name: str = "scripted",
        context_tokens: int | None = None,
        price: Price | None = None,
    ) -> None:
        self.name = self.identity = name
        self.wording: Path | None = None
        self.price = price
        self.prompts: list[Prompt] = []
        self._replies = list(replies) if isinstance(replies, list | tuple) else replies
        self._likelihoods = likelihoods
        self._context_tokens = context_tokens

    async def capabilities(self) -> Capabilities:
        needs = Need.GENERATE if self._likelihoods is None else Need.GENERATE | Need.SCORE
        return Capabilities(needs, self._context_tokens)

    def count_tokens(self, text: Prompt | str) -> int:
        """A token is a word."""
        return len((text if isinstance(text, str) else prompt_text(text)).split())

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        self.prompts.append(prompt)
        if sampling.logprobs:
            raise BackendError(f"{self.name} has no log-probabilities of what it writes")
        reply = self._reply(prompt)
        if isinstance(reply, Exception):
            raise reply
        words = reply.split(" ")
        text = " ".join(words[: sampling.max_tokens])
        tokens = Tokens(prompt_tokens=self.count_tokens(prompt), completion_tokens=self.count_tokens(text))
        return Generation(text, "stop" if text == reply else "length", tokens=tokens)

    async def score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        self.prompts.append(prompt)
        if self._likelihoods is None:
            raise BackendError(f"{self.name} was given no likelihoods")
        check_continuations(continuations)
        means = [self._mean(prompt, text) for text in continuations]
        found = tuple(Likelihood(text, (mean,)) for text, mean in zip(continuations, means, strict=True))
        return Scores(found, Tokens(prompt_tokens=self.count_tokens(prompt)))

    async def inspect(self, prompt: Prompt, layers: Sequence[int]) -> Inspection:
        raise BackendError(f"{self.name} has no insides")

    async def next_token(self, prompts: Sequence[Prompt]) -> Distributions:
        raise BackendError(f"{self.name} has no insides")

    async def aclose(self) -> None:
        pass

    def _reply(self, prompt: Prompt) -> Reply:
        if callable(self._replies):
            return self._replies(prompt)
        if isinstance(self._replies, Mapping):
            text = prompt_text(prompt)
            for piece, reply in self._replies.items():
                if piece in text:
                    return reply
            raise BackendError(f"the script has no reply for: {text[-200:]}")
        if not self._replies:
            raise BackendError("the script has no more replies")
        return self._replies.pop(0)  # type: ignore[union-attr]

    def _mean(self, prompt: Prompt, text: str) -> float:
        if callable(self._likelihoods):
            return self._likelihoods(prompt, text)
        assert self._likelihoods is not None
        return self._likelihoods[text]


def prompt_text(prompt: Prompt) -> str:
    """All the text of a prompt, message after message."""
    return prompt.text if prompt.text is not None else "\n".join(message.text for message in prompt.messages)
