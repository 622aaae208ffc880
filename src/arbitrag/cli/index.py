"""``arbitrag index``: make an index of documents, or bring one up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arbitrag.cli.config import Config, configured
from arbitrag.cli.parts import AsJson, Encoder, encoder_from

if TYPE_CHECKING:
    from arbitrag.retrieve.update import IndexReport

EXAMPLE = "arbitrag index ./docs -o docs.idx"


def index(
    context: typer.Context,
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCES...", help="Folders and files to index.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PATH", help="The index, a folder; new or to update.")],
    include: Annotated[
        list[str] | None,
        typer.Option(
            "--include",
            metavar="GLOB",
            help="Only these: a name ('*.md') or a path from the source ('notes/**'). Repeatable.",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="GLOB", help="Not these; stronger than --include. Repeatable."),
    ] = None,
    encoder: Encoder = None,
    passage_tokens: Annotated[
        int | None,
        typer.Option(
            "--passage-tokens", min=1, metavar="NUMBER", help="The length of a passage, 256 without a choice."
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option("--language", metavar="NAME", help="The language of the documents, english by default."),
    ] = None,
    replace_all: Annotated[
        bool, typer.Option("--replace-all", help="Go on even when no document of before would be left.")
    ] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Make an index of documents, or bring it up to date.

    Reads md, txt, html, pdf, docx, pptx, xlsx, epub, ipynb and jsonl files under the sources. Run again, it reads only
    what changed.
    Hidden files and folders, build folders, node_modules and virtual environments are left out unless an --include
    names them, and the output says so.
    """
    from arbitrag.cli.output import complain, progress, say, say_json
    from arbitrag.retrieve import update_index

    with progress("Indexing", in_bytes=True) as show:
        report = update_index(
            sources,
            out,
            passage_tokens=passage_tokens,
            language=language,
            replace_all=replace_all,
            encoder=encoder_from(configured(context), encoder),
            include=include or (),
            exclude=exclude or (),
            progress=show,
        )
    if as_json:
        say_json(_plain(report))
        return
    for file in report.skipped:
        complain(f"skipped {file.source}: {file.reason}")
    for file in report.notes:
        complain(f"note {file.source}: {file.reason}")
    say("\n".join([_summary(report), *report.left_out.lines(including=bool(include))]))


def _plain(report: IndexReport) -> dict[str, object]:
    from arbitrag.types import to_plain

    named = {
        key: [{"source": file.source, "reason": file.reason} for file in files]
        for key, files in (("skipped", report.skipped), ("notes", report.notes))
    }
    return {
        **vars(report),
        "target": str(report.target),
        "not_read": dict(report.not_read),
        "left_out": to_plain(report.left_out),
        **named,
    }


def _summary(report: IndexReport) -> str:
    changes = [
        f"{count:,} {what}"
        for count, what in (
            (report.added, "added"),
            (report.changed, "changed"),
            (report.dropped, "dropped"),
            (report.unchanged, "unchanged"),
            (len(report.skipped), "skipped"),
        )
        if count
    ]
    other = ", ".join(f"{count:,} {suffix or 'other'}" for suffix, count in sorted(report.not_read.items()))
    return (
        f"{report.target}: {_counted(report.passages, 'passage')} of {_counted(report.files, 'file')} "
        f"({', '.join(changes) or 'nothing new'}) in {report.seconds:.1f} s"
    ) + (f"\nnot a kind that is read: {other}" if other else "")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
