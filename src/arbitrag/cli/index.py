"""``arbitrag index``: make an index of documents, or bring one up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arbitrag.cli.config import Config, configured
from arbitrag.cli.options import AsJson, Encoder, encoder_from
from arbitrag.text import printable

if TYPE_CHECKING:
    from arbitrag.retrieve.index.update import IndexReport

EXAMPLE = "arbitrag index ./docs -o docs.idx"


def index(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PATH", help="The folder of the index, new or existing.")],
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="SOURCES...", help="Folders and files to index. The index remembers them.", show_default=False
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(
            "--include",
            metavar="GLOB",
            help="Index only matching files: by name ('*.md') or by path below the source ('notes/**'). Repeatable.",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude", metavar="GLOB", help="Leave matching files out, also where --include matches. Repeatable."
        ),
    ] = None,
    encoder: Encoder = None,
    passage_tokens: Annotated[
        int | None,
        typer.Option(
            "--passage-tokens", min=1, metavar="NUMBER", help="The length of a passage in tokens; 256 by default."
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option("--language", metavar="NAME", help="The language of the documents; english by default."),
    ] = None,
    add: Annotated[bool, typer.Option("--add", help="Add these sources to those of the index.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Index exactly these sources, and drop all others.")
    ] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Index documents, or update an index.

    Reads the md, txt, html, pdf, docx, pptx, xlsx, epub, ipynb and jsonl files of the sources. On an existing index it
    reads only what changed; without SOURCES it uses those that the index was made of, and other sources need --add or
    --replace. Hidden files and folders, build folders, node_modules and virtual environments are left out unless an
    --include names them, and the output lists them. The index remembers these options until they are changed.
    """
    from arbitrag.cli.terminal.output import complain, progress, say, say_json
    from arbitrag.retrieve import update_index

    with progress("Indexing", in_bytes=True) as show:
        report = update_index(
            sources or (),
            out,
            passage_tokens=passage_tokens,
            language=language,
            add=add,
            replace=replace,
            encoder=encoder_from(configured(context), encoder),
            include=include,
            exclude=exclude,
            progress=show,
        )
    if as_json:
        say_json(_plain(report))
        return
    for file in report.skipped:
        complain(f"skipped {file.source}: {file.reason}")
    for file in report.notes:
        complain(f"note {file.source}: {file.reason}")
    say("\n".join([_summary(report), *report.left_out.lines(including=bool(report.include))]))


def _plain(report: IndexReport) -> dict[str, object]:
    from arbitrag.serialization import to_plain

    named = {
        key: [{"source": file.source, "reason": file.reason} for file in files]
        for key, files in (("skipped", report.skipped), ("notes", report.notes))
    }
    sources = [{"path": printable(source.path), "name": source.name} for source in report.sources]
    return {
        **vars(report),
        "target": str(report.target),
        "sources": sources,
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
    several = f" of {len(report.sources):,} sources" if len(report.sources) > 1 else ""
    return (
        f"{report.target}: {_counted(report.passages, 'passage')} of {_counted(report.files, 'file')}{several} "
        f"({', '.join(changes) or 'nothing new'}) in {report.seconds:.1f} s"
    ) + (f"\nnot a kind that is read: {other}" if other else "")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
