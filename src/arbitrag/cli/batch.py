"""Many questions: answered side by side, written in their order, and taken up again where a run stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import Any

from arbitrag.cli.options import AskOptions
from arbitrag.cli.results import FORMAT, ResultFile
from arbitrag.cli.terminal.output import complain, progress, say_json, waiting
from arbitrag.data.asking import Asked
from arbitrag.errors import BudgetError
from arbitrag.kit import Kit
from arbitrag.llm.budget import Budget
from arbitrag.methods.base import Method, settings
from arbitrag.prompts import prompts_digest
from arbitrag.run import Failure, answer_all
from arbitrag.security.addresses import shown
from arbitrag.serialization import json_digest, to_plain
from arbitrag.stages.long_form import Form
from arbitrag.text import one_line
from arbitrag.types import Passage, Question, Verdict

Show = Callable[[int, int | None, str], None]


async def answer_many(
    asked: Asked, options: AskOptions, out: Path | None, concurrency: int, budget: Budget | None = None
) -> int:
    """Answer the questions and give the exit status: 1 when any of them failed, 3 when a limit left some out.

    Rows go to standard output, or to ``out``, where those of a run before stay when they were made alike. The
    questions' own passages are read where every one has some and no others were given, as in ``bench run``.
    """
    if told := options.configuration.told(options.method_named):
        complain(f"Settings: {told}")
    method, questions = options.chosen(), asked.questions
    given = _given(asked, options)
    async with AsyncExitStack() as opened:
        with waiting(f"Opening {shown(options.model())}"):
            kit = await opened.enter_async_context(options.kit(None if given is None else ()))
        run = _settings_of_run(method, kit, given is not None) | ({"form": "long"} if options.form == "long" else {})
        digests = {name: json_digest(passages)[:16] for name, passages in (given or {}).items()}
        opening = nullcontext() if out is None else ResultFile.opened(out, questions, run, digests)
        with opening as file:
            to_ask = [question for question in questions if file is None or question.id not in file.finished]
            if budget is not None and file is not None:
                budget.tokens, budget.money = file.spent
            put = _said if file is None else file.append

            def write(row: dict[str, Any]) -> None:
                own = {"given": digests[row["id"]]} if given is not None else {}
                put({**row, **own, "run": run})

            done, failed, seconds = await _answer(to_ask, method, kit, concurrency, write, given, budget, options.form)
    before = len(questions) - len(to_ask)
    rate = f", {done / seconds:.1f} a second" if done and seconds else ""
    complain(
        f"{done - failed} answered, {failed} failed"
        + (f", {before} finished before" if before else "")
        + rate
        + (f"; run the same command again to retry those in {out}" if failed and out else "")
    )
    if budget is not None and budget.reached:
        again = "run the same command with a higher limit" if out else "give a higher limit, and -o to keep the rows"
        complain(
            f"Stopped before {budget.limits}: {budget.spent} were spent; "
            f"{len(to_ask) - done:,} of {len(questions):,} questions are left; {again}"
        )
        return BudgetError.exit_status
    return 1 if failed else 0


def _given(asked: Asked, options: AskOptions) -> Mapping[str, Sequence[Passage]] | None:
    """The questions' own passages where they are read, with a word about everything of the file that is left out."""
    others = "--index" if options.index is not None else "--passages" if options.passages is not None else ""
    bare = len(asked.questions) - len(asked.passages)
    left_out = list(asked.ignored)
    if asked.passages and others:
        left_out.append(f"passages (those of {others} are read)")
    elif asked.passages and bare:
        left_out.append(f"passages ({bare:,} of {len(asked.questions):,} questions have none)")
    if left_out:
        complain(f"{asked.name}: not for asking, and ignored: {one_line(', '.join(left_out), 500)}")
    return asked.passages if asked.passages and not others and not bare else None


async def _answer(
    questions: list[Question],
    method: Method,
    kit: Kit,
    concurrency: int,
    write: Callable[[dict[str, Any]], None],
    given: Mapping[str, Sequence[Passage]] | None,
    budget: Budget | None,
    form: Form,
) -> tuple[int, int, float]:
    """The number of rows and of failures among them, and the seconds that it took."""
    failed, clock = 0, time.perf_counter()
    with progress("Asking") as show:
        done = 0
        async for result in answer_all(
            questions, method, kit, concurrency=concurrency, given=given, budget=budget, form=form
        ):
            if isinstance(result, Failure) and isinstance(result.error, BudgetError):
                continue  # it was not answered, and waits for another run
            done, failed = done + 1, failed + (not _written(result, write))
            rate = done / (time.perf_counter() - clock)
            show(done, len(questions), f"{rate:.1f}/s" + (f", {failed} failed" if failed else ""))
    return done, failed, time.perf_counter() - clock


def _written(result: Verdict | Failure, write: Callable[[dict[str, Any]], None]) -> bool:
    """Write a row, and say whether it is a verdict; one that no JSON holds is written as a failure."""
    if isinstance(result, Failure):
        write(_failed(result.question, result.error))
        return False
    try:
        write({"id": result.question.id, **result.to_dict()})
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        write(_failed(result.question, error))
        return False
    return True


def _said(row: dict[str, Any]) -> None:
    """A row on standard output; raises ValueError before any of it is printed when it holds NaN, which JSON has not."""
    json.dumps(row, allow_nan=False)
    say_json(row)


def _failed(question: Question, error: Exception) -> dict[str, Any]:
    told = {"kind": type(error).__name__, "message": str(error)}
    return {"id": question.id, "question": to_plain(question), "error": told}


def _settings_of_run(method: Method, kit: Kit, given: bool) -> dict[str, Any]:
    """Everything that decides a verdict, so that rows made alike can be told from others."""
    models = {"llm": kit.llm.backend.identity, "scorer": kit.scorer.backend.identity}
    retriever = "given" if given else kit.retriever.identity if kit.retriever else ""
    made = {"format": FORMAT, "method": method.name, "settings": settings(method), **models, "retriever": retriever}
    wording = prompts_digest(kit.llm.book, kit.scorer.book)[:16]
    plain: dict[str, Any] = to_plain({**made, "limits": kit.limits, "wording": wording})
    return plain
