"""Many questions: answered side by side, written in their order, and taken up again where a run stopped."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from arbitrag.cli.output import complain, progress, say_json
from arbitrag.cli.parts import Parts
from arbitrag.cli.results import ResultFile
from arbitrag.kit import Kit, Model
from arbitrag.methods.base import Method, settings
from arbitrag.run import Failure, answer_all
from arbitrag.types import Question, Verdict, to_plain

Show = Callable[[int, int | None, str], None]


async def answer_many(questions: list[Question], parts: Parts, out: Path | None, concurrency: int) -> int:
    """Answer the questions and give the exit status: 1 when any of them failed.

    Rows go to standard output, or to ``out``, where those of a run before stay when they were made alike.
    """
    method = parts.chosen()
    async with parts.kit() as kit:
        run = _settings_of_run(method, kit)
        opening = nullcontext() if out is None else ResultFile.opened(out, questions, run)
        with opening as file:
            waiting = [question for question in questions if file is None or question.id not in file.finished]
            write = say_json if file is None else file.append
            failed, seconds = await _answer(waiting, method, kit, concurrency, lambda row: write({**row, "run": run}))
    before = len(questions) - len(waiting)
    rate = f", {len(waiting) / seconds:.1f} a second" if waiting and seconds else ""
    complain(
        f"{len(waiting) - failed} answered, {failed} failed"
        + (f", {before} finished before" if before else "")
        + rate
        + (f"; run the same command again to retry those in {out}" if failed and out else "")
    )
    return 1 if failed else 0


async def _answer(
    questions: list[Question], method: Method, kit: Kit, concurrency: int, write: Callable[[dict[str, Any]], None]
) -> tuple[int, float]:
    """The number of failures, and the seconds that it took."""
    failed, clock = 0, time.perf_counter()
    with progress("Asking") as show:
        done = 0
        async for result in answer_all(questions, method, kit, concurrency=concurrency):
            write(_row(result))
            done, failed = done + 1, failed + isinstance(result, Failure)
            rate = done / (time.perf_counter() - clock)
            show(done, len(questions), f"{rate:.1f}/s" + (f", {failed} failed" if failed else ""))
    return failed, time.perf_counter() - clock


def _row(result: Verdict | Failure) -> dict[str, Any]:
    if isinstance(result, Failure):
        error = {"kind": type(result.error).__name__, "message": str(result.error)}
        return {"id": result.question.id, "question": to_plain(result.question), "error": error}
    return {"id": result.question.id, **result.to_dict()}


def _settings_of_run(method: Method, kit: Kit) -> dict[str, Any]:
    """Everything that decides a verdict, so that rows made alike can be told from others."""
    models = {"llm": kit.llm.backend.identity, "scorer": kit.scorer.backend.identity}
    retriever = kit.retriever.identity if kit.retriever else ""
    made = {"method": method.name, "settings": settings(method), **models, "retriever": retriever}
    plain: dict[str, Any] = to_plain({**made, "limits": kit.limits, "wording": _wording(kit.llm, kit.scorer)})
    return plain


def _wording(*models: Model) -> str:
    """A short hash of every prompt file that the models' wordings may be taken from."""
    digest = hashlib.sha256()
    for folder in (folder for model in models for folder in model.book.folders):
        for path in sorted(folder.glob("*/*.txt")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
