"""A method of one's own: a frozen dataclass whose fields are its settings."""

from dataclasses import dataclass
from typing import ClassVar

import arbitrag
from arbitrag import Kit, Question, Strategy, Verdict
from arbitrag.methods.direct import Direct
from arbitrag.methods.rag import Rag
from arbitrag.types import Need


@dataclass(frozen=True)
class MemoryFirst:
    """Trust memory as soon as it answers, and read passages only when it declines."""

    name: ClassVar[str] = "memory_first"
    needs: ClassVar[Need] = Need.GENERATE | Need.RETRIEVE
    cost: ClassVar[str] = "1 or 2 answers"
    paper: ClassVar[str] = "none"

    k: int = 5

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        memory = await Direct().answer(question, kit)
        return memory if memory.strategy is Strategy.MEMORY else await Rag(self.k).answer(question, kit)


verdict = arbitrag.ask("Where is Bodax Motors based?", MemoryFirst(k=3), llm="lab", index="lab")
print(verdict.answer, verdict.strategy.value)
