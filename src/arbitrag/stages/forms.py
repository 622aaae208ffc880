"""Strict readers of the line formats in which methods have a model reply.

    passage: one paragraph                               what memory holds; "I don't know" for nothing
    group: text | sources: 1, 3, memory                  what documents say together, and which they are
    group: text | sources: 2 | confidence: 80
    drop: 2, 4 | reason: conflicting                     documents that were left out
    trust: external                                      or memory, both, neither
    answer: a short answer

Every line is one of those that its reader expects, in any case, with or without spaces around the signs; empty lines,
a fence of backticks around the whole, and the thoughts of a reasoning model do not count. Anything else, also a line
too many, is ``Unreadable``: a reply that has to be guessed at is asked for again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from arbitrag.prompts import TAGS
from arbitrag.stages.lines import lines_of
from arbitrag.stages.reading import Unreadable
from arbitrag.text import agree, as_option, clean_answer, declines, normalize_answer, one_line, without_thoughts
from arbitrag.types import Strategy

TRUST = {
    "external": Strategy.EVIDENCE,
    "memory": Strategy.MEMORY,
    "both": Strategy.BOTH,
    "neither": Strategy.REFUSE,
}

_LINE = re.compile(r"\s*(\w+)\s*[:：](.*)", re.DOTALL)
_CODE = re.compile(r"```\w*\n(.*)\n```", re.DOTALL)
_CELL = re.compile(r"[|｜]\s*(sources|confidence|reason)\s*[:：]", re.IGNORECASE)
_SOURCE = re.compile(r"(?:passage\s*)?([0-9]{1,4})|(memory)(?:\s*([0-9]{1,4}))?", re.IGNORECASE)
_CONFIDENCE = re.compile(r"([0-9]{1,3})\s*%?")
_OWN_TAG = re.compile(rf"<[^\w<>]*(?:{'|'.join(sorted(TAGS))})\b", re.IGNORECASE)
_PLACEHOLDERS = frozenset({"TEXT", "ANSWER", "REASON", "NUMBERS", "...", "…"})


@dataclass(frozen=True, slots=True)
class Known:
    """How many documents of each kind the model was shown, which is what it may name as sources."""

    passages: int
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Documents that agree: the numbers, from 1, of passages and of the model's own; ``confidence`` is in percent."""

    text: str
    passages: tuple[int, ...] = ()
    memory: tuple[int, ...] = ()
    confidence: int | None = None

    @property
    def origin(self) -> Strategy:
        """Which kind of source the group rests on."""
        if self.passages and self.memory:
            return Strategy.BOTH
        return Strategy.EVIDENCE if self.passages else Strategy.MEMORY


def joint_origin(groups: Iterable[Group]) -> Strategy:
    """Which kind of source one or more groups rest on together."""
    origins = {group.origin for group in groups}
    return origins.pop() if len(origins) == 1 else Strategy.BOTH


@dataclass(frozen=True, slots=True)
class Consolidation:
    """Groups of documents, and why each other one was left out, by the number of the passage.

    ``own`` is the reason why the model left out what it wrote itself.
    """

    groups: tuple[Group, ...]
    dropped: tuple[tuple[int, str], ...] = ()
    own: str = ""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """An answer, None where the model declines, and the groups from which it was chosen."""

    answer: str | None
    groups: tuple[Group, ...] = ()
    strategy: Strategy = Strategy.REFUSE


def read_passages(reply: str, most: int) -> tuple[str, ...]:
    """At most ``most`` passages, or none where the model says that it does not know."""
    found = [_text(cell) for _, cell in _lines(reply, "passage", bare="I don't know")]
    told = tuple(text for text in found if not _declines(text))
    if len(told) < len(found) and len(found) > 1:
        raise Unreadable("there are passages beside one that declines")
    if len(told) > most:
        raise Unreadable(f"there are {len(told)} passages; at most {most}")
    return told


def read_consolidation(reply: str, known: Known) -> Consolidation:
    """Groups, then or between them what is dropped; ``none`` where nothing is left of the documents."""
    groups: list[Group] = []
    dropped: dict[int, str] = {}
    own = ""
    for label, cell in _lines(reply, "group", "drop", bare="none"):
        if label == "group":
            groups.append(_group(cell, known, confidence=False))
        elif label == "drop":
            numbers, memory, reason = _drop(cell, known)
            if (memory and own) or dropped.keys() & set(numbers):
                raise Unreadable("a document is dropped twice")
            dropped |= dict.fromkeys(numbers, reason)
            own = reason if memory else own
    if both := dropped.keys() & {number for group in groups for number in group.passages}:
        raise Unreadable(f"passage {min(both)} is both in a group and dropped")
    if own and any(group.memory for group in groups):
        raise Unreadable("memory is both in a group and dropped")
    return Consolidation(tuple(groups), tuple(sorted(dropped.items())), own)


def read_groups(reply: str, known: Known) -> tuple[Group, ...]:
    """Groups alone; ``none`` where nothing is relevant."""
    return tuple(_group(cell, known, confidence=False) for label, cell in _lines(reply, "group", bare="none") if label)


def read_conclusion(reply: str, known: Known, options: Sequence[str] = ()) -> Conclusion:
    """Groups with an answer and a confidence each, then the chosen answer, which is one of theirs or declines."""
    lines = _lines(reply, "group", "answer")
    if [label for label, _ in lines].count("answer") != 1 or lines[-1][0] != "answer":
        raise Unreadable("the last line, and no other, is 'answer:'")
    groups = tuple(_group(cell, known, confidence=True) for label, cell in lines if label == "group")
    answer = _answer(lines[-1][1], options)
    if answer is None:
        return Conclusion(None, groups)
    told = [(group, as_option(clean_answer(group.text), options)) for group in groups]
    chosen = [group for group, text in told if agree(text, answer)]
    chosen = chosen or [group for group, text in told if _overlaps(text, answer)]
    if not chosen:
        raise Unreadable("the answer is not the answer of a group")
    return Conclusion(answer, groups, joint_origin(chosen))


