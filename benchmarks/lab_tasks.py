"""How well the lab model follows the prompts of TrustRAG, ASTUTE RAG and BRIDGE: well-formed and right replies by task.

python benchmarks/lab_tasks.py --quick --checkpoint FOLDER

Without --checkpoint it measures the embedded model. Replies are greedy, to questions, entities and passages that are
held out from the training. Rules say what is right (training.tasks). --show prints a reply of each task beside the one
by rule.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

from harness.bench import Bench

from arbitrag.errors import ArbitragError
from arbitrag.lab.checkpoint import LabModel, open_checkpoint
from arbitrag.llm.base import Prompt, Sampling
from arbitrag.text import printable
from training.grading import Mark, mark
from training.replies import TASKS
from training.tasks import Task, Tasks

REPLY_TOKENS = 160
COUNTS = (1, 3, 5, 10)  # passages, by turns
AT_ONCE = 24


async def replies(lab: LabModel, tasks: list[Task]) -> list[str]:
    """Greedy replies to the tasks, in their order."""
    places = asyncio.Semaphore(AT_ONCE)

    async def reply(task: Task) -> str:
        async with places:
            found = await lab.llm.generate(Prompt.user(task.prompt), Sampling(max_tokens=REPLY_TOKENS))
            return found.text.strip()

    return list(await asyncio.gather(*map(reply, tasks)))


async def measure(bench: Bench, lab: LabModel) -> None:
    every = bench.pick(smoke=2, quick=100, full=200)
    drawn = Tasks(lab.world, random.Random(f"held out {bench.options.seed}"))
    problems: dict[str, Counter[str]] = {}
    for name in TASKS:
        tasks = [drawn.draw(name, COUNTS[number % len(COUNTS)]) for number in range(every)]
        found = await replies(lab, tasks)
        marks: list[Mark] = [mark(task, reply) for task, reply in zip(tasks, found, strict=True)]
        bench.figure(f"{name}: well-formed", share([each.well_formed for each in marks]), unit="%", at_least=95)
        bench.figure(f"{name}: right", share([each.right for each in marks]), unit="%", at_least=80)
        problems[name] = Counter(each.problem for each in marks if each.problem)
        if bench.options.show:
            wrong = next((place for place, each in enumerate(marks) if not each.right), 0)
            print(f"\n{name}, {'wrong' if not marks[wrong].right else 'right'}:\n{tasks[wrong].prompt}")
            print(f"--- by rule\n{tasks[wrong].reply}\n--- by the model\n{printable(found[wrong])}\n")
    await lab.llm.aclose()
    common = {name: dict(found.most_common(3)) for name, found in problems.items() if found}
    bench.finish(questions_each=every, model=lab.manifest.name, unreadable=common)


def share(flags: list[bool]) -> float:
    return 100 * sum(flags) / len(flags)


def main() -> None:
    bench = Bench("lab_tasks", __doc__)
    bench.parser.add_argument("--checkpoint", type=Path, help="a folder with a lab model; the embedded one without")
    bench.parser.add_argument("--show", action="store_true", help="print a wrong reply of each task")
    try:
        lab = open_checkpoint(bench.options.checkpoint)
        asyncio.run(measure(bench, lab))
    except ArbitragError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
