"""``arbitrag tune``: the best settings of a method on a recorded run, without asking a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbitrag.cli.options import AsJson, default, option
from arbitrag.evaluate.metrics.answers import METRICS
from arbitrag.text import listed

if TYPE_CHECKING:
    from arbitrag.evaluate.tune.result import Tuned

EXAMPLE = """\
arbitrag bench run val.db --questions validation.jsonl --index docs.idx --llm ADDRESS --method trustmargin --traces
arbitrag tune val.db --method trustmargin --html map.html"""


def tune(
    path: Annotated[Path, typer.Argument(metavar="RUN.db", help="A run file made with --traces.")],
    method: Annotated[str, option("method", "tune")],
    set: Annotated[
        str | None,
        typer.Option("--set", "--split", metavar="NAME", help="The question set to tune on; a validation set."),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            "--system", metavar="NAME", help="The system to tune, if the run has the method with several settings."
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", metavar="NAME", help=f"{listed(list(METRICS), 'or')}.")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid", metavar="NAME=VALUES", help="Values to try: beta=0.5:1.5:0.1 or beta=0.9,1.1. Repeatable."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the best settings to this file, as JSON.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML page with heat maps.")
    ] = None,
    on_test: Annotated[bool, typer.Option("--on-test", help="Allow tuning on a set whose name contains test.")] = False,
    resamples: Annotated[
        int | None, typer.Option("--resamples", min=1, metavar="NUMBER", help="How many bootstrap resamples.")
    ] = None,
    seed: Annotated[int, option("seed", "tune")] = default("seed", "tune"),
    as_json: AsJson = False,
) -> None:
    """Find the best settings on a validation set from a recorded run, without a model.

    TrustMargin's threshold and weight, or BRIDGE's alpha, beta and weights of the scorer.
    """
    from arbitrag.cli.terminal.output import progress, say, say_json, width
    from arbitrag.evaluate.run.store import Store
    from arbitrag.evaluate.tune.search import tune as find
    from arbitrag.storage.files import check_writable, write_text

    for file in (out, html):
        if file is not None:
            check_writable(file)
    with Store.open(path) as store, progress("Tuning") as show:
        found = find(
            store,
            method,
            set=set,
            system=system,
            metric=metric,
            grid=grid or (),
            on_test=on_test,
            name=path.name,
            command=_command(path, method, set, system, metric, grid, on_test, resamples, seed),
            resamples=resamples,
            seed=seed,
            show=show,
        )
    if out is not None:
        write_text(out, _settings(found))
    if html is not None:
        from arbitrag.evaluate.tune.page import page

        write_text(html, page(found))
    if as_json:
        say_json(found.to_dict())
    else:
        from arbitrag.evaluate.tune.text import text

        say(text(found, width()))


def _settings(found: Tuned) -> str:
    """The best settings as a file: by name, as options of ask, and as a method of bench run."""
    import json

    plain = found.to_dict()
    kept: dict[str, Any] = {"method": found.method, "settings": plain["best"]["settings"]}
    kept |= {"options": found.options, "typed": found.typed, "set": found.set, "digest": found.digest}
    kept |= {key: plain[key] for key in ("metric", "best", "default", "difference")}
    return json.dumps(kept, ensure_ascii=False, indent=1) + "\n"


def _command(
    path: Path,
    method: str,
    set: str | None,
    system: str | None,
    metric: str | None,
    grid: list[str] | None,
    on_test: bool,
    resamples: int | None,
    seed: int,
) -> str:
    """The command again, as far as it decides what came out."""
    import shlex

    words = ["arbitrag", "tune", str(path), "--method", method]
    for name, value in (("--set", set), ("--system", system), ("--metric", metric)):
        words += [name, value] if value is not None else []
    for each in grid or ():
        words += ["--grid", each]
    words += ["--on-test"] if on_test else []
    words += ["--resamples", str(resamples)] if resamples is not None else []
    words += ["--seed", str(seed)] if seed else []
    return shlex.join(words)
