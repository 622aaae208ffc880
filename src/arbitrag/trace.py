"""A trace: every call that an answer made, in order, with what was asked, what came back and what it cost.

It is plain JSON and enough to decide again without a model (see ``replay``). A request is a prompt and its settings;
an API key is never part of it, and backends keep theirs out of their names and error texts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from arbitrag.encode.base import Vectors
from arbitrag.encode.similarity import Similarities
from arbitrag.llm import results
from arbitrag.llm.base import Generation, Scores, Tokens
from arbitrag.llm.results import ModelResult, decode_array, encode_array, money_of, tokens_of_format_1
from arbitrag.serialization import from_plain, to_plain
from arbitrag.truncation import Fit
from arbitrag.types import Decision, Passage, Question, Usage

FORMAT = 2
READABLE = (1, 2)  # 1 counted prompt tokens without the cached ones

Kind = Literal["generate", "score", "inspect", "next_token", "retrieve", "fit", "embed", "compare"]
Result = ModelResult | Fit | Vectors | Similarities | tuple[Passage, ...]
NOT_OF_MODEL = frozenset({"retrieve", "fit", "embed", "compare"})
R = TypeVar("R", bound=Result)


@dataclass(frozen=True, slots=True)
class Call:
    """One request. ``began`` and ``ended`` are positions in the order of events, ``seconds`` the time it took.

    ``request`` and ``result`` are plain JSON values; a failed call has an ``error`` and no result. A ``cached`` one was
    answered from a cache, and ``computed`` is what the answer cost when it was computed. ``doubt`` says what of a
    server's report on tokens was not counted, or that tokens were estimated. ``prompt_tokens`` include
    ``cached_tokens``.
    """

    kind: Kind
    role: str
    model: str
    request: Mapping[str, Any]
    result: Any = None
    error: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    money: float | None = None
    seconds: float = 0.0
    cached: bool = False
    computed: Tokens | None = None
    began: int = 0
    ended: int = 0
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """All calls for one question, the settings that they were made under, and the decisions that followed.

    ``prompts`` holds, by role and name, the prompt files that were used, so that a replay asks in the same words.
    """

    question: Question
    method: str
    settings: Mapping[str, Any]
    llm: str
    scorer: str
    retriever: str
    limits: Mapping[str, int]
    prompts: Mapping[str, Mapping[str, str]]
    calls: tuple[Call, ...] = ()
    decisions: tuple[Decision, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    encoder: str = ""
    form: str = "short"
    arbitrag: str = ""
    format: int = FORMAT


def as_current(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON of a trace of format 1 as one of this format; that of another format as it is.

    Format 1 counted prompt tokens without the cached ones, under other names. Raises ValueError, TypeError, KeyError or
    AttributeError for what is no trace.
    """
    if plain.get("format") != 1:
        return plain
    return {**plain, "format": FORMAT, "calls": [_call_of_format_1(call) for call in plain.get("calls", ())]}


def _call_of_format_1(plain: Mapping[str, Any]) -> dict[str, Any]:
    computed = plain.get("computed") and to_plain(tokens_of_format_1(plain["computed"]))
    counts = tokens_of_format_1({name: plain.get(name, 0) for name in ("read", "reused", "written")})
    kept = {name: value for name, value in plain.items() if name not in ("read", "reused", "written")}
    return {**kept, **to_plain(counts), "computed": computed}


def critical_path(calls: Sequence[Call]) -> int:
    """The most calls that had to wait for one another: the longest chain in which each began after the last ended.

    Interval scheduling: always going on with the earliest end gives the longest chain.
    """
    chain, free_at = 0, -1
    for call in sorted(calls, key=lambda call: call.ended):
        if call.began > free_at:
            chain, free_at = chain + 1, call.ended
    return chain


def usage_of(calls: Sequence[Call], seconds: float) -> Usage:
    """The cost of a list of calls; finding, fitting and encoding passages counts only in ``seconds``."""
    asked = [call for call in calls if call.kind not in NOT_OF_MODEL]
    prices = [call.money for call in asked]
    return Usage(
        generations=sum(call.kind == "generate" for call in asked),
        scorings=sum(len(call.request["continuations"]) for call in asked if call.kind == "score"),
        inspections=sum(call.kind in ("inspect", "next_token") for call in asked),
        calls=len(asked),
        steps=critical_path(asked),
        prompt_tokens=sum(call.prompt_tokens for call in asked),
        cached_tokens=sum(call.cached_tokens for call in asked),
        completion_tokens=sum(call.completion_tokens for call in asked),
        seconds=seconds,
        money=None if not prices or None in prices else sum(price for price in prices if price is not None),
    )


class NamedPart(Protocol):
    """A model or a retriever, of which a trace records the name."""

    @property
    def name(self) -> str: ...


@dataclass
class Recorder:
    """Records the calls of one question while it is answered."""

    calls: list[Call] = field(default_factory=list)
    prompts: dict[str, dict[str, str]] = field(default_factory=dict)
    _events: int = 0

    def _tick(self) -> int:
        self._events += 1
        return self._events

    async def call(
        self, kind: Kind, role: str, part: NamedPart, request: Mapping[str, Any], ask: Callable[[], Awaitable[R]]
    ) -> R:
        """Await ``ask()`` and keep what was asked, what came back, and what it cost, whether it succeeds or fails."""
        began, clock = self._tick(), time.perf_counter()
        await asyncio.sleep(0)  # let calls made side by side all begin before one of them ends
        try:
            result = await ask()
        except Exception as error:
            seconds = time.perf_counter() - clock
            text = f"{type(error).__name__}: {error}"
            self.calls.append(
                Call(
                    kind,
                    role,
                    part.name,
                    request,
                    error=text,
                    seconds=seconds,
                    began=began,
                    ended=self._tick(),
                )
            )
            raise
        self.calls.append(
            Call(
                kind,
                role,
                part.name,
                request,
                encode(result),
                seconds=time.perf_counter() - clock,
                began=began,
                ended=self._tick(),
                **_cost(result, part),
            )
        )
        return result


def _cost(result: Result, part: NamedPart) -> dict[str, Any]:
    if isinstance(result, Fit):
        return {"doubt": result.doubt}
    if isinstance(result, tuple | Vectors | Similarities):
        return {}
    tokens = result.tokens
    money = money_of(tokens, getattr(part, "price", None))
    doubt = result.doubt if isinstance(result, Generation | Scores) else ""
    return {
        "prompt_tokens": tokens.prompt_tokens,
        "cached_tokens": tokens.cached_tokens,
        "completion_tokens": tokens.completion_tokens,
        "money": money,
        "cached": result.cached,
        "computed": result.computed,
        "doubt": doubt,
    }


def encode(result: Result) -> Any:
    """A result as plain JSON values; arrays as base64 of little-endian float32 with their shape."""
    if isinstance(result, tuple | Fit | Similarities):
        return to_plain(result)
    return encode_array(result.rows) if isinstance(result, Vectors) else results.encode(result)


def decode(kind: Kind, plain: Any) -> Result:
    """Read a result that ``encode`` wrote, marked as cached and free of cost."""
    if kind == "retrieve":
        return tuple(from_plain(Passage, passage) for passage in plain)
    if kind == "fit":
        return from_plain(Fit, plain)
    if kind == "embed":
        return Vectors(decode_array(plain))
    if kind == "compare":
        return from_plain(Similarities, plain)
    return results.decode(kind, plain)
