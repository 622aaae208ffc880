"""A trace as text: every call with what was asked, what came back and what it cost, and every decision."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from arbitrag.display import token_counts
from arbitrag.text import one_line, printable
from arbitrag.trace import Call, Trace
from arbitrag.types import Decision, Passage


def explained(trace: Trace, width: int = 100) -> str:
    """A trace as text: lines of about ``width`` columns; prompts and replies keep their own line ends."""
    settings = ", ".join(f"{key} {_number(value)}" for key, value in trace.settings.items())
    lines = [
        f"Method    {trace.method}{f' with {settings}' if settings else ''}",
        f"Model     {one_line(trace.llm, width)}",
    ]
    if trace.scorer != trace.llm:
        lines.append(f"Scorer    {one_line(trace.scorer, width)}")
    if trace.retriever:
        lines.append(f"Passages  from {one_line(trace.retriever, width)}")
    for number, call in enumerate(sorted(trace.calls, key=lambda call: call.began), 1):
        lines += ["", *_call(number, call, width)]
    for decision in trace.decisions:
        lines += ["", *_decision(decision)]
    return "\n".join(lines)


def _call(number: int, call: Call, width: int) -> Iterator[str]:
    tokens = [
        token_counts(call) if call.prompt_tokens or call.completion_tokens else "",
        "from the cache" if call.cached else "",
        f"{call.seconds:.3f} s",
    ]
    yield f"Call {number}    {call.kind} by {one_line(call.role)} · {', '.join(filter(None, tokens))}"
    asked = {key: value for key, value in call.request.items() if key != "prompt" or isinstance(value, str)}
    prompt = call.request.get("prompt")
    if isinstance(prompt, Mapping):
        yield from _prompt(prompt)
    if asked:
        yield from _block("asked", _shown(asked, width))
    yield from _block("failed", call.error) if call.error else _block("got", _result(call, width))


def _prompt(prompt: Mapping[str, Any]) -> Iterator[str]:
    if prompt["text"] is not None:
        yield from _block("text", prompt["text"])
    for message in prompt["messages"]:
        yield from _block(message["role"], message["text"])


def _result(call: Call, width: int) -> str:
    """A result for reading: texts whole, likelihoods as their means, passages by name, arrays by shape."""
    if call.kind == "generate":
        return str(call.result["text"])
    if call.kind == "score":
        return "\n".join(
            f"{sum(each['logprobs']) / len(each['logprobs']):.4f}  {one_line(each['text'], width)}"
            for each in call.result
        )
    if call.kind in ("retrieve", "fit"):
        passages = call.result if call.kind == "retrieve" else call.result["kept"]
        names = [one_line(_place(each) or each["title"] or each["text"], width) for each in passages]
        return "\n".join([f"{len(names)} passage{'' if len(names) == 1 else 's'}", *names])
    return _shown(call.result, width)


def _place(passage: Mapping[str, Any]) -> str:
    known = {key: passage.get(key) for key in ("id", "source", "line", "metadata")}
    return Passage(
        "", known["id"] or "", "", known["source"] or "", known["line"], metadata=known["metadata"] or {}
    ).place


def _decision(decision: Decision) -> Iterator[str]:
    yield f"Decision  {decision.stage}: {decision.outcome}"
    yield f"          because {decision.rule}"
    for key, value in decision.inputs.items():
        yield f"          {key} = {_number(value)}"


def _block(label: str, text: str) -> Iterator[str]:
    for position, line in enumerate(printable(text).split("\n")):
        yield f"  {label if position == 0 else '':<8}│ {line}"


def _shown(value: Any, width: int) -> str:
    return "\n".join(textwrap.wrap(json.dumps(value, ensure_ascii=False), max(width - 12, 40)))


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else one_line(str(value))
