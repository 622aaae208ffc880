"""``arbitrag methods NAME``: one method in full, every number of its example worked out by the method itself."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from arbitrag.methods.base import Method, needs_of, settings_of, summary
from arbitrag.serialization import to_plain
from arbitrag.text import one_line
from arbitrag.worked_examples import Worked, examples_of, work


def described(name: str, method: Method) -> dict[str, Any]:
    """Everything about it as plain JSON values; a method of another package has no example and no list of refusals."""
    kind = type(method)
    examples = examples_of(name)
    return {
        "name": name,
        "what": examples.plain if examples else summary(kind),
        "how": _how(kind),
        "needs": needs_of(method).names(),
        "cost": method.cost,
        "paper": method.paper,
        "settings": [to_plain(each) for each in settings_of(kind)],
        "refuses": [
            {"when": each.when, "says": work(each.case).verdict.why, "method": each.case.method}
            for each in (examples.refusals if examples else ())
        ],
        "example": _example(work(examples.case)) if examples else None,
    }


def page(about: dict[str, Any], columns: int) -> str:
    """The same for a person, on lines of at most ``columns``."""
    room = max(columns, 40)
    lines = [*_filled(f"{about['name']}: {about['paper']}", room), *_filled(about["what"], room), ""]
    lines += [*_filled(f"Needs     {about['needs']}", room, 10), *_filled(f"Cost      {about['cost']}", room, 10), ""]
    lines += ["Settings (--set NAME=VALUE)", *_settings(about["settings"], room)]
    if about["refuses"]:
        lines += ["", "Gives no answer when"]
        for each in about["refuses"]:
            lines += [*_filled(f"- {each['when']}", room, 2), *_filled(f"  says: {each['says']}", room, 4)]
    if about["example"]:
        lines += ["", *_shown(about["example"], room)]
    return "\n".join([*lines, "", "In full", *_wrapped(about["how"], room)]).rstrip("\n")


def _how(kind: type) -> str:
    """The module's docstring: how the method works, by its paper, its cost, and where it differs from it."""
    module = sys.modules[kind.__module__]
    return (inspect.getdoc(module) or "").strip().replace("``", "")


def _example(worked: Worked) -> dict[str, Any]:
    verdict = worked.verdict
    return {
        "method": worked.case.method,
        "question": worked.case.question,
        "passages": [{"id": passage.id, "text": passage.text} for passage in worked.case.passages],
        "calls": [{"prompt": name, "reply": reply} for name, reply in worked.calls],
        "decisions": [to_plain(each) for each in verdict.decisions],
        "dropped": [{"id": each.passage.id, "reason": each.reason} for each in verdict.dropped],
        "answer": verdict.answer,
        "trusted": verdict.strategy.value,
        "why": verdict.why,
    }


def _settings(settings: list[dict[str, Any]], room: int) -> Iterator[str]:
    if not settings:
        yield "  none"
    for each in settings:
        default = {"True": "true", "False": "false", "": '""'}.get(str(each["default"]), each["default"])
        choices = f" ({', '.join(each['choices'])})" if each["choices"] else ""
        yield from _filled(f"  {each['name']}={default}  {each['meaning']}{choices}", room, 6)


def _shown(example: dict[str, Any], room: int) -> Iterator[str]:
    yield from _filled(
        f"Example of {example['method']}: replies and likelihoods are made up; the method did the rest", room
    )
    yield from _filled(f"  {example['question']}", room, 4)
    for each in example["passages"]:
        yield from _filled(f"  [{each['id']}] {each['text']}", room, 6)
    for each in example["calls"]:
        yield from _filled(f"  {each['prompt']} -> {each['reply']}", room, 4)
    for each in example["dropped"]:
        yield from _filled(f"  [{each['id']}] dropped: {each['reason']}", room, 4)
    for each in example["decisions"]:
        yield from _filled(f"  {each['stage']}: {each['rule']}", room, 4)
        for key, value in each["inputs"].items():
            yield from _filled(f"    {key} = {_number(value)}", room, 6)
        yield from _filled(f"    -> {each['outcome']}", room, 6)
    yield from _filled(f"  Answer: {example['answer'] or '(none)'}; trusted: {example['trusted']}", room, 4)
    yield from _filled(f"  Why: {example['why']}", room, 4)


def _wrapped(text: str, room: int) -> Iterator[str]:
    """Paragraphs filled; what is indented, such as a formula, keeps its lines where they fit."""
    for paragraph in text.split("\n\n"):
        lines = paragraph.split("\n")
        if any(line.startswith(" ") for line in lines):
            for line in lines:
                yield from [line] if len(line) <= room else _filled(line, room, 8)
        else:
            yield from _filled(" ".join(lines), room)
        yield ""


def _filled(text: str, room: int, indent: int = 0) -> list[str]:
    return textwrap.wrap(text, room, subsequent_indent=" " * indent, break_on_hyphens=False) or [""]


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_number(each)}" for key, each in value.items())
    return one_line(str(value), 200)
