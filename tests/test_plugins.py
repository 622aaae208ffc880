"""Methods, models, retrievers and encoders of other packages, and a method in a module of one's own."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import arbitrag
from arbitrag.encode import open_encoder
from arbitrag.errors import PluginError, UsageError
from arbitrag.llm import open_llm
from arbitrag.methods import METHODS, load, method_from
from arbitrag.replay import load_trace, save_trace
from arbitrag.retrieve import open_index
from arbitrag.security.trust import FromFile

if TYPE_CHECKING:
    from tests.conftest import Command

NOTES = "Bodax Motors is based in Nulbot .\nBronwot Airlines was founded in 1987 .\n"
PARTS = """
from dataclasses import dataclass
from typing import ClassVar
from arbitrag import Passage, Strategy, Verdict
from arbitrag.testing import FixedRetriever, ScriptedLLM
from arbitrag.encode.hashed import HashEncoder
from arbitrag.types import Need

@dataclass(frozen=True)
class Parrot:
    name: ClassVar[str] = "parrot"
    needs: ClassVar[Need] = Need.RETRIEVE
    cost: ClassVar[str] = "none"
    paper: ClassVar[str] = "none"
    word: str = "hello"
    async def answer(self, question, kit):
        return Verdict(self.word, Strategy.MEMORY, "said a parrot")

class Nameless:
    async def answer(self, question, kit): ...

@dataclass(frozen=True)
class Lacking:
    name: ClassVar[str] = "lacking"

def model(address, **options):
    return ScriptedLLM({"": f"{address} {sorted(options.items())}"}, name=f"echo:{address}")

def passages(address, encoder=None):
    return FixedRetriever([Passage(f"{address} {encoder.name if encoder else None}")])

def words(address, **options):
    return HashEncoder(**options)

def fails(address, **options):
    raise OSError(f"no {address} here")

def nothing(address, **options):
    return object()
"""
ENTRIES = """
[arbitrag.methods]
parrot = my_parts:Parrot
other_name = my_parts:Parrot
lost = my_parts:Gone
nameless = my_parts:Nameless
lacking = my_parts:Lacking
broken = broken_parts:Parrot
rag = my_parts:Parrot

[arbitrag.backends]
echo = my_parts:model
fails = my_parts:fails
nothing = my_parts:nothing
openai = my_parts:fails

[arbitrag.retrievers]
mine = my_parts:passages
fails = my_parts:fails
nothing = my_parts:nothing

[arbitrag.encoders]
words = my_parts:words
"""


def install(folder: Path, name: str, version: str, entries: str) -> None:
    """What pip leaves of a package, as far as entry points go."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entries)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, with one that offers ENTRIES."""
    folder = tmp_path / "site"
    install(folder, "my-parts", "1.2", ENTRIES)
    (folder / "my_parts.py").write_text(PARTS)
    (folder / "broken_parts.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in ("my_parts", "broken_parts", "mine"):
        sys.modules.pop(name, None)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own, which leaves nothing on the path."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return folder


def test_a_package_brings_parts_of_every_kind(site: Path, command: Command) -> None:
    ran = command(
        *("ask", "Who?", "--llm", "echo:a", "--index", "mine:b:c", "--encoder", "words:"),
        *("--method", "parrot", "--set", "word=ahoy", "--json"),
    )
    assert (json.loads(ran.out)["answer"], json.loads(ran.out)["method"]) == ("ahoy", "parrot")
    direct = command("ask", "Who?", "--llm", "echo:a@b", "--method", "direct", "--json")
    assert json.loads(direct.out)["answer"] == "a@b []"
    found = command("search", "mine:b:c", "Who?", "--encoder", "words:", "--json")
    assert json.loads(found.out)[0]["text"] == "b:c hash"


def test_the_names_that_come_with_arbitrag_come_first(site: Path) -> None:
    assert load("rag").__module__ == "arbitrag.methods.rag"
    with pytest.raises(UsageError, match="names no model"):
        open_llm("openai:")


def test_a_bench_run_goes_on_with_a_method_of_a_package(site: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "q.jsonl").write_text('{"question": "Who?", "answers": ["ahoy"]}\n')
    run = tmp_path / "run.db"
    begun = ("bench", "run", run, "--questions", tmp_path / "q.jsonl", "--llm", "lab", "--index", "mine:b")
    assert command(*begun, "--method", "parrot word=ahoy").status == 0
    assert "0 rows made, 0 failed, 1 finished before" in command("bench", "run", run, "--index", "mine:b").err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lost", r"the package my-parts 1\.2 offers 'lost' \(methods\), but cannot be loaded: AttributeError: .*Gone"),
        ("broken", r"the package my-parts 1\.2 offers 'broken' .* ModuleNotFoundError: .*nowhere_to_be_found"),
        ("nameless", r"the package my-parts 1\.2: 'nameless' is no method: a method is a frozen dataclass"),
        ("lacking", r"my-parts 1\.2: 'lacking' is no method: it has no needs, cost, paper and no answer"),
        ("other_name", r"my-parts 1\.2 offers the method 'other_name', whose own name is 'parrot'; call both alike"),
    ],
)
def test_a_broken_method_is_one_error_that_names_its_package(
    name: str, message: str, site: Path, command: Command
) -> None:
    with pytest.raises(PluginError, match=message):
        load(name)
    ran = command("ask", "Who?", "--llm", "lab", "--method", name)
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert ran.err.startswith("PluginError: the package my-parts 1.2")


