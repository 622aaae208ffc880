"""``arbitrag methods``: what there is, what it needs and costs, and what runs with a model."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbitrag.cli.options import AsJson
from arbitrag.cli.terminal import completion
from arbitrag.security.addresses import HIDDEN, shown

if TYPE_CHECKING:
    from arbitrag.errors import ArbitragError
    from arbitrag.methods.base import Method

EXAMPLE = "arbitrag methods --llm openai:gpt-4o-mini"
LABEL = 13  # columns of the names on the left


def methods(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", autocompletion=completion.methods, help="A method to explain, with an example."),
    ] = None,
    llm: Annotated[
        str | None, typer.Option("--llm", metavar="ADDRESS", help="Show which methods run with this model.")
    ] = None,
    scorer: Annotated[
        str | None, typer.Option("--scorer", metavar="ADDRESS", help="A second model that scores.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods: what each does, needs, costs and implements. With a NAME, explain that one in full."""
    from arbitrag.cli.terminal.output import say, say_json, width
    from arbitrag.errors import UsageError
    from arbitrag.methods import METHODS, load

    if name is not None:
        if llm is not None or scorer is not None:
            raise UsageError("--llm and --scorer are for the list of methods; leave the NAME out, or them")
        from arbitrag.cli.method_page import described, page

        about = described(name, load(name, typed=True)())
        say_json(about) if as_json else say(page(about, width()))
        return
    if scorer is not None and llm is None:
        raise UsageError("--scorer is a second model beside --llm; give that as well")
    rows = {each: _row(each) for each in (*METHODS, *_others())}
    evidence: tuple[str, ...] = ()
    if llm is not None:
        import asyncio

        refused, evidence = asyncio.run(_refused(llm, scorer, list(rows)))
        for each, row in rows.items():
            row |= {"runs": each not in refused, "reason": refused.get(each, "")}
    if as_json:
        say_json(list(rows.values()))
        return
    say("\n".join(_told(row, width()) for row in rows.values()))
    if llm is not None and evidence:
        told = shown(llm, mark=HIDDEN)
        room = max(width(), 40)
        lines = (textwrap.fill(f"{told}: {line}", room, subsequent_indent="  ") for line in evidence)
        say("\n" + "\n".join(lines))


def _others() -> list[str]:
    """The methods of other packages, behind those that come with Arbitrag."""
    from arbitrag import plugins
    from arbitrag.methods import METHODS

    return [name for name in plugins.names("methods") if name not in METHODS]


def _row(name: str) -> dict[str, Any]:
    from arbitrag.errors import PluginError
    from arbitrag.methods import load
    from arbitrag.methods.base import needs_of, summary

    try:
        method: Method = load(name)()
    except PluginError as error:  # one broken package leaves the others to be seen
        return {"name": name, "what": str(error), "needs": "", "cost": "", "paper": ""}
    what = {"name": name, "what": summary(type(method)), "needs": needs_of(method).names()}
    return {**what, "cost": method.cost, "paper": method.paper}


def _told(row: dict[str, Any], columns: int) -> str:
    """What it does, and beneath it cost, needs, paper and whether it runs."""
    lines = [row["what"], *([f"{row['cost']}; needs {row['needs']}; {row['paper']}"] if row["needs"] else [])]
    if "runs" in row:
        reads = ", given passages (--index or --passages)" if "retrieve" in row["needs"] else ""
        lines.append(f"runs here{reads}" if row["runs"] else f"does not run here: {row['reason']}")
    room = max(columns, 40) - LABEL
    return textwrap.indent("\n".join(textwrap.fill(line, room) for line in lines), " " * LABEL).replace(
        " " * LABEL, f"{row['name']:<{LABEL}}", 1
    )


async def _refused(llm: str, scorer: str | None, names: list[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Why methods are refused, with default settings and given passages; and what the model was seen to do."""
    from arbitrag.cli.terminal.output import progress
    from arbitrag.errors import ArbitragError
    from arbitrag.methods import load
    from arbitrag.run import check, open_kit

    found: dict[str, str] = {}
    with progress("Examining") as show:
        show(0, 1, shown(llm, mark=HIDDEN))
        async with open_kit(llm, scorer=scorer, passages=()) as kit:
            evidence = (await kit.llm.backend.capabilities()).evidence  # an endpoint that cannot be reached ends here
            for name in names:
                try:
                    await check(load(name)(), kit)
                except ArbitragError as error:
                    found[name] = _reason(error)
    return found, evidence


def _reason(error: ArbitragError) -> str:
    """The first line of an error, and whether a second model would help."""
    from arbitrag.errors import CapabilityError

    helped = "; with a --scorer it would run" if isinstance(error, CapabilityError) and error.needs_scorer else ""
    return str(error).splitlines()[0].removesuffix(".") + helped
