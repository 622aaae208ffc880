"""Commands against a faulty endpoint, and what counts as broken about each of them."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from fault_suite.fault_server import HONEST, KEY, MARK, PASSWORD, QUERY, USER, Fault, FaultServer, Request
from fault_suite.problems import Problem, Problems, Show
from fault_suite.worker import Outcome, Worker

DEADLINE_S = 25.0
QUESTIONS = tuple({"id": f"q{n}", "question": f"What is the capital of number {n}?"} for n in (1, 2, 3))
PASSAGES = ("The capital of number 1 is Paris.", "The capital of number 2 is Paris.", "Rome is old.")
PARSING = ("astute", "trustrag", "bridge")
SECRETS = (
    KEY,
    PASSWORD,
    QUERY,
    base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode(),
    base64.b64encode(PASSWORD.encode()).decode().rstrip("="),
)


def always(request: Request) -> bool:
    return True


def one_question(request: Request) -> bool:
    return MARK in request.body


def secrets_in(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


def secret_files(folder: Path) -> Iterator[str]:
    """The files under ``folder`` that hold a secret, with it."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            yield from (f"{path.name}: {secret}" for secret in SECRETS if secret.encode() in content)


class Endpoints:
    """Every command against one fault after the other."""

    def __init__(self, folder: Path, worker: Worker, *, parsing: Iterable[str] = PARSING) -> None:
        self.problems = Problems()
        self.commands = 0
        self._folder = folder
        self._worker = worker
        self._parsing = list(parsing)
        self._count = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._questions = folder / "questions.jsonl"
        self._questions.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
        self._given = folder / "given.jsonl"
        passages = [{"text": text} for text in PASSAGES]
        self._given.write_text(
            "".join(json.dumps({**row, "answers": [HONEST], "passages": passages}) + "\n" for row in QUESTIONS)
        )
        self._passages = folder / "passages.jsonl"
        self._passages.write_text("".join(json.dumps(row) + "\n" for row in passages))

    def meet(self, fault: Fault) -> None:
        """Run every command against ``fault`` and note what is broken."""
        method = self._parsing[self._count % len(self._parsing)]
        self._count += 1
        here = self._folder / f"{self._count:04}"
        here.mkdir()
        commands: tuple[tuple[str, Callable[[], Iterator[tuple[str, str]]]], ...] = (
            ("ask", lambda: self._ask(fault, here)),
            ("ask many, rag", lambda: self._ask_many(fault, here, "rag")),
            (f"ask many, {method}", lambda: self._ask_many(fault, here, method)),
            ("bench run", lambda: self._bench(fault, here, method)),
            ("doctor and methods", lambda: self._doctor(fault)),
        )
        for name, run in commands:
            self.commands += 1
            for kind, what in run():
                self.problems.append(Problem(kind, fault.name, name, what[:300]))
        for found in secret_files(here):
            self.problems.append(Problem("secret", fault.name, "files", found))
        if not any(problem.fault == fault.name for problem in self.problems):
            shutil.rmtree(here)

    def _ask(self, fault: Fault, here: Path) -> Iterator[tuple[str, str]]:
        with FaultServer(fault, always) as server:
            words = ("ask", QUESTIONS[0]["question"], "--llm", f"openai:m@{server.address}", "--method", "rag")
            ran = self._run(*words, "--passages", self._passages, "--trace", here / "trace.json", "--json")
        yield from _broken(ran)
        if ran.status == 0 and not fault.any_answer:
            answer = _answer(ran.out)
            if answer not in fault.answers:
                yield "different", f"the answer {answer!r} came of it"

    def _ask_many(self, fault: Fault, here: Path, method: str) -> Iterator[tuple[str, str]]:
        out = here / f"{method}.jsonl"
        with FaultServer(fault, one_question) as server:
            words = ("ask", "--questions", self._questions, "-o", out, "--llm", f"openai:m@{server.address}")
            more = ("--method", method, "--passages", self._passages, "--cache", here / "cache")
            ran = self._run(*words, *more)
        yield from _broken(ran)
        if ran.hung:
            return
        lines = out.read_bytes().splitlines() if out.exists() else []  # those of bytes end at line feeds alone
        rows = {row["id"]: row for row in map(json.loads, lines)}
        yield from self._rows(
            fault, {key: (row.get("answer"), "error" in row) for key, row in rows.items()}, method, ran
        )

    def _bench(self, fault: Fault, here: Path, method: str) -> Iterator[tuple[str, str]]:
        run = here / "run.db"
        with FaultServer(fault, one_question) as server:
            words = ("bench", "run", run, "--questions", self._given, "--llm", f"openai:m@{server.address}")
            ran = self._run(
                *words, "--method", "rag", "--method", method, "--retries", 1, "--passages", "given", "--traces"
            )
        yield from _broken(ran)
        if ran.hung:
            return
        for name in ("rag", method):
            yield from self._rows(fault, run_rows(run, name), name, ran)
        if run.exists():
            yield from _broken(self._run("bench", "report", run, "--format", "html", "-o", here / "report.html"))
            yield from _broken(self._run("bench", "show", run, "--question", "q2"))

    def _doctor(self, fault: Fault) -> Iterator[tuple[str, str]]:
        with FaultServer(fault, always) as server:
            for command in ("doctor", "methods"):
                yield from _broken(self._run(command, "--llm", f"openai:m@{server.address}"))

    def _rows(
        self, fault: Fault, rows: dict[str, tuple[Any, bool]], method: str, ran: Outcome
    ) -> Iterator[tuple[str, str]]:
        for key in ("q1", "q2", "q3"):
            if key not in rows:
                yield "lost", f"{key} of {method}: no row ({ran.last_line})"
                continue
            answer, failed = rows[key]
            if key != "q2":
                if method == "rag" and answer != HONEST:
                    yield "lost", f"{key} of {method} was answered honestly, and its row says {answer!r}"
            elif not failed and not fault.any_answer and method == "rag" and answer not in fault.answers:
                yield "different", f"{key} of {method}: the answer {answer!r} came of it"

    def _run(self, *words: object) -> Outcome:
        return self._worker.run(*words, deadline_s=DEADLINE_S)


