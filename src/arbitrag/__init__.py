"""Decide, question by question, whether a language model should trust its memory, the passages, both, or neither.

    import arbitrag
    verdict = arbitrag.ask("Who runs the harbour?", llm="openai:gpt-4o-mini", index="docs.idx")
    print(verdict.answer, verdict.strategy, verdict.why)

Names are loaded when they are first used, so importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arbitrag.errors import ArbitragError as ArbitragError
    from arbitrag.kit import Kit as Kit
    from arbitrag.llm import open_llm as open_llm
    from arbitrag.retrieve import open_index as open_index
    from arbitrag.run import answer as answer
    from arbitrag.run import answer_all as answer_all
    from arbitrag.run import ask as ask
    from arbitrag.run import open_kit as open_kit
    from arbitrag.types import Passage as Passage
    from arbitrag.types import Question as Question
    from arbitrag.types import Strategy as Strategy
    from arbitrag.types import Verdict as Verdict

__version__ = "0.1.0"

_HOMES = {
    "ArbitragError": "arbitrag.errors",
    "Kit": "arbitrag.kit",
    "Passage": "arbitrag.types",
    "Question": "arbitrag.types",
    "Strategy": "arbitrag.types",
    "Verdict": "arbitrag.types",
    "answer": "arbitrag.run",
    "answer_all": "arbitrag.run",
    "ask": "arbitrag.run",
    "open_index": "arbitrag.retrieve",
    "open_kit": "arbitrag.run",
    "open_llm": "arbitrag.llm",
}

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'arbitrag' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