def test_broken_parts_name_their_package(site: Path) -> None:
    with pytest.raises(PluginError, match=r"my-parts 1\.2 could not open fails: OSError: no x here"):
        open_llm("fails:x")
    with pytest.raises(PluginError, match=r"my-parts 1\.2: nothing is no model: it has no name, .* and no acl"):
        open_llm("nothing:x")
    with pytest.raises(PluginError, match=r"my-parts 1\.2 could not open fails: OSError: no x here"):
        open_index("fails:x")
    with pytest.raises(PluginError, match=r"nothing is no retriever: it has no name, identity, retrieve and no aclose"):
        open_index("nothing:x")
    with pytest.raises(PluginError, match=r"could not open words: TypeError: .*unexpected keyword argument 'strange'"):
        open_encoder("words:", strange=1)


def test_two_packages_with_one_name_are_refused(site: Path) -> None:
    install(site, "your-parts", "3.0", "[arbitrag.methods]\nparrot = your_parts:Parrot\n")
    with pytest.raises(PluginError, match=r"my-parts 1\.2 and the package your-parts 3\.0 each offer 'parrot'"):
        load("parrot")


def test_methods_of_packages_are_listed_broken_ones_too(site: Path, command: Command) -> None:
    rows = {row["name"]: row for row in json.loads(command("methods", "--llm", "lab", "--json").out)}
    assert (rows["parrot"]["runs"], rows["parrot"]["cost"], rows["rag"]["cost"]) == (True, "none", "1 answer")
    assert rows["broken"]["what"].startswith("the package my-parts 1.2 offers 'broken' (methods), but cannot be loaded")
    assert (rows["broken"]["runs"], "cannot be loaded" in rows["broken"]["reason"]) == (False, True)
    assert command("methods").status == 0
    assert command("methods", "broken").err.startswith("PluginError: the package my-parts 1.2 offers 'broken'")


def test_unknown_names_are_told_with_those_of_packages(site: Path) -> None:
    for opened, name in ((open_llm, "ecko:x"), (open_index, "mime:x"), (open_encoder, "wods:x"), (load, "parot")):
        with pytest.raises(UsageError, match=r"Did you mean '(echo|mine|words|parrot)'\?"):
            opened(name)


def test_what_a_file_names_opens_no_package(site: Path) -> None:
    """Addresses of packages are not known to stay on this machine, so they have to be typed."""
    with pytest.raises(UsageError, match="type it again"):
        open_llm("echo:x", source=FromFile("run.db", "--llm"))
    with pytest.raises(UsageError, match="type it again"):
        open_encoder("words:", source=FromFile("docs.idx", "--encoder"))
    with pytest.raises(UsageError, match="type it again"):
        FromFile("run.db", "--index").check_index("mine:x")


OWN = PARTS.replace('"parrot"', '"sailor"')


