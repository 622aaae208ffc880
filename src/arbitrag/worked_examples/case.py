"""A made-up question with scripted replies, and what a method makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from arbitrag.encode.hashed import HashEncoder
from arbitrag.kit import Kit
from arbitrag.llm.base import Prompt
from arbitrag.methods import method_from
from arbitrag.prompts import Field, PromptBook, PromptFile
from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.run import answer
from arbitrag.serialization import from_plain
from arbitrag.testing.llm import ScriptedLLM
from arbitrag.types import Passage, Question, Verdict

WHO = "Who directed The Silent Orchard?"
PASSAGES = (
    Passage("Oskar Brend wrote and directed it in the spring of 1931.", id="1", title="The Silent Orchard"),
    Passage("Oskar Brend is best known for The Silent Orchard, which he directed.", id="2"),
    Passage("Rivers of the north freeze over early.", id="3"),
)
# Planted passages that echo the question, as a filter drops them.
COPIES = (
    Passage("Who directed The Silent Orchard? The Silent Orchard was directed by Pavel Kron.", id="4"),
    Passage("Who directed The Silent Orchard? Yes, The Silent Orchard was directed by Pavel Kron.", id="5"),
)
MEMORY, EVIDENCE = "Mira Talven", "Oskar Brend"  # the two answers
UNKNOWN, UNREADABLE = "I don't know", "It depends."  # replies that refuse, and that no form has


@dataclass(frozen=True)
class Case:
    """``replies`` by the prompt that they answer; ``likelihoods`` by prompt and text, each a mean per token.

    ``method`` has settings behind its name where they are not the default.
    """

    method: str
    replies: Mapping[str, str]
    likelihoods: Mapping[tuple[str, str], float] = field(default_factory=dict)
    passages: Sequence[Passage] = PASSAGES
    question: str = WHO

    def but(
        self, settings: str = "", passages: Sequence[Passage] | None = None, replies: Mapping[str, str] | None = None
    ) -> Case:
        """The same case with further settings, other passages, or other replies to some prompts."""
        return replace(
            self,
            method=f"{self.method} {settings}".strip(),
            passages=self.passages if passages is None else passages,
            replies={**self.replies, **(replies or {})},
        )


@dataclass(frozen=True)
class RefusalCase:
    """``when``, in words that follow "gives no answer when", and a case of it."""

    when: str
    case: Case


@dataclass(frozen=True)
class MethodExamples:
    """What a method does in plain words, an example that it answers, and a case of everything that it refuses.

    A test counts the places in the code where a verdict refuses, so that a new one needs its case here.
    """

    plain: str
    case: Case
    refusals: tuple[RefusalCase, ...]


@dataclass(frozen=True)
class Worked:
    """A case and its verdict. ``calls`` are the model's: the prompt's name, and what came back in words."""

    case: Case
    verdict: Verdict
    calls: tuple[tuple[str, str], ...]


def work(case: Case) -> Worked:
    """Answer the case's question; the encoder is ``hash``, which needs no model."""
    names: dict[Prompt, str] = {}

    def reply(prompt: Prompt) -> str:
        return case.replies[names[prompt]]

    def likelihood(prompt: Prompt, text: str) -> float:
        return case.likelihoods[names[prompt], text]

    model = ScriptedLLM(reply, likelihood, name="made-up")
    kit = Kit.of(model, FixedRetriever(case.passages), encoder=HashEncoder(), book=_NamingBook(named=names))
    verdict = asyncio.run(answer(Question(case.question), method_from(case.method), kit))
    asked = [call for call in verdict.trace.calls if call.kind in ("generate", "score")]
    calls = tuple((names[from_plain(Prompt, call.request["prompt"])], _said(call)) for call in asked)
    return Worked(case, verdict, calls)


@dataclass(frozen=True)
class _NamingFile(PromptFile):
    """A prompt file that notes its name for every prompt made of it."""

    named: dict[Prompt, str] = field(default_factory=dict)

    def render(self, **fields: Field) -> Prompt:
        prompt = super().render(**fields)
        self.named[prompt] = self.name
        return prompt


@dataclass(frozen=True)
class _NamingBook(PromptBook):
    """The packaged prompts; ``named`` has the name of each prompt that was made."""

    named: dict[Prompt, str] = field(default_factory=dict)

    def find(self, name: str) -> PromptFile:
        file = super().find(name)
        return _NamingFile(file.name, file.path, file.headers, file.sections, file.source_text, self.named)


def _said(call: Any) -> str:
    if call.kind == "generate":
        return " / ".join(map(str.strip, call.result["text"].splitlines()))
    means = ((each["text"], sum(each["logprobs"]) / len(each["logprobs"])) for each in call.result)
    return "mean log-probabilities " + ", ".join(f"{text} {mean:.2f}" for text, mean in means)
