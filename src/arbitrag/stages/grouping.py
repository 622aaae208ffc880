"""Convert groups of documents to prompt items, candidates and decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arbitrag.prompts import Block
from arbitrag.stages.parsing.forms import Group
from arbitrag.types import Candidate, Decision, Dropped, Passage


def memory_blocks(texts: Sequence[str]) -> tuple[Block, ...]:
    """Passages from memory as items of a prompt."""
    return tuple(Block("memory", {"number": str(number), "text": text}) for number, text in enumerate(texts, 1))


def group_blocks(groups: Sequence[Group]) -> tuple[Block, ...]:
    """Groups as items of a prompt, with their sources."""
    return tuple(
        Block("group", {"number": str(number), "text": group.text, "sources": sources_of(group)})
        for number, group in enumerate(groups, 1)
    )


def sources_of(group: Group) -> str:
    """The sources of a group as a reply names them: ``1, 3, memory``."""
    return ", ".join([*map(str, group.passages), *(["memory"] if group.memory else [])])


def single_groups(passages: Sequence[Passage]) -> tuple[Group, ...]:
    """Every passage as a group of its own."""
    return tuple(
        Group(f"{passage.title}\n{passage.text}" if passage.title else passage.text, (number,))
        for number, passage in enumerate(passages, 1)
    )


def group_candidates(groups: Sequence[Group], passages: Sequence[Passage]) -> tuple[Candidate, ...]:
    """The answer of each group, with the kind of its sources and the ids of its passages."""
    return tuple(Candidate(group.text, group.origin, ids_of([group], passages)) for group in groups)


def ids_of(groups: Sequence[Group], passages: Sequence[Passage]) -> tuple[str, ...]:
    """The ids of the passages that groups rest on, each once, in the order of the passages."""
    used = sorted({number for group in groups for number in group.passages})
    return tuple(passages[number - 1].id for number in used)


def groups_decision(groups: Sequence[Group], passages: Sequence[Passage]) -> Decision:
    """How the documents were grouped, with the places of the passages and the model's confidences."""
    inputs = {}
    for number, group in enumerate(groups, 1):
        places = [passages[at - 1].id or passages[at - 1].place for at in group.passages]
        told = {"text": group.text, "sources": sources_of(group), "passages": places}
        inputs[f"group_{number}"] = told if group.confidence is None else {**told, "confidence": group.confidence}
    rule = "the model brings together documents that agree, and leaves out what does not help"
    grouped = len({number for group in groups for number in group.passages})
    outcome = f"{_count(len(groups), 'group')} from {grouped} of {_count(len(passages), 'passage')}"
    return Decision("groups", rule, inputs, outcome)


def left_out(
    passages: Sequence[Passage], groups: Sequence[Group], reasons: Mapping[int, str] | None = None
) -> tuple[Dropped, ...]:
    """The passages in no group, with the reason given by number."""
    used = {number for group in groups for number in group.passages}
    return tuple(
        Dropped(passage, f"left out by the model: {(reasons or {}).get(number, 'in no group')}")
        for number, passage in enumerate(passages, 1)
        if number not in used
    )


def not_dropped(passages: Sequence[Passage], dropped: Sequence[Dropped]) -> tuple[Passage, ...]:
    """The passages that were not dropped."""
    gone = {id(each.passage) for each in dropped}
    return tuple(passage for passage in passages if id(passage) not in gone)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
