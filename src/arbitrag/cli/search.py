"""``arbitrag search``: what would be retrieved for a question."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arbitrag.cli.parts import AsJson

if TYPE_CHECKING:
    from arbitrag.types import Passage

EXAMPLE = 'Example: arbitrag search docs.idx "Who directed The Silent Orchard?" -k 5'
EXCERPT = 160  # characters shown of a passage


def search(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="The index, made by: arbitrag index.")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A question or any words.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many passages.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show what an index retrieves for a question, best first."""
    import asyncio

    from arbitrag.cli.output import complain, say, say_json
    from arbitrag.errors import UsageError
    from arbitrag.types import to_plain

    if not query.strip():
        raise UsageError("the query is empty")
    found = asyncio.run(_retrieve(index, query, k))
    if as_json:
        say_json(to_plain(found))
    elif found:
        say("\n".join(_shown(number, passage) for number, passage in enumerate(found, 1)))
    else:
        complain("no passage matches")


async def _retrieve(index: Path, query: str, k: int) -> tuple[Passage, ...]:
    from arbitrag.retrieve import open_index

    retriever = open_index(index)
    try:
        return await retriever.retrieve(query, k)
    finally:
        await retriever.aclose()


def _shown(number: int, passage: Passage) -> str:
    from arbitrag.text import one_line

    score = "" if passage.score is None else f"{passage.score:.2f}  "
    title = f"  {one_line(passage.title)}" if passage.title else ""
    return f"[{number}] {score}{one_line(passage.place, 200)}{title}\n    {one_line(passage.text, EXCERPT)}"
