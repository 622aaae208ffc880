"""Auto: the default method, for those who name none. It is another method under that method's own name.

A default has to run on every model, and should be the one that answers best on real ones. Which that is has not been
measured yet, so it is RAG, which runs wherever there are passages and costs one answer. When a measurement speaks for
another method, the class that ``Auto`` derives from is the one line to change, and WHY the one to say it in.

Cost: that of the method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from arbitrag.kit import Kit
from arbitrag.methods.rag import Rag
from arbitrag.types import Question, Verdict

WHY = "it runs on every model, and no measurement on a real model speaks for another yet"


@dataclass(frozen=True)
class Auto(Rag):
    async def answer(self, question: Question, kit: Kit) -> Verdict:
        verdict = await super().answer(question, kit)
        return replace(verdict, notes=(*verdict.notes, f"method {self.name}, chosen by auto: {WHY}"))


Auto.__doc__ = f"Answer as {Auto.name} does: {WHY}."
