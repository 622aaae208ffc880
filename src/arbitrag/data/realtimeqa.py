"""RealTime QA with poisoned passages: multiple-choice news questions, search snippets, and texts that mislead.

From https://github.com/inspire-group/RobustRAG (``data/realtimeqa.json`` at 9bc35b2; Xiang et al. 2024): questions of
RealTime QA (Kasai et al. 2022) from 2023, with snippets of a web search in the order of their rank, and five texts for
each question that assert the same wrong answer. No licence is stated there: it is for evaluation, not for passing on.

This reads JSON lines. ``answers`` are the original ones; ``answers_expanded`` are equivalents that a model wrote, which
may be wrong. A made-up example, in the file on one line::

    {"id": "rt-1", "question": "Which town opened a museum?", "answers": ["Ardenfall"],
     "answers_expanded": ["Ardenfall town"], "wrong_answer": "Brackwater", "choices": ["Ardenfall", "Coldmere"],
     "choice_index": 0, "clean": [{"title": "News", "text": "Ardenfall opens a museum.", "url": "https://news.example"}],
     "poisoned": ["Brackwater has opened a museum."]}

Titles and addresses are left out: the poisoned texts have none, so a method could tell them apart by that alone. The
texts are unchanged; in their length and punctuation the two kinds still differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from arbitrag.data.fields import Fields
from arbitrag.data.mixtures import Mixture
from arbitrag.evaluate.questions import Item
from arbitrag.text import one_line
from arbitrag.types import Passage, Question

KEYS = (
    "id",
    "question",
    "answers",
    "answers_expanded",
    "wrong_answer",
    "choices",
    "choice_index",
    "clean",
    "poisoned",
)


@dataclass(frozen=True)
class RealTimeQA(Mixture):
    """``answers=expanded`` takes the equivalents as well; ``choices=yes`` gives the choices as options."""

    answers: Literal["original", "expanded"] = "original"
    choices: Literal["yes", "no"] = "no"


@dataclass(frozen=True)
class _Snippet:
    text: str
    title: str | None = None
    url: str | None = None


def item(row: Fields, options: RealTimeQA) -> Item:
    """The question of a row; what is wrong with it is noted in ``row``."""
    row.only(KEYS)
    question, name = row.text("question", needed=True), row.text("id", needed=True)
    original, expanded, planted = row.texts("answers"), row.texts("answers_expanded"), row.texts("wrong_answer")
    answers = (*original, *expanded) if options.answers == "expanded" else original
    choices = _choices(row, original)
    if not answers:
        row.fault("there are no answers")
    row.check_gold(answers, choices if options.choices == "yes" else (), planted)
    clean = [each.text for each in row.take("clean", tuple[_Snippet, ...], ())]
    poison = row.texts("poisoned")
    for field, texts in (("clean", clean), ("poisoned", poison)):
        for position, text in enumerate(texts):
            if not text.strip():
                row.fault(f"'{field}[{position}]' has no text")
            row.warn_of_strange(f"{field}[{position}]", text)
    mixed = row.mixed(options, [Passage(text) for text in clean], [Passage(text) for text in poison], name)
    asked = Question(question, choices if options.choices == "yes" else (), name)
    return Item(asked, answers, mixed.passages, None, planted, mixed.poisoned)


def _choices(row: Fields, answers: tuple[str, ...]) -> tuple[str, ...]:
    choices, right = row.texts("choices"), row.take("choice_index", int, 0)
    if choices and not 0 <= right < len(choices):
        row.fault(f"'choice_index' is {right}; there are {len(choices)} choices, counted from 0")
    elif choices and answers and choices[right] not in answers:
        row.fault(f"the choice {right}, '{one_line(choices[right])}', is not among the answers")
    return choices
