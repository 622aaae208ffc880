"""``arbitrag bench``: methods on question sets, into a run file that survives whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arbitrag.cli.bench import report
from arbitrag.cli.bench.options import BenchOptions
from arbitrag.cli.config import Config, configured
from arbitrag.cli.foreign import Foreign
from arbitrag.cli.options import AsJson, Encoder, Index, MaxCost, MaxTokens, Mode, Where, budget_from, default, option
from arbitrag.cli.terminal.help import App

File = Annotated[Path, typer.Argument(metavar="RUN.db", help="The run file.")]
Concurrency = Annotated[int, option("concurrency", "bench run")]
Traces = Annotated[bool, typer.Option("--traces", help="Store the trace of every row.")]

group = App(
    help="Run methods over question sets, and compare them. A run is one file. It can be interrupted and resumed."
)


@group.command(
    epilog="""\
arbitrag bench run lab.db --questions "lab:questions?count=200" --llm lab
arbitrag bench run mine.db --questions mine.jsonl --index docs.idx --llm openai:gpt-4o-mini --method rag
arbitrag bench run mine.db --method "rag k=5"
arbitrag bench run mine.db"""
)
def run(
    context: typer.Context,
    path: File,
    questions: Annotated[list[str] | None, option("questions", "bench run")] = None,
    methods: Annotated[list[str] | None, option("method", "bench run")] = None,
    llms: Annotated[list[str] | None, option("llm", "bench run")] = None,
    index: Index = None,
    encoder: Encoder = None,
    mode: Mode = None,
    where: Where = None,
    passages: Annotated[str | None, option("passages", "bench run")] = None,
    scorer: Annotated[str | None, option("scorer", "bench run")] = None,
    cache: Annotated[str | None, option("cache", "bench run")] = None,
    wording: Annotated[str | None, option("wording", "bench run")] = None,
    context_tokens: Annotated[int | None, option("context_tokens", "bench run")] = None,
    answer_tokens: Annotated[int | None, option("answer_tokens", "bench run")] = None,
    writing_tokens: Annotated[int | None, option("writing_tokens", "bench run")] = None,
    prices: Annotated[list[str] | None, option("price", "bench run")] = None,
    limit: Annotated[int | None, option("limit", "bench run")] = None,
    seed: Annotated[int | None, option("seed", "bench run")] = None,
    retries: Annotated[int | None, option("retries", "bench run")] = None,
    deterministic: Annotated[bool | None, option("deterministic", "bench run")] = None,
    concurrency: Concurrency = default("concurrency", "bench run"),
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    foreign: Foreign = False,
    traces: Traces = False,
    as_json: AsJson = False,
    config: Config = None,
) -> int:
    """Answer every question with every method on every model. Finished rows are not computed again.

    Without options a run resumes as it began; a remote model or index has to be typed again. You can add methods,
    models and questions to a run. Everything else that affects an answer must stay the same.
    """
    from arbitrag.cli.bench.session import Session
    from arbitrag.cli.terminal.output import complain

    options = BenchOptions(
        index=index,
        encoder=encoder,
        mode=mode,
        where=where,
        passages=passages,
        scorer=scorer,
        cache=cache,
        wording=wording,
        context_tokens=context_tokens,
        answer_tokens=answer_tokens,
        writing_tokens=writing_tokens,
        retries=retries,
        seed=seed,
        deterministic=deterministic,
    )
    budget = budget_from(max_tokens, max_cost)
    configuration = configured(context)
    if "--price" in configuration.used and "--llm" not in configuration.used:
        prices = None  # it is that of the model that is set, and another was typed
    methods = [configuration.settled(each) for each in methods or ()]
    if path.exists():  # it goes on as it began, whatever is set by now
        options = options.without(configuration.parameters)
        methods = [] if "methods" in configuration.parameters else methods
        llms, prices = (
            None if name in configuration.parameters else value for name, value in (("llms", llms), ("prices", prices))
        )
    else:
        options = options.found_in(configuration)
        if told := configuration.told(*methods):
            complain(f"Settings: {told}")
    found = configuration.source("--llm")
    session = Session(path, options, prices or (), concurrency, traces, budget=budget, found=found, foreign=foreign)
    return session.run(questions or (), methods, llms or (), limit, as_json)


@group.command(epilog="arbitrag bench retry mine.db")
def retry(
    path: File,
    llms: Annotated[list[str] | None, option("llm", "bench retry")] = None,
    index: Index = None,
    encoder: Encoder = None,
    scorer: Annotated[str | None, option("scorer", "bench retry")] = None,
    cache: Annotated[str | None, option("cache", "bench retry")] = None,
    wording: Annotated[str | None, option("wording", "bench retry")] = None,
    concurrency: Concurrency = default("concurrency", "bench run"),
    prices: Annotated[list[str] | None, option("price", "bench retry")] = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    traces: Traces = False,
    as_json: AsJson = False,
) -> int:
    """Answer the failed rows of a run again, with the same settings.

    What the run file names and is not on this machine (models, an index on a server) has to be typed again.
    """
    from arbitrag.cli.bench.session import Session

    options = BenchOptions(index=index, encoder=encoder, scorer=scorer, cache=cache, wording=wording)
    budget = budget_from(max_tokens, max_cost)
    session = Session(path, options, prices or (), concurrency, traces, retry=True, budget=budget)
    return session.run((), (), llms or (), None, as_json)


group.command(epilog=report.REPORT)(report.report)
group.command(epilog=report.SHOW)(report.show)
group.command(epilog=report.DIFF)(report.diff)