def read_assessment(reply: str, possible: frozenset[Strategy], options: Sequence[str] = ()) -> Conclusion:
    """A line ``trust:`` and a line ``answer:``; ``possible`` are the strategies that there is a source for."""
    found = dict(lines := _lines(reply, "trust", "answer"))
    if len(lines) != 2 or len(found) != 2:
        raise Unreadable("there is one line 'trust:' and one line 'answer:'")
    trust = TRUST.get(found["trust"].rstrip(".").lower())
    if trust is None:
        raise Unreadable(f"trust is one of {', '.join(TRUST)}")
    answer = _answer(found["answer"], options)
    if answer is None:
        return Conclusion(None)
    if trust not in possible:
        raise Unreadable(f"trust is {found['trust'].lower()}, and there is no such source for an answer")
    return Conclusion(answer, strategy=trust)


def read_answer(reply: str, options: Sequence[str] = ()) -> str | None:
    """One line ``answer:``; None where it declines."""
    lines = _lines(reply, "answer")
    if len(lines) != 1:
        raise Unreadable("there is one line 'answer:'")
    return _answer(lines[0][1], options)


def read_supported(reply: str, groups: Sequence[Group], options: Sequence[str] = ()) -> Conclusion:
    """One line ``answer:``; its sources are those of the groups that hold it, and of all of them where none does."""
    answer = read_answer(reply, options)
    if answer is None:
        return Conclusion(None)
    holding = [group for group in groups if _overlaps(group.text, answer)] or groups
    return Conclusion(answer, tuple(holding), joint_origin(holding))


def _lines(reply: str, *labels: str, bare: str = "") -> list[tuple[str, str]]:
    """The label and the rest of each line; a reply that is only ``bare`` gives one line without a label."""
    text = without_thoughts(reply).strip()
    if code := _CODE.fullmatch(text):
        text = code[1].strip()
    if bare and agree(text.replace("’", "'"), bare):
        return [("", bare)]
    found = []
    for line in lines_of(text):
        match = _LINE.fullmatch(line)
        if match is None or match[1].lower() not in labels:
            expected = " or ".join(f"'{label}:'" for label in labels)
            raise Unreadable(f"a line does not begin with {expected}: {one_line(line, 60)}")
        found.append((match[1].lower(), match[2].strip()))
    return found


def _text(cell: str) -> str:
    """A cell that says something, and nothing that belongs to a prompt."""
    if not cell.strip(" .-_*"):
        raise Unreadable("a line says nothing")
    if cell in _PLACEHOLDERS:
        raise Unreadable(f"a line repeats the word {cell} of the form")
    if tag := _OWN_TAG.search(cell):
        raise Unreadable(f"a line holds a tag of the prompt: {one_line(cell[tag.start() :], 20)}")
    return cell


def _cells(cell: str, *names: str) -> list[str]:
    """The text before the first bar and the cells behind it, which have these names in this order."""
    text, *rest = (each.strip() for each in _CELL.split(cell))
    if [name.lower() for name in rest[::2]] != list(names):
        raise Unreadable(f"a line is not of the form 'TEXT | {' | '.join(f'{name}: …' for name in names)}'")
    return [text, *rest[1::2]]


def _group(cell: str, known: Known, *, confidence: bool) -> Group:
    names = ("sources", "confidence") if confidence else ("sources",)
    text, sources, *sure = _cells(cell, *names)
    passages, memory = _sources(sources, known)
    percent = None
    if sure:
        number = _CONFIDENCE.fullmatch(sure[0])
        if number is None or int(number[1]) > 100:
            raise Unreadable(f"a confidence is a whole number from 0 to 100, not '{one_line(sure[0], 20)}'")
        percent = int(number[1])
    return Group(_text(text), passages, memory, percent)


def _drop(cell: str, known: Known) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    sources, reason = _cells(cell, "reason")
    return *_sources(sources, known), _text(reason)


def _sources(cell: str, known: Known) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of passages and of the model's own, each once and in order."""
    passages: set[int] = set()
    memory: set[int] = set()
    for each in (piece.strip() for piece in re.split(r"[,，、;]", cell)):
        match = _SOURCE.fullmatch(each)
        if match is None:
            raise Unreadable(f"a source is the number of a passage, or memory, not '{one_line(each, 20)}'")
        own = match[2] is not None
        most = known.memory if own else known.passages
        numbers = range(1, most + 1) if own and match[3] is None else [int(match[3] if own else match[1])]
        if not numbers or not all(1 <= number <= most for number in numbers):
            raise Unreadable(f"there is no source '{one_line(each, 20)}'")
        (memory if own else passages).update(numbers)
    return tuple(sorted(passages)), tuple(sorted(memory))


def _answer(cell: str, options: Sequence[str]) -> str | None:
    """A short answer; with options the text of the one that it chooses. None where it declines."""
    answer = as_option(clean_answer(_text(cell)), options)
    if declines(answer):
        return None
    if options and answer not in options:
        raise Unreadable(f"the answer is none of the options: {one_line(answer, 40)}")
    if not answer:
        raise Unreadable("a line says nothing")
    return answer


def _overlaps(left: str, right: str) -> bool:
    """Whether one of two answers is within the other as whole words."""
    one, other = f" {normalize_answer(left)} ", f" {normalize_answer(right)} "
    return one in other or other in one


def _declines(text: str) -> bool:
    """Whether a passage only says, or begins by saying, that nothing is known."""
    return declines(re.split(r"[.,;!]", text, maxsplit=1)[0])
