"""A TRD of the kind that BRIDGE describes: Natural Questions, TAQA and Wikidata, with paragraphs of Wikipedia.

FA comes from the training questions of NQ, FI from its development questions (see ``trd_nq``), evolution from TAQA
(``trd_taqa``), perpetuation from new triples (``trd_wikidata``), whose items are also the wrong names. Paragraphs are
JSON lines with the fields of a passage, of which only ``text`` must be there; they should be from after the cutoff.
A paragraph tells a change where it has the new answer and its title stands in the question, and a triple where it has
both names, the subject perhaps in its title.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from arbitrag.data.trd.draft import mentions
from arbitrag.data.trd.material import Category, Fact, Material
from arbitrag.data.trd.nq import nq_facts
from arbitrag.data.trd.plain import check_cutoff
from arbitrag.data.trd.taqa import taqa_facts
from arbitrag.data.trd.wikidata import Wikidata, read_wikidata
from arbitrag.errors import UsageError
from arbitrag.storage.files import file_digest
from arbitrag.storage.jsonl import read_passages
from arbitrag.types import Passage

_WORD = re.compile(r"\w+")
_MOST = 5  # paragraphs for one fact


@dataclass(frozen=True)
class Sources:
    """The files, any of which may come packed (.gz, .bz2), the paragraphs excepted."""

    nq_train: Path | None
    nq_dev: Path | None
    taqa: Sequence[Path]
    wikidata: Path | None
    paragraphs: Path | None
    cutoff: str


def wikipedia_material(sources: Sources) -> Material:
    """Read every file. Raises UsageError where one is not given, DataError for one that is not what it should be."""
    nq_train, nq_dev, wikidata, paragraphs = _given(sources)
    check_cutoff(sources.cutoff)
    removed: Counter[str] = Counter()
    known = read_wikidata(wikidata, sources.cutoff)
    library = Paragraphs(read_passages(paragraphs))
    splits: tuple[tuple[Path, Category], ...] = ((nq_train, "FA"), (nq_dev, "FI"))
    facts = [fact for path, category in splits for fact in nq_facts(path, category, known.entities, removed)]
    for path in sources.taqa:
        facts += _told(taqa_facts(path, sources.cutoff, known.entities, removed), library, removed)
    facts += _new(known, library, removed)
    files = (nq_train, nq_dev, *sources.taqa, wikidata, paragraphs)
    about = f"Natural Questions, TAQA, Wikidata and Wikipedia, with the cutoff {sources.cutoff}"
    digests = {path.name: file_digest(path) for path in files}
    return Material("wikipedia", about, facts, known.entities.all, digests=digests, removed=dict(removed))


class Paragraphs:
    """Paragraphs, found by the names in them."""

    def __init__(self, paragraphs: Sequence[Passage]) -> None:
        self._paragraphs = paragraphs
        self._with: dict[str, set[int]] = {}
        for number, paragraph in enumerate(paragraphs):
            for word in _words(f"{paragraph.title} {paragraph.text}"):
                self._with.setdefault(word, set()).add(number)

    def having(self, *names: str) -> list[Passage]:
        """The paragraphs in whose title and text all words of the names stand, in their order."""
        sets = sorted((self._with.get(word, set()) for name in names for word in _words(name)), key=len)
        found = set.intersection(*sets) if sets else set()
        return [self._paragraphs[number] for number in sorted(found)]


def _told(facts: Iterator[Fact], library: Paragraphs, removed: Counter[str]) -> Iterator[Fact]:
    """The changed facts that a paragraph tells; its title is the subject."""
    for fact in facts:
        found = [
            paragraph
            for name in fact.answers
            for paragraph in library.having(name)
            if mentions(paragraph.text, name) and paragraph.title and mentions(fact.questions[0], paragraph.title)
        ][:_MOST]
        if found:
            yield replace(fact, subject=found[0].title, passages=tuple(found))
        else:
            removed["TAQA: no paragraph tells the new answer"] += 1


def _new(known: Wikidata, library: Paragraphs, removed: Counter[str]) -> Iterator[Fact]:
    """The new triples that a paragraph tells; one with several right objects is asked about in none."""
    objects = Counter((triple.subject, triple.property) for triple in known.triples)
    for triple in known.triples:
        if objects[triple.subject, triple.property] > 1:
            removed["Wikidata: several right answers"] += 1
            continue
        names = (triple.subject, triple.object.name)
        found = [
            paragraph
            for paragraph in library.having(*names)
            if mentions(paragraph.text, names[1]) and mentions(f"{paragraph.title}\n{paragraph.text}", names[0])
        ][:_MOST]
        if found:
            yield Fact(
                triple.id,
                triple.subject,
                triple.object.name,
                triple.object.type,
                "perpetuation",
                (f"What is the {triple.property} of {triple.subject}?",),
                tuple(found),
                triple.object.aliases,
            )
        else:
            removed["Wikidata: no paragraph tells both names"] += 1


def _given(sources: Sources) -> tuple[Path, Path, Path, Path]:
    named = {
        "--nq-train": sources.nq_train,
        "--nq-dev": sources.nq_dev,
        "--wikidata": sources.wikidata,
        "--paragraphs": sources.paragraphs,
    }
    missing = [name for name, path in named.items() if path is None]
    missing += [] if sources.taqa else ["--taqa"]
    missing += [] if sources.cutoff else ["--cutoff"]
    if missing:
        raise UsageError(f"--from wikipedia needs {', '.join(missing)}; see: arbitrag data build-trd --help")
    nq_train, nq_dev, wikidata, paragraphs = (path for path in named.values() if path is not None)
    return nq_train, nq_dev, wikidata, paragraphs


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
