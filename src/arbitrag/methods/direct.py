"""Direct: answer from memory alone. The closed-book baseline of every table.

Cost: 1 generation, 1 step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from arbitrag.kit import Kit
from arbitrag.text import clean_answer, final_answer
from arbitrag.types import Candidate, Need, Question, Strategy, Verdict


@dataclass(frozen=True)
class Direct:
    """Ask the model without passages."""

    name: ClassVar[str] = "direct"
    needs: ClassVar[Need] = Need.GENERATE
    cost: ClassVar[str] = "1 answer"
    streams: ClassVar[bool] = True  # the one text that is written is the answer
    paper: ClassVar[str] = "baseline"

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        reply = await kit.llm.generate(kit.llm.prompt("direct/answer", question=question))
        memory = Candidate(clean_answer(reply.text), Strategy.MEMORY)
        answer = final_answer(memory.text, question.options)
        if answer is None:
            return Verdict(None, Strategy.REFUSE, "memory offers no answer", candidates=(memory,))
        return Verdict(answer, Strategy.MEMORY, "only memory was asked", candidates=(memory,))
