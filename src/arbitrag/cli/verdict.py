"""A verdict as text for a terminal: what was decided, and why, on a few lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from arbitrag.text import one_line, printable
from arbitrag.types import Candidate, Cut, Passage, Verdict

LABEL = 10  # columns of the words on the left
NARROWEST = 30  # columns of a verdict
PLACE_LINES = 3  # lines of passages before the rest is only counted


def render(verdict: Verdict, width: int = 100, *, settings: str = "") -> str:
    """A verdict as text: lines of at most ``width`` columns (30 at least), without a final line feed."""
    width = max(width, NARROWEST)
    room = width - LABEL
    lines = [
        *_answer(verdict, room),
        *_field("Why", _wrapped(verdict.why, room)),
        *(_field("In full", _wrapped(verdict.long.text, room)) if verdict.long else ()),
        *_candidates(verdict.candidates, room),
        *_passages(verdict, room),
        *(line for note in verdict.notes for line in _field("Note", _wrapped(note, room))),
        *(_field("Settings", _wrapped(settings, room)) if settings else ()),
        *_field("Cost", _wrapped(verdict.usage.in_words(), room)),
    ]
    return "\n".join(line.rstrip() for line in lines)


def _answer(verdict: Verdict, room: int) -> Iterator[str]:
    answer = "(none)" if verdict.answer is None else _flat(verdict.answer)
    trusted = f"trusted: {verdict.strategy.trusted}"
    lines = _wrapped(answer, room)
    if len(lines) == 1 and len(answer) + 2 + len(trusted) <= room:
        return _field("Answer", [answer.ljust(room - len(trusted)) + trusted])
    return iter([*_field("Answer", lines), *_field("Trusted", [verdict.strategy.trusted])])


def _candidates(candidates: Sequence[Candidate], room: int) -> Iterator[str]:
    """Two short candidates share a line."""
    told = [(each.origin.trusted.capitalize(), _flat(each.text) or "(no answer)") for each in candidates]
    column = (room - LABEL) // 2
    if len(told) == 2 and all(len(text) + 2 <= column for _, text in told):
        (left, first), (right, second) = told
        yield f"{left:<{LABEL}}{first:<{column}}{right:<{LABEL}}{second}"
        return
    for label, text in told:
        yield from _field(label, _wrapped(text, room))


def _passages(verdict: Verdict, room: int) -> Iterator[str]:
    if not verdict.kept and not verdict.dropped:
        return
    read = f"{len(verdict.kept)} read"
    items = [f"[{number}] {_place(passage, room)}" for number, passage in enumerate(verdict.kept, 1)]
    cited = {number for each in verdict.long.sentences for number in each.cites} if verdict.long else set()
    items.sort(key=lambda item: int(item[1 : item.index("]")]) not in cited)  # what is cited stands first
    yield from _field("Passages", _flowed(read, items, room))
    if verdict.cuts:
        yield from _field("", _wrapped("; ".join(_cut(cut, verdict.kept) for cut in verdict.cuts), room))
    reasons: dict[str, int] = {}
    for each in verdict.dropped:
        reasons[each.reason] = reasons.get(each.reason, 0) + 1
    for reason, count in reasons.items():
        yield from _field("", _wrapped(f"{count} dropped: {reason}", room))


def _flowed(first: str, items: Sequence[str], room: int) -> list[str]:
    """Items side by side, three spaces apart and never broken; what does not fit is counted."""
    lines = [first]
    for position, item in enumerate(items):
        rest = f"   … and {len(items) - position} more"
        full = len(lines) == PLACE_LINES and position < len(items) - 1
        if len(lines[-1]) + 3 + len(item) + (len(rest) if full else 0) <= room:
            lines[-1] += f"   {item}"
        elif len(lines) < PLACE_LINES:
            lines.append(item)
        else:
            lines[-1] += rest
            break
    return lines


def _place(passage: Passage, room: int) -> str:
    """Short enough that a line which begins with it still holds how many more there are."""
    width = max(room - 28, 12)
    place = one_line(passage.place, 1000)
    if len(place) > width:  # its end tells the file and the page
        return "…" + place[1 - width :]
    return place or one_line(passage.title, width) or "without a name"


def _cut(cut: Cut, kept: Sequence[Passage]) -> str:
    numbers = [number for number, passage in enumerate(kept, 1) if (passage.id or passage.place) == cut.passage_id]
    which = f"[{numbers[0]}]" if len(numbers) == 1 else one_line(cut.passage_id) or "the last"
    return f"{which} cut to {cut.tokens_kept:,} of {cut.tokens:,} tokens"


def _field(label: str, lines: Sequence[str]) -> Iterator[str]:
    for position, line in enumerate(lines):
        yield f"{label if position == 0 else '':<{LABEL}}{line}"


def _wrapped(text: str, room: int) -> list[str]:
    return textwrap.wrap(_flat(text), room, break_on_hyphens=False) or [""]


def _flat(text: str) -> str:
    return " ".join(printable(text).split())
