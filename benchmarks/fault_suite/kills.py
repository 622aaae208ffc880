"""Commands that are killed (SIGKILL) at random moments, each taken up again until it ends.

After each kill, what the command had acknowledged must still be there, unchanged, and must not be asked for again; at
the end the result must be that of a run that nobody disturbed.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.processes import environment, python

from fault_suite.endpoint_commands import run_rows
from fault_suite.problems import Problem, Problems, Show
from fault_suite.worker import Worker

PATIENCE_S = 120.0
COMMON = "harbour"  # a word of every document


@dataclass
class Kills:
    """How many commands were killed while they ran, and what that broke."""

    killed: int = 0
    problems: Problems = field(default_factory=Problems)

    def expect(self, holds: bool, kind: str, command: str, what: str) -> None:
        if not holds:
            self.problems.append(Problem(kind, f"kill {self.killed}", command, what[:400]))


def start(*words: object) -> subprocess.Popen[str]:
    command, env = python("arbitrag", *words), environment()
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)


def kill(process: subprocess.Popen[str], when: Callable[[], bool]) -> bool:
    """Kill a command as soon as ``when`` is true; False where it had ended before."""
    end = time.monotonic() + PATIENCE_S
    while process.poll() is None and not when() and time.monotonic() < end:
        time.sleep(0.001)
    alive = process.poll() is None
    process.kill()
    process.communicate()
    return alive


def after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def finish(kills: Kills, command: str, *words: object) -> bool:
    """Run a command to its end; whether it succeeded."""
    process = start(*words)
    try:
        _, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        kills.expect(False, "hang", command, "the next run did not end")
        return False
    kills.expect(process.returncode == 0, "lost", command, f"the next run failed: {err[-300:]}")
    return process.returncode == 0


def _write_documents(folder: Path, count: int, round: int) -> None:
    """``count`` files; in each round after the first, a tenth changes, a few go and a few come."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
        path = folder / f"{number:05}.md"
        gone = round and (number + round) % 40 == 0
        changed = sum((number + each) % 10 == 0 for each in range(1, round + 1))
        if gone:
            path.unlink(missing_ok=True)
        else:
            text = (
                f"# Place {number}\n\nThe {COMMON} of place {number} has version {changed} here. "
                + "It lies far. " * 30
            )
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
    for number in range(3 * round):
        (folder / f"new{round}-{number}.md").write_text(f"# New {number}\n\nThe {COMMON} is new.", encoding="utf-8")


def _contents(worker: Worker, index: Path, count: int) -> dict[str, str] | str:
    """The text of each document in an index, or the error that a search ends with."""
    ran = worker.run("search", index, COMMON, "-k", 3 * count, "--json", deadline_s=60)
    if ran.status != 0:
        return ran.err or "no end"
    found: dict[str, str] = {}
    for row in json.loads(ran.out or "[]"):
        found[row["source"]] = found.get(row["source"], "") + row["text"]
    return found


def index_kills(kills: Kills, folder: Path, rng: random.Random, times: int, count: int, show: Show) -> None:
    """An index that is killed while it is made, and again while it is brought up to date."""
    folder.mkdir(parents=True)
    with Worker(folder / "home") as worker:
        _kill_first_index(kills, folder, worker, rng, times, count, show)
        _kill_updates(kills, folder, worker, rng, times, count, show)


def _kill_first_index(
    kills: Kills, folder: Path, worker: Worker, rng: random.Random, times: int, count: int, show: Show
) -> None:
    name, docs, calm = "index", folder / "docs", folder / "calm.idx"
    _write_documents(docs, count, 0)
    began = time.monotonic()
    finish(kills, name, "index", docs, "-o", calm)
    usual_s = time.monotonic() - began
    right = _contents(worker, calm, count)
    made, done = folder / "made0.idx", 0
    for number in range(3 * times):
        if done == times:
            break
        show(done, times, name)
        if kill(start("index", docs, "-o", made), after(rng.uniform(0.2, 1.0) * usual_s)):
            done, kills.killed = done + 1, kills.killed + 1
        now = _contents(worker, made, count)
        if isinstance(now, str):
            kills.expect(
                "damaged" not in now and "fault in" not in now, "foreign", name, f"of a half-made index: {now}"
            )
        else:
            kills.expect(now == right, "different", name, "an index that was killed can be searched, and is not whole")
        if not isinstance(now, str) or rng.random() < 0.3:  # some are taken up again, others killed once more
            if finish(kills, name, "index", docs, "-o", made):
                kills.expect(_contents(worker, made, count) == right, "different", name, "not the undisturbed index")
            made = folder / f"made{number + 1}.idx"


def _kill_updates(
    kills: Kills, folder: Path, worker: Worker, rng: random.Random, times: int, count: int, show: Show
) -> None:
    name, docs, made = "index update", folder / "updated docs", folder / "updated.idx"
    _write_documents(docs, count, 0)
    began = time.monotonic()
    finish(kills, name, "index", docs, "-o", made)
    usual_s = time.monotonic() - began
    before, done = _known(_contents(worker, made, count)), 0
    for round in range(1, 3 * times + 1):
        if done == times:
            break
        show(done, times, name)
        _write_documents(docs, count, round)
        if kill(start("index", docs, "-o", made), after(rng.uniform(0.2, 0.8) * usual_s)):
            done, kills.killed = done + 1, kills.killed + 1
        before = _unharmed(kills, name, before, _contents(worker, made, count), docs)
    if finish(kills, name, "index", docs, "-o", made):
        fresh = folder / "fresh.idx"
        finish(kills, name, "index", docs, "-o", fresh)
        same = _contents(worker, made, count) == _contents(worker, fresh, count)
        kills.expect(same, "different", name, "the index differs from one that nobody disturbed")


