"""One document for each entity of the world."""

from __future__ import annotations

from arbitrag.lab.documents import document_id, entity_documents
from arbitrag.lab.world import World

WORLD = World(7)


def test_every_present_fact_stands_in_the_document_of_its_subject() -> None:
    documents = {document.title: document for document in entity_documents(WORLD)}
    assert set(documents) == {fact.subject for fact in WORLD.current}
    for fact in WORLD.current:
        assert fact.form.subject_first[0].format(s=fact.subject, o=fact.object) in documents[fact.subject].text
    for old in WORLD.evolved:
        assert old.form.subject_first[0].format(s=old.subject, o=old.object) not in documents[old.subject].text


def test_ids_are_in_order_and_say_the_type() -> None:
    ids = [document.id for document in entity_documents(WORLD)]
    assert ids == sorted(set(ids))
    assert document_id("film", "The Winter Whisper") == "films/the-winter-whisper"
    assert document_id("university", "Zusen University") == "universities/zusen-university"
    first = next(entity_documents(WORLD))
    assert first.source == f"{first.id}.md"
