"""The data card of a built TRD, and its examples, as markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arbitrag.data.trd.draft import SPLITS, UNKNOWN, mentions
from arbitrag.data.trd.material import CATEGORIES, Category
from arbitrag.data.trd.validate import Checked
from arbitrag.errors import DataError
from arbitrag.storage.files import write_text
from arbitrag.text import one_line

BEGIN, END = "<!-- examples -->", "<!-- end of examples -->"
_TITLES: Mapping[Category, str] = {
    "FA": "FA: memory and passages are both right",
    "FI": "FI: memory is right, the passages are corrupted",
    "FE": "FE: memory cannot know, the passages are right",
    "RA": "RA: memory cannot know, the passages are corrupted; refusing is right",
}


def card(report: Mapping[str, Any]) -> str:
    """The card of the set whose report this is; the same report gives the same card."""
    recipe, material = report["recipe"], report["material"]
    total = sum(sum(splits.values()) for splits in report["questions"].values())
    parts = [
        f"# A TRD of {total:,} questions",
        f"Made by Arbitrag {report['arbitrag']} from {material['about']}, after BRIDGE (section 2 and appendix A).",
        "Every question has four options, one of which says that the answer is not known. Its scenario says which "
        "source is right: FA both, FI memory, FE the passages, RA neither, so that it is right to refuse.",
        "## Questions",
        _questions(report),
        f"The set asks about {report['facts_in_all']:,} different facts. Questions about one fact begin with the same "
        "letters up to the `-` in their id: treat them as one cluster. All facts about one subject are in one split.",
        "## What the rules removed",
        _removed(report),
        "Drafts are asked in random order until a category has its share, so what was not needed was not asked.",
        "## Settings",
        _pairs({**recipe, "size": recipe["size"] or "all that passed"}),
        "## Models that validated",
        _pairs({model["name"]: model["identity"] for model in report["models"]}),
        "## Files (SHA-256)",
        _pairs(report["files"]),
    ]
    if report["left_out"]:
        parts += ["## Left out while reading the source", _pairs(report["left_out"])]
    if material["files"]:
        parts += ["## Source files (SHA-256)", _pairs(material["files"])]
    return "\n\n".join(parts) + "\n"


def examples(rows: Mapping[str, Sequence[Checked]], count: int) -> str:
    """``count`` questions of every category, the first ones of the set."""
    found = [checked for split in SPLITS for checked in rows[split]]
    parts = []
    for category in CATEGORIES:
        of_it = [checked for checked in found if checked.draft.category == category][:count]
        parts += [f"### {_TITLES[category]}", *(_example(number, each) for number, each in enumerate(of_it, 1))]
    return "\n\n".join(parts) + "\n"


def insert_examples(path: Path, text: str) -> None:
    """Put examples between the two marks of a markdown file; raises DataError where they are not there."""
    try:
        page = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise DataError(f"{path} has no lines {BEGIN} and {END}; write them where the examples should stand")
    write_text(path, f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def _example(number: int, checked: Checked) -> str:
    draft = checked.draft
    right = UNKNOWN if draft.category == "RA" else draft.fact.answer
    options = [f"**{_plain(each)}**" if each == right else _plain(each) for each in draft.question.options]
    told = draft.corrupted or {each.id for each in draft.passages if mentions(each.text, draft.fact.answer)}
    lines = [
        f"{number}. {_plain(draft.question.text)}",
        f"   - {' · '.join(options)}",
        *(
            f"   - {'corrupted' if draft.corrupted else 'told'}: {_plain(p.text)}"
            for p in draft.passages
            if p.id in told
        ),
        f"   - {_answers(checked, right)}",
    ]
    return "\n".join(lines)


def _answers(checked: Checked, right: str) -> str:
    """What the models answered, and the truth where it is no option's."""
    parts = [f"{name} from memory: {_plain(answer) or '(nothing)'}" for name, answer in checked.memory.items()]
    parts += [f"with the passages: {_plain(answer) or '(nothing)'}" for answer in checked.passages.values()]
    if right != checked.draft.fact.answer:
        parts.append(f"the truth: {_plain(checked.draft.fact.answer)}")
    parts += [f"before the cutoff: {_plain(name)}" for name in checked.draft.fact.former]
    return "; ".join(parts)


def _questions(report: Mapping[str, Any]) -> str:
    rows = [["", *SPLITS, "in all", "different facts", "of them"]]
    for category in CATEGORIES:
        counts = report["questions"][category]
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(report["kinds"][category].items()))
        numbers = [*(counts[split] for split in SPLITS), sum(counts.values()), report["facts"][category]]
        rows.append([category, *(f"{number:,}" for number in numbers), kinds])
    sums = [sum(report["questions"][category][split] for category in CATEGORIES) for split in SPLITS]
    rows.append(["all", *(f"{number:,}" for number in (*sums, sum(sums), report["facts_in_all"])), ""])
    return _table(rows)


def _removed(report: Mapping[str, Any]) -> str:
    rows = [["", "asked", "reason", "removed"]]
    for category in CATEGORIES:
        reasons = {**report["removed"][category]}
        if beyond := report["beyond_its_share"][category]:
            reasons["beyond its share of the set"] = beyond
        for reason, count in (reasons or {"nothing": 0}).items():
            rows.append([category, f"{report['asked'][category]:,}", reason, f"{count:,}"])
    return _table(rows)


def _pairs(pairs: Mapping[str, Any]) -> str:
    return "\n".join(f"- {_plain(name)}: {_plain(str(value))}" for name, value in pairs.items()) or "none"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *body])


def _plain(text: str) -> str:
    """Text of others on one line, in which markdown and HTML mean nothing."""
    flat = one_line(text, 400)
    for mark in "\\`*[]|":
        flat = flat.replace(mark, f"\\{mark}")
    return flat.replace("<", "&lt;")
