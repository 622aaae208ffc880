"""Replay: decide again from a trace with other settings, without a model.

    trace = load_trace("trace.json")
    verdict = replay(trace, {"threshold": "-1.0"})

Every request that the method makes is looked up among the recorded calls. A change that leads to another request
(another ``k``, another prompt) cannot be decided without the model, and says so.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from arbitrag.encode.base import Encoder
from arbitrag.errors import (
    ArbitragError,
    BackendError,
    CapabilityError,
    ContextError,
    DataError,
    TraceError,
    UsageError,
    nearest,
)
from arbitrag.kit import Kit, Limits, Model
from arbitrag.llm.base import LLM
from arbitrag.methods import load
from arbitrag.methods.base import Method, configure, settings
from arbitrag.prompts import PromptBook, PromptFile, parse_prompt
from arbitrag.retrieve.base import Retriever
from arbitrag.serialization import from_plain, parse_json, to_plain
from arbitrag.stages.long_form import with_long_answer
from arbitrag.storage.checksums import KEY, seal, unseal
from arbitrag.storage.files import write_text
from arbitrag.text import one_line
from arbitrag.trace import FORMAT, READABLE, Call, Kind, NamedPart, Recorder, Result, Trace, as_current, decode
from arbitrag.types import Question, Verdict

R = TypeVar("R", bound=Result)


def save_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace as JSON, all of it or nothing. Raises DataError when the file cannot be written."""
    write_text(Path(path), json.dumps(seal(to_plain(trace)), ensure_ascii=False, indent=1) + "\n")


def load_trace(path: str | Path) -> Trace:
    """The trace in a file. Raises TraceError when it is missing, damaged, of another format, or something else."""
    try:
        plain = parse_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors too
        raise TraceError(f"{path} is not a trace: not valid JSON ({one_line(str(error))})") from None
    if not isinstance(plain, dict) or "format" not in plain:
        raise TraceError(f"{path} is not a trace; make one with: arbitrag ask ... --trace FILE")
    if plain["format"] not in READABLE:
        raise TraceError(
            f"{path} has trace format {one_line(str(plain['format']))}; this Arbitrag reads format {FORMAT}. "
            "Ask again with --trace to make a new one"
        )
    try:
        plain = unseal(plain)
    except ValueError as error:
        raise TraceError(
            f"{path} cannot be trusted: {error}. Ask again with --trace; if the change is yours, "
            f"delete the line '{KEY}' in it"
        ) from None
    try:
        return from_plain(Trace, as_current(plain))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TraceError(f"{path} is not a trace: {one_line(str(error), 200)}") from None


def replay(
    trace: Trace, changes: Mapping[str, str] | None = None, *, method: type[Method] | str | None = None
) -> Verdict:
    """Decide again with ``changes``, given as text by option name, and perhaps with another method.

    Settings that are not changed stay the trace's; another method takes over those that it knows by name. The verdict
    costs nothing, and its trace can be replayed in turn. Raises UsageError for an unknown method, option or value, and
    inside a running event loop, where ``decide_again`` is the way; TraceError when the model is needed after all.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(decide_again(trace, changes, method=method))
    raise UsageError("replay() cannot run inside an event loop; type: await decide_again(trace, changes)")


async def decide_again(
    trace: Trace, changes: Mapping[str, str] | None = None, *, method: type[Method] | str | None = None
) -> Verdict:
    """``replay`` for a running event loop."""
    kind = _kind(trace, method)
    chosen = _changed_method(kind, trace, changes or {})
    kit = _kit(trace)
    verdict = await chosen.answer(trace.question, kit)
    if trace.form == "long":
        verdict = await _long(verdict, trace.question, kit)
    again = replace(trace, method=chosen.name, settings=settings(chosen), decisions=verdict.decisions)
    return replace(
        verdict,
        question=trace.question,
        method=chosen.name,
        notes=(*verdict.notes, _note(trace, again)),
        trace=again,
    )


async def _long(verdict: Verdict, question: Question, kit: Kit) -> Verdict:
    """The long form again; another answer than the recorded one was never written out."""
    try:
        return await with_long_answer(verdict, question, kit)
    except TraceError:
        return replace(verdict, notes=(*verdict.notes, "this answer was not written out; that needs the model again"))


def _kind(trace: Trace, method: type[Method] | str | None) -> type[Method]:
    if method is None:
        return load(trace.method)
    return load(method, typed=True) if isinstance(method, str) else method


def _changed_method(kind: type[Method], trace: Trace, changes: Mapping[str, str]) -> Method:
    """The method with the trace's settings and the changes to them."""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    for key in trace.settings if kind.name == trace.method else ():
        if key not in known:
            close = nearest(key, known)
            guess = f"; did you mean '{close}'?" if close else ""
            raise TraceError(f"the trace sets '{key}', which {kind.name} does not have{guess}")
    changed = configure(kind, dict(changes))
    kept = {
        key: _setting(key, value, getattr(changed, key))
        for key, value in trace.settings.items()
        if key in known and key not in changes
    }
    return replace(changed, **kept)  # type: ignore[type-var]


