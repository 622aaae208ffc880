"""``arbitrag data build-trd``: build questions for which the right source to trust is known."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbitrag.cli.foreign import Foreign, refuse_foreign
from arbitrag.cli.options import AsJson

if TYPE_CHECKING:
    from arbitrag.data.trd.build import Built
    from arbitrag.data.trd.draft import Recipe
    from arbitrag.data.trd.material import Material
    from arbitrag.llm.base import LLM

EXAMPLE = "arbitrag data build-trd --from lab --llm lab -o trd-lab"

_LAB, _WIKIPEDIA = "lab", "wikipedia"
_LAB_RECIPE: Mapping[str, Any] = {"size": 4000, "passages": 5, "phrasings": 4, "show_options": False}


def build_trd(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="The folder for the set.")],
    source: Annotated[
        str,
        typer.Option(
            "--from", metavar="SOURCE", help="lab, wikipedia, or a folder with facts, passages and entities (.jsonl)."
        ),
    ] = _LAB,
    llm: Annotated[
        list[str] | None,
        typer.Option(
            "--llm", metavar="ADDRESS", help="A model that validates the questions. Repeatable: then all have to agree."
        ),
    ] = None,
    size: Annotated[
        int | None, typer.Option("--size", metavar="N", help="How many questions; all by default (lab: 4000).")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The random seed.")] = 0,
    passages: Annotated[
        int | None, typer.Option("--passages", metavar="N", help="Passages per question; 1 by default (lab: 5).")
    ] = None,
    telling: Annotated[int, typer.Option("--telling", metavar="N", help="How many of them state its fact.")] = 1,
    phrasings: Annotated[
        int | None, typer.Option("--phrasings", metavar="N", help="Questions per fact, at most; 1 by default (lab: 4).")
    ] = None,
    show_options: Annotated[
        bool | None,
        typer.Option(
            "--show-options/--hide-options", help="Show the models the answer options, or hide them (lab: hidden)."
        ),
    ] = None,
    world: Annotated[
        int | None,
        typer.Option("--world", metavar="N", help="The seed of the lab's world; by default the model's own."),
    ] = None,
    world_version: Annotated[
        int | None, typer.Option("--world-version", metavar="N", help="The version of the lab's world.")
    ] = None,
    cutoff: Annotated[
        str, typer.Option("--cutoff", metavar="DATE", help="The models' knowledge cutoff, such as 2023-02.")
    ] = "",
    nq_train: Annotated[
        Path | None, typer.Option("--nq-train", metavar="FILE", help="wikipedia: Natural Questions, simplified.")
    ] = None,
    nq_dev: Annotated[
        Path | None, typer.Option("--nq-dev", metavar="FILE", help="wikipedia: its development questions.")
    ] = None,
    taqa: Annotated[
        list[Path] | None, typer.Option("--taqa", metavar="FILE", help="wikipedia: questions of TAQA. Repeatable.")
    ] = None,
    wikidata: Annotated[
        Path | None, typer.Option("--wikidata", metavar="FILE", help="wikipedia: a JSON dump of Wikidata.")
    ] = None,
    paragraphs: Annotated[
        Path | None, typer.Option("--paragraphs", metavar="FILE", help="wikipedia: paragraphs, as passages.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, metavar="N", help="How many questions run concurrently.")
    ] = 32,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a set that was built with other options.")
    ] = False,
    examples: Annotated[
        int | None,
        typer.Option("--examples", min=1, metavar="N", help="Also write this many examples of each category."),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="FILE", help="Write them between the markers in this Markdown file."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask for confirmation before calling models that may cost money.")
    ] = False,
    foreign: Foreign = False,
    as_json: AsJson = False,
) -> int:
    """Build questions in four scenarios (after BRIDGE's TRD), each validated by models: train, validation and test.

    A build that was stopped goes on where it was when the same command is typed again.
    """
    import asyncio

    from arbitrag.cli.terminal.output import complain
    from arbitrag.data.trd.build import answers_kept
    from arbitrag.data.trd.wikipedia import Sources
    from arbitrag.errors import UsageError

    if into is not None and examples is None:
        raise UsageError("--into says where examples come; say how many: --examples 20")
    given = {"size": size, "passages": passages, "phrasings": phrasings, "show_options": show_options}
    recipe = _recipe(source, given, seed, telling)
    sources = Sources(nq_train, nq_dev, taqa or (), wikidata, paragraphs, cutoff)
    _refuse_misplaced(source, sources, world, world_version)
    if source == _LAB and not foreign:
        refuse_foreign(llm or (), "a set from the lab is", "--foreign")
    if answers_kept(out):
        complain(f"{out} holds the answers of a build that did not finish; they are not asked for again")

    async def go() -> Built | None:
        async with AsyncExitStack() as opened:
            material, models = await _opened(source, llm or (), sources, world, world_version, opened)
            if not _agreed(material, recipe, llm or (), out, yes):
                return None
            return await _build(material, models, recipe, out, concurrency, replace)

    try:
        built = asyncio.run(go())
    except KeyboardInterrupt:
        complain(f"every answer so far is kept in {out}; the same command goes on from there")
        raise
    if built is None:
        complain("nothing was asked")
        return 1
    _say(built, out, examples, into, as_json=as_json)
    return 0


def _agreed(material: Material, recipe: Recipe, llms: Sequence[str], out: Path, yes: bool) -> bool:
    """Say how many requests it will be, and ask before a model that may cost money gets the first.

    Raises UsageError where there is nobody to ask.
    """
    from arbitrag.cli.terminal.output import complain
    from arbitrag.data.trd.build import answers_kept, calls
    from arbitrag.errors import UsageError
    from arbitrag.security.addresses import shown
    from arbitrag.security.trust import is_local
    from arbitrag.text import one_line

    found = calls(material, recipe, len(llms))
    stages = (("from memory", found.memory), ("with passages", found.passages))
    listed = ", ".join(
        f"{sum(most for _, most in stage.values()):,} {name} "
        f"({', '.join(f'{category} {most:,}' for category, (_, most) in stage.items())})"
        for name, stage in stages
    )
    again = "; what was answered before is not asked again" if answers_kept(out) else ""
    complain(f"at most {found.most:,} requests: {listed}; {found.least:,} when every question passes at once{again}")
    paid = [one_line(shown(llm), 200) for llm in llms if not is_local(llm)]
    if not paid or yes:
        return True
    costly = f"{' and '.join(paid)} {'is' if len(paid) == 1 else 'are'} not on this machine, and may cost money"
    if not _is_terminal():
        raise UsageError(f"{costly}; to ask all the same, type the command again with --yes")
    return typer.confirm(f"{costly}. Ask?", err=True)


def _is_terminal() -> bool:
    return sys.stdin.isatty()


async def _build(
    material: Material, models: Sequence[LLM], recipe: Recipe, out: Path, concurrency: int, replace: bool
) -> Built:
    from arbitrag.cli.terminal.output import progress
    from arbitrag.data.trd.build import build

    with progress("Validating") as show:
        return await build(material, models, recipe, out, concurrency=concurrency, replace=replace, show=show)


def _recipe(source: str, given: Mapping[str, Any], seed: int, telling: int) -> Recipe:
    from arbitrag.data.trd.draft import Recipe

    chosen = {name: value for name, value in given.items() if value is not None}
    return Recipe(**{"seed": seed, "telling": telling, **(_LAB_RECIPE if source == _LAB else {}), **chosen})


def _refuse_misplaced(source: str, sources: Any, world: int | None, world_version: int | None) -> None:
    """Raise UsageError for an option that says nothing about this source."""
    from arbitrag.errors import UsageError

    if source != _LAB and (world, world_version) != (None, None):
        raise UsageError("--world and --world-version are for --from lab")
    if source == _LAB and sources.cutoff:
        raise UsageError("--cutoff is not for --from lab, whose world has its own")
    files = (sources.nq_train, sources.nq_dev, sources.wikidata, sources.paragraphs, *sources.taqa)
    if source != _WIKIPEDIA and any(files):
        raise UsageError("files of Natural Questions, TAQA and Wikidata are for --from wikipedia")


async def _opened(
    source: str,
    addresses: Sequence[str],
    sources: Any,
    world: int | None,
    version: int | None,
    opened: AsyncExitStack,
) -> tuple[Material, list[LLM]]:
    """The material and the models, which are closed with ``opened``."""
    from arbitrag.errors import UsageError
    from arbitrag.llm import open_llm

    if not addresses:
        raise UsageError("no model to validate with; give one or more: --llm lab, --llm openai:MODEL")
    if source == _LAB:
        return _opened_lab(addresses, world, version, opened)
    from arbitrag.data.trd.plain import plain_material
    from arbitrag.data.trd.wikipedia import wikipedia_material

    if source == _WIKIPEDIA:
        material = wikipedia_material(sources)
    else:
        material = plain_material(Path(source), cutoff=sources.cutoff)
    models = []
    for address in addresses:
        models.append(open_llm(address))
        opened.push_async_callback(models[-1].aclose)
    return material, models


def _opened_lab(
    addresses: Sequence[str], seed: int | None, version: int | None, opened: AsyncExitStack
) -> tuple[Material, list[LLM]]:
    """The lab's models with the one world that they know; a model from elsewhere knows none, and takes what is asked.

    Raises UsageError for models of different worlds, or one that knows another world than the one that was asked for.
    """
    from arbitrag.data.trd.lab import lab_material
    from arbitrag.errors import UsageError
    from arbitrag.lab.checkpoint import open_checkpoint
    from arbitrag.lab.model import manifest
    from arbitrag.lab.world import SEED, VERSION, open_world
    from arbitrag.llm import open_llm
    from arbitrag.registry import in_process

    if version is not None:
        open_world(SEED, version)  # raises for one that is not known
    seeds = set() if seed is None else {seed}
    models = []
    for address in addresses:
        folder = _checkpoint(address)
        if address == _LAB and manifest().world is None:
            raise UsageError(
                "the embedded model was not trained on a world that can be made again, so it cannot validate one; "
                f"give a lab model that was: --llm {in_process()}"
            )
        if address == _LAB or folder is not None:
            found = open_checkpoint(folder, seed=seed)
            models.append(found.llm)
            seeds.add(found.world.seed)
        else:
            models.append(open_llm(address))
        opened.push_async_callback(models[-1].aclose)
    if len(seeds) > 1:
        raise UsageError(f"the models know different worlds ({', '.join(map(str, sorted(seeds)))}); give those of one")
    return lab_material(open_world(min(seeds, default=SEED), VERSION if version is None else version)), models


def _checkpoint(address: str) -> Path | None:
    """The folder of a lab model, which its manifest shows it to be."""
    from arbitrag.registry import LLMS

    kind, _, rest = address.partition(":")
    folder = Path(rest.partition("?")[0])
    return folder if kind in LLMS and LLMS[kind].files and (folder / "manifest.json").is_file() else None


def _say(built: Built, out: Path, examples: int | None, into: Path | None, *, as_json: bool) -> None:
    from arbitrag.cli.terminal.output import complain, say, say_json, table
    from arbitrag.data.trd.build import EXAMPLES
    from arbitrag.data.trd.card import examples as shown
    from arbitrag.data.trd.card import insert_examples
    from arbitrag.storage.files import write_text

    if examples is not None:
        text = shown(built.rows, examples)
        write_text(out / EXAMPLES, text)
        if into is not None:
            insert_examples(into, text)
    report = built.report
    total = sum(map(len, built.rows.values()))
    if as_json:
        say_json({"folder": str(out), **report})
    else:
        rows = [["", "QUESTIONS", "FACTS", "ASKED", "REMOVED"]]
        for category, counts in report["questions"].items():
            removed = ", ".join(f"{count:,} {reason}" for reason, count in report["removed"][category].items())
            numbers = (sum(counts.values()), report["facts"][category], report["asked"][category])
            rows.append([category, *(f"{number:,}" for number in numbers), removed or "none"])
        say(table(rows))
        say("")
        splits = ", ".join(f"{len(of_split):,} {split}" for split, of_split in built.rows.items())
        say(f"{out}: {total:,} questions about {report['facts_in_all']:,} facts ({splits}); see {out}/card.md")
    wanted = report["recipe"]["size"]
    if wanted is not None and total < wanted:
        complain(f"{wanted:,} questions were asked for; {total:,} is what the shares of the categories allow")