def test_a_method_in_a_module_of_ones_own(elsewhere: Path, command: Command) -> None:
    (elsewhere / "mine.py").write_text(OWN)
    (elsewhere / "q.jsonl").write_text('{"question": "Who?", "answers": ["ahoy"]}\n')
    asked = ("ask", "Who?", "--llm", "lab", "--index", "lab", "--method", "mine:Parrot word=ahoy")
    assert json.loads(command(*asked, "--json").out)["answer"] == "ahoy"
    run = ("bench", "run", "run.db", "--questions", "q.jsonl", "--llm", "lab", "--index", "lab", "--traces")
    assert command(*run, "--method", "mine:Parrot word=ahoy").status == 0
    alone = command("bench", "run", "run.db")  # the file knows it by its name only
    assert "unknown method 'sailor'" in alone.err
    assert "one of your own is named as MODULE:CLASS" in alone.err
    command(*asked, "--trace", "trace.json")
    assert "unknown method 'sailor'" in command("replay", "trace.json").err
    replayed = command("replay", "trace.json", "--method", "mine:Parrot", "--json")
    assert json.loads(replayed.out)["answer"] == "ahoy"
    again = command("bench", "run", "run.db", "--method", "mine:Parrot word=ahoy")
    assert "0 rows made, 0 failed, 1 finished before" in again.err
    sys.modules.pop("mine", None)


def test_the_working_folder_takes_the_place_of_no_package(elsewhere: Path) -> None:
    (elsewhere / "colorsys.py").write_text("raise SystemExit('planted')\n")
    with pytest.raises(PluginError, match="the module colorsys has no 'Parrot'"):
        load("colorsys:Parrot", typed=True)
    assert str(elsewhere) not in sys.path  # it is looked at only for a module that is nowhere else


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere_at_all:X", r"'nowhere_at_all:X': the module nowhere_at_all cannot be imported: ModuleNotFoundError"),
        ("arbitrag.methods.rag:Rga", r"has no 'Rga'; did you mean 'Rag'\?"),
        ("arbitrag.run:answer", r"'arbitrag\.run:answer' is no method: a method is a frozen dataclass"),
        ("arbitrag.types:Passage", r"is no method: it has no name, needs, cost, paper and no answer"),
    ],
)
def test_what_is_no_method_is_told(place: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        load(place, typed=True)


def test_code_is_imported_only_where_it_was_typed(elsewhere: Path, command: Command) -> None:
    """A run file, a trace or a setting may be a stranger's, and names no module to import."""
    (elsewhere / "planted.py").write_text("open('imported', 'w').close()\n" + OWN)
    told = "names code to import, which is taken only from what you type"
    for untyped in ("planted:Parrot", "stack arbiter=planted:Parrot", "trustmargin candidate=planted:Parrot"):
        with pytest.raises(UsageError, match=told):
            method_from(untyped)
    typed = command("ask", "Who?", "--llm", "lab", "--index", "lab", "--method", "stack arbiter=planted:Parrot")
    assert (typed.status, told in typed.err) == (2, True)

    verdict = arbitrag.ask("Who?", "direct", llm="lab")
    save_trace(verdict.trace, elsewhere / "trace.json")
    stack: dict[str, Any] = {"method": "stack", "settings": {"arbiter": "planted:Parrot"}}
    direct: dict[str, Any] = {"method": "planted:Parrot"}
    for change in (direct, stack):
        save_trace(replace(verdict.trace, **change), elsewhere / "trace.json")
        assert load_trace(elsewhere / "trace.json").method in ("planted:Parrot", "stack")
        assert told in command("replay", "trace.json").err
    assert not (elsewhere / "imported").exists()


def test_naming_ours_looks_for_no_package() -> None:
    code = (
        "import sys, importlib.metadata as m\n"
        "m.entry_points = None  # would fail\n"
        "from arbitrag.methods import METHODS, load; [load(name) for name in METHODS]\n"
        "print([name for name in sys.modules if name == 'arbitrag.plugins'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == []
    assert "parrot" not in METHODS


def test_the_example_package_runs_as_its_page_says(tmp_path: Path, repository: Path) -> None:
    """Installed as pip leaves it; every command of its README from another folder, in a process of its own."""
    source, site = repository / "examples" / "plugin", tmp_path / "site"
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    groups = project["entry-points"]
    entries = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in named.items())
        for group, named in groups.items()
    )
    install(site, project["name"], project["version"], entries)
    shutil.copy(source / "example_plugin.py", site)
    (tmp_path / "notes.txt").write_text(NOTES)
    path = os.pathsep.join([str(repository / "src"), str(site)])
    page = (source / "README.md").read_text()
    commands = re.findall(r"^    (arbitrag .+)$", page, re.MULTILINE)
    assert len(commands) >= 4
    printed = {}
    for line in commands:
        words = [sys.executable, "-m", "arbitrag", *shlex.split(line)[1:]]
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), line
        printed[line] = done.stdout
    asked = [text for line, text in printed.items() if " ask " in line]
    assert all("Nulbot" in text and "trusted: both" in text for text in asked)
    assert all(name in page for named in groups.values() for name in named)
