"""``arbitrag bench report``, ``show`` and ``diff``: what came out of a run, of one question of it, and of two runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arbitrag.cli.options import AsJson
from arbitrag.evaluate.metrics.answers import METRICS

if TYPE_CHECKING:
    from arbitrag.evaluate.report.per_question import QuestionList
    from arbitrag.evaluate.report.report import Report

REPORT = """\
arbitrag bench report mine.db
arbitrag bench report mine.db --html mine.html
arbitrag bench report mine.db --metric contains,f1 --baseline rag"""
SHOW = "arbitrag bench show mine.db --question q1"
DIFF = "arbitrag bench diff before.db after.db"


class ReportFormat(StrEnum):
    TEXT = "text"
    MD = "md"
    CSV = "csv"
    JSON = "json"
    HTML = "html"


File = Annotated[Path, typer.Argument(metavar="RUN.db", help="The run file.")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="NAME", help="Only this question set. Repeatable.")]
Systems = Annotated[list[str] | None, typer.Option("--system", metavar="NAME", help="Only this system. Repeatable.")]
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAMES", help=f"{', '.join(METRICS)}; several with commas."),
]
Resamples = Annotated[
    int | None,
    typer.Option("--resamples", min=1, metavar="NUMBER", help="How many bootstrap resamples for each interval."),
]
Seed = Annotated[int, typer.Option("--seed", metavar="NUMBER", help="The seed of the bootstrap.")]


def report(
    path: File,
    format: Annotated[ReportFormat, typer.Option("--format", help="The format of the report.")] = ReportFormat.TEXT,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Write the report to this file instead of printing it."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML page; short for --format html -o FILE.")
    ] = None,
    metrics: Metrics = None,
    sets: Sets = None,
    systems: Systems = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", metavar="NAME", help="The system that significance marks compare with; the first by default."
        ),
    ] = None,
    confidence: Annotated[
        str, typer.Option("--confidence", metavar="SCORE", help="The score that orders answers by confidence.")
    ] = "confidence",
    resamples: Resamples = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare the systems of a run, with intervals, tests and costs.

    Every comparison is over the same questions, and failed rows count as wrong.
    """
    from arbitrag.cli.terminal.output import progress
    from arbitrag.errors import UsageError
    from arbitrag.evaluate.report.report import report as make
    from arbitrag.evaluate.run.store import Store
    from arbitrag.storage.files import check_writable

    if html is not None:
        if out is not None or as_json or format not in (ReportFormat.TEXT, ReportFormat.HTML):
            raise UsageError("--html FILE is --format html -o FILE; leave --format, -o and --json out beside it")
        format, out = ReportFormat.HTML, html
    if as_json and format not in (ReportFormat.TEXT, ReportFormat.JSON):
        raise UsageError(f"--json and --format {format.value} exclude each other; give one of them")
    if out is not None:
        check_writable(out)
    with Store.open(path) as store, progress("Measuring") as show:
        made = make(
            store,
            name=path.name,
            command=_command("report", path, metrics, sets, systems, baseline, confidence, resamples, seed),
            metrics=_split(metrics),
            sets=sets or (),
            systems=systems or (),
            baseline=baseline,
            confidence=confidence,
            resamples=resamples,
            seed=seed,
            show=show,
        )
        seen = None
        if format is ReportFormat.HTML and not as_json:
            from arbitrag.evaluate.report.per_question import question_lists

            seen = question_lists(store, made)
    _tell(made, ReportFormat.JSON if as_json else format, out, seen)


def show(
    path: File,
    question: Annotated[str, typer.Option("--question", metavar="ID", help="The id of a question.")],
    sets: Sets = None,
    systems: Systems = None,
    as_json: AsJson = False,
) -> None:
    """Show how every system answered one question, and whether it was right."""
    from arbitrag.cli.bench.question import found, told
    from arbitrag.cli.terminal.output import say, say_json, width
    from arbitrag.evaluate.run.store import Store

    with Store.open(path) as store:
        answers = found(store, question, sets or (), systems or ())
    if as_json:
        say_json([each.to_dict() for each in answers])
    else:
        say("\n\n".join(told(each, width()) for each in answers))


def diff(
    before: Annotated[Path, typer.Argument(metavar="A.db", help="A run file.")],
    after: Annotated[Path, typer.Argument(metavar="B.db", help="The run file to compare it with.")],
    metrics: Metrics = None,
    sets: Sets = None,
    systems: Systems = None,
    resamples: Resamples = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Show what changed between two runs, and whether the differences are more than noise."""
    from arbitrag.cli.bench.difference import told
    from arbitrag.cli.terminal.output import say, say_json, width
    from arbitrag.evaluate.report.difference import difference
    from arbitrag.evaluate.run.store import Store

    with Store.open(before) as first, Store.open(after) as second:
        found = difference(
            first,
            second,
            names=(before.name, after.name),
            metrics=_split(metrics),
            sets=sets or (),
            systems=systems or (),
            resamples=resamples,
            seed=seed,
        )
    if as_json:
        say_json(found.to_dict())
    else:
        say(told(found, width()))


def _tell(made: Report, format: ReportFormat, out: Path | None, seen: Mapping[str, QuestionList] | None) -> None:
    import json

    from arbitrag.cli.terminal.output import say, say_json, width
    from arbitrag.evaluate.report.formats import comma_separated, markdown, text
    from arbitrag.storage.files import write_text

    if format is ReportFormat.JSON and out is None:
        say_json(made.to_dict())
        return
    if format is ReportFormat.HTML:
        from arbitrag.evaluate.report.page import page

        shown = page(made, seen)
    elif format is ReportFormat.JSON:
        shown = json.dumps(made.to_dict(), ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    elif format is ReportFormat.TEXT:
        shown = text(made, width() if out is None else 100) + "\n"
    else:
        shown = markdown(made) if format is ReportFormat.MD else comma_separated(made)
    if out is None:
        say(shown.removesuffix("\n"))
    else:
        write_text(out, shown)


def _split(names: Sequence[str] | None) -> list[str]:
    return [name.strip() for each in names or () for name in each.split(",") if name.strip()]


def _command(
    verb: str,
    path: Path,
    metrics: Sequence[str] | None,
    sets: Sequence[str] | None,
    systems: Sequence[str] | None,
    baseline: str | None,
    confidence: str,
    resamples: int | None,
    seed: int,
) -> str:
    """The command that makes the same figures again."""
    words = ["arbitrag", "bench", verb, str(path)]
    for option, values in (("--metric", metrics), ("--set", sets), ("--system", systems)):
        words += [word for value in values or () for word in (option, value)]
    words += ["--baseline", baseline] if baseline is not None else []
    words += ["--confidence", confidence] if confidence != "confidence" else []
    words += ["--resamples", str(resamples)] if resamples is not None else []
    words += ["--seed", str(seed)] if seed else []
    return shlex.join(words)
