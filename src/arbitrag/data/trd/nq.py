"""Natural Questions as stable facts: the training questions for FA, the development questions for FI.

Format: the simplified one, a question a line, ``simplified-nq-train.jsonl.gz``; the development set has to be brought
into it by ``simplify_nq_example`` of the project's ``data_utils.py``. Fields that are read: ``example_id``,
``question_text``, ``document_url``, ``document_text`` (tokens with single spaces between them, HTML tags among them),
and of ``annotations`` the ``long_answer`` and ``short_answers`` with ``start_token`` and ``end_token``.

Where from: https://ai.google.com/research/NaturalQuestions (google-research-datasets/natural-questions); CC BY-SA 3.0.

A question is taken where an annotation has a long answer and one short answer in it. A made-up example, in the file on
one line::

    {"example_id": 7, "question_text": "who founded the ardenfall museum", "document_url":
     "https://en.wikipedia.org//w/index.php?title=Ardenfall_Museum&amp;oldid=1", "document_text":
     "<P> The museum was founded by Mira Tolvanen . </P>", "annotations": [{"long_answer": {"start_token": 0,
     "end_token": 10}, "short_answers": [{"start_token": 6, "end_token": 8}], "yes_no_answer": "NONE"}]}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from arbitrag.data.trd.files import json_lines
from arbitrag.data.trd.material import Category, Entity, Fact
from arbitrag.data.trd.wikidata import Entities
from arbitrag.errors import DataError
from arbitrag.types import Passage

_TITLE = re.compile(r"(?:[?&;]title=|/wiki/)([^&?#]+)")


def nq_facts(path: Path, category: Category, entities: Entities, removed: Counter[str]) -> Iterator[Fact]:
    """The facts of a file; what is left out is counted in ``removed`` by its reason.

    Raises DataError for a file that is not in the simplified format.
    """
    for number, plain in json_lines(path):
        found = _fact(path, number, plain, category, entities)
        if isinstance(found, Fact):
            yield found
        else:
            removed[f"Natural Questions: {found}"] += 1


def _fact(path: Path, number: int, plain: Mapping[str, Any], category: Category, entities: Entities) -> Fact | str:
    try:
        if "document_text" not in plain and "document_tokens" in plain:
            raise DataError(
                f"{path} line {number} is in the original format, with document_tokens; "
                "bring it into the simplified one first (simplify_nq_example in the data set's data_utils.py)"
            )
        tokens = plain["document_text"].split(" ")
        spans = _spans(plain["annotations"])
        question, name, url = plain["question_text"], str(plain["example_id"]), plain.get("document_url", "")
        if isinstance(spans, str):
            return spans
        text, answer = _text(tokens, spans[0]), _text(tokens, spans[1])
        match = _TITLE.search(url)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} line {number} is not a simplified Natural Question: {_reason(error)}") from None
    entity = entities.find(answer)
    if entity is None:
        return "the short answer is no entity with a type"
    title = unquote(match[1]).replace("_", " ") if match else ""
    return Fact(
        f"nq-{name}",
        title or name,
        answer,
        entity.type,
        "stable",
        (question,),
        (Passage(text, title=title),),
        _others(entity, answer),
        category=category,
    )


def _spans(annotations: Any) -> tuple[tuple[int, int], tuple[int, int]] | str:
    """The long answer and the short one in it, of the first annotation that has both, or why there is none."""
    reason = "no long answer"
    for annotation in annotations:
        long, short = annotation["long_answer"], annotation["short_answers"]
        start, end = long["start_token"], long["end_token"]
        if not 0 <= start < end:
            continue
        if len(short) == 1 and start <= short[0]["start_token"] < short[0]["end_token"] <= end:
            return (start, end), (short[0]["start_token"], short[0]["end_token"])
        reason = "not one short answer in the long one"
    return reason


def _text(tokens: list[str], span: tuple[int, int]) -> str:
    """The words of a span, without tags."""
    return " ".join(token for token in tokens[slice(*span)] if token and not token.startswith("<"))


def _others(entity: Entity, answer: str) -> tuple[str, ...]:
    return tuple(name for name in (entity.name, *entity.aliases) if name != answer)


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
