"""Every command line in README.md, CONTRIBUTING.md, docs/*.md and the help pages can be typed as it stands.

A command is a line that begins with ``arbitrag`` (perhaps behind ``$ `` or ``NAME=VALUE``) in a code block, or inline
code that gives ``arbitrag`` a command with arguments. Each is run in this process, in a folder of its own that holds
what it reads, with the STAND_INS for what it names. What cannot be run is listed in CANNOT_RUN with the reason, and
parsed all the same. To document another command: write it. If it fails here, make it work, add what it reads to MADE,
or list it.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from arbitrag import cli
from arbitrag.testing.llm import prompt_text
from arbitrag.testing.server import ScriptedServer

if TYPE_CHECKING:
    from arbitrag.llm.base import Prompt
    from tests.conftest import Command

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

# What a page names -> what stands for it here. Applied in this order to the text of the command.
STAND_INS = [
    (r"hf:Qwen/[\w.-]+(\?[\w=&]+)?", "lab"),  # no model of the hub can be had in a test
    (r"onnx:FOLDER(\?threads=2)?", "lab"),
    (r"openai:[\w.-]+(@https?://[^\s\"']+)?", "openai:scripted@{server}"),  # a scripted server on loopback
    (r"\bADDRESS\b", "lab"),
    (r"\bID\b", "q1"),
    (r"\bmethods NAME\b", "methods rag"),
    (r"\bbench show FILE\b", "bench show mine.db"),
    (r"\$\(jq -r \.typed best\.json\)", "trustmargin threshold=-1.0"),
    # Smaller than on the page, where it would take minutes.
    (r"build-trd --from lab --llm lab", "build-trd --from lab --llm lab --size 40"),
    (r"--size 50000", "--size 7000"),
    (r"lab retrieval", "lab retrieval --size 7000 --count 10"),
    (r"--examples 20", "--examples 1"),
    (r"count=\d+", "count=4"),
]

# The beginning of a command -> why it cannot be run here. Its options are checked nevertheless.
CANNOT_RUN = {
    "arbitrag data build-trd --from wikipedia": "reads Natural Questions, TAQA and a dump of Wikidata",
}


@dataclass(frozen=True)
class Documented:
    """A command of a page, as it stands there; ``runs`` is false for inline code that only names an option."""

    page: str
    line: int
    text: str
    runs: bool = True

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {self.text}"


_BEGIN = re.compile(r"^\s*(?:\$ )?(?P<text>(?:[A-Z_]+=\S+ |echo [^|]+\| *)*arbitrag(?: .*)?)$")
_INLINE = re.compile(r"`(arbitrag (?:[^`\n]|\n(?!\n))+)`")


def commands_of(page: str, text: str) -> Iterator[Documented]:
    """The commands of a page of markdown: those in code blocks, and those in inline code with arguments."""
    lines, language, prose = text.splitlines(), None, list[str]()
    number = 0
    while number < len(lines):
        line, begin = lines[number], number + 1
        number += 1
        if fence := re.match(r"\s*```(\w*)", line):
            language = None if language is not None else fence[1]
            prose.append("")
            continue
        in_code = language in ("", "bash", "sh", "console", "text") if language is not None else line.startswith("    ")
        prose.append("" if language is not None or line.startswith("    ") else line)
        if not in_code or not (found := _BEGIN.match(line)):
            continue
        typed = found["text"]
        while typed.endswith("\\") and number < len(lines):
            typed = typed[:-1].rstrip() + " " + lines[number].strip()
            number += 1
            prose.append("")
        yield Documented(page, begin, typed)
    whole = "\n".join(prose)
    for inline in _INLINE.finditer(whole):
        typed = " ".join(inline[1].split())
        bare = re.fullmatch(r"arbitrag(?: [a-z-]+)*(?: (?:--[\w-]+|-\w|…|\.\.\.))*", typed) is not None
        yield Documented(page, whole.count("\n", 0, inline.start()) + 1, typed, runs=not bare)


def documented() -> list[Documented]:
    """All of them, each text once a page."""
    found = [each for path in PAGES for each in commands_of(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))]
    found += [
        Documented(f"{name} --help", number, line)
        for name, epilog in epilogs()
        for number, line in enumerate(epilog.splitlines(), 1)
    ]
    return list({(each.page, each.text): each for each in found}.values())


def epilogs() -> Iterator[tuple[str, str]]:
    """The examples at the end of every help page, one a line."""
    commands: list[tuple[str, Any]] = [("arbitrag", cli._command())]
    while commands:
        name, command = commands.pop()
        commands += [(f"{name} {inner}", each) for inner, each in getattr(command, "commands", {}).items()]
        yield name, command.epilog or ""


EVERY = documented()


def shown(each: Documented) -> str:
    return re.sub(r"\W+", "-", str(each))[:90]


# What a command reads, by name, and how it is made. A name that the command itself is to write is not made.
Run = Callable[[str], None]


def _documents(run: Run) -> None:
    Path("docs").mkdir()
    Path("docs/harbour.md").write_text("# The harbour\n\nThe harbour of Nulbot is run by Shupeo Cicul since 2019.\n")
    Path("docs/airlines.md").write_text("Bronwot Airlines was founded in 1987. Its chief executive is Shupeo Cicul.\n")


def _questions(name: str) -> Callable[[Run], None]:
    rows: list[dict[str, object]] = [
        {"id": "q1", "question": "Who runs the harbour?", "answers": ["Shupeo Cicul"]},
        {"id": "q2", "question": "When was Bronwot Airlines founded?", "answers": ["1987"]},
    ]
    return lambda run: _write(name, "".join(json.dumps(row) + "\n" for row in rows))


def _write(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")


def _by(*commands: str) -> Callable[[Run], None]:
    def make(run: Run) -> None:
        for each in commands:
            run(each)

    return make


_OWN_RUN = "arbitrag bench run {} --questions questions.jsonl --index docs.idx --llm lab --method direct --method rag"
_LAB_RUN = (
    "arbitrag bench run val.db --questions lab:questions?count=6 --llm lab --traces "
    "--method trustmargin --method bridge"
)


def _museums(run: Run) -> None:
    """Facts, passages and entities of one's own, as docs/trd.md has them; see ``curator``."""
    towns = [f"Town{number}ford" for number in range(20)]
    facts: list[dict[str, Any]] = []
    for number in range(1, 25):
        row: dict[str, Any] = {"id": f"f{number}", "subject": f"Museum {number}", "answer": towns[number % 20]}
        facts.append(
            {**row, "questions": [f"Where is Museum {number}?"], **({"since": "2024-03"} if number % 2 else {})}
        )
    passages = [{"fact": row["id"], "text": f"{row['subject']} stands in {row['answer']}."} for row in facts]
    entities = [{"name": town, "type": "town", "popularity": number} for number, town in enumerate(towns)]
    for name, rows in (("facts", facts), ("passages", passages), ("entities", entities)):
        _write(f"FOLDER/{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def curator(prompt: Prompt) -> str:
    """What the scripted server replies: what a passage tells, every museum with an even number, and else "yes"."""
    text = prompt_text(prompt)
    if told := re.search(r" stands in (\w+)", text):
        return told[1]
    asked = re.search(r"Where is Museum (\d+)", text)
    return f"Town{int(asked[1]) % 20}ford" if asked and int(asked[1]) % 2 == 0 else "yes"


MADE: dict[str, Callable[[Run], None]] = {
    "docs": _documents,
    "docs.idx": _by("arbitrag index docs -o docs.idx"),
    "notes": lambda run: _write("notes/ferry.md", "The ferry to Nulbot leaves at nine.\n"),
    "questions.jsonl": _questions("questions.jsonl"),
    "mine.jsonl": _questions("mine.jsonl"),
    "validation.jsonl": _questions("validation.jsonl"),
    "lab-retrieval": _by("arbitrag lab retrieval --size 7000 --count 10 -o lab-retrieval"),
    "towns.jsonl": _questions("towns.jsonl"),
    "FOLDER": _museums,
    "arbitrag.toml": lambda run: _write("arbitrag.toml", 'llm = "lab"\nindex = "lab"\n'),
    "trd-lab": _by("arbitrag data build-trd --from lab --llm lab --size 40 -o trd-lab"),
    "docs/trd.md": lambda run: _write("docs/trd.md", "<!-- examples -->\n<!-- end of examples -->\n"),
    "val.db": _by(_LAB_RUN),
    "trace.json": _by(
        'arbitrag ask "Who directed The Silent Orchard?" --llm lab --index lab --method trustmargin --trace trace.json'
    ),
    **{name: _by(_OWN_RUN.format(name)) for name in ("mine.db", "other.db", "a.db", "b.db", "before.db", "after.db")},
}
WRITES = re.compile(r"(?:-o|--out|--html|--trace|--gold|--labels)[ =](\S+)|bench run (\S+)(?= .*--questions)")
# An index that is there already is brought up to date, and may be given other sources.
UPDATES = re.compile(r"arbitrag index (?:-o \S+\s*(?:#|$)|.*--(?:add|replace)\b)")


def prepare(text: str, run: Run) -> None:
    """Make what the command reads and what that needs, where it is not there yet."""
    written = {Path(name).as_posix() for pair in WRITES.findall(text) for name in pair if name}
    if UPDATES.search(text):
        written.clear()
    for word in re.split(r"[\s=\"']+", text):
        for name in (Path(word).as_posix(), Path(word).parts[0] if Path(word).parts else ""):
            if name in MADE and name not in written and not Path(name).exists():
                if name.endswith(".db"):
                    prepare(_OWN_RUN, run)
                if name.endswith(".idx"):
                    prepare("docs", run)
                MADE[name](run)


def words_of(text: str) -> tuple[dict[str, str], list[str], bytes]:
    """A command line as a shell would take it apart: variables, words, standard input."""
    stdin = b""
    if piped := re.match(r"echo (.+?)\s*\|\s*(.*)", text):
        stdin, text = (" ".join(shlex.split(piped[1])) + "\n").encode(), piped[2]
    words = shlex.split(text, comments=True)
    variables = dict(word.split("=", 1) for word in words[: words.index("arbitrag")])
    words = words[words.index("arbitrag") + 1 :]
    if "<" in words:
        at = words.index("<")
        stdin, words = Path(words[at + 1]).read_bytes(), words[:at] + words[at + 2 :]
    return variables, words, stdin


def parsed(words: list[str]) -> Any:
    """The command's context, with every option and value read and nothing run; raises where one is not known."""
    command, context = cli._command(), None
    while hasattr(command, "commands"):
        name, *words = words
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
        command = command.get_command(context, name)
        assert command is not None, f"there is no command '{name}'"
    return command.make_context(command.name, words, parent=context)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ScriptedServer(curator) as running:
        yield running.base_url


def test_there_are_commands_to_check() -> None:
    pages = {each.page for each in EVERY if each.runs}
    assert {"README.md", "docs/benchmarks.md", "docs/lab.md", "docs/trd.md", "docs/tune.md"} <= pages
    assert len([each for each in EVERY if each.runs]) > 40


@pytest.mark.slow
@pytest.mark.parametrize("each", [each for each in EVERY if each.runs], ids=shown)
def test_a_documented_command_runs(
    each: Documented, tmp_path: Path, command: Command, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("ARBITRAG_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ARBITRAG_CACHE", "off")
    text = each.text
    reason = next((why for begin, why in CANNOT_RUN.items() if text.startswith(begin)), None)
    if reason is not None:
        parsed(words_of(text)[1])
        pytest.skip(reason)
    for named, stand_in in STAND_INS:
        text = re.sub(named, stand_in.format(server=server), text)

    def run(line: str) -> None:
        variables, words, stdin = words_of(line)
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            ran = command(*words, stdin=stdin)
        assert ran.status == 0, f"{each.page} line {each.line} says '{each.text}'; '{line}' fails:\n{ran.err}"

    prepare(text, run)
    run(text)


@pytest.mark.parametrize("each", EVERY, ids=shown)
def test_every_option_that_is_named_beside_a_command_is_one_of_it(each: Documented) -> None:
    """Also in a comment behind it, such as ``# --html writes a page``."""
    command: Any = cli._command()
    for word in re.findall(r"[\w-]+", each.text.partition("arbitrag")[2]):
        if not hasattr(command, "commands") or word.startswith("-"):
            break
        assert word in command.commands, f"{each}: there is no command '{word}'"
        command = command.commands[word]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", each.text)) - {"--help"}
    assert named <= known, f"{each}: no option of {command.name} is {', '.join(sorted(named - known))}"


def test_every_option_in_the_docs_is_one_of_a_command_or_a_script() -> None:
    """Wherever ``--option`` stands in inline code, in a table for instance."""
    known = {"--help", "--version"}
    commands: list[Any] = [cli._command()]
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        known |= {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    scripts = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "training").glob("*.py")]
    written = [script.read_text("utf-8") for script in scripts]
    known |= {option for text in written for option in re.findall(r"--[a-z-]+", text)}
    known |= {f"--{name.replace('_', '-')}" for text in written for name in re.findall(r"^    ([a-z_]+):", text, re.M)}
    unknown = {
        f"{path.name}: {option}"
        for path in PAGES
        for code in re.findall(r"`((?:--|arbitrag )[^`\n]+)`", path.read_text("utf-8"))  # others are other programs'
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", code)
        if option not in known
    }
    assert unknown == set()


_SCRIPT = re.compile(r"\bbenchmarks/(?P<name>[a-z]\w*)\.py(?P<words>(?: --?[a-z][\w-]*(?: [\w./-]+)?)*)")
SCRIPTS = sorted(
    {
        (path.relative_to(ROOT).as_posix(), found["name"], " ".join(found["words"].split()))
        for path in PAGES
        for found in _SCRIPT.finditer(path.read_text("utf-8"))
    }
)


@pytest.mark.parametrize(("page", "name", "words"), SCRIPTS, ids=lambda text: re.sub(r"\W+", "-", text))
def test_a_documented_benchmark_is_there_and_knows_its_options(
    page: str, name: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the options that stand behind it, with their values; ``--help`` at the end keeps it from running."""
    script = ROOT / "benchmarks" / f"{name}.py"
    assert script.is_file(), f"{page} names benchmarks/{name}.py, which is not there"
    monkeypatch.setattr(sys, "argv", [str(script), *words.split(), "--help"])
    monkeypatch.syspath_prepend(script.parent)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr()
    assert ended.value.code == 0, f"{page}: benchmarks/{name}.py {words}: {printed.err}"
    unknown = [word for word in words.split() if word.startswith("--") and word not in printed.out]
    assert not unknown, f"{page}: benchmarks/{name}.py knows no {', '.join(unknown)}"
