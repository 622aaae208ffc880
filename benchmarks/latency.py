"""Latency of each method in calls: the length of its critical path, on an endpoint that answers after 200 ms.

A scripted server in a process of its own replies in the form that each prompt asks for, so that no reply has to be
repaired and no method reflects. Each query finds other passages of 80 words, which the encoder ``hash`` compares. One
call is ``direct``, run by turns with the others.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping

from harness.bench import Bench, alternate
from harness.scripted_server import scripted_server

from arbitrag.encode.hashed import HashEncoder
from arbitrag.kit import Kit
from arbitrag.llm.http.openai import OpenAILLM
from arbitrag.methods import method_from
from arbitrag.methods.base import Method
from arbitrag.run import attempt, check
from arbitrag.types import Passage, Question, Verdict

CALL_S = 0.2
QUESTION = Question("Who directed The Silent Orchard?")
FACT = "The Silent Orchard was directed by Oskar Brend"
QUERIES = "\n".join(f"{n}. Whose work is film {n}, The Silent Orchard?" for n in range(1, 11))
REPLIES = {  # by a piece of the prompt
    "You judge what it takes": "retrieval: 40\ngeneration: 60",
    "You ask a question anew": QUERIES,
    "You write down what you remember": f"evidence: {FACT}.",
    "You answer questions from memory. You make": "\n".join(f"{n}. {FACT}, it is said {n}." for n in range(1, 7)),
    "from the material that you are given": "answer: Oskar Brend",
    "You write down what you know yourself": f"passage: {FACT}.",
    "You compare documents": f"group: {FACT} | sources: 1",
    "judge which of them to trust": "trust: external\nanswer: Oskar Brend",
    "from documents and from memory": "group: Oskar Brend | sources: 1 | confidence: 80\nanswer: Oskar Brend",
    "<passage 1>": "Oskar Brend",
    QUESTION.text: "Mira Talven",
}
BARS: Mapping[str, float | None] = {  # in calls
    "bridge": 3.3,
    "trustrag": 3.2,
    "astute": 2.2,
    "stack gate=allocator rerank=heads arbiter=bridge": 4.3,
    "stack gate=allocator arbiter=trustrag": 4.3,
    "stack": 4.3,
    "trustmargin candidate=astute": None,
    "trustmargin": None,
}


class Shelf:
    """Finds some of 500 passages of 80 words, other ones for every query; the first tells the fact."""

    name = identity = "shelf"

    def __init__(self) -> None:
        draw = random.Random(0)
        words = ["".join(draw.choices("abcdefghiklmnoprstuvw", k=draw.randrange(3, 11))) for _ in range(3000)]
        self._texts = [" ".join(draw.choices(words, k=80)) for _ in range(500)]

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        first, *others = random.Random(query).sample(range(len(self._texts)), k)
        told = Passage(f"{FACT}. {self._texts[first]}", id=f"told {first}")
        return (told, *(Passage(self._texts[each], id=str(each)) for each in others))

    async def aclose(self) -> None:
        pass


async def once(method: Method, kit: Kit) -> None:
    verdict = await attempt(QUESTION, method, kit)
    assert isinstance(verdict, Verdict), verdict
    assert verdict.answer, verdict.why
    for number in ("repaired", "parse_failures", "reflections"):
        assert not verdict.scores.get(number), (method, verdict.notes)


def main() -> None:
    bench = Bench("latency", __doc__, packages=("openai", "httpx"))
    rounds = bench.pick(smoke=1, quick=3, full=11)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        os.environ.pop(name, None)
    methods = {name: method_from(name) for name in ("direct", *BARS)}
    with scripted_server(REPLIES, style="ids", delay_s=CALL_S) as server, asyncio.Runner() as runner:
        llm = OpenAILLM("scripted", base_url=server.base_url)
        kit = Kit.of(llm, Shelf(), encoder=HashEncoder())
        for method in methods.values():
            runner.run(check(method, kit))
        sides = [lambda method=method: runner.run(once(method, kit)) for method in methods.values()]
        direct, *others = alternate(*sides, rounds=rounds)
        runner.run(llm.aclose())
    for (name, bar), seconds in zip(BARS.items(), others, strict=True):
        bench.ratio(f"{name} / one call", seconds, direct, at_most=bar)
    bench.figure("one call, median", sorted(direct)[len(direct) // 2] * 1000, unit="ms")
    bench.finish(call_ms=1000 * CALL_S, rounds=rounds)


if __name__ == "__main__":
    main()
