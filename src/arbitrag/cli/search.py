"""``arbitrag search``: what would be retrieved for a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from arbitrag.cli.config import Config, configured
from arbitrag.cli.options import AsJson, Encoder, Mode, Where, encoder_from, pairs_from
from arbitrag.cli.terminal.arguments import typed

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder as Encoded
    from arbitrag.types import Passage

EXAMPLE = 'arbitrag search docs.idx "Who directed The Silent Orchard?" -k 5'
EXCERPT = 160  # characters shown of a passage


def search(
    context: typer.Context,
    index: Annotated[
        str, typer.Argument(metavar="INDEX", help="An index made by arbitrag index, or a server's address.")
    ],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The query.", callback=typed)],
    k: Annotated[int, typer.Option("-k", min=1, metavar="NUMBER", help="How many passages to show.")] = 10,
    encoder: Encoder = None,
    mode: Mode = None,
    where: Where = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show what an index retrieves for a question, best first."""
    import asyncio

    from arbitrag.cli.terminal.output import complain, say, say_json, waiting
    from arbitrag.errors import UsageError
    from arbitrag.security.addresses import shown
    from arbitrag.serialization import to_plain

    if not query.strip():
        raise UsageError("the query is empty")
    wanted = pairs_from(where, "--where", "language=en")
    with waiting(f"Searching {shown(index)}"):
        found = asyncio.run(_retrieve(index, encoder_from(configured(context), encoder), mode, query, k, wanted))
    if as_json:
        say_json(to_plain(found))
    elif found:
        say("\n".join(_shown(number, passage) for number, passage in enumerate(found, 1)))
    else:
        complain("no passage matches")


async def _retrieve(
    index: str, encoder: str | Encoded | None, mode: str | None, query: str, k: int, where: dict[str, str]
) -> tuple[Passage, ...]:
    from arbitrag.retrieve import opened_index

    async with opened_index(index, encoder=encoder, mode=mode) as retriever:
        return await retriever.retrieve(query, k, where)


def _shown(number: int, passage: Passage) -> str:
    from arbitrag.text import one_line

    score = "" if passage.score is None else f"{passage.score:.2f}  "
    title = f"  {one_line(passage.title)}" if passage.title else ""
    return f"[{number}] {score}{one_line(passage.place, 200)}{title}\n    {one_line(passage.text, EXCERPT)}"
