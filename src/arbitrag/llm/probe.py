"""Find out what an OpenAI-compatible server really does, by asking for things whose answer can be checked.

Servers answer 200 to parameters that they do not know, so a likelihood is believed only when

1. every value is a finite log-probability, and the tokens are those of the text that was sent;
2. a text that goes on repeating itself is likelier than one that breaks off: " four" against " zebra";
3. the first token that the server writes at temperature 0 is scored as it was reported when it was written;
4. for chat: the server's own count of the tokens of a message is the number of ids that ``/tokenize`` gives.

3 and 4 are left out where a server does not report the number to compare with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arbitrag.errors import BackendError
from arbitrag.llm import replies
from arbitrag.llm.base import Offer, Prompt
from arbitrag.llm.endpoint import Endpoint
from arbitrag.llm.scoring import ByEcho, ByIds, Way, as_json
from arbitrag.text import one_line, printable
from arbitrag.types import Need

GREETING = Prompt.user("Reply with the single word: yes")
REPEATED = Prompt(text="one two three four one two three four one two three")
LIKELY, UNLIKELY = " four", " zebra"
# Writing and scoring take different paths through a server; in half precision they differ by some hundredths.
TOLERANCE = 0.2
BUSY = frozenset({408, 409, 429, 503})


@dataclass(frozen=True)
class Findings:
    """What a probe found out. ``max_tokens`` is the name under which the server takes the limit on an answer."""

    offer: Offer
    way: Way | None
    max_tokens: str


class _Disbelief(Exception):
    """Why a server's likelihoods are not believed."""


