"""Test doubles, ours and users': a scripted model, a fixed retriever, and a scripted HTTP server.

llm = ScriptedLLM(["Paris", "Lyon"])
kit = Kit.of(llm, FixedRetriever([Passage("Paris is the capital.", id="1")]))

with ScriptedServer(["Paris"]) as server:
    llm = OpenAILLM("scripted", base_url=server.base_url)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.testing.llm import ScriptedLLM, prompt_text

if TYPE_CHECKING:
    from arbitrag.testing.server import Fault, ScriptedServer

__all__ = ["Fault", "FixedRetriever", "ScriptedLLM", "ScriptedServer", "prompt_text"]


def __getattr__(name: str) -> Any:
    """The server is imported when it is used: it brings asyncio streams and threads along."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from arbitrag.testing import server

    return getattr(server, name)
