"""``arbitrag replay``: decide again from a trace, without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arbitrag.cli.options import AsJson, Changes

EXAMPLE = "arbitrag replay trace.json --set threshold=-1.0"


def replay(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace, written by arbitrag ask ... --trace FILE.")],
    changes: Changes = None,
    method: Annotated[
        str | None,
        typer.Option("--method", metavar="NAME", help="Decide by another method, from the same recorded calls."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Decide again from a trace, without a model."""
    from arbitrag import replay as replays
    from arbitrag.cli.options import pairs_from
    from arbitrag.cli.terminal.output import say, say_json, width
    from arbitrag.cli.verdict import render

    verdict = replays.replay(replays.load_trace(trace), pairs_from(changes, "--set", "threshold=-1.0"), method=method)
    if as_json:
        say_json(verdict.to_dict())
    else:
        say(render(verdict, width()))
