"""Two ways to ask an OpenAI-compatible server how likely a given continuation is.

``ByIds``   the server's ``/tokenize`` gives the ids of prompt and continuation (chat template included), and
            ``prompt_logprobs`` on ``/completions`` the likelihood of each. Nothing is tokenised twice: exact. vLLM.
``ByEcho``  ``echo`` and ``logprobs`` on ``/completions``. The server tokenises prompt and continuation as one text, so
            where a token crosses the boundary there is no likelihood of the continuation, and an error says so.

Neither is to be trusted before ``probe`` has tried it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol, TypeVar

from arbitrag.errors import BackendError
from arbitrag.llm.base import Likelihood, Prompt, Scores, Tokens
from arbitrag.llm.http import responses
from arbitrag.llm.http.endpoint import Endpoint
from arbitrag.text import one_line

T = TypeVar("T")
_Scored = tuple[
    tuple[float, ...], tuple[Tokens, str]
]  # log-probabilities, what they cost, and what is doubtful in that

# Log-probabilities at temperature 1 are the model's own on every server; at 0 some return those of a sure choice.
OWN_TEMPERATURE = 1.0


class Way(Protocol):
    """How a server is asked for likelihoods. ``asks`` says it in words."""

    endpoint: Endpoint

    @property
    def asks(self) -> str: ...

    async def score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        """Likelihoods in the order asked; raises BackendError where the server returns none."""
        ...


@dataclass
class ByIds:
    """Token ids from ``/tokenize``, likelihoods from ``prompt_logprobs``."""

    endpoint: Endpoint
    model: str

    @property
    def asks(self) -> str:
        return "/tokenize and prompt_logprobs"

    async def score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        texts = [prompt.lead + text for text in continuations]
        start, *ends = await together(self.prompt_ids(prompt), *(self.ids(text) for text in texts))
        scored = await together(*(self._one(start, end) for end in ends))
        return _joined(continuations, scored)

    async def prompt_ids(self, prompt: Prompt) -> list[int]:
        """What the model reads for a prompt, by the server's own chat template."""
        if prompt.text is not None:
            return await self._tokenize({"prompt": prompt.text, "add_special_tokens": True})
        return await self._tokenize({"messages": as_json(prompt), "add_generation_prompt": True})

    async def ids(self, text: str) -> list[int]:
        """The ids of a continuation on its own."""
        found = await self._tokenize({"prompt": text, "add_special_tokens": False})
        if not found:
            raise responses.wrong(f"it has no tokens for '{one_line(text, 60)}'")
        return found

    async def _tokenize(self, body: dict[str, Any]) -> list[int]:
        answer = await self.endpoint.post(f"{self.endpoint.root}/tokenize", {"model": self.model, **body})
        ids = answer.get("tokens")
        if not isinstance(ids, list) or not all(isinstance(id, int) for id in ids):
            raise responses.wrong("/tokenize brought back no token ids")
        return ids

    async def _one(self, start: list[int], end: list[int]) -> _Scored:
        body = {"prompt": start + end, "max_tokens": 1, "temperature": OWN_TEMPERATURE, "prompt_logprobs": 1}
        answer = await self.endpoint.post("completions", {"model": self.model, **body})
        values = responses.prompt_logprobs(answer, start + end)[-len(end) :]
        return responses.checked(values), responses.usage(answer, prompt=len(start + end), completion=1)


@dataclass
class ByEcho:
    """Likelihoods from ``echo`` and ``logprobs``; plain text prompts only."""

    endpoint: Endpoint
    model: str
    max_tokens: int = 0

    @property
    def asks(self) -> str:
        return f"echo and logprobs with max_tokens={self.max_tokens}"

    async def score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        if prompt.text is None:
            raise BackendError("a server that echoes text cannot score chat messages; type chat=False for a base model")
        scored = await together(*(self._one(prompt.text, prompt.lead + text) for text in continuations))
        return _joined(continuations, scored)

    async def _one(self, start: str, end: str) -> _Scored:
        body = {"prompt": start + end, "max_tokens": self.max_tokens, "temperature": OWN_TEMPERATURE}
        answer = await self.endpoint.post("completions", {"model": self.model, **body, "echo": True, "logprobs": 1})
        tokens, values, text = responses.echoed(answer)
        first, after = _places(tokens, start, end, max(len(text) - len(start) - len(end), 0))
        sent = len((start + end).encode(errors="replace"))
        return responses.checked(values[first:after]), responses.usage(answer, prompt=sent, completion=self.max_tokens)


def _places(tokens: Sequence[str], start: str, end: str, written: int) -> tuple[int, int]:
    """Where the tokens of ``end`` begin and stop in the tokens of ``start + end`` and ``written`` characters more.

    The tokens must re-join to the text. A first token that is not part of it is the model's own mark for the beginning.
    A token that holds a part of a character shows as U+FFFD; then the prompt is measured from its end.
    """
    offsets = [0, *accumulate(map(len, tokens))]
    joined = "".join(tokens)
    boundary = next((begin + len(start) for begin in offsets[:2] if joined.startswith(start + end, begin)), None)
    if boundary is None and "\ufffd" in joined:
        boundary = len(joined) - written - len(end)
    if boundary is None or boundary < 0 or not joined.startswith(end, boundary):
        raise responses.wrong(f"the tokens it echoed do not join to the text that was sent: '{one_line(joined, 60)}'")
    if boundary not in offsets or boundary + len(end) not in offsets:
        raise responses.wrong(
            f"a token crosses the boundary between the prompt and '{one_line(end, 60)}', so its likelihood is not "
            "known; end the prompt before a space (lead: space), or use a server with /tokenize such as vLLM"
        )
    return offsets.index(boundary), offsets.index(boundary + len(end))


def as_json(prompt: Prompt) -> list[dict[str, str]]:
    """Chat messages as the API has them."""
    return [{"role": message.role, "content": message.text} for message in prompt.messages]


def _joined(texts: Sequence[str], scored: Sequence[_Scored]) -> Scores:
    found = tuple(Likelihood(text, logprobs) for text, (logprobs, _) in zip(texts, scored, strict=True))
    spent = [tokens for _, (tokens, _) in scored]
    return Scores(
        found,
        Tokens(
            sum(tokens.prompt_tokens for tokens in spent),
            sum(tokens.cached_tokens for tokens in spent),
            sum(tokens.completion_tokens for tokens in spent),
        ),
        doubt=next((doubt for _, (_, doubt) in scored if doubt), ""),
    )


async def together(*asked: Coroutine[Any, Any, T]) -> list[T]:
    """All results in order; when one fails, the others are given up and its error is raised."""
    tasks = [asyncio.ensure_future(each) for each in asked]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
