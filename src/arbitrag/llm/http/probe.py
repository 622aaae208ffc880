"""Find out what an OpenAI-compatible server really does, by asking for things whose answer can be checked.

Servers answer 200 to parameters that they do not know, so a likelihood is believed only when

1. every value is a finite log-probability, and the tokens are those of the text that was sent;
2. a text that goes on repeating itself is likelier than one that breaks off: " four" against " zebra";
3. the first token that the server writes at temperature 0 is scored as it was reported when it was written;
4. for chat: the server's own count of the tokens of a message is the number of ids that ``/tokenize`` gives.

3 and 4 are left out where a server does not report the number to compare with. Only what is needed is asked: for text
alone nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from arbitrag.errors import BackendError
from arbitrag.llm.base import Capabilities, Prompt
from arbitrag.llm.http import responses
from arbitrag.llm.http.endpoint import Endpoint
from arbitrag.llm.http.scoring import ByEcho, ByIds, Way, as_json
from arbitrag.text import one_line, printable
from arbitrag.types import Need

GREETING = Prompt.user("Reply with the single word: yes")
REPEATED = Prompt(text="one two three four one two three four one two three")
LIKELY, UNLIKELY = " four", " zebra"
# Writing and scoring take different paths through a server; in half precision they differ by some hundredths.
TOLERANCE = 0.2
BUSY = frozenset({408, 409, 429, 503})


@dataclass(frozen=True, slots=True)
class Context:
    """The context length that the server names, and the line of evidence."""

    tokens: int | None
    line: str


@dataclass(frozen=True, slots=True)
class Writing:
    """Whether the model writes, the tokens that the server counted in GREETING (0: not said), and the evidence."""

    works: bool
    prompt_tokens: int
    line: str


@dataclass(frozen=True, slots=True)
class Scoring:
    """The way to ask for likelihoods by its name in WAYS, empty where none holds, and a line for each one tried."""

    way: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found out about a server; None where it was not asked.

    ``limit`` is the name under which it takes the limit on an answer, ``logprobs`` the evidence on those of written
    tokens, ``tokenizes`` whether its ``/tokenize`` counts tokens.
    """

    limit: str = "max_tokens"
    context: Context | None = None
    writing: Writing | None = None
    logprobs: str | None = None
    scoring: Scoring | None = None
    tokenizes: bool | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What is known of the server, which generates text unless it was asked for one and wrote none."""
        needs = Need(0) if self.writing and not self.writing.works else Need.GENERATE
        if self.scoring and self.scoring.way:
            needs |= Need.SCORE
        evidence = (
            *((self.writing.line,) if self.writing else ("generate: not tried",)),
            *((self.logprobs,) if self.logprobs else ()),
            *(self.scoring.lines if self.scoring else ()),
            *((self.context.line,) if self.context else ()),
            *(() if self.tokenizes is None else (COUNTED if self.tokenizes else ESTIMATED,)),
        )
        refused: dict[Need, tuple[str, ...]] = {}
        if self.writing and not self.writing.works:
            refused[Need.GENERATE] = (self.writing.line,)
        if self.scoring and not self.scoring.way:
            refused[Need.SCORE] = self.scoring.lines
        return Capabilities(needs, self.context.tokens if self.context else None, evidence, refused=refused)


COUNTED = "tokens: counted by /tokenize where passages may not fit"
ESTIMATED = "tokens are estimated: a token for every 4 bytes"
Part = Literal["context", "writing", "logprobs", "scoring", "tokenizes"]
EVERYTHING: tuple[Part, ...] = ("context", "writing", "logprobs", "scoring", "tokenizes")


LIMITS = ("max_tokens", "max_completion_tokens")  # the names that servers have for the limit on an answer
# The ways to ask for likelihoods, in the order in which they are tried; a name is what is kept of the one that holds.
WAYS: Mapping[str, Callable[[Endpoint, str], Way]] = {
    "ids": ByIds,
    "echo 0": partial(ByEcho, max_tokens=0),
    "echo 1": partial(ByEcho, max_tokens=1),
}


class _Disbelief(Exception):
    """Why a server's likelihoods are not believed."""