def _answer(out: str) -> Any:
    try:
        return json.loads(out).get("answer")
    except ValueError:
        return out[:100]


def _broken(ran: Outcome) -> Iterator[tuple[str, str]]:
    if ran.hung:
        yield "hang", f"no end within {DEADLINE_S:g} s"
    if ran.foreign:
        yield "foreign", f"status {ran.status}: {' '.join(ran.err.split())[-250:]}"
    for where, text in (("output", ran.out), ("errors", ran.err), ("log", ran.log)):
        for secret in secrets_in(text):
            place = text.index(secret)
            yield "secret", f"{secret} in the {where}: {text[max(0, place - 120) : place + 40]!r}"
    for text in (ran.out, ran.err):
        if bad := [character for character in set(text) if ord(character) < 32 and character not in "\n\t\r"]:
            yield "foreign", f"control characters on the terminal: {bad!r}"


def run_rows(path: Path, label: str) -> dict[str, tuple[Any, bool]]:
    """The answers of one system in a run file, and whether each failed."""
    if not path.exists():
        return {}
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        found = connection.execute(
            "SELECT id, answer, error FROM rows JOIN items USING (set_number, place) "
            "JOIN systems ON systems.number = system_number WHERE method = ?",
            (label,),
        ).fetchall()
    return {key: (answer, bool(error)) for key, answer, error in found}


def endpoint_faults(folder: Path, faults: list[Fault], show: Show) -> Endpoints:
    with Worker(folder / "home", {"OPENAI_API_KEY": KEY}) as worker:
        met = Endpoints(folder / "runs", worker)
        for number, fault in enumerate(faults):
            show(number, len(faults), fault.name)
            met.meet(fault)
    met.problems += [Problem("secret", "any", "home", found) for found in secret_files(folder / "home")]
    return met