@dataclass
class Probe:
    """One look at a server. ``chat`` says whether messages are sent as messages, or as plain text."""

    endpoint: Endpoint
    model: str
    chat: bool
    max_tokens: str

    async def run(self) -> Findings:
        """Raises BackendError when the server cannot be reached, refuses the key, or is too busy to be judged."""
        window, context = await self._context()
        prompt_tokens, generates = await self._generate()
        needs, way = Need(0), None
        scores: list[str] = []
        if not generates.startswith("generate: no"):
            needs = Need.GENERATE
            way, scores = await self._score(prompt_tokens)
            scores.insert(0, await self._written())
        if way is not None:
            needs |= Need.SCORE
        estimate = "tokens are estimated: a token for every 4 bytes"
        evidence = tuple(map(self.endpoint.clean, (generates, *scores, context, estimate)))
        return Findings(Offer(needs, window, evidence), way, self.max_tokens)

    @property
    def _question(self) -> tuple[str, dict[str, Any]]:
        """Where this model is asked for a text, and a short request."""
        if self.chat:
            return "chat/completions", {"messages": as_json(GREETING)}
        return "completions", {"prompt": REPEATED.text}

    async def _context(self) -> tuple[int | None, str]:
        """The context length, where the list of models says one."""
        try:
            listed = (await self.endpoint.for_probing().get("models")).get("data")
        except BackendError as error:
            _judge(error)
            return None, f"context: asked /models; not known: {error}"
        models = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        lengths = [each.get("max_model_len") for each in models if each.get("id") == self.model]
        if lengths and isinstance(lengths[0], int) and lengths[0] > 0:
            return lengths[0], f"context: /models says {lengths[0]:,} tokens"
        return None, "context: asked /models; it names no max_model_len for this model, so the length is not known"

    async def _generate(self) -> tuple[int, str]:
        """The tokens that the server counts in GREETING (0 where it does not say), and a line of evidence."""
        path, asked = self._question
        try:
            answer = await self.post_limited(path, asked, 16)
            choice = replies.first_choice(answer)
        except BackendError as error:
            _judge(error)
            if error.status in (401, 403) or (error.status or 0) >= 500:
                raise
            return 0, f"generate: no; asked {path}: {error}"
        message = choice.get("message") if self.chat else None
        text = message.get("content") if isinstance(message, dict) else choice.get("text")
        tokens, _ = replies.usage(answer, read=len(GREETING.messages[0].text), written=16)
        return tokens.read, f"generate: yes; {path} answered '{one_line(str(text or ''), 40)}'"

    async def _written(self) -> str:
        """A line on whether written tokens come with their log-probabilities."""
        path, asked = self._question
        try:
            answer = await self.post_limited(path, {**asked, "logprobs": True if self.chat else 1}, 16)
            values = replies.written_logprobs(replies.first_choice(answer))
        except BackendError as error:
            _judge(error)
            return f"logprobs: no; asked {path}: {error}"
        return f"logprobs: yes; {path} reports {len(values)} for what it wrote"

    async def post_limited(self, path: str, body: dict[str, Any], limit: int) -> dict[str, Any]:
        """An answer of at most ``limit`` tokens; learns the name that the server has for the limit."""
        common = {"model": self.model, "temperature": 0.0, **body}
        try:
            return await self.endpoint.post(path, {**common, self.max_tokens: limit})
        except BackendError as error:
            if not wants_other_limit(error, self.max_tokens):
                raise
            self.max_tokens = "max_completion_tokens"
        return await self.endpoint.post(path, {**common, self.max_tokens: limit})

    async def _score(self, prompt_tokens: int) -> tuple[Way | None, list[str]]:
        """The first way that holds, and a line for each that was tried."""
        hasty, lines = self.endpoint.for_probing(), []
        ways: list[Way] = [ByIds(hasty, self.model), ByEcho(hasty, self.model, 0), ByEcho(hasty, self.model, 1)]
        for way in ways:
            try:
                found = await self._believe(way, prompt_tokens)
            except BackendError as error:
                _judge(error)
                lines.append(f"score: no; asked by {way.asks}: {error}")
            except _Disbelief as doubt:
                lines.append(f"score: no; asked by {way.asks}: not believed, {doubt}")
                if isinstance(way, ByEcho):  # another max_tokens would bring the same values
                    break
            else:
                lines.append(f"score: yes; asked by {way.asks}: {found}")
                way.endpoint = self.endpoint
                return way, lines
        return None, lines

    async def _believe(self, way: Way, prompt_tokens: int) -> str:
        """What speaks for a way. Raises _Disbelief with what speaks against it."""
        likely, unlikely = (await way.score(REPEATED, (LIKELY, UNLIKELY))).likelihoods
        if not likely.total > unlikely.total:
            raise _Disbelief(
                f"'{LIKELY}' should be likelier than '{UNLIKELY}' after a text that repeats itself, "
                f"but got {likely.total:.2f} and {unlikely.total:.2f}"
            )
        found = f"'{LIKELY}' {likely.total:.2f}, '{UNLIKELY}' {unlikely.total:.2f}"
        found += await self._compare_written(way)
        if not self.chat:
            return found
        if not isinstance(way, ByIds):
            raise _Disbelief(
                f"it gives likelihoods for plain text ({found}), but not for a chat; "
                "for a base model give chat=False, for chat serve the model with vLLM"
            )
        ids = await way.prompt_ids(GREETING)
        if prompt_tokens and len(ids) != prompt_tokens:
            raise _Disbelief(f"a chat message has {prompt_tokens} tokens, but /tokenize gives {len(ids)}")
        await way.score(GREETING, (LIKELY,))
        return f"{found}; a chat message has {len(ids)} tokens by both counts" if prompt_tokens else found

    async def _compare_written(self, way: Way) -> str:
        """A written token's log-probability as reported, against the way's; says nothing where none is reported."""
        body = {"model": self.model, "prompt": REPEATED.text, "max_tokens": 1, "temperature": 0.0, "logprobs": 1}
        answer = await way.endpoint.post("completions", body)
        try:
            written = replies.generation(answer, max_tokens=1, logprobs=True)
        except BackendError:
            return ""
        if len(written.logprobs or ()) != 1 or not written.text.strip():
            return ""
        (reported,) = written.logprobs or (0.0,)
        try:
            (scored,) = (await way.score(REPEATED, (written.text,))).likelihoods
        except BackendError as error:
            if error.status != 200:
                raise
            return ""  # what was written does not part from the prompt when both are tokenised as one text
        if len(scored.logprobs) != 1 or reported == 0.0:  # cut into other tokens, or certain because greedy
            return ""
        if abs(scored.total - reported) > TOLERANCE:
            raise _Disbelief(
                f"'{_token(written.text)}' was written with {reported:.2f} and scored with {scored.total:.2f}"
            )
        return f"; '{_token(written.text)}' written {reported:.2f}, scored {scored.total:.2f}"


def _token(text: str) -> str:
    """A written token as evidence shows it, with the space that it begins with."""
    return printable(text)[:20].replace("\n", "\\n")


def wants_other_limit(error: BackendError, name: str) -> bool:
    """Whether a server says that the limit on an answer is called ``max_completion_tokens`` there."""
    return name == "max_tokens" and error.status == 400 and "max_completion_tokens" in str(error)


def _judge(error: BackendError) -> None:
    """Raise an error that says nothing about what the server can do: it went away, or is too busy now."""
    if error.status is None or error.status in BUSY:
        raise error
