"""``arbitrag methods``: what there is, what it needs and costs, and what runs with a model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from arbitrag.address import HIDDEN, shown
from arbitrag.cli.parts import AsJson

EXAMPLE = "arbitrag methods --llm openai:gpt-4o-mini"


def methods(
    llm: Annotated[
        str | None, typer.Option("--llm", metavar="ADDRESS", help="Say which methods run with this model.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods: what each needs, costs and implements."""
    from arbitrag.cli.output import say, say_json, table
    from arbitrag.methods import METHODS, load

    kinds = [load(name) for name in METHODS]
    rows: list[dict[str, Any]] = [
        {"name": kind.name, "needs": kind.needs.names(), "cost": kind.cost, "paper": kind.paper} for kind in kinds
    ]
    evidence: tuple[str, ...] = ()
    if llm is not None:
        import asyncio

        offer = asyncio.run(_offer(llm))
        evidence = offer.evidence
        for row, kind in zip(rows, kinds, strict=True):
            missing = kind.needs.of_model & ~offer.needs
            row["runs"] = not missing
            row["missing"] = missing.names() if missing else ""
    if as_json:
        say_json(rows)
        return
    say(_table(rows, table))
    if llm is not None and evidence:
        told = shown(llm, mark=HIDDEN)
        say("\n" + "\n".join(f"{told}: {line}" for line in evidence))


def _table(rows: list[dict[str, Any]], table: Any) -> str:
    heading = ["METHOD", "NEEDS", "COST PER QUESTION", "PAPER"]
    body = [[row["name"], row["needs"], row["cost"], row["paper"]] for row in rows]
    if "runs" in rows[0]:
        heading.append("RUNS HERE")
        for cells, row in zip(body, rows, strict=True):
            way = "; give ask a --scorer" if row["missing"] == "score" else ""
            cells.append("yes" if row["runs"] else f"no: the model offers no {row['missing']}{way}")
    text: str = table([heading, *body])
    return text


async def _offer(address: str) -> Any:
    from arbitrag.cli.output import progress
    from arbitrag.llm import open_llm

    with progress("Examining") as show:
        show(0, 1, shown(address, mark=HIDDEN))
        backend = open_llm(address)
        try:
            return await backend.offer()
        finally:
            await backend.aclose()
