"""Facts, passages and typed entities of one's own, to build a TRD from: a folder with three files of JSON lines.

``facts.jsonl``

==========  =========================================================================================================
field       what it is
==========  =========================================================================================================
subject     what the question is about; all facts about one subject come into the same split
answer      the right answer at present
questions   the question, or a list of phrasings of it; none may name the answer
id          a name of the fact; the number of the line without one
type        the type of the answer; needed where the answer is not among the entities
aliases     other names of the answer, equally right
since       from when it is so: 2024, 2024-03 or 2024-03-19. Without it the fact is taken for an old one
former      what was right before, where the fact has changed; a string or a list
==========  =========================================================================================================

A fact whose ``since`` lies after the cutoff is of the kind evolution where it has a ``former`` answer, else of the kind
perpetuation; every other is stable. A cutoff covers the whole of the year, month or day that it names.

``passages.jsonl``: ``fact`` (the id of the fact that it tells), ``text``, and perhaps ``title``, ``source``, ``date``.

``entities.jsonl``: ``name``, ``type``, and perhaps ``popularity`` (any number that is larger for what is better known,
such as a count of mentions or page views) and ``aliases``.

A made-up example, a line of each::

    {"id": "f1", "subject": "Ardenfall Museum", "answer": "Mira Tolvanen", "type": "person", "since": "2024-03",
     "former": "Jon Abelard", "questions": ["Who is the head of the Ardenfall Museum?"]}
    {"fact": "f1", "text": "Mira Tolvanen took over the Ardenfall Museum in spring.", "title": "Ardenfall Museum"}
    {"name": "Jon Abelard", "type": "person", "popularity": 41}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from arbitrag.data.fields import Fields
from arbitrag.data.trd.files import json_lines, raise_first
from arbitrag.data.trd.material import Entity, Fact, Kind, Material
from arbitrag.errors import DataError, UsageError
from arbitrag.storage.files import file_digest
from arbitrag.text import normalize_answer, one_line
from arbitrag.types import Passage

FACTS, PASSAGES, ENTITIES = "facts.jsonl", "passages.jsonl", "entities.jsonl"

_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")


def plain_material(folder: Path, *, cutoff: str = "") -> Material:
    """The material in a folder; ``cutoff`` is needed where a fact says since when it is so.

    Raises DataError for a file that is missing or a line that is not what it should be, UsageError for a bad cutoff.
    """
    check_cutoff(cutoff)
    paths = [folder / name for name in (FACTS, PASSAGES, ENTITIES)]
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder} to build from; give lab, wikipedia, or a folder with {FACTS}")
    if missing := [path.name for path in paths if not path.is_file()]:
        raise DataError(f"{folder} has no {' and no '.join(missing)}; it needs {FACTS}, {PASSAGES} and {ENTITIES}")
    facts_path, passages_path, entities_path = paths
    entities = _entities(entities_path)
    told = _passages(passages_path)
    facts = _facts(facts_path, _types(entities), told, cutoff)
    if strange := told.keys() - {fact.id for fact in facts}:
        raise DataError(f"{passages_path}: a passage tells the fact '{one_line(min(strange))}', which {FACTS} has not")
    about = f"the facts, passages and entities in the folder {folder.name}"
    return Material(folder.name, about, facts, entities, digests={path.name: file_digest(path) for path in paths})


def check_cutoff(cutoff: str) -> None:
    if cutoff and not _DATE.fullmatch(cutoff):
        raise UsageError(f"the cutoff is a date such as 2023, 2023-02 or 2023-02-28; got '{one_line(cutoff)}'")


def after(date: str, cutoff: str) -> bool:
    """Whether a date lies after the year, month or day of the cutoff; one that is less exact begins with its period."""
    return date[: len(cutoff)] > cutoff


def _entities(path: Path) -> list[Entity]:
    found = []
    for number, plain in json_lines(path):
        row = Fields(number, plain)
        row.only(("name", "type", "popularity", "aliases"))
        name, kind = row.text("name", needed=True), row.text("type", needed=True)
        found.append(Entity(name, kind, row.take("popularity", float, 0.0), row.texts("aliases")))
        raise_first(path, row)
    if not found:
        raise DataError(f"{path} has no entities, so there is nothing of the right type to put in an answer's place")
    return found


def _types(entities: Sequence[Entity]) -> Mapping[str, Entity]:
    """The entity of every name and alias, the more popular one where two share it."""
    found: dict[str, Entity] = {}
    for entity in sorted(entities, key=lambda each: each.popularity):
        for name in (*entity.aliases, entity.name):
            found[normalize_answer(name)] = entity
    return found


def _passages(path: Path) -> dict[str, list[Passage]]:
    found: dict[str, list[Passage]] = {}
    for number, plain in json_lines(path):
        row = Fields(number, plain)
        row.only(("fact", "text", "title", "source", "date"))
        fact, text = row.text("fact", needed=True), row.take("text", str, "")
        if not text.strip() and not row.bad:
            row.fault("'text' is missing or empty")
        passage = Passage(text, title=row.text("title"), source=row.text("source"), date=row.text("date"))
        raise_first(path, row)
        found.setdefault(fact, []).append(passage)
    if not found:
        raise DataError(f"{path} has no passages, so nothing tells a fact")
    return found


def _facts(path: Path, types: Mapping[str, Entity], told: Mapping[str, Sequence[Passage]], cutoff: str) -> list[Fact]:
    found: list[Fact] = []
    lines: dict[str, int] = {}
    for number, plain in json_lines(path):
        row = Fields(number, plain)
        fact = _fact(row, types, cutoff)
        before = lines.setdefault(fact.id, number)
        if before != number:
            row.fault(f"the id '{one_line(fact.id)}' is that of line {before} already")
        raise_first(path, row)
        found.append(replace(fact, passages=tuple(told.get(fact.id, ()))))
    return found


def _fact(row: Fields, types: Mapping[str, Entity], cutoff: str) -> Fact:
    row.only(("subject", "answer", "questions", "id", "type", "aliases", "since", "former"))
    answer, former, since = row.text("answer", needed=True), row.texts("former"), row.text("since")
    questions = row.texts("questions")
    entity = types.get(normalize_answer(answer))
    kind = row.text("type") or (entity.type if entity else "")
    if not questions and not row.bad:
        row.fault("'questions' is missing or empty; give a question or a list of phrasings")
    if not kind:
        row.fault(f"the answer '{one_line(answer)}' has no type; give 'type', or add it to {ENTITIES}")
    if since and not _DATE.fullmatch(since):
        row.fault(f"'since' is '{one_line(since)}'; expected a date such as 2024, 2024-03 or 2024-03-19")
    if since and not cutoff:
        raise UsageError(f"{FACTS} line {row.line} has 'since'; say where the models' knowledge ends: --cutoff 2023-02")
    aliases = row.texts("aliases") or (entity.aliases if entity and entity.name == answer else ())
    subject, name = row.text("subject", needed=True), row.text("id") or str(row.line)
    of_kind = _kind(since, former, cutoff)
    kept = former if of_kind == "evolution" else ()
    return Fact(name, subject, answer, kind, of_kind, questions, (), aliases, kept)


def _kind(since: str, former: Sequence[str], cutoff: str) -> Kind:
    if not (since and after(since, cutoff)):
        return "stable"
    return "evolution" if former else "perpetuation"
