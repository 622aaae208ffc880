"""Questions and documents of your own, two methods, and one run file that keeps every row."""

import asyncio
import tempfile
from pathlib import Path

from arbitrag import open_kit
from arbitrag.data import open_set
from arbitrag.evaluate.report.measure import measure
from arbitrag.evaluate.run.plan import entries, plan
from arbitrag.evaluate.run.runner import run
from arbitrag.evaluate.run.store import Store
from arbitrag.methods import method_from
from arbitrag.retrieve import update_index


async def main(folder: Path) -> None:
    (folder / "docs.md").write_text("Bronwot Airlines was founded in 1987. Its chief executive is Shupeo Cicul.\n")
    (folder / "mine.jsonl").write_text('{"question": "When was Bronwot Airlines founded?", "answers": ["1987"]}\n')
    update_index(folder / "docs.md", folder / "index")
    async with open_kit("lab", index=folder / "index") as kit:
        systems, mine = entries([method_from("direct"), method_from("rag k=5")], [kit]), open_set(folder / "mine.jsonl")
        with Store.create(folder / "run.db", plan(systems, [mine], passages="retrieved")) as store:
            await run(store, systems)
            for name, right in measure(store, "mine", [each.name for each in store.systems]).right.items():
                print(f"{name}: {right.sum()} of {right.size} right")


with tempfile.TemporaryDirectory() as name:
    asyncio.run(main(Path(name)))
