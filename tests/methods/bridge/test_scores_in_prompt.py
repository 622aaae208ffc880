"""Without the decision tree, the model itself decides by BRIDGE's scores: how a prompt states them."""

from __future__ import annotations

import pytest

from arbitrag.lab.model import PROMPTS
from arbitrag.methods.bridge.log import BridgeLog
from arbitrag.prompts import Field, PromptBook
from arbitrag.types import Question

LOG = BridgeLog(scores={"s1": 0.624, "s2": 0.4, "s3": 1.0, "s4": 0.0, "r_p": 0.6, "g_p": 0.4})


def user_turn(book: PromptBook) -> str:
    fields: dict[str, Field] = {
        "passages": (),
        "memories": (),
        "question": Question("Who?"),
        "scores": (LOG.score_block(),),
    }
    return book.find("bridge/answer_scored").render(**fields).messages[-1].text


def test_each_score_stands_beside_the_two_texts_that_were_compared() -> None:
    lines = user_turn(PromptBook()).splitlines()
    assert [line for line in lines if line.startswith("- ")] == [
        "- passages and notes: 0.62",
        "- notes, and answers from memory to reworded questions: 0.40",
        "- passages, and passages found for reworded questions: 1.00",
        "- answers from memory and passages found, both for reworded questions: 0.00",
        "- how far the question depends on passages: 60%",
        "- how far the question depends on memory: 40%",
    ]


def test_the_lab_model_reads_the_sentence_that_it_was_trained_on() -> None:
    assert user_turn(PromptBook.with_wording(PROMPTS)) == (
        "Scores: the passages and what memory wrote 0.62; memory with itself 0.40; the passages with those of other "
        "wordings 1.00; these with the answers from memory 0.00; the question rests on passages to 60% and on memory "
        "to 40%\nAnswer: Who?"
    )


def test_a_score_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(KeyError, match="s1"):
        BridgeLog().score_block()
