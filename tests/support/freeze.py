"""Writes tests/frozen/*.txt, what users see of Arbitrag: python tests/support/freeze.py

Each file holds the output of one command, a help page, a saved trace, a report page, or the shape of the files on disk.
Everything is made in this process with the embedded model, in a folder of its own; see ``COMMANDS``. The model serves
one request at a time, without prefix caching (``deterministic``), so that the counts of tokens are always the same.
"""

from __future__ import annotations

import difflib
import io
import itertools
import json
import os
import re
import shlex
import sqlite3
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import chdir, closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import patch

from arbitrag import __version__, cli
from arbitrag.evaluate.run.provenance import provenance
from arbitrag.lab import model

FOLDER = Path(__file__).parents[1] / "frozen"

METHODS = ("astute", "auto", "bridge", "direct", "rag", "stack", "trustmargin", "trustrag")
QUESTION = "Which person serves as mayor of Stozar?"  # memory and the passages differ, and bridge reflects
_LAB = "--llm lab --index lab"
_SHORT = "--resamples 200"

# The inputs, by path.
INPUTS = {
    "docs/harbour.md": "# The harbour\n\nThe harbour of Nulbot is run by Shupeo Cicul since 2019.\n",
    "docs/airlines.md": "Bronwot Airlines was founded in 1987. Its chief executive is Shupeo Cicul.\n",
    "docs/old.doc": "not read",
    "more/ferry.md": "The ferry to Nulbot leaves at nine.\n",
    "questions.jsonl": (
        '{"id": "q1", "question": "Who runs the harbour of Nulbot?", "answers": ["Shupeo Cicul"]}\n'
        '{"id": "q2", "question": "When was Bronwot Airlines founded?", "answers": ["1987"]}\n'
        '{"id": "q3", "question": "Who runs the ferry?", "answers": ["nobody"], "group": "ferry"}\n'
    ),
    "bad.jsonl": '{"id": "q1", "question": "Who?", "answers": ["A"]}\n{"question": 7}\n{"id": "q3"\n',
}

# A file of tests/frozen -> the command whose output it holds. They run in this order, in one folder.
COMMANDS = {
    "version": "--version",
    "methods": "methods",
    "methods-json": "methods --json",
    "methods-lab": "methods --llm lab",
    **{f"methods-{name}": f"methods {name}" for name in METHODS},
    "methods-bridge-json": "methods bridge --json",
    **{f"ask-{name}": f'ask "{QUESTION}" {_LAB} --method {name} --trace {name}.json' for name in METHODS},
    **{f"ask-{name}-json": f'ask "{QUESTION}" {_LAB} --method {name} --json' for name in METHODS},
    "ask-long": f'ask "{QUESTION}" {_LAB} --method rag --answer long',
    **{f"explain-{name}": f'ask "{QUESTION}" {_LAB} --method {name} --explain' for name in ("bridge", "trustmargin")},
    "replay": "replay trustmargin.json",
    "replay-set": "replay trustmargin.json --set threshold=-9",
    "replay-json": "replay trustmargin.json --method rag --json",
    "search": "search lab Stozar -k 2",
    "search-json": "search lab Stozar -k 2 --json",
    "index": "index docs -o docs.idx",
    "index-again": "index more --add -o docs.idx",
    "index-json": "index docs -o vectors.idx --encoder hash --json",
    "ask-many": (
        "ask --questions questions.jsonl --llm lab --index docs.idx --concurrency 1 --method rag -o verdicts.jsonl"
    ),
    "data-check": "data check questions.jsonl",
    "data-check-bad": "data check bad.jsonl",
    "data-check-json": 'data check "lab:questions?count=9" --json',
    "data-build-trd": "data build-trd --from lab --llm lab --size 40 -o trd",
    "lab-world": "lab world",
    "lab-world-json": "lab world --json",
    "lab-questions": "lab questions --count 5 -o lab.jsonl --gold gold.jsonl",
    "lab-show": 'lab show "The Stolen Desert"',
    "lab-show-json": 'lab show "The Stolen Desert" --json',
    "demo": "demo",
    "bench-run": (
        'bench run run.db --questions "lab:questions?count=6" --llm lab --deterministic --traces'
        " --method trustmargin --method bridge --method rag"
    ),
    "bench-run-json": (
        "bench run other.db --questions questions.jsonl --llm lab --index docs.idx --cache responses --deterministic"
        " --method direct --method rag --json"
    ),
    "bench-run-third": (
        "bench run third.db --questions questions.jsonl --llm lab --index docs.idx --deterministic"
        ' --method direct --method "rag k=1"'
    ),
    "bench-report": f"bench report run.db {_SHORT}",
    **{f"bench-report-{name}": f"bench report run.db {_SHORT} --format {name}" for name in ("md", "csv", "json")},
    "bench-show": "bench show run.db --question q00001",
    "bench-show-json": "bench show run.db --question q00001 --json",
    "bench-diff": f"bench diff other.db third.db {_SHORT}",
    "bench-diff-json": f"bench diff other.db third.db {_SHORT} --json",
    "bench-retry": "bench retry other.db",
    "tune-trustmargin": f"tune run.db --method trustmargin {_SHORT} -o best.json",
    "tune-trustmargin-json": (
        f"tune run.db --method trustmargin {_SHORT} --grid weight=0.5,1 --grid threshold=-2:0:1 --json"
    ),
    "tune-bridge": f"tune run.db --method bridge {_SHORT} --grid alpha=0.5 --grid beta=0.9:1.1:0.1",
    "lab-corpus": "lab corpus --size 7000 -o corpus.jsonl",
    "lab-questions-out": "lab questions --count 2",
    "refused-option": "ask --nonsense",
    "refused-model": 'ask "Who?" --llm nonsense:x',
    "refused-index": 'ask "Who?" --llm lab --index none.idx',
}

