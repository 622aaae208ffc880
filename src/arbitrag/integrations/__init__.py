"""Adapters for retrievers of other frameworks. No framework is imported here."""

from __future__ import annotations

from arbitrag.integrations.haystack import from_haystack
from arbitrag.integrations.langchain import from_langchain
from arbitrag.integrations.llamaindex import from_llamaindex
from arbitrag.security import telemetry

telemetry.turn_off()  # Haystack's own, where it is imported after this

__all__ = ["from_haystack", "from_langchain", "from_llamaindex"]
