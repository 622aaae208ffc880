"""A made-up question with scripted replies, and what a method makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arbitrag.encode.hashed import HashEncoder
from arbitrag.kit import Kit
from arbitrag.llm.base import Prompt
from arbitrag.methods import method_from
from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.run import answer
from arbitrag.testing.llm import ScriptedLLM, prompt_text
from arbitrag.types import Passage, Question, Verdict

WHO = "Who directed The Silent Orchard?"
PASSAGES = (
    Passage("Oskar Brend wrote and directed it in the spring of 1931.", id="1", title="The Silent Orchard"),
    Passage("Oskar Brend is best known for The Silent Orchard, which he directed.", id="2"),
    Passage("Rivers of the north freeze over early.", id="3"),
)
# What is found in each prompt and in no other, in the order in which it is looked for.
STEPS: Mapping[str, str] = {
    "reading/repair": "You put replies into a fixed form",
    "trustrag/memory": "one short paragraph, under 50 words",
    "trustrag/consolidate": "Bring together what the documents say",
    "trustrag/assess": "Judge how reliable the outside information is",
    "trustrag/answer": "What is known about the question",
    "astute/recall": "Write at most",
    "astute/consolidate": "You consolidate documents for a question",
    "astute/answer": "Choose the answer that is best supported",
    "bridge/allocate": "You judge what it takes",
    "bridge/rewrite": "You ask a question anew",
    "bridge/recall": "You write down what you remember",
    "bridge/recall_many": "You answer questions from memory",
    "bridge/reflect": "You find out where sources contradict",
    "bridge/answer": "from the material that you are given",
    "trustmargin/passages_only": "Question: \nAnswer:",
    "rag/answer": "Using the passages, answer the question",
    "direct/answer": "Question:",
}


@dataclass(frozen=True)
class Case:
    """``replies`` by the prompt that they answer; ``likelihoods`` by prompt and text, each a mean per token."""

    method: str
    replies: Mapping[str, str]
    likelihoods: Mapping[tuple[str, str], float] = field(default_factory=dict)
    passages: Sequence[Passage] = PASSAGES
    question: str = WHO


@dataclass(frozen=True)
class Worked:
    """A case and its verdict. ``calls`` are the model's: the prompt's name, and what came back in words."""

    case: Case
    verdict: Verdict
    calls: tuple[tuple[str, str], ...]


def work(case: Case) -> Worked:
    """Answer the case's question; the encoder is ``hash``, which needs no model."""
    steps: list[str] = []

    def reply(prompt: Prompt) -> str:
        steps.append(step_of(prompt))
        return case.replies[steps[-1]]

    def likelihood(prompt: Prompt, text: str) -> float:
        return case.likelihoods[step_of(prompt), text]

    kit = Kit.of(ScriptedLLM(reply, likelihood, name="made-up"), FixedRetriever(case.passages), encoder=HashEncoder())
    verdict = asyncio.run(answer(Question(case.question), method_from(case.method), kit))
    asked = [call for call in verdict.trace.calls if call.kind in ("generate", "score")]
    return Worked(case, verdict, tuple((step_of(_prompt(call.request)), _said(call)) for call in asked))


def step_of(prompt: Prompt) -> str:
    """The name of a prompt, by what is found in no other."""
    text = prompt_text(prompt)
    return next(name for name, piece in STEPS.items() if piece in text)


def _prompt(request: Mapping[str, Any]) -> Prompt:
    plain = request["prompt"]
    texts = [plain["text"] or "", *(message["text"] for message in plain["messages"])]
    return Prompt(text="\n".join(texts))


def _said(call: Any) -> str:
    if call.kind == "generate":
        return " / ".join(map(str.strip, call.result["text"].splitlines()))
    means = ((each["text"], sum(each["logprobs"]) / len(each["logprobs"])) for each in call.result)
    return "mean log-probabilities " + ", ".join(f"{text} {mean:.2f}" for text, mean in means)