# A file of tests/frozen -> a command that writes page.html, of which the words are kept.
PAGES = {
    "page-report": f"bench report run.db {_SHORT} --html page.html",
    "page-tune": (
        f"tune run.db --method trustmargin {_SHORT} --grid weight=0:2:0.5 --grid threshold=-4:1:1 --html page.html"
    ),
}

ROWS = ("verdicts", "lab", "gold")  # files of JSON lines that the commands wrote


def frozen() -> dict[str, str]:
    """The text of every file by its name; it is the same on every machine but for numbers, see ``settled``."""
    with tempfile.TemporaryDirectory() as made, chdir(made), _steady():
        folder = Path.cwd()
        for name, text in INPUTS.items():
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(text, "utf-8", newline="\n")
        found = {f"help{name.replace(' ', '-')}": ran(f"{name} --help".strip()) for name in every_command()}
        found |= {name: ran(typed) for name, typed in COMMANDS.items()}
        found |= {name: page_text(typed) for name, typed in PAGES.items()}
        found |= {f"trace-{name}": readable(trace_of(name)) for name in METHODS}
        found |= {f"rows-{name}": "\n".join(readable(json.loads(row)) for row in _rows(name)) for name in ROWS}
        found |= {"rows-trd-card": _read("trd/card.md")}
        report = json.loads(typed_in("doctor --json")[0])
        found |= {"doctor-keys": outline(report | {"versions": {}, "extras": {}})}  # of what is installed
        found |= {"files": "\n".join(shapes())}
        return {f"{name}.txt": masked(text, folder) for name, text in found.items()}


def trace_of(method: str) -> Any:
    """A method's trace, its calls sorted by request and without times: concurrent calls end in any order."""
    trace = json.loads(_read(f"{method}.json"))
    for call in trace["calls"]:
        del call["began"], call["ended"]
    trace["calls"].sort(key=lambda call: json.dumps(call, sort_keys=True))
    return trace


