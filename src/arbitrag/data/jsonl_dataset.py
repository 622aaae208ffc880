"""Question sets of one's own, as JSON lines: one object per line, UTF-8. The format is this project's.

==============  =====================================================================================================
field           what it is
==============  =====================================================================================================
question        the text; the only field that must be there beside ``answers``
answers         the right answers, all equally right; a list, or a string for one. None where refusing is right
id              a name, different for every question; the number of the line without one
options         the choices of a multiple-choice question; one of them must be an answer
passages        what is given with the question: texts, or objects with text, id, title, source and date
scenario        what it is right to trust: BOTH, MEMORY, EVIDENCE or REFUSE, or FA, FI, FE or RA
wrong_answer    what an attack wants to be answered; a string or a list. ``planted`` is another name of it
poisoned        the passages that an attack planted, each by its id or its text
group           a category of one's own, such as "two hops"; reports can be split by it
==============  =====================================================================================================

A made-up example, in the file on one line::

    {"id": "q7", "question": "Which town is home to the Ardenfall Museum?", "answers": ["Ardenfall", "New Ardenfall"],
     "passages": [{"id": "a", "text": "The museum opened in Ardenfall in 1931."},
                  {"id": "b", "text": "The Ardenfall Museum stands in Brackwater."}],
     "scenario": "FE", "wrong_answer": "Brackwater", "poisoned": ["b"], "group": "museums"}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arbitrag.data.fields import Fields, listed
from arbitrag.data.mixtures import Mixed, Mixture, named
from arbitrag.data.options import Options
from arbitrag.errors import UsageError
from arbitrag.evaluate.questions import Item
from arbitrag.text import declines, one_line
from arbitrag.types import Passage, Question, Strategy

KEYS = (
    "question",
    "answers",
    "id",
    "options",
    "passages",
    "scenario",
    "wrong_answer",
    "planted",
    "poisoned",
    "group",
)
ASKED = ("question", "id", "options", "passages")  # what a method may see of a row; the rest is for an evaluation
_CODES = {"FA": Strategy.BOTH, "FI": Strategy.MEMORY, "FE": Strategy.EVIDENCE, "RA": Strategy.REFUSE}
SCENARIOS: Mapping[str, Strategy] = {**{each.name: each for each in Strategy}, **_CODES}


@dataclass(frozen=True)
class Own(Options):
    """``k`` gives only the first passages of a row; with ``poisoned`` they are mixed anew, so many of them planted."""

    k: int | None = None
    poisoned: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.k is not None and self.k < 0:
            raise UsageError(f"k={self.k}; give a number from 0")
        self.mixture()

    def mixture(self) -> Mixture | None:
        """How the passages of a row are mixed; None where they stay as they are. Raises UsageError."""
        if self.poisoned is None:
            return None
        return Mixture(self.poisoned, Mixture.k if self.k is None else self.k, self.seed)


@dataclass(frozen=True)
class _PassageRow:
    text: str
    id: str = ""
    title: str = ""
    source: str = ""
    date: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


def item(row: Fields, options: Own) -> Item:
    """The question of a row; what is wrong with it is noted in ``row``."""
    row.only(KEYS)
    question, answers = _question(row), row.texts("answers")
    planted, scenario = _planted(row), _scenario(row)
    row.check_gold(answers, question.options, planted)
    _check_refusal(row, answers, question.options, scenario)
    given = _mixed(row, options, question.id)
    return Item(
        question,
        answers,
        None if given is None else given.passages,
        scenario,
        planted,
        frozenset() if given is None else given.poisoned,
        row.text("group"),
    )


def asked(row: Fields, options: Own) -> tuple[Question, tuple[Passage, ...] | None]:
    """The same question with the same passages, without anything that only an evaluation may know.

    The row may have any other fields; of them only ``poisoned`` is read, and only to mix passages as the options say.
    """
    question = _question(row)
    row.check_gold((), question.options, ())
    given = _mixed(row, options, question.id)
    return question, None if given is None else given.passages


def _question(row: Fields) -> Question:
    text = row.text("question", needed=True)
    return Question(text, row.texts("options"), row.text("id") or str(row.line))


def _mixed(row: Fields, options: Own, name: str) -> Mixed | None:
    """The passages as a method gets them; None where the row has none."""
    passages = _passages(row)
    poisoned = _poisoned(row, passages or ())
    return None if passages is None else _given(row, options, passages, poisoned, name)


def _planted(row: Fields) -> tuple[str, ...]:
    if row.has("planted") and row.has("wrong_answer"):
        row.fault("'planted' and 'wrong_answer' are two names of one field; give one")
    return row.texts("planted") or row.texts("wrong_answer")


def _scenario(row: Fields) -> Strategy | None:
    name = row.text("scenario")
    if name and name.upper() not in SCENARIOS:
        row.fault(f"'scenario' is '{one_line(name)}'; expected one of {', '.join(SCENARIOS)}")
    return SCENARIOS.get(name.upper())


def _check_refusal(row: Fields, answers: Sequence[str], options: Sequence[str], scenario: Strategy | None) -> None:
    """Exactly where refusing is right, and no option says so, there is no answer."""
    if scenario is not Strategy.REFUSE:
        if not row.has("answers"):
            row.fault('\'answers\' is missing; a question that it is right to refuse has "scenario": "REFUSE"')
        elif not answers and "answers" not in row.unread:
            row.fault('\'answers\' is empty; a question that it is right to refuse has "scenario": "REFUSE"')
        return
    saying_so = [option for option in options if declines(option)]
    if saying_so and not any(declines(answer) for answer in answers):
        row.fault(f"it is right to refuse, and the option '{one_line(saying_so[0])}' says so; give it as the answer")
    elif answers and not saying_so:
        row.fault(f"it is right to refuse, but there is the answer '{one_line(answers[0])}'; leave 'answers' empty")


def _passages(row: Fields) -> tuple[Passage, ...] | None:
    """The passages with the ids of the file; None where the row has no such field."""
    if not row.has("passages"):
        return None
    found = []
    ids: set[str] = set()
    for position, each in enumerate(row.take("passages", tuple[_PassageRow, ...], (), _objects)):
        where = f"passages[{position}]"
        if not each.text.strip():
            row.fault(f"'{where}' has no text")
        if each.id and each.id in ids:
            row.fault(f"'{where}' has the id '{one_line(each.id)}' of a passage before it")
        ids.add(each.id)
        row.warn_of_strange(where, each.text)
        passage = Passage(each.text, each.id, each.title, each.source, date=each.date, metadata=each.metadata)
        found.append(passage.encodable())
    return tuple(found)


def _objects(plain: Any) -> Any:
    return [{"text": each} if isinstance(each, str) else each for each in plain] if isinstance(plain, list) else plain


def _poisoned(row: Fields, passages: Sequence[Passage]) -> frozenset[int]:
    """The places of the passages that ``poisoned`` names by id or text."""
    found: set[int] = set()
    for each in row.take("poisoned", tuple[str, ...], (), listed):
        meant = {place for place, passage in enumerate(passages) if each and each in (passage.id, passage.text)}
        if not meant and "passages" not in row.unread:
            row.fault(f"'poisoned' names '{one_line(each)}', which is neither the id nor the text of a passage")
        found |= meant
    return frozenset(found)


def _given(row: Fields, options: Own, passages: Sequence[Passage], poisoned: Collection[int], name: str) -> Mixed:
    """The passages as a method gets them: in their order, or mixed."""
    if (mixture := options.mixture()) is not None:
        clean = [passage for place, passage in enumerate(passages) if place not in poisoned]
        return row.mixed(mixture, clean, [passages[place] for place in sorted(poisoned)], name)
    found = named(passages)[: options.k]
    return Mixed(found, frozenset(passage.id for place, passage in enumerate(found) if place in poisoned))
