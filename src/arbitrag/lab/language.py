"""The relations of the world, with the templates of questions and statements of facts.

A question has four forms. A passage has six: three that begin with the subject, two with the object, and an entry
(``Name – author: Name.``). It may have a lead ("According to the archive, …"), or a sentence beside it that says
nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from arbitrag.lab.names import Kind

PassageForm = Literal["subject first", "object first", "entry"]


@dataclass(frozen=True)
class Relation:
    """A relation from a subject of one type to an object of another.

    ``{s}`` and ``{o}`` in the forms are the names. ``described`` names the object by its subject, for questions over
    two facts. ``changes`` marks relations whose object is replaced now and then, such as a mayor.
    """

    name: str
    subject: Kind
    object: Kind
    label: str
    described: str
    questions: tuple[str, ...]
    subject_first: tuple[str, ...]
    object_first: tuple[str, ...]
    changes: bool = False

    @property
    def entry(self) -> str:
        return f"{{s}} – {self.label}: {{o}}."

    @property
    def passages(self) -> tuple[str, ...]:
        """Every form of a passage; see ``form_of`` for its kind."""
        return (*self.subject_first, *self.object_first, self.entry)

    def forms(self, kind: PassageForm) -> tuple[str, ...]:
        """The passages of one kind."""
        return {"subject first": self.subject_first, "object first": self.object_first, "entry": (self.entry,)}[kind]

    def ask(self, subject: str, rng: random.Random) -> str:
        """A question about ``subject``, in one of its forms."""
        return rng.choice(self.questions).format(s=subject)

    def ask_of(self, description: str, rng: random.Random) -> str:
        """A question about something that is described, not named."""
        forms = [form for form in self.questions if "city of {s}" not in form]  # "the city of the home city of"
        return rng.choice(forms).format(s=description)


FILLERS = (
    "It is often mentioned in the local news.",
    "Many people know about it.",
    "The story was covered by several papers.",
    "Critics still talk about it today.",
    "Little else is recorded.",
    "Some details remain unclear.",
    "This was confirmed last week.",
    "Records from that time are rare.",
    "Visitors ask about it every year.",
    "The archive keeps a copy.",
)
LEADS = (
    "According to the archive,",
    "As the papers report,",
    "It is known that",
    "A recent note says that",
    "By all accounts,",
)


def decorate(sentence: str, rng: random.Random, decorated: float) -> str:
    """A sentence as a passage: with the probability ``decorated`` it gets a lead, or a filler after or before it."""
    if rng.random() >= decorated:
        return sentence
    place = rng.random()
    if place < 0.25 and not sentence.startswith(("The ", "In ")):
        return f"{rng.choice(LEADS)} {sentence}"
    if place < 0.75:
        return f"{sentence} {rng.choice(FILLERS)}"
    return f"{rng.choice(FILLERS)} {sentence}"


_ALL = (
    Relation(
        "director",
        "film",
        "person",
        "director",
        "the director of {s}",
        (
            "Who directed {s}?",
            "Who is the director of {s}?",
            "Which person directed the film {s}?",
            "By whom was {s} directed?",
        ),
        ("{s} was directed by {o}.", "{s} is a film by the director {o}.", "The director of {s} was {o}."),
        ("{o} directed the film {s}.", "{o} is the director of {s}."),
    ),
    Relation(
        "release",
        "film",
        "year",
        "released",
        "the year in which {s} was released",
        (
            "When was {s} released?",
            "In which year did {s} come out?",
            "What is the release year of {s}?",
            "In what year was {s} first shown?",
        ),
        ("{s} was released in {o}.", "{s} is a film that came out in {o}.", "The release year of {s} is {o}."),
        ("In {o} the film {s} was first shown.", "The year {o} saw the release of {s}."),
    ),
    Relation(
        "author",
        "book",
        "person",
        "author",
        "the author of {s}",
        (
            "Who wrote {s}?",
            "Who is the author of {s}?",
            "Which person wrote the book {s}?",
            "By whom was {s} written?",
        ),
        ("{s} was written by {o}.", "{s} is a novel by {o}.", "The author of {s} is {o}."),
        ("{o} wrote the book {s}.", "{o} is the author of {s}."),
    ),
    Relation(
        "birthplace",
        "person",
        "city",
        "born in",
        "the birthplace of {s}",
        (
            "Where was {s} born?",
            "In which city was {s} born?",
            "What is the birthplace of {s}?",
            "Which city does {s} come from?",
        ),
        ("{s} was born in {o}.", "{s} grew up in {o}, the city of birth.", "The birthplace of {s} is {o}."),
        ("The city of {o} is the birthplace of {s}.", "{o} is where {s} was born."),
    ),
    Relation(
        "ceo",
        "company",
        "person",
        "chief executive",
        "the chief executive of {s}",
        (
            "Who is the CEO of {s}?",
            "Who leads {s}?",
            "Which person is chief executive of {s}?",
            "By whom is {s} led?",
        ),
        ("{s} is led by {o}.", "The chief executive of {s} is {o}.", "{s} is a company whose CEO is {o}."),
        ("{o} is the CEO of {s}.", "{o} leads {s}."),
        changes=True,
    ),
    Relation(
        "headquarters",
        "company",
        "city",
        "based in",
        "the city where {s} is based",
        (
            "Where is {s} based?",
            "In which city is {s} headquartered?",
            "Which city hosts the headquarters of {s}?",
            "Where are the main offices of {s}?",
        ),
        ("{s} is based in {o}.", "{s} has its headquarters in {o}.", "The main offices of {s} are in {o}."),
        ("The city of {o} hosts the headquarters of {s}.", "{o} is home to the main offices of {s}."),
    ),
    Relation(
        "founded",
        "company",
        "year",
        "founded",
        "the year in which {s} was founded",
        (
            "When was {s} founded?",
            "In which year was {s} established?",
            "What is the founding year of {s}?",
            "In what year did {s} start business?",
        ),
        ("{s} was founded in {o}.", "{s} was established in {o}.", "The founding year of {s} is {o}."),
        ("In {o} the company {s} started business.", "The year {o} saw the founding of {s}."),
    ),
    Relation(
        "country",
        "city",
        "country",
        "country",
        "the country of {s}",
        (
            "In which country is {s}?",
            "Which country is {s} in?",
            "What country does {s} belong to?",
            "Where in the world is {s}?",
        ),
        ("{s} is a city in {o}.", "{s} lies in {o}.", "The city of {s} belongs to {o}."),
        ("In {o} lies the city of {s}.", "{o} is the country of {s}."),
    ),
    Relation(
        "mayor",
        "city",
        "person",
        "mayor",
        "the mayor of {s}",
        (
            "Who is the mayor of {s}?",
            "Who governs the city of {s}?",
            "Which person serves as mayor of {s}?",
            "By whom is the city of {s} governed?",
        ),
        ("The mayor of {s} is {o}.", "The city of {s} is governed by {o}.", "{s} is a city whose mayor is {o}."),
        ("{o} serves as mayor of {s}.", "{o} governs the city of {s}."),
        changes=True,
    ),
    Relation(
        "capital",
        "country",
        "city",
        "capital",
        "the capital of {s}",
        (
            "What is the capital of {s}?",
            "Which city is the capital of {s}?",
            "From which city is {s} ruled?",
            "What city is the seat of government of {s}?",
        ),
        ("The capital of {s} is {o}.", "{s} is ruled from {o}.", "{s} has its government in {o}."),
        ("{o} is the capital of {s}.", "The city of {o} is the seat of government of {s}."),
    ),
    Relation(
        "coach",
        "team",
        "person",
        "coach",
        "the coach of the {s}",
        (
            "Who coaches the {s}?",
            "Who is the head coach of the {s}?",
            "Which person coaches the team {s}?",
            "By whom are the {s} coached?",
        ),
        ("The {s} are coached by {o}.", "The head coach of the {s} is {o}.", "The {s} play under the coach {o}."),
        ("{o} is the head coach of the {s}.", "{o} coaches the team {s}."),
        changes=True,
    ),
    Relation(
        "home",
        "team",
        "city",
        "home city",
        "the home city of the {s}",
        (
            "Where do the {s} play?",
            "What is the home city of the {s}?",
            "In which city are the {s} at home?",
            "Which city hosts the {s}?",
        ),
        ("The {s} play in {o}.", "The home city of the {s} is {o}.", "The team {s} is at home in {o}."),
        ("The city of {o} hosts the {s}.", "{o} is the home of the {s}."),
    ),
    Relation(
        "rector",
        "university",
        "person",
        "rector",
        "the rector of {s}",
        (
            "Who is the rector of {s}?",
            "Who heads {s}?",
            "Which person is rector of {s}?",
            "By whom is {s} headed?",
        ),
        ("{s} is headed by {o}.", "The rector of {s} is {o}.", "{s} is a university whose rector is {o}."),
        ("{o} is the rector of {s}.", "{o} heads {s}."),
        changes=True,
    ),
)
RELATIONS: dict[str, Relation] = {relation.name: relation for relation in _ALL}


def relations_of(kind: Kind) -> Sequence[Relation]:
    """The relations whose subjects are of this type, in a fixed order."""
    return [relation for relation in _ALL if relation.subject == kind]


def relations_to(kind: Kind) -> Sequence[Relation]:
    """The relations whose objects are of this type."""
    return [relation for relation in _ALL if relation.object == kind]