@dataclass
class Probe:
    """A look at a server, which goes on from the ``facts`` that are known.

    ``chat`` says whether messages are sent as messages, or as plain text.
    """

    endpoint: Endpoint
    model: str
    chat: bool
    facts: Facts

    async def learn(self, *parts: Part) -> Facts:
        """The facts with these parts, of which those are asked for that are missing.

        Raises BackendError when the server cannot be reached, refuses the key, or is too busy to be judged.
        """
        for part in parts:
            if getattr(self.facts, part) is None:
                found = await getattr(self, f"_{part}")()
                self.facts = replace(self.facts, **{part: found})
        return self.facts

    @property
    def _question(self) -> tuple[str, dict[str, Any]]:
        """Where this model is asked for a text, and a short request."""
        if self.chat:
            return "chat/completions", {"messages": as_json(GREETING)}
        return "completions", {"prompt": REPEATED.text}

    async def _context(self) -> Context:
        """The context length, where the list of models says one."""
        try:
            listed = (await self.endpoint.for_probing().get("models")).get("data")
        except BackendError as error:
            _judge(error)
            return Context(None, self.endpoint.clean(f"context: asked /models; not known: {error}"))
        models = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        lengths = [each.get("max_model_len") for each in models if each.get("id") == self.model]
        if lengths and isinstance(lengths[0], int) and lengths[0] > 0:
            return Context(lengths[0], f"context: /models says {lengths[0]:,} tokens")
        line = "context: asked /models; it names no max_model_len for this model, so the length is not known"
        return Context(None, line)

    async def _writing(self) -> Writing:
        path, asked = self._question
        try:
            answer = await self.post_limited(path, asked, 16)
            choice = responses.first_choice(answer)
        except BackendError as error:
            _judge(error)
            if error.status in (401, 403) or (error.status or 0) >= 500:
                raise
            return Writing(False, 0, self.endpoint.clean(f"generate: no; asked {path}: {error}"))
        message = choice.get("message") if self.chat else None
        text = message.get("content") if isinstance(message, dict) else choice.get("text")
        tokens, _ = responses.usage(answer, prompt=len(GREETING.messages[0].text), completion=16)
        line = self.endpoint.clean(f"generate: yes; {path} answered '{one_line(str(text or ''), 40)}'")
        return Writing(True, tokens.uncached_tokens, line)

    async def _logprobs(self) -> str:
        """A line on whether written tokens come with their log-probabilities."""
        path, asked = self._question
        if self.facts.writing and not self.facts.writing.works:
            return "logprobs: not tried"
        try:
            answer = await self.post_limited(path, {**asked, "logprobs": True if self.chat else 1}, 16)
            values = responses.written_logprobs(responses.first_choice(answer))
        except BackendError as error:
            _judge(error)
            return self.endpoint.clean(f"logprobs: no; asked {path}: {error}")
        return f"logprobs: yes; {path} reports {len(values)} for what it wrote"

    async def post_limited(self, path: str, body: dict[str, Any], limit: int) -> dict[str, Any]:
        """An answer of at most ``limit`` tokens; learns the name that the server has for the limit."""
        common = {"model": self.model, "temperature": 0.0, **body}
        try:
            return await self.endpoint.post(path, {**common, self.facts.limit: limit})
        except BackendError as error:
            if not wants_other_limit(error, self.facts.limit):
                raise
            self.facts = replace(self.facts, limit=LIMITS[1 - LIMITS.index(self.facts.limit)])
        return await self.endpoint.post(path, {**common, self.facts.limit: limit})

    async def _scoring(self) -> Scoring:
        """The first way that holds, and a line for each that was tried."""
        await self.learn("writing")
        writing = self.facts.writing
        if writing is None or not writing.works:
            return Scoring("", ())
        hasty, lines = self.endpoint.for_probing(), list[str]()
        for name, make in WAYS.items():
            way = make(hasty, self.model)
            try:
                found = await self._believe(way, writing.prompt_tokens)
            except BackendError as error:
                _judge(error)
                lines.append(f"score: no; asked by {way.asks}: {error}")
            except _Disbelief as doubt:
                lines.append(f"score: no; asked by {way.asks}: not believed, {doubt}")
                if isinstance(way, ByEcho):  # another max_tokens would bring the same values
                    break
            else:
                lines.append(f"score: yes; asked by {way.asks}: {found}")
                return Scoring(name, tuple(map(self.endpoint.clean, lines)))
        return Scoring("", tuple(map(self.endpoint.clean, lines)))

    async def _tokenizes(self) -> bool:
        """Whether the server counts the tokens of a text."""
        if self.facts.scoring and self.facts.scoring.way == "ids":
            return True
        try:
            return await count_by_server(self.endpoint.for_probing(), self.model, str(REPEATED.text)) > 0
        except BackendError as error:
            _judge(error)
            return False

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
            written = responses.generation(answer, max_tokens=1, logprobs=True)
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
    """Whether a server says that the limit on an answer has the other of the two LIMITS as its name there."""
    return error.status == 400 and LIMITS[1 - LIMITS.index(name)] in str(error)


async def count_by_server(endpoint: Endpoint, model: str, text: str) -> int:
    """The tokens of a text by the server's own tokenizer: vLLM's ``/tokenize``, or llama.cpp's, in one request.

    Raises BackendError where there is none.
    """
    body = {"model": model, "prompt": text, "add_special_tokens": False, "content": text, "add_special": False}
    answer = await endpoint.post(f"{endpoint.root}/tokenize", body)
    ids = answer.get("tokens")
    if not isinstance(ids, list) or (text and not ids):
        raise responses.wrong("/tokenize brought back no tokens")
    return len(ids)


def _judge(error: BackendError) -> None:
    """Raise an error that says nothing about what the server can do: it went away, or is too busy now."""
    if error.status is None or error.status in BUSY:
        raise error