def _setting(key: str, value: Any, like: Any) -> Any:
    try:
        return from_plain(type(like), to_plain(value), f"settings.{key}")
    except ValueError as error:
        raise TraceError(f"the trace is damaged: {one_line(str(error))}") from None


def _note(trace: Trace, again: Trace) -> str:
    before, after = {"method": trace.method, **trace.settings}, {"method": again.method, **again.settings}
    changed = [
        f"{key} {after[key]} (was {before[key]})" for key in after if key in before and after[key] != before[key]
    ]
    with_changes = f" with {', '.join(changed)}" if changed else ""
    return f"replayed{with_changes} from recorded calls of {trace.llm}; no model was asked"


def _kit(trace: Trace) -> Kit:
    recorder = _Replayer(trace)
    try:
        limits = from_plain(Limits, trace.limits, "limits")
    except ValueError as error:
        raise TraceError(f"the trace is damaged: {one_line(str(error))}") from None

    def model(role: str, name: str) -> Model:
        book = _RecordedBook(prompts=trace.prompts.get(role, {}))
        return Model(cast(LLM, _Absent(name)), role, book, limits, recorder)

    separate = "scorer" in trace.prompts or any(call.role == "scorer" for call in trace.calls)
    return Kit(
        llm=model("llm", trace.llm),
        scorer=model("scorer" if separate else "llm", trace.scorer),
        retriever=cast(Retriever, _Absent(trace.retriever)) if trace.retriever else None,
        encoder=cast(Encoder, _Absent(trace.encoder)) if trace.encoder else None,
        where=trace.where,
        limits=limits,
        recorder=recorder,
    )


class _Replayer(Recorder):
    """A recorder that answers from a trace instead of asking, and records nothing.

    Equal requests are answered in their recorded order; once they are used up the last answer is given again, unless
    it was sampled and would have come out differently.
    """

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._recorded: dict[str, deque[Call]] = {}
        for call in sorted(trace.calls, key=lambda call: call.began):
            self._recorded.setdefault(_key(call.kind, call.role, call.request), deque()).append(call)

    async def call(
        self, kind: Kind, role: str, part: NamedPart, request: Mapping[str, Any], ask: Callable[[], Awaitable[R]]
    ) -> R:
        recorded = self._recorded.get(_key(kind, role, request))
        if not recorded:
            raise TraceError(
                f"the trace holds no such {kind} call to the {role} ({one_line(_request_key(request), 100)}); "
                "this change needs the model again: arbitrag ask"
            )
        await asyncio.sleep(0)
        greedy = request.get("sampling", {}).get("temperature", 0) == 0
        call = recorded[0] if greedy and len(recorded) == 1 else recorded.popleft()
        if call.error:
            raise _error(call.error)
        try:
            return cast(R, decode(kind, call.result))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise TraceError(f"the result of a {kind} call in the trace is damaged: {one_line(str(error))}") from None


def _key(kind: str, role: str, request: Mapping[str, Any]) -> str:
    return json.dumps([kind, role, request], sort_keys=True)


def _request_key(request: Mapping[str, Any]) -> str:
    """The part of a request that identifies it, without the text of its prompt."""
    told = {key: value for key, value in request.items() if key not in ("prompt", "prompts", "fields", "passages")}
    if isinstance(request.get("prompt"), str):
        told = {"prompt": request["prompt"], **told}
    return ", ".join(f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in told.items())


def _error(text: str) -> ArbitragError:
    """The recorded failure of a call, as the error that it was."""
    name, _, message = text.partition(": ")
    kinds = {kind.__name__: kind for kind in (BackendError, CapabilityError, ContextError, DataError, UsageError)}
    return kinds[name](message) if name in kinds else BackendError(text)


@dataclass(frozen=True)
class _RecordedBook(PromptBook):
    """The prompts of a trace, in their recorded wording."""

    prompts: Mapping[str, str] = field(default_factory=dict)

    def find(self, name: str) -> PromptFile:
        if name not in self.prompts:
            raise TraceError(f"the trace has no prompt '{name}'; this change needs the model again: arbitrag ask")
        return parse_prompt(name, Path(f"{name}.txt"), self.prompts[name])


class _Absent:
    """A placeholder for a model or a retriever; it has a name, and any call on it is an error."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, wanted: str) -> Any:
        raise TraceError(f"the trace does not hold '{wanted}' of {self.name}; this needs the model again: arbitrag ask")