@contextmanager
def _steady() -> Iterator[None]:
    """Nothing of this machine, its settings and its speed, in what is made inside: whatever is done takes 0.0 s."""
    opened, made_with, ticks = model.open_lab, provenance(), itertools.count()
    told = {
        key: dict.fromkeys(value, "VERSION") if isinstance(value, dict) else key for key, value in made_with.items()
    }
    told["packages"] = {"numpy": "VERSION"}  # others are there or not
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ARBITRAG_", "OPENAI_"))}
    kept |= {"COLUMNS": "80", "ARBITRAG_CACHE": "off", "NO_COLOR": "1"}
    with (
        patch.dict(os.environ, kept, clear=True),
        patch("arbitrag.cli.bench.session.provenance", lambda: told),
        patch.object(model, "open_lab", lambda **options: opened(**{**options, "deterministic": True})),
        patch("time.perf_counter", lambda: next(ticks) * 1e-9),  # two are never equal, so that rates can be computed
    ):
        yield


def _read(name: str) -> str:
    return Path(name).read_text("utf-8")


def _rows(name: str) -> list[str]:
    return _read(f"{name}.jsonl").splitlines()


def every_command() -> Iterator[str]:
    """The names of all commands and groups, as `` bench run``; that of ``arbitrag`` itself is empty."""
    waiting: list[tuple[str, Any]] = [("", cli._command())]
    while waiting:
        name, command = waiting.pop()
        yield name
        waiting += [(f"{name} {inner}", each) for inner, each in getattr(command, "commands", {}).items()]


def typed_in(typed: str) -> tuple[str, str, int]:
    """What a command, without ``arbitrag`` before it, prints on both streams, and its exit status."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n") for _ in range(2))
    argv = patch("sys.argv", ["arbitrag", *shlex.split(typed)])
    with argv, patch("sys.stdin", io.StringIO()), redirect_stdout(out), redirect_stderr(err):
        status = cli.main(sys.argv[1:])
    out.flush()
    err.flush()
    return out.buffer.getvalue().decode(), err.buffer.getvalue().decode(), status


def ran(typed: str) -> str:
    """A command with all that it printed, and its exit status unless that is 0; JSON is indented."""
    out, err, status = typed_in(typed)
    with suppress(ValueError):  # JSON lines stay as they are
        out = readable(json.loads(out)) + "\n" if out.startswith(("{", "[")) else out
    told = f"--- standard error\n{err}" if err else ""
    return f"$ arbitrag {typed}\n{out}{told}" + (f"--- exit status {status}\n" if status else "")


def readable(value: Any) -> str:
    """JSON whose strings also break where they have a line break, so that a difference is one line."""
    return json.dumps(value, indent=1, ensure_ascii=False).replace("\\n", "\\n\n")


class _Text(HTMLParser):
    """The words of a page, a line each, behind the element that they stand in; without the style sheet."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = tag
        self.lines += [f"{tag} {name}={value}" for name, value in attrs if name in ("aria-label", "href", "title")]

    def handle_data(self, data: str) -> None:
        if data.strip() and self._open != "style":
            self.lines.append(f"{self._open} {' '.join(data.split())}")


def page_text(typed: str) -> str:
    """The words of the page that a command writes to page.html."""
    _, err, status = typed_in(typed)
    if status:
        raise RuntimeError(f"arbitrag {typed}: {err}")
    parser = _Text()
    parser.feed(_read("page.html"))
    return f"$ arbitrag {typed}\n" + "\n".join(parser.lines) + "\n"


def outline(value: Any, indent: str = "") -> str:
    """The keys of JSON with the types of what they hold, and the numbers of formats."""
    if isinstance(value, list):
        return outline(value[0], indent) if value else ""
    lines = []
    for key, inner in value.items():
        shown = repr(inner) if key in ("format", "version") else type(inner).__name__
        lines.append(f"{indent}{key}: {shown}")
        if isinstance(inner, dict) or (isinstance(inner, list) and inner and isinstance(inner[0], dict)):
            lines.append(outline(inner, indent + "  "))
    return "\n".join(line for line in lines if line)


