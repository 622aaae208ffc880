"""Index a folder of documents, and ask it; run again, only changed files are read."""

import tempfile
from pathlib import Path

import arbitrag
from arbitrag.retrieve import update_index

with tempfile.TemporaryDirectory() as folder:
    docs = Path(folder, "docs")
    docs.mkdir()
    (docs / "bronwot.md").write_text("The chief executive of Bronwot Airlines is Shupeo Cicul.\n")

    report = update_index(docs, Path(folder, "docs.idx"))
    print(f"{report.added} added, {report.passages} passages")

    verdict = arbitrag.ask(
        "Which person is chief executive of Bronwot Airlines?", "rag", llm="lab", index=Path(folder, "docs.idx")
    )
    print(verdict.answer, "from", verdict.kept[0].place)
