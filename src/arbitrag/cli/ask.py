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
    Address,
    AsJson,
    Changes,
    Encoder,
    Index,
    MaxCost,
    MaxTokens,
    Mode,
    Parts,
    Where,
    budget_from,
)
from arbitrag.cli.terminal import completion
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


class Form(StrEnum):
    SHORT = "short"
    LONG = "long"


def ask(
    context: typer.Context,
    question: Annotated[
        str | None,
        typer.Argument(
            metavar="QUESTION", help="- reads it from standard input. For many: --questions.", callback=typed
        ),
    ] = None,
    llm: Address = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar="NAME",
            autocompletion=completion.methods,
            help="See: arbitrag methods. auto takes rag, which runs on every model.",
        ),
    ] = "auto",
    changes: Changes = None,
    index: Index = None,
    encoder: Encoder = None,
    mode: Mode = None,
    where: Where = None,
    passages: Annotated[
        Path | None, typer.Option("--passages", metavar="FILE", help='Rows {"text": ...} to read for every question.')
    ] = None,
    scorer: Annotated[
        str | None, typer.Option("--scorer", metavar="ADDRESS", help="A model for likelihoods, when --llm has none.")
    ] = None,
    questions: Annotated[
        str | None,
        typer.Option("--questions", metavar="FILE|-", help="JSON lines, CSV, or a question a line. See: data check."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Rows go here; run again to go on or retry.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, metavar="NUMBER", help="Questions at a time.")
    ] = 16,
    cache: Annotated[Path | None, typer.Option("--cache", metavar="DIR", help="Keep responses in this folder.")] = None,
    wording: Annotated[Path | None, typer.Option("--wording", metavar="DIR", help="Prompt files of your own.")] = None,
    context_tokens: Annotated[
        int, typer.Option("--context-tokens", min=1, metavar="NUMBER", help="For all passages together.")
    ] = 2048,
    answer_tokens: Annotated[int, typer.Option("--answer-tokens", min=1, metavar="NUMBER", help="For an answer.")] = 32,
    writing_tokens: Annotated[
        int,
        typer.Option("--writing-tokens", min=1, metavar="NUMBER", help="For what a method writes on the way."),
    ] = 256,
    answer: Annotated[
        Form,
        typer.Option("--answer", metavar="short|long", help="Long: also in sentences that cite the passages."),
    ] = Form.SHORT,
    price: Annotated[
        str | None, typer.Option("--price", metavar="PROMPT,COMPLETION", help="Money per million tokens of --llm.")
    ] = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    foreign: Foreign = False,
    as_json: AsJson = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print every call and decision as well.")] = False,
    trace: Annotated[Path | None, typer.Option("--trace", metavar="FILE", help="Write the trace, for replay.")] = None,
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
    parts = Parts(
        method=method,
        changes=changes or (),
        llm=llm,
        scorer=scorer,
        index=index,
        encoder=encoder,
        mode=mode,
        where=where or (),
        passages=passages,
        cache=cache,
        wording=wording,
        context_tokens=context_tokens,
        answer_tokens=answer_tokens,
        writing_tokens=writing_tokens,
        price=price,
        form=answer.value,
        configuration=configuration,
    )
    typed = {"--max-tokens": max_tokens, "--max-cost": max_cost}
    if question is not None:
        if questions is not None or out is not None:
            raise UsageError("--questions and -o are for many questions; leave the QUESTION out, or them")
        if any(value is not None and option not in configuration.used for option, value in typed.items()):
            raise UsageError("--max-tokens and --max-cost are for many questions (--questions); leave them out")
        return _one(_read_in() if question == STANDARD_INPUT else question, parts, as_json, explain, trace)
    if explain or trace is not None:
        raise UsageError("--explain and --trace are for one QUESTION; give it in quotes")
    if questions is None and _is_terminal():
        raise UsageError('there is no question; type: arbitrag ask "Who ...?", or give --questions FILE')
    from arbitrag.cli.batch import answer_many
    from arbitrag.data.asking import questions_to_ask

    parts.model()  # before anything is read
    if (questions or "").startswith("lab:") and llm is not None and not foreign:
        refuse_foreign([llm], f"{questions} asks", "--foreign")
    asked = questions_to_ask(questions or "-")  # out here: in an event loop Ctrl-C would wait for the input's end
    return asyncio.run(answer_many(asked, parts, out, concurrency, budget_from(max_tokens, max_cost)))


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


def _one(question: str, parts: Parts, as_json: bool, explain: bool, trace: Path | None) -> int:
    import asyncio

    from arbitrag.cli.explain import explained
    from arbitrag.cli.terminal.output import say, say_json, waiting, width
    from arbitrag.cli.verdict import render
    from arbitrag.run import Failure
    from arbitrag.security.addresses import shown
    from arbitrag.storage.files import check_writable

    if trace is not None:
        check_writable(trace)
    with waiting(f"Opening {shown(parts.model())}") as wait:
        on_text = wait.stream if sys.stdout.isatty() and not as_json else None
        verdict = asyncio.run(_outcome(question, parts, wait, on_text))
    if trace is not None:
        from arbitrag.replay import save_trace

        save_trace(verdict.trace, trace)  # of a failure too, whose calls show how it came about
    if isinstance(verdict, Failure):
        raise verdict.error
    configuration = parts.configuration
    if as_json:
        from arbitrag.serialization import to_plain

        told = verdict.to_dict() | ({"configuration": dict(configuration.used)} if configuration.used else {})
        say_json({**told, "trace": to_plain(verdict.trace)} if explain else told)
    else:
        say(render(verdict, width(), settings=configuration.told(parts.method)))
        if explain:
            say("\n" + explained(verdict.trace, width()))
    return 0


async def _outcome(question: str, parts: Parts, wait: Wait, on_text: OnText | None) -> Verdict | Failure:
    from arbitrag.errors import UsageError
    from arbitrag.run import attempt, check
    from arbitrag.text import one_line
    from arbitrag.types import Question

    if not question.strip():
        raise UsageError("the question is empty")
    method = parts.chosen()
    async with parts.kit() as kit:
        wait.tell(f"Asking {one_line(kit.llm.backend.name)} by {method.name}")
        await check(method, kit)
        return await attempt(Question(question), method, kit, form=parts.form, on_text=on_text)