def shapes() -> Iterator[str]:
    """The files that stay on a user's disk: their names, keys, tables and the numbers of their formats."""
    for folder in ("docs.idx", "vectors.idx", "responses", "trd"):
        yield f"=== {folder}"
        names = (path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file())
        yield from sorted({re.sub(r"\b[0-9a-f]{32}\b", "SEGMENT", name) for name in names})
    for name in (
        "docs.idx/index.json",
        "vectors.idx/index.json",
        "vectors.idx/vectors/vectors.json",
        "best.json",
        "trd/build.json",
    ):
        yield f"=== {name}\n{outline(json.loads(_read(name)))}"
    for name in ("trd/test.jsonl", "trd/origins.jsonl"):
        yield f"=== {name}\n{outline(json.loads(_read(name).splitlines()[0]))}"
    yield f"=== trace\n{outline(json.loads(_read('bridge.json')))}"
    manifest = json.loads((model.FOLDER / "manifest.json").read_text("utf-8"))
    yield f"=== manifest.json of a model\n{outline(manifest)}"
    for name in ("run.db", "docs.idx/files.sqlite", "responses/responses.sqlite"):
        yield f"=== {name}"
        yield from _tables(name)


def _tables(name: str) -> Iterator[str]:
    """The tables of a sqlite file, and the JSON in their first rows: the keys of an object, all of a list."""
    with closing(sqlite3.connect(name)) as file:
        for number in ("application_id", "user_version"):
            yield f"{number} {file.execute(f'PRAGMA {number}').fetchone()[0]}"
        for table, created in file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall():
            yield created
            rows = file.execute(f"SELECT * FROM {table} LIMIT 1")
            for column, value in zip(rows.description, rows.fetchone() or (), strict=False):
                text = zlib.decompress(value).decode() if isinstance(value, bytes) and value[:1] == b"x" else value
                if str(text).startswith("{"):
                    yield f"  {column[0]}:\n{outline(json.loads(text), '    ')}"
                elif str(text).startswith("["):
                    yield f"  {column[0]}: {text}"


# What differs between machines or runs -> what stands for it.
MASKS: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (re.escape(__version__), "VERSION"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\+00:00|Z)?", "TIME"),
    (r"[\d.,]+(?=/s\b| a second\b)", "RATE"),
    (r'(?<="checksum": ")[0-9a-f]+', "CHECKSUM"),
    (r'"(?![0-9a-f]+")[A-Za-z0-9+/=]{40,}"', '"BASE64"'),
    (r"-?\d+\.\d{4,}(?:e-?\d+)?|-?\d+(?:\.\d+)?e-\d+", lambda found: f"{float(found[0]):.3f}"),
    (r"-(?=0\.000\b)", ""),
]


def masked(text: str, folder: Path) -> str:
    """A text without what is of this machine or this run (``MASKS``); numbers have 3 digits behind the point."""
    for path in (str(folder), str(folder.resolve())):
        text = text.replace(path, "FOLDER").replace(json.dumps(path)[1:-1], "FOLDER")  # in JSON \\ is doubled
    for pattern, stand_in in MASKS:
        text = re.sub(pattern, stand_in, text)
    return text


_NUMBER = re.compile(r"-?\d+\.\d+\b")
NEAR = 0.0025  # a likelihood differs by less between machines and batches


def settled(text: str, known: str) -> str:
    """``text`` with the lines of ``known`` where these differ only by decimals that are ``NEAR``."""
    if text == known:
        return text
    new, old = text.splitlines(keepends=True), known.splitlines(keepends=True)
    bare_new, bare_old = ([_NUMBER.sub("#", line) for line in lines] for lines in (new, old))
    for block in difflib.SequenceMatcher(None, bare_new, bare_old, autojunk=False).get_matching_blocks():
        for at, of in zip(range(block.a, block.a + block.size), range(block.b, block.b + block.size), strict=True):
            numbers = zip(_NUMBER.findall(new[at]), _NUMBER.findall(old[of]), strict=True)
            if all(abs(float(one) - float(other)) <= NEAR for one, other in numbers):
                new[at] = old[of]
    return "".join(new)


def difference(name: str, text: str) -> str:
    """A unified diff from the file to ``text``, empty where there is none."""
    known = (FOLDER / name).read_text("utf-8")
    old, new = known.splitlines(keepends=True), settled(text, known).splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, f"tests/frozen/{name}", "now"))


if __name__ == "__main__":
    texts = frozen()
    for path in FOLDER.glob("*.txt"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = FOLDER / name
        known = path.read_text("utf-8") if path.exists() else ""
        path.write_text(settled(text, known), "utf-8", newline="\n")
