"""``arbitrag lab``: the invented world, documents and questions about it, and what a model believes of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbitrag.cli.lab import retrieval
from arbitrag.cli.options import AsJson
from arbitrag.cli.terminal.arguments import typed
from arbitrag.cli.terminal.help import App

if TYPE_CHECKING:
    from arbitrag.lab.world import Fact, World

_SEED = 7  # arbitrag.lab.world.SEED, which is not imported before a command runs
_VERSION = 1

Seed = Annotated[int, typer.Option("--seed", metavar="N", help="The seed of the world.")]
Version = Annotated[int, typer.Option("--world-version", metavar="N", help="The version of the world.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to this file instead of standard output.")
]

group = App(help="The lab: an invented world, its documents and questions, and what a model knows of it.")


@group.command(epilog="arbitrag lab world --seed 7 -o world.jsonl")
def world(seed: Seed = _SEED, version: Version = _VERSION, out: Out = None, as_json: AsJson = False) -> None:
    """Summarise a world; with -o, write every entity and fact as JSON lines."""
    from arbitrag.cli.terminal.output import say, say_json, table

    made = _world(seed, version)
    summary = _summary(made)
    if out is not None:
        _write(out, (*_entity_rows(made), *_fact_rows(made)))
    if as_json:
        say_json(summary)
        return
    counts = [["TYPE", "ENTITIES", "FOR EXAMPLE"]]
    counts += [[kind, f"{len(names):,}", ", ".join(names[:3])] for kind, names in made.entities.items()]
    say(table(counts))
    say("")
    say(
        f"World {seed}, version {version}: {summary['known']:,} facts told before the cutoff ({summary['cutoff']}), "
        f"{summary['evolved']:,} of them changed since, and {summary['late']:,} told after it; "
        f"{summary['relations']} relations, {summary['aliases']:,} aliases, {summary['chains']:,} pairs of facts "
        "in a row."
    )


@group.command(epilog="arbitrag lab corpus --size 50000 -o corpus.jsonl --labels labels.jsonl")
def corpus(
    seed: Seed = _SEED,
    version: Version = _VERSION,
    size: Annotated[int, typer.Option("--size", min=1, metavar="N", help="How many documents.")] = 10_000,
    draw: Annotated[int, typer.Option("--draw", metavar="N", help="The seed of the documents.")] = 0,
    copies: Annotated[
        float, typer.Option("--copies", metavar="SHARE", help="The share of documents that are near-copies.")
    ] = 0.05,
    outdated: Annotated[
        bool, typer.Option("--outdated/--no-outdated", help="Include documents with outdated facts.")
    ] = True,
    poisons: Annotated[
        float, typer.Option("--poisons", metavar="SHARE", help="The share of facts with a poisoned document.")
    ] = 0.0,
    labels: Annotated[
        Path | None, typer.Option("--labels", metavar="FILE", help="Write a label for each document to this file.")
    ] = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Write documents about the world's facts, to be indexed: JSON lines with id, title, text, source and date."""
    from arbitrag.cli.terminal.output import complain, progress, say, say_json
    from arbitrag.errors import UsageError
    from arbitrag.lab.corpus import Corpus, Recipe, document_row, write_corpus

    _differ(out, labels)
    made = Corpus(_world(seed, version), Recipe(size, draw, copies, outdated, poisons))
    if out is None:
        if as_json or labels is not None:
            raise UsageError("--json and --labels need a file for the documents: -o FILE")
        for passage, _ in made:
            say_json(document_row(passage))
        return
    with progress("Writing") as show:
        write_corpus(made, out, labels=labels, progress=show)
    if as_json:
        say_json({"file": str(out), "labels": str(labels) if labels else None, "documents": made.counts})
        return
    say(f"{out}: {size:,} documents ({_counted(made.counts)})")
    if not labels and made.counts["poison"]:
        complain("which documents are poisoned is written nowhere; give --labels FILE to evaluate with them")


@group.command(epilog="arbitrag lab questions --count 200 -o questions.jsonl --gold gold.jsonl")
def questions(
    seed: Seed = _SEED,
    version: Version = _VERSION,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="How many questions.")] = 400,
    draw: Annotated[int, typer.Option("--draw", metavar="N", help="The seed of the questions.")] = 0,
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="KIND", help="known, evolved, late or multi-hop; all by default. Repeatable."),
    ] = None,
    gold: Annotated[
        Path | None, typer.Option("--gold", metavar="FILE", help="Write the gold answers to this file.")
    ] = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Write questions about the world, and the answers to another file."""
    from collections import Counter

    from arbitrag.cli.terminal.output import say, say_json
    from arbitrag.errors import UsageError
    from arbitrag.lab import questions as asked

    _differ(out, gold)
    made = _world(seed, version)
    found = asked.questions(made, count, seed=draw, kinds=kinds or asked.KINDS)
    if gold is not None:
        _write(gold, (asked.gold_row(each, made) for each in found))
    if out is None:
        if as_json:
            raise UsageError("--json needs a file for the questions: -o FILE")
        for each in found:
            say_json(asked.question_row(each))
        return
    _write(out, map(asked.question_row, found))
    counts = dict(Counter(each.kind for each in found))
    if as_json:
        say_json({"file": str(out), "gold": str(gold) if gold else None, "questions": counts})
    else:
        say(f"{out}: {len(found):,} questions ({_counted(counts)})")


group.command(epilog=retrieval.EXAMPLE)(retrieval.retrieval)


@group.command(epilog='arbitrag lab show "The Silver Harbor"')
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An entity of the world, or its alias.", callback=typed)],
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", metavar="FOLDER", help="A lab model; by default the embedded one.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="The seed of the world; by default the model's own.")
    ] = None,
    world_only: Annotated[
        bool, typer.Option("--world-only", help="Show the world only, without asking a model.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show an entity's facts beside what the model answers about them."""
    import asyncio

    from arbitrag.cli.terminal.output import say, say_json
    from arbitrag.errors import UsageError
    from arbitrag.lab.checkpoint import open_checkpoint

    if world_only and checkpoint is not None:
        raise UsageError("--world-only asks no model; leave --checkpoint out")
    if world_only:
        made = _world(_SEED if seed is None else seed, _VERSION)
        report = asyncio.run(_report(made, name, None))
    else:
        lab = open_checkpoint(checkpoint, seed=seed)
        report = asyncio.run(_report(lab.world, name, lab.llm))
    if as_json:
        say_json(report)
    else:
        say(_shown(report))


