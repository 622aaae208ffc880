"""Wikidata: names with a type and a popularity, and what is new after the cutoff.

Format: the JSON dump, ``latest-all.json.gz`` or ``.bz2`` or an excerpt of it: an entity a line, in a list. Fields that
are read: ``type``, ``id``, ``labels.en``, ``aliases.en``, ``claims``, ``sitelinks``. An item's type is the first of its
best "instance of" (P31), its popularity the number of its sitelinks. Everything is kept in memory: of the full dump
(over 100 million items) cut out first what has a page on some wiki.

Where from: https://dumps.wikimedia.org/wikidatawiki/entities/; CC0.

New is an item whose dates (inception, publication, start, point in time, birth) all lie after the cutoff. Each of its
statements whose value is an item is a triple. BRIDGE takes what any date after the cutoff selects, and has a model word
the questions; here it is "What is the LABEL OF THE PROPERTY of SUBJECT?", where the dump holds the property.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arbitrag.data.trd.files import json_lines
from arbitrag.data.trd.material import Entity
from arbitrag.data.trd.plain import after
from arbitrag.errors import DataError
from arbitrag.text import normalize_answer

_INSTANCE_OF = "P31"
_DATES = ("P571", "P577", "P580", "P585", "P569")
# What orders Wikidata itself and says nothing of the world: instance, subclass, part of a category, topic pages.
_STRUCTURE = frozenset({"P31", "P279", "P361", "P910", "P971", "P1151", "P1424", "P5008", "P7867"})
_PRECISION = {9: 4, 10: 7, 11: 10}  # of a time: year, month, day, as characters of an ISO date
_SHORTEST_ALIAS = 3


@dataclass(frozen=True, slots=True)
class Triple:
    """Something that is new after the cutoff: labels of subject and property, and the item that is the object."""

    id: str
    subject: str
    property: str
    object: Entity


class Entities:
    """Entities by what they are called."""

    def __init__(self, entities: Sequence[Entity]) -> None:
        self.all = entities
        self._by_name: dict[str, Entity] = {}
        for entity in sorted(entities, key=lambda each: each.popularity):  # the most popular one comes last, and stays
            for name in (*entity.aliases, entity.name):
                self._by_name[normalize_answer(name)] = entity

    def find(self, name: str) -> Entity | None:
        """The most popular entity that is called so."""
        return self._by_name.get(normalize_answer(name))


@dataclass(frozen=True)
class Wikidata:
    entities: Entities
    triples: Sequence[Triple]


def read_wikidata(path: Path, cutoff: str) -> Wikidata:
    """The typed items of a dump and its new triples; raises DataError for a file that is no dump."""
    items: dict[str, Entity] = {}
    labels: dict[str, str] = {}  # of properties
    links: list[tuple[str, str, str]] = []  # of new items: subject, property, object
    for number, plain in json_lines(path):
        try:
            name, label = plain["id"], _label(plain)
            if not label:
                continue
            if plain["type"] == "property":
                labels[name] = label
                continue
            claims = plain.get("claims") or {}
            kind = next(iter(_targets(claims, _INSTANCE_OF)), "")
            if kind:
                items[name] = Entity(label, kind, float(len(plain.get("sitelinks") or {})), _aliases(plain, label))
            if _is_new(claims, cutoff):
                links += [(name, each, target) for each in claims for target in _targets(claims, each)]
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path} line {number} is not an entity of a Wikidata dump: {error!r}") from None
    if not items:
        raise DataError(f"{path} has no item with an English label and an 'instance of', so no answer has a type")
    triples = [
        Triple(f"{subject}-{each}-{target}", items[subject].name, labels[each], items[target])
        for subject, each, target in links
        if each in labels and each not in _STRUCTURE and subject in items and target in items
    ]
    return Wikidata(Entities(list(items.values())), triples)


def _label(plain: Mapping[str, Any]) -> str:
    english = (plain.get("labels") or {}).get("en")
    return english["value"] if english else ""


def _aliases(plain: Mapping[str, Any], label: str) -> tuple[str, ...]:
    found = [each["value"] for each in (plain.get("aliases") or {}).get("en", ())]
    return tuple(each for each in found if len(each) >= _SHORTEST_ALIAS and each != label)


def _statements(claims: Mapping[str, Any], name: str) -> Iterator[Any]:
    """The values of the best statements of a property: the preferred ones, or without any the normal ones."""
    there = claims.get(name, ())
    best = "preferred" if any(each.get("rank") == "preferred" for each in there) else "normal"
    for each in there:
        if each.get("rank", "normal") == best and each["mainsnak"].get("snaktype") == "value":
            yield each["mainsnak"]["datavalue"]


def _targets(claims: Mapping[str, Any], name: str) -> list[str]:
    """The items that a property points to."""
    found = []
    for value in _statements(claims, name):
        if value["type"] == "wikibase-entityid" and value["value"].get("entity-type", "item") == "item":
            found.append(value["value"].get("id") or f"Q{value['value']['numeric-id']}")
    return found


def _is_new(claims: Mapping[str, Any], cutoff: str) -> bool:
    values = [value for name in _DATES for value in _statements(claims, name) if value["type"] == "time"]
    return bool(values) and all(after(_date(value["value"]), cutoff) for value in values)


def _date(time: Mapping[str, Any]) -> str:
    """``+2024-03-00T00:00:00Z`` with the precision of a month as ``2024-03``; nothing for one before our era."""
    text = time["time"]
    return text[1 : 1 + _PRECISION.get(time["precision"], 0)] if text.startswith("+") else ""