def _known(found: dict[str, str] | str) -> dict[str, str]:
    return {} if isinstance(found, str) else found


def _unharmed(kills: Kills, name: str, before: dict[str, str], now: dict[str, str] | str, docs: Path) -> dict[str, str]:
    """Each document is what it was or what it is to be; the contents for the next look."""
    kills.expect(not isinstance(now, str), "lost", name, f"the index cannot be searched: {now}")
    found = _known(now)
    for source, old in before.items():
        path = docs / source
        if source not in found:
            kills.expect(not path.exists(), "lost", name, f"{source} is gone, and its file is there")
            continue
        new = path.read_text(encoding="utf-8").strip() if path.exists() else old
        kept = "".join(found[source].split())
        kills.expect(
            kept in ("".join(old.split()), "".join(new.split())), "lost", name, f"{source}: {found[source][:80]!r}"
        )
    return found


@contextmanager
def _scripted() -> Iterator[Any]:
    from arbitrag.testing import ScriptedServer, prompt_text

    def reply(prompt: Any) -> str:
        return f"answer {prompt_text(prompt).rpartition('number ')[2].split('?')[0]}"

    with ScriptedServer(reply, delay_s=0.01) as server:
        yield server


def _questions(folder: Path, count: int) -> Path:
    path = folder / "questions.jsonl"
    given = [{"text": "Numbers are many."}]
    rows = (
        {"id": f"q{n}", "question": f"What is number {n}?", "answers": ["x"], "passages": given} for n in range(count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _asked(request: Any) -> str:
    messages = (request.body or {}).get("messages") or ()
    text = "\n".join(message["content"] for message in messages)
    return f"q{text.rpartition('number ')[2].split('?')[0]}" if "number " in text else ""


Rows = Callable[[], dict[str, Any]]


def run_kills(kills: Kills, folder: Path, rng: random.Random, times: int, count: int, show: Show) -> None:
    """``bench run`` and ``ask -o``, killed after a random number of requests."""
    folder.mkdir(parents=True)
    questions = _questions(folder, count)
    plain, passages = folder / "plain.jsonl", folder / "passages.jsonl"
    plain.write_text(
        "".join(json.dumps({"id": f"q{n}", "question": f"What is number {n}?"}) + "\n" for n in range(count))
    )
    passages.write_text('{"text": "Numbers are many."}\n')
    run, out = folder / "run.db", folder / "rows.jsonl"
    for name, words, rows in (
        (
            "bench run",
            ("bench", "run", run, "--questions", questions, "--passages", "given"),
            lambda: run_rows(run, "rag"),
        ),
        ("ask -o", ("ask", "--questions", plain, "-o", out, "--passages", passages), lambda: _rows_of(out)),
    ):
        with _scripted() as server:
            command = (*words, "--llm", f"openai:m@{server.base_url}", "--method", "rag", "--concurrency", "4")
            _kill_and_resume(kills, name, command, rows, server, rng, times, count, show)


def _kill_and_resume(
    kills: Kills,
    name: str,
    command: tuple[object, ...],
    rows: Rows,
    server: Any,
    rng: random.Random,
    times: int,
    count: int,
    show: Show,
) -> None:
    finished: dict[str, Any] = {}
    done = 0
    for _ in range(3 * times):
        if done == times:
            break
        show(done, times, name)
        server.requests.clear()
        target, patience = rng.randrange(1, max(2, count // times)), after(rng.uniform(0.2, 2.0))
        if kill(start(*command), patience if rng.random() < 0.15 else _asked_for(server, target)):
            done, kills.killed = done + 1, kills.killed + 1
        finished = _kept(kills, name, finished, rows(), server)
    server.requests.clear()
    if finish(kills, name, *command):
        now = _kept(kills, name, finished, rows(), server)
        wrong = {key: row for key, row in now.items() if row[0] != f"answer {key[1:]}"}
        kills.expect(len(now) == count, "lost", name, f"{len(now)} of {count} rows at the end")
        kills.expect(not wrong, "different", name, f"wrong rows at the end: {str(wrong)[:200]}")


def _asked_for(server: Any, target: int) -> Callable[[], bool]:
    return lambda: len(server.requests) >= target


def _kept(kills: Kills, name: str, before: dict[str, Any], now: dict[str, Any], server: Any) -> dict[str, Any]:
    again = {_asked(request) for request in server.requests} & before.keys()
    kills.expect(not again, "asked again", name, f"finished rows were asked again: {sorted(again)[:5]}")
    lost = before.keys() - now.keys()
    kills.expect(not lost, "lost", name, f"finished rows are gone: {sorted(lost)[:5]}")
    changed = [key for key in before.keys() & now.keys() if before[key] != now[key]]
    kills.expect(not changed, "lost", name, f"finished rows changed: {changed[:5]}")
    return now


def _rows_of(path: Path) -> dict[str, Any]:
    """The whole rows in a file of answers."""
    content = path.read_bytes() if path.exists() else b""
    rows = [json.loads(line) for line in content.split(b"\n")[:-1]]
    return {row["id"]: (row.get("answer"), "error" in row, row.get("usage")) for row in rows}


def kill_all(folder: Path, seed: int, times: int, sizes: tuple[int, int], show: Show) -> Kills:
    """``times`` kills of each of four commands; ``sizes`` are the numbers of documents and of questions."""
    kills, rng = Kills(), random.Random(seed)
    documents, questions = sizes
    index_kills(kills, folder / "index", rng, times, documents, show)
    run_kills(kills, folder / "run", rng, times, questions, show)
    return kills