async def _report(made: World, name: str, llm: Any) -> dict[str, Any]:
    """What the world says of an entity, and with an ``llm`` what that answers without passages."""
    try:
        subject = made.find(name)
        facts = [{**_fact_row(made, fact), "model": None} for fact in made.about(subject)]
        if llm is not None:
            for row, fact in zip(facts, made.about(subject), strict=True):
                row["model"] = await _believed(made, fact, llm)
    finally:
        if llm is not None:
            await llm.aclose()
    return {
        "entity": subject,
        "type": made.kinds[subject],
        "aliases": list(made.aliases_of.get(subject, ())),
        "world": {"version": made.version, "seed": made.seed},
        "model": None if llm is None else llm.name,
        "facts": facts,
    }


async def _believed(made: World, fact: Fact, llm: Any) -> dict[str, Any]:
    """The answer from memory, how likely the model finds it as a whole, and whether it is right or was."""
    from math import exp

    from arbitrag.llm.base import Sampling
    from arbitrag.prompts import PromptBook
    from arbitrag.text import agree, clean_answer
    from arbitrag.types import Question

    asked = fact.form.questions[0].format(s=fact.subject)
    prompt = PromptBook.with_wording(llm.wording).render("direct/answer", question=Question(asked))
    reply = await llm.generate(prompt, Sampling(logprobs=True))
    answer = clean_answer(reply.text)
    before = made.outdated.get(fact)
    is_right, was_right = agree(answer, fact.object), before is not None and agree(answer, before.object)
    return {
        "question": asked,
        "answer": answer,
        "probability": exp(sum(reply.logprobs)),
        "is": "right" if is_right else "outdated" if was_right else "wrong",
    }


def _shown(report: dict[str, Any]) -> str:
    from arbitrag.cli.terminal.output import table

    also = f", also {', '.join(report['aliases'])}" if report["aliases"] else ""
    heading = ["RELATION", "THE WORLD", "SINCE", "TOLD BEFORE THE CUTOFF"]
    rows = [heading if report["model"] is None else [*heading, "THE MODEL", "LIKELY", ""]]
    for fact in report["facts"]:
        cells = [fact["relation"], fact["object"], str(fact["since"]), _told(fact)]
        if (believed := fact["model"]) is not None:
            cells += [believed["answer"] or "(nothing)", f"{believed['probability']:.0%}", believed["is"]]
        rows.append(cells)
    return f"{report['entity']} ({report['type']}{also})\n\n{table(rows)}"


def _told(fact: dict[str, Any]) -> str:
    if fact["rank"] is None:
        return "no"
    often = f"rank {fact['rank'] + 1:,} of {fact['ranks']:,}"
    return f"as {fact['before']}, {often}" if fact["before"] else often


def _fact_row(made: World, fact: Fact) -> dict[str, Any]:
    """A present fact; ``rank`` counts from 0 and is that of the fact in its form from before the cutoff."""
    before = made.outdated.get(fact)
    told = before or fact
    return {
        "subject": fact.subject,
        "relation": fact.relation,
        "object": fact.object,
        "since": made.since[fact],
        "before": before.object if before else None,
        "rank": made.rank.get(told),
        "ranks": len(made.known),
    }


def _summary(made: World) -> dict[str, Any]:
    from arbitrag.lab.language import RELATIONS
    from arbitrag.lab.world import CUTOFF

    return {
        "seed": made.seed,
        "version": made.version,
        "cutoff": CUTOFF,
        "entities": {kind: len(names) for kind, names in made.entities.items()},
        "relations": len(RELATIONS),
        "known": len(made.known),
        "evolved": len(made.evolved),
        "late": len(made.late),
        "newcomers": len(made.newcomers),
        "aliases": len(made.aliases),
        "chains": len(made.chains),
    }


def _entity_rows(made: World) -> Iterable[dict[str, Any]]:
    for name, kind in made.kinds.items():
        aliases = list(made.aliases_of.get(name, ()))
        yield {"entity": name, "type": kind, "aliases": aliases, "newcomer": name in made.newcomers}


def _fact_rows(made: World) -> Iterable[dict[str, Any]]:
    for name in made.kinds:
        for fact in made.about(name):
            row = _fact_row(made, fact)
            del row["ranks"]
            yield row


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    from arbitrag.lab.corpus import write_row
    from arbitrag.storage.files import replacing

    with replacing(path) as file:
        for row in rows:
            write_row(file, row)


def _differ(out: Path | None, beside: Path | None) -> None:
    from arbitrag.errors import UsageError

    if out is not None and beside is not None and out.resolve() == beside.resolve():
        raise UsageError(f"both files are {out}; give two names, so that nobody finds the answers by reading the rest")


def _world(seed: int, version: int) -> World:
    from arbitrag.lab.world import open_world

    return open_world(seed, version)


def _counted(counts: dict[Any, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
