"""Damaged files: every kind of file that Arbitrag writes or is given, in every way that the fault suite knows.

A file that Arbitrag made itself is read as it was written or refused: a command that takes a damaged one either ends
with an error or prints what it prints of the undamaged one. A file that a person writes (questions, prompts) may say
something else after a flipped bit; of those it is only asked that the command ends, and that its error is one of ours.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.processes import ROOT

from arbitrag.lab.model import FOLDER
from fault_suite.endpoint_commands import always
from fault_suite.fault_server import HONEST, FaultServer
from fault_suite.problems import Problem, Problems, Show
from fault_suite.worker import Outcome, Worker

DEADLINE_S = 40.0
PIPE_DEADLINE_S = 8.0  # a command that waits for a pipe waits for ever
Words = tuple[object, ...]


@dataclass(frozen=True)
class Kind:
    """One kind of file or folder: how it is made, and the commands that read it.

    ``{}`` in the words of a command is the damaged copy. ``ours``: it must not give other answers. ``result``: a file
    that the last command writes, compared in place of what it prints. ``pipes``: a pipe in its place is damage, and
    none of the shell's, for which a command waits. ``skip``: folders whose files are left alone.
    """

    name: str
    original: Path
    commands: tuple[Words, ...]
    ours: bool = True
    result: str = ""
    pipes: bool = True
    skip: tuple[str, ...] = ()

    def files(self) -> list[str]:
        """What can be damaged, relative to the original; the original itself where it is a file."""
        if self.original.is_file():
            return [""]
        found = (path for path in sorted(self.original.rglob("*")) if path.is_file() and path.stat().st_size)
        kept = [path for path in found if not path.name.endswith(".lock") and not {*path.parts} & {*self.skip}]
        return [str(path.relative_to(self.original)) for path in kept]


Damage = Callable[[Path, random.Random], None]


def _cut(share: float) -> Damage:
    def damage(path: Path, rng: random.Random) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: min(int(len(content) * share), len(content) - 1)])

    return damage


def _changed(change: Callable[[bytearray, random.Random], None]) -> Damage:
    def damage(path: Path, rng: random.Random) -> None:
        content = bytearray(path.read_bytes())
        change(content, rng)
        path.write_bytes(content)

    return damage


def _flip(bits: int) -> Damage:
    def change(content: bytearray, rng: random.Random) -> None:
        for _ in range(bits):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)

    return _changed(change)


def _block(fill: Callable[[int, random.Random], bytes], share: float) -> Damage:
    def change(content: bytearray, rng: random.Random) -> None:
        size = max(1, int(len(content) * share))
        start = rng.randrange(len(content) - size + 1)
        content[start : start + size] = fill(size, rng)

    return _changed(change)


def _zeros(size: int, rng: random.Random) -> bytes:
    return bytes(size)


def _noise(size: int, rng: random.Random) -> bytes:
    return rng.randbytes(size)


def _gone(path: Path, rng: random.Random) -> None:
    path.unlink()


def _folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _loop(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _typed(path: Path, rng: random.Random) -> None:
    """Another type in the place of one value of a JSON file, or of one line of it."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    place = rng.randrange(len(lines))
    value = json.loads(lines[place])
    holders = list(_holders(value))
    holder, key = rng.choice(holders)
    holder[key] = rng.choice([None, True, -1, 10**400, 1e308, "x", [], {}, [[]], {"a": None}, "\ud800", 2**63])
    lines[place] = json.dumps(value)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _deep(path: Path, rng: random.Random) -> None:
    path.write_text("[" * 200_000 + "]" * 200_000)


