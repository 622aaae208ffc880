"""One document for each entity of the world, with all that holds of it at present."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from arbitrag.lab.names import Kind
from arbitrag.lab.world import World
from arbitrag.types import Passage

_FOLDERS: Mapping[Kind, str] = {
    "person": "people",
    "city": "cities",
    "country": "countries",
    "company": "companies",
    "film": "films",
    "book": "books",
    "team": "teams",
    "university": "universities",
}


def document_id(kind: Kind, name: str) -> str:
    """``films/the-winter-whisper`` for an entity of this type."""
    return f"{_FOLDERS[kind]}/{re.sub(r'[^a-z0-9]+', '-', name.lower())}"


def entity_documents(world: World) -> Iterator[Passage]:
    """The documents in the order of their ids; an entity of which nothing is told has none."""
    found = {
        document_id(world.kinds[name], name): name
        for names in world.entities.values()
        for name in names
        if world.about(name)
    }
    for key in sorted(found):
        facts = world.about(found[key])
        text = " ".join(fact.form.subject_first[0].format(s=fact.subject, o=fact.object) for fact in facts)
        yield Passage(text, id=key, title=found[key], source=f"{key}.md")
