"""Whatever a model replies, every method ends with a verdict or an error of ours, and what is shown is printable."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from fault_suite.replies import REPLIES

from arbitrag.cli.explain import explained
from arbitrag.cli.verdict import render
from arbitrag.encode.hashed import HashEncoder
from arbitrag.errors import ArbitragError
from arbitrag.kit import Kit
from arbitrag.methods import METHODS, load
from arbitrag.run import answer
from arbitrag.testing import FixedRetriever, ScriptedLLM
from arbitrag.types import Passage, Question

SHORT = {name: text for name, text in REPLIES.items() if len(text) < 2500}
LONG = {name: text for name, text in REPLIES.items() if 2500 <= len(text) < 1_000_000}
QUESTIONS = (Question("Who?", id="open"), Question("Which?", ("Paris", "İstanbul", "ſ"), id="closed"))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)
@pytest.mark.parametrize("method", list(METHODS))
async def test_every_short_reply_through_every_method(method: str, question: Question) -> None:
    await _check(method, question, SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)
@pytest.mark.parametrize("method", list(METHODS))
async def test_every_long_reply_through_every_method(method: str, question: Question) -> None:
    await _check(method, question, LONG)


async def _check(method: str, question: Question, replies: Mapping[str, str]) -> None:
    for name, reply in replies.items():
        llm = ScriptedLLM(lambda _, reply=reply: reply, lambda prompt, text: -1.0)  # type: ignore[misc]
        passages = [Passage("The capital is Paris.", id="a"), Passage(reply[:3000] or "x", id="b", title=reply[:99])]
        kit = Kit.of(llm, FixedRetriever(passages), encoder=HashEncoder())
        try:
            verdict = await answer(question, load(method)(), kit)
        except ArbitragError:
            continue
        json.dumps(verdict.to_dict(), allow_nan=False)
        shown = render(verdict, 80) + explained(verdict.trace, 80)
        strange = [each for each in shown if (ord(each) < 32 or 127 <= ord(each) < 160) and each not in "\n\t"]
        assert not strange, name
        assert "\u202e" not in shown, name
        shown.encode("utf-8")
