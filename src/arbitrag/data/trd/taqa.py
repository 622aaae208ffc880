"""TAQA as facts that changed: the answer of the newest year after the cutoff is right, that of the last before it was.

Format: ``train.jsonl``, ``dev.jsonl`` or ``test.jsonl``, a question a line. Fields that are read: ``question`` and
``answer``, an object from years to lists of answers that are equally right; others are passed over. Paragraphs that
tell the new answer do not come with it: see ``trd_wikipedia``.

Where from: https://github.com/yizhongw/llm-temporal-alignment (Zhao et al. 2024, arXiv 2402.16797); Apache-2.0.

A made-up example, in the file on one line::

    {"question": "Who is the head of the Ardenfall Museum?", "answer": {"2021": ["Jon Abelard"],
     "2022": ["Jon Abelard"], "2024": ["Mira Tolvanen"]}}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from arbitrag.data.trd.files import json_lines
from arbitrag.data.trd.material import Fact
from arbitrag.data.trd.wikidata import Entities
from arbitrag.errors import DataError
from arbitrag.text import agree


def taqa_facts(path: Path, cutoff: str, entities: Entities, removed: Counter[str]) -> Iterator[Fact]:
    """The facts of a file, without passages; what is left out is counted in ``removed`` by its reason.

    Raises DataError for a line that is not a question of TAQA.
    """
    for number, plain in json_lines(path):
        question, answer = plain.get("question"), plain.get("answer")
        if not (isinstance(question, str) and isinstance(answer, dict)):
            raise DataError(f"{path} line {number} is not of TAQA: 'question' is a string, 'answer' an object by years")
        found = _fact(f"taqa-{path.stem}-{number}", question, _by_year(path, number, answer), cutoff, entities)
        if isinstance(found, Fact):
            yield found
        else:
            removed[f"TAQA: {found}"] += 1


def _by_year(path: Path, number: int, answer: Mapping[str, Any]) -> dict[int, list[str]]:
    """The answers of every year that has any; "None" is none."""
    found = {}
    for year, given in answer.items():
        names = [given] if isinstance(given, str) else given or []
        if not year.isdecimal() or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError(f"{path} line {number}: 'answer' of '{year}' is not a list of answers by a year")
        if kept := [name for name in names if name.strip() and name != "None"]:
            found[int(year)] = kept
    return found


def _fact(
    name: str, question: str, by_year: Mapping[int, Sequence[str]], cutoff: str, entities: Entities
) -> Fact | str:
    last_known = int(cutoff[:4])
    later = [year for year in by_year if year > last_known]
    before = [year for year in by_year if year <= last_known]
    if not (later and before):
        return "no answer from before and after the cutoff"
    new, old = by_year[max(later)], by_year[max(before)]
    if any(agree(one, other) for one in new for other in old):
        return "the answer did not change after the cutoff"
    entity = next(filter(None, map(entities.find, new)), None)
    if entity is None:
        return "the answer is no entity with a type"
    return Fact(name, question, new[0], entity.type, "evolution", (question,), (), tuple(new[1:]), tuple(old))