def _holders(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _holders(inner)


DAMAGES: Mapping[str, Damage] = {
    "empty": _cut(0.0),
    "first byte left": _changed(lambda content, rng: content.__delitem__(slice(1, None))),
    "half": _cut(0.5),
    "last byte gone": _cut(1.0),
    "all zeros": _block(_zeros, 1.0),
    "a tenth zeros": _block(_zeros, 0.1),
    "a hundredth zeros": _block(_zeros, 0.01),
    "one bit": _flip(1),
    "another bit": _flip(1),
    "eight bits": _flip(8),
    "100 bits": _flip(100),
    "noise": _block(_noise, 1.0),
    "a tenth noise": _block(_noise, 0.1),
    "noise behind": _changed(lambda content, rng: content.extend(rng.randbytes(100))),
    "twice": _changed(lambda content, rng: content.extend(bytes(content))),
    "gone": _gone,
    "a folder": _folder,
    "a link to itself": _loop,
    "a pipe": _pipe,
    "deep JSON": _deep,
}
TYPED = ("a wrong type", "another wrong type", "a third wrong type")


def kinds(folder: Path, worker: Worker, port: str) -> list[Kind]:
    """Make an original of every kind, with a model at ``port`` that says the same to everything."""
    llm = f"openai:m@{port}"
    docs = folder / "docs"
    docs.mkdir()
    for number in range(30):
        text = f"# City {number}\n\nThe capital of number {number} is Paris. " + f"It lies at river {number * 7}. " * 20
        (docs / f"city{number}.md").write_text(text, encoding="utf-8")
    rows = [{"id": f"q{n}", "question": f"What is the capital of number {n}?", "answers": [HONEST]} for n in range(8)]
    questions = folder / "questions.jsonl"
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = folder / "asked.jsonl"
    asked.write_text("".join(json.dumps({"id": row["id"], "question": row["question"]}) + "\n" for row in rows))
    table = folder / "questions.csv"
    table.write_text("id,question,answers\n" + "".join(f"q{n},What is {n}?,Paris\n" for n in range(8)))
    settings = folder / "arbitrag.toml"
    settings.write_text(f'llm = "{llm}"\nmethod = "direct"\n[limits]\nanswer_tokens = 20\n')
    passages = folder / "passages.jsonl"
    passages.write_text("".join(json.dumps({"text": f"Fact {n}: Paris.", "id": f"p{n}"}) + "\n" for n in range(5)))
    query = "What is the capital of number 7?"
    words, both = folder / "words.idx", folder / "both.idx"
    run, trace, answers, cache = (folder / name for name in ("run.db", "trace.json", "answers.jsonl", "cache"))
    ask: Words = ("ask", query, "--llm", llm, "--method", "rag")
    many: Words = ("ask", "--questions", asked, "--llm", llm, "--method", "rag", "--passages", passages)
    bench: Words = (
        "bench",
        "run",
        run,
        "--questions",
        questions,
        "--llm",
        llm,
        "--method",
        "rag",
        "--method",
        "direct",
    )
    made: list[Words] = [
        ("index", docs, "-o", words),
        ("index", docs, "-o", both, "--encoder", "hash"),
        (*ask, "--passages", passages, "--trace", trace),
        (*many, "-o", answers),
        (*ask, "--passages", passages, "--cache", cache),
        (*bench, "--index", words, "--traces"),
    ]
    for command in made:
        ran = worker.run(*command, deadline_s=120)
        assert ran.status == 0, ran.err
    wording = folder / "wording"
    shutil.copytree(ROOT / "src" / "arbitrag" / "prompts" / "rag", wording / "rag")
    model = folder / "model"
    shutil.copytree(FOLDER, model)
    search: Words = ("search", "{}", query, "--json")
    update: Words = ("index", docs, "-o", "{}")
    report: Words = ("bench", "report", "{}", "--json")
    local: Words = ("ask", query, "--llm", "onnx:{}", "--passages", passages, "--method", "rag", "--json")
    direct: Words = ("--llm", llm, "--method", "direct")
    return [
        Kind("index of words", words, (search, ("search", "{}", "river 49", "-k", 3, "--json"))),
        Kind("index of words, updated", words, (update, (*search, "-k", 500))),
        Kind("index with vectors", both, (search, (*search, "--mode", "dense"), (*search, "--mode", "bm25"))),
        Kind("index with vectors, updated", both, (update, (*search, "--mode", "dense"))),
        Kind("run file", run, (report, ("bench", "show", "{}", "--question", "q3"))),
        Kind("run file, resumed", run, (("bench", "run", "{}"), report)),
        Kind("run file, compared", run, (("bench", "diff", "{}", run), ("bench", "diff", run, "{}"))),
        Kind("trace", trace, (("replay", "{}", "--json"), ("replay", "{}")), pipes=False),
        Kind("answers", answers, ((*many, "-o", "{}"),), result="{}"),
        Kind("response cache", cache, ((*ask, "--passages", passages, "--cache", "{}", "--json"),)),
        Kind("model", model, (local,), skip=("astute", "bridge", "trustrag", "trustmargin", "reading")),
        Kind("prompts", wording, ((*ask, "--passages", passages, "--wording", "{}"),), ours=False),
        Kind("settings", settings, (("ask", query, "--config", "{}"),), ours=False),
        Kind("questions", asked, (("ask", "--questions", "{}", *direct),), ours=False),
        Kind("question set", questions, (("data", "check", "{}"),), ours=False),
        Kind("question table", table, (("data", "check", "{}"), ("ask", "--questions", "{}", *direct)), ours=False),
        Kind("passages", passages, ((*ask, "--passages", "{}"),), ours=False),
        Kind("documents", docs / "city7.md", (("index", "{}", "-o", folder / "again.idx", "--replace"),), ours=False),
    ]


class Files:
    """Damages copies of the originals and runs the commands that read them."""

    def __init__(self, folder: Path, worker: Worker, seed: int) -> None:
        self.problems = Problems()
        self.damaged = 0
        self.refused = 0
        self._folder = folder
        self._worker = worker
        self._seed = seed
        self._expected: dict[str, list[str]] = {}

    def run(self, kinds: list[Kind], show: Show, *, share: float = 1.0) -> None:
        """Every damage to every file of every kind; ``share`` of them, drawn by the seed."""
        rng = random.Random(self._seed)
        plan = [(kind, file, name) for kind in kinds for file in kind.files() for name in _damages(kind, file)]
        plan = [each for each in plan if rng.random() < share]
        for number, (kind, file, name) in enumerate(plan):
            show(number, len(plan), f"{kind.name} {file} {name}")
            self.damage(kind, file, name)

    def _right(self, kind: Kind) -> list[str]:
        """What the commands print of the undamaged file."""
        if kind.name not in self._expected:
            self._expected[kind.name] = self._undamaged(kind)
        return self._expected[kind.name]

    def _undamaged(self, kind: Kind) -> list[str]:
        copy = self._copy(kind, "whole")
        outs = []
        for words in kind.commands:
            ran = self._command(words, copy)
            assert ran.status == 0, f"{kind.name}, undamaged: {ran.err}"
            outs.append(_comparable(ran, kind, copy))
        _remove(copy)
        return outs

    def damage(self, kind: Kind, file: str, name: str, by: Damage | None = None) -> None:
        """Damage one file of a copy, ``by`` something or by the damage of this name; run the commands on it, and note
        what is broken."""
        expected = self._right(kind)
        rng = random.Random(f"{self._seed} {kind.name} {file} {name}")
        copy = self._copy(kind, f"{self.damaged}")
        chosen = by or (_typed if name in TYPED else DAMAGES[name])
        chosen(copy / file if file else copy, rng)
        self.damaged += 1
        label = f"{kind.name}{f', {file}' if file else ''}: {name}"
        sound = True
        for words, right in zip(kind.commands, expected, strict=True):
            ran = self._command(words, copy, PIPE_DEADLINE_S if name == "a pipe" else DEADLINE_S)
            for bad, what in _judged(ran, kind, right, copy):
                sound = False
                self.problems.append(Problem(bad, label, str(words[:2]), what[:400]))
            if ran.status != 0:
                self.refused += 1
                break
        if sound:
            _remove(copy)

    def _copy(self, kind: Kind, name: str) -> Path:
        place = self._folder / "damaged" / name
        place.mkdir(parents=True)
        copy = place / kind.original.name
        if kind.original.is_dir():
            shutil.copytree(kind.original, copy)
        else:
            shutil.copy2(kind.original, copy)
        return copy

    def _command(self, words: Words, copy: Path, deadline_s: float = DEADLINE_S) -> Outcome:
        filled = [str(word).replace("{}", str(copy)) for word in words]
        return self._worker.run(*filled, deadline_s=deadline_s)


def _damages(kind: Kind, file: str) -> Iterator[str]:
    yield from (name for name in DAMAGES if (kind.ours and kind.pipes) or name != "a pipe")
    if (file or kind.original.name).endswith((".json", ".jsonl")):
        yield from TYPED


def _judged(ran: Outcome, kind: Kind, right: str, copy: Path) -> Iterator[tuple[str, str]]:
    if ran.hung:
        yield "hang", "no end within the deadline"
    elif ran.foreign:
        yield "foreign", f"status {ran.status}: {' '.join(ran.err.split())[-300:]}"
    elif ran.status == 0 and kind.ours:
        found = _comparable(ran, kind, copy)
        if found != right and "damaged" not in ran.err and "Warning" not in ran.err:
            yield "different", _first_difference(right, found)


def _comparable(ran: Outcome, kind: Kind, copy: Path) -> str:
    """What the answers are, without what may differ from run to run: the name of the copy, times and costs."""
    if kind.result:
        rows = Path(str(kind.result).replace("{}", str(copy))).read_bytes().splitlines()
        return "\n".join(
            json.dumps({**json.loads(row), "usage": None, "checksum": None}, sort_keys=True) for row in rows
        )
    text = ran.out.replace(str(copy), "COPY")
    try:
        plain = json.loads(text)
    except ValueError:
        return "\n".join(line for line in text.splitlines() if "COPY" not in line and " s" not in line[-3:])
    return json.dumps(_untimed(plain), sort_keys=True, indent=1)


def _untimed(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {
            key: _untimed(value)
            for key, value in plain.items()
            if key not in ("usage", "path", "notes", "made", "seconds", "started")
        }
    return [_untimed(value) for value in plain] if isinstance(plain, list) else plain


def _first_difference(right: str, found: str) -> str:
    for one, other in zip(right.splitlines(), found.splitlines(), strict=False):
        if one != other:
            return f"{one.strip()[:150]!r} became {other.strip()[:150]!r}"
    return f"{len(right)} characters became {len(found)}"


def _remove(copy: Path) -> None:
    shutil.rmtree(copy.parent, ignore_errors=True)


def damaged_files(folder: Path, seed: int, show: Show, *, share: float = 1.0, only: str = "") -> Files:
    with ExitStack() as opened:
        worker = opened.enter_context(Worker(folder / "home"))
        server = opened.enter_context(FaultServer(None, always))
        originals = folder / "originals"
        originals.mkdir(parents=True)
        found = Files(folder, worker, seed)
        made = kinds(originals, worker, f"http://127.0.0.1:{server.port}/v1")
        found.run([kind for kind in made if only in kind.name], show, share=share)
    return found
