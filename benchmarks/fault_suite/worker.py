"""Command lines of Arbitrag, run one after the other in a process of their own, each with a deadline.

A start of Python costs more than most commands; a process that is kept makes thousands of commands
possible, and can be ended when one of them hangs. Run as a module, this file is that process.
"""

from __future__ import annotations

import io
import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.processes import environment, python

TIMEOUT_S = 1.5  # of one attempt at a request, in place of two minutes
RETRIES = 1
FOREIGN = 70  # the exit status of what is no ArbitragError


@dataclass(frozen=True)
class Outcome:
    """What a command did. ``status`` is None when it passed its deadline, or when the process died of it.

    ``log`` is what libraries logged at every level, as somebody who sets up logging would see it.
    """

    status: int | None
    out: str = ""
    err: str = ""
    log: str = ""
    hung: bool = False

    @property
    def foreign(self) -> bool:
        """Whether it ended in another way than by success or an ArbitragError."""
        return not self.hung and (self.status not in (0, 1, 2) or "Traceback" in self.err)

    @property
    def last_line(self) -> str:
        lines = [line for line in self.err.splitlines() if line.strip()]
        return lines[-1] if lines else ""


class Worker:
    """A process that runs commands; a context manager. ``env`` is added to the environment."""

    def __init__(self, home: Path, env: Mapping[str, str] | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._home = home
        self._env = dict(env or {})
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def run(self, *words: object, deadline_s: float = 30.0, stdin: str = "") -> Outcome:
        """Run ``arbitrag WORDS``; a process that does not answer in time is killed, and the next run starts another."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"argv": [str(word) for word in words], "stdin": stdin}) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=deadline_s)
        except queue.Empty:
            self._stop()
            return Outcome(None, hung=True)
        except BrokenPipeError:
            line = None
        if line is None:
            status = process.wait()
            self._stop()
            return Outcome(None, err=f"the process died with status {status}")
        return Outcome(**json.loads(line))

    def _start(self) -> subprocess.Popen[str]:
        home = {"HOME": str(self._home), "USERPROFILE": str(self._home), "XDG_CACHE_HOME": str(self._home / "cache")}
        self._process = subprocess.Popen(
            python("fault_suite.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=environment(**{**home, "PYTHONUTF8": "1", "COLUMNS": "100", **self._env}),
        )
        self._answers = queue.Queue()
        threading.Thread(target=_forward, args=(self._process, self._answers), daemon=True).start()
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _forward(process: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    try:
        for line in process.stdout:
            answers.put(line)
    except ValueError:  # the pipe was closed under it
        pass
    answers.put(None)


def _serve() -> None:
    """Answer each command line on standard input with a line of JSON."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what C and Rust print must not lie between the answers
    asked = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    shorten_waits()
    for line in asked:
        answers.write(json.dumps(_answer(**json.loads(line))) + "\n")
        answers.flush()


def shorten_waits() -> None:
    """Shorten the timeouts and backoff of requests in this process, whose defaults are for real servers."""
    import asyncio

    from arbitrag.llm.http.openai import OpenAILLM

    async def briefly(seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))

    defaults: dict[str, Any] | None = OpenAILLM.__init__.__kwdefaults__
    assert defaults is not None
    defaults |= {"timeout_s": TIMEOUT_S, "retries": RETRIES, "sleep": briefly}


def _answer(argv: Sequence[str], stdin: str) -> dict[str, Any]:
    from arbitrag.cli import main

    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.DEBUG)
    written = io.BytesIO(), io.BytesIO()
    streams = [io.TextIOWrapper(each, "utf-8", errors="strict", write_through=True) for each in written]
    old = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
    sys.stdout, sys.stderr = streams
    try:
        status: int | None = main(list(argv))
    except SystemExit as error:
        status = int(error.code or 0) if isinstance(error.code, int | None) else FOREIGN
    except BaseException as error:  # noqa: BLE001 - told as what it is: foreign
        status = FOREIGN
        sys.stderr.write(f"Traceback: {type(error).__name__}: {error!r}")
    finally:
        sys.stdin, sys.stdout, sys.stderr = old
    out, err = (each.getvalue().decode("utf-8", "replace") for each in written)
    return {"status": status, "out": out, "err": err, "log": log.getvalue()[-200_000:]}


if __name__ == "__main__":
    _serve()
