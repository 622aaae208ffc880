"""``arbitrag lab retrieval``: documents, questions, and which documents answer which question."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arbitrag.cli.options import AsJson

EXAMPLE = """\
arbitrag lab retrieval -o lab-retrieval
arbitrag index lab-retrieval/corpus.jsonl -o lab.idx"""
CORPUS, LABELS, QUESTIONS = "corpus.jsonl", "labels.jsonl", "questions.jsonl"


def retrieval(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="The folder for the three files.")],
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The seed of the world.")] = 7,
    version: Annotated[int, typer.Option("--world-version", metavar="N", help="The version of the world.")] = 1,
    size: Annotated[int, typer.Option("--size", min=1, metavar="N", help="How many documents.")] = 50_000,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="How many questions.")] = 1000,
    draw: Annotated[int, typer.Option("--draw", metavar="N", help="The seed of documents and questions.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Write a retrieval task: corpus.jsonl to index, questions.jsonl with the relevant documents (of both facts, where
    a question is about two in a row), and labels.jsonl, which says what each document is."""
    from arbitrag.cli.terminal.output import progress, say, say_json
    from arbitrag.errors import UsageError
    from arbitrag.lab.corpus import Corpus, Recipe, write_corpus, write_row
    from arbitrag.lab.questions import questions
    from arbitrag.lab.relevance import relevant, relevant_row
    from arbitrag.lab.world import open_world
    from arbitrag.storage.files import replacing

    world = open_world(seed, version)
    corpus = Corpus(world, Recipe(size, draw))
    asked = questions(world, count, seed=draw)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {out} cannot be made: {error.strerror}") from None
    with progress("Writing") as show:
        write_corpus(corpus, out / CORPUS, labels=out / LABELS, progress=show)
    found = relevant((label for _, label in corpus), asked)
    with replacing(out / QUESTIONS) as file:
        for each in found:
            write_row(file, relevant_row(each))
    several = sum(len(each.by_hop) > 1 for each in found)
    if as_json:
        say_json({"folder": str(out), "documents": corpus.counts, "questions": len(found), "two_hops": several})
        return
    say(f"{out}: {size:,} documents, {len(found):,} questions, {several:,} of them over two facts in a row")
