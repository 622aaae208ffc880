"""``arbitrag ask``: one question with its verdict, or many as rows."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arbitrag.cli.config import Config, configured
from arbitrag.cli.foreign import Foreign, refuse_foreign
from arbitrag.cli.options import (
    AsJson,
    AskOptions,
    Changes,
    Encoder,
    Index,
    MaxCost,
    MaxTokens,
    Mode,
    Where,
    budget_from,
    default,
    option,
)
from arbitrag.cli.terminal.arguments import typed

if TYPE_CHECKING:
    from arbitrag.cli.terminal.output import Wait
    from arbitrag.llm.base import OnText
    from arbitrag.run import Failure
    from arbitrag.types import Verdict

EXAMPLE = """\
arbitrag ask "Who directed The Silent Orchard?" --index docs.idx --llm openai:gpt-4o-mini --method rag
arbitrag ask --questions questions.jsonl -o verdicts.jsonl --index docs.idx --llm hf:Qwen/Qwen3-0.6B
arbitrag ask "Who directed The Silent Orchard?" --index docs.idx --llm openai:gpt-4o-mini --answer long
echo "Who directed The Silent Orchard?" | arbitrag ask - --llm lab --index lab"""

STANDARD_INPUT = "-"


class AnswerForm(StrEnum):
    SHORT = "short"
    LONG = "long"


def ask(
    context: typer.Context,
    question: Annotated[
        str | None,
        typer.Argument(
            metavar="QUESTION",
            help="The question; - reads it from standard input. For many: --questions.",
            callback=typed,
        ),
    ] = None,
    llm: Annotated[str | None, option("llm")] = None,
    method: Annotated[str, option("method")] = default("method"),
    changes: Changes = None,
    index: Index = None,
    encoder: Encoder = None,
    mode: Mode = None,
    where: Where = None,
    passages: Annotated[Path | None, option("passages")] = None,
    scorer: Annotated[str | None, option("scorer")] = None,
    questions: Annotated[str | None, option("questions")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write a row per question to this file. Run again to resume, and to retry failed rows.",
        ),
    ] = None,
    concurrency: Annotated[int, option("concurrency")] = default("concurrency"),
    cache: Annotated[Path | None, option("cache")] = None,
    wording: Annotated[Path | None, option("wording")] = None,
    context_tokens: Annotated[int, option("context_tokens")] = default("context_tokens"),
    answer_tokens: Annotated[int, option("answer_tokens")] = default("answer_tokens"),
    writing_tokens: Annotated[int, option("writing_tokens")] = default("writing_tokens"),
    answer: Annotated[AnswerForm, option("answer")] = AnswerForm(default("answer")),
    price: Annotated[str | None, option("price")] = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    foreign: Foreign = False,
    as_json: AsJson = False,
    explain: Annotated[bool, typer.Option("--explain", help="Also print every call and decision.")] = False,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write the trace to this file, for arbitrag replay.")
    ] = None,
    config: Config = None,
) -> int:
    """Answer a question, and say which source was trusted and why."""
    import asyncio

    from arbitrag.errors import UsageError

    configuration = configured(context)
    if "--price" in configuration.used and "--llm" not in configuration.used:
        price = None  # it is that of the model that is set, and another was typed
    if passages is not None:  # what is typed stands in place of what is set
        index, mode = (
            None if f"--{name}" in configuration.used else value for name, value in (("index", index), ("mode", mode))
        )
    options = AskOptions(
        method=method,
        changes=changes or (),
        llm=llm,
        scorer=scorer,
        index=index,
        encoder=encoder,
        mode=mode,
        where=where or (),
        passages=_typed_path(passages),
        cache=_typed_path(cache),
        wording=_typed_path(wording),
        context_tokens=context_tokens,
        answer_tokens=answer_tokens,
        writing_tokens=writing_tokens,
        price=price,
        answer=answer.value,
        questions=questions,
        concurrency=concurrency,
        max_tokens=max_tokens,
        max_cost=max_cost,
        configuration=configuration,
    )
    typed = {"--max-tokens": max_tokens, "--max-cost": max_cost}
    if question is not None:
        if questions is not None or out is not None:
            raise UsageError("--questions and -o are for many questions; leave the QUESTION out, or them")
        if any(value is not None and name not in configuration.used for name, value in typed.items()):
            raise UsageError("--max-tokens and --max-cost are for many questions (--questions); leave them out")
        return _one(_read_in() if question == STANDARD_INPUT else question, options, as_json, explain, trace)
    if explain or trace is not None:
        raise UsageError("--explain and --trace are for one QUESTION; give it in quotes")
    if questions is None and _is_terminal():
        raise UsageError('there is no question; type: arbitrag ask "Who ...?", or give --questions FILE')
    from arbitrag.cli.batch import answer_many
    from arbitrag.data.asking import questions_to_ask

    options.model()  # before anything is read
    if (questions or "").startswith("lab:") and llm is not None and not foreign:
        refuse_foreign([llm], f"{questions} asks", "--foreign")
    asked = questions_to_ask(questions or "-")  # out here: in an event loop Ctrl-C would wait for the input's end
    return asyncio.run(answer_many(asked, options, out, concurrency, budget_from(max_tokens, max_cost)))


def _typed_path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _read_in() -> str:
    """One question, all of standard input. Raises DataError where that is not UTF-8."""
    from arbitrag.cli.terminal.output import complain
    from arbitrag.errors import DataError

    if _is_terminal():
        complain("Type the question, and end it with Ctrl-D on a line of its own.")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise DataError(f"standard input is not UTF-8 at byte {error.start + 1}") from None


def _one(question: str, options: AskOptions, as_json: bool, explain: bool, trace: Path | None) -> int:
    import asyncio

    from arbitrag.cli.explain import explained
    from arbitrag.cli.terminal.output import say, say_json, waiting, width
    from arbitrag.cli.verdict import render
    from arbitrag.run import Failure
    from arbitrag.security.addresses import shown
    from arbitrag.storage.files import check_writable

    if trace is not None:
        check_writable(trace)
    with waiting(f"Opening {shown(options.model())}") as wait:
        on_text = wait.stream if sys.stdout.isatty() and not as_json else None
        verdict = asyncio.run(_outcome(question, options, wait, on_text))
    if trace is not None:
        from arbitrag.replay import save_trace

        save_trace(verdict.trace, trace)  # of a failure too, whose calls show how it came about
    if isinstance(verdict, Failure):
        raise verdict.error
    configuration = options.configuration
    if as_json:
        from arbitrag.serialization import to_plain

        told = verdict.to_dict() | ({"configuration": dict(configuration.used)} if configuration.used else {})
        say_json({**told, "trace": to_plain(verdict.trace)} if explain else told)
    else:
        say(render(verdict, width(), settings=configuration.told(options.method_named)))
        if explain:
            say("\n" + explained(verdict.trace, width()))
    return 0


async def _outcome(question: str, options: AskOptions, wait: Wait, on_text: OnText | None) -> Verdict | Failure:
    from arbitrag.errors import UsageError
    from arbitrag.run import attempt, check
    from arbitrag.text import one_line
    from arbitrag.types import Question

    if not question.strip():
        raise UsageError("the question is empty")
    method = options.chosen()
    async with options.kit() as kit:
        wait.tell(f"Asking {one_line(kit.llm.backend.name)} by {method.name}")
        await check(method, kit)
        return await attempt(Question(question), method, kit, form=options.form, on_text=on_text)
