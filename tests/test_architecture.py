"""The shape of the house: what the package shows, what importing it costs, and who may know whom."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import layers
import pytest

import arbitrag
from arbitrag.methods import AUTO, METHODS, load

PACKAGE = Path(arbitrag.__file__).parent
HEAVY = [
    "httpx",
    "numpy",
    "openai",
    "onnxruntime",
    "pydantic",
    "rich",
    "tantivy",
    "tokenizers",
    "torch",
    "transformers",
    "typer",
]


def test_the_public_names() -> None:
    assert arbitrag.__all__ == [
        "ArbitragError",
        "Kit",
        "Passage",
        "Question",
        "Strategy",
        "Verdict",
        "__version__",
        "answer",
        "answer_all",
        "ask",
        "open_index",
        "open_kit",
        "open_llm",
    ]


@pytest.mark.parametrize("name", arbitrag.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(arbitrag, name) is not None
    assert name in dir(arbitrag)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'aks'"):
        _ = arbitrag.aks


def loaded_by(code: str) -> list[str]:
    script = f"import sys\n{code}\nprint([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return list(ast.literal_eval(done.stdout))


@pytest.mark.parametrize(
    "code",
    [
        "import arbitrag",
        "import arbitrag; arbitrag.Kit, arbitrag.Verdict, arbitrag.ask, arbitrag.open_llm, arbitrag.open_index",
        "from arbitrag.methods import AUTO, METHODS, load; [load(name) for name in METHODS]",
        "from arbitrag.testing import ScriptedLLM, FixedRetriever",
    ],
)
def test_importing_loads_nothing_heavy(code: str) -> None:
    assert loaded_by(code) == []


def imported_by(folder: str) -> set[str]:
    """The modules that those in a folder of the package import, by their names below ``arbitrag``."""
    return {each.imported for each in layers.imports(PACKAGE) if layers.component(each.importer) == folder}


def files(folder: str) -> list[Path]:
    return sorted((PACKAGE / folder).rglob("*.py"))


def test_every_method_is_in_the_table_and_the_other_way_round() -> None:
    folder = PACKAGE / "methods"
    modules = {f"arbitrag.methods.{path.stem}" for path in folder.glob("*.py") if path.stem not in ("__init__", "base")}
    modules |= {f"arbitrag.methods.{path.parent.name}.method" for path in folder.glob("*/method.py")}
    assert {address.partition(":")[0] for address in METHODS.values()} == modules
    assert {name: load(name).name for name in METHODS} == {name: name for name in METHODS} | {AUTO: "rag"}


@pytest.mark.parametrize("folder", ["methods", "stages"])
def test_gold_answers_are_out_of_reach(folder: str) -> None:
    assert {name for name in imported_by(folder) if layers.component(name) in ("evaluate", "data")} == set()


def test_methods_know_no_backend() -> None:
    assert {name for name in imported_by("methods") if layers.component(name) == "llm"} <= {"llm", "llm.base"}


def test_the_package_does_not_know_what_trains_the_lab() -> None:
    for path in files(""):
        assert not re.search(r"^\s*(?:from|import) training\b", path.read_text("utf-8"), re.MULTILINE), path


def test_cuda_is_written_where_it_may_be() -> None:
    allowed = {"llm/hf/backend.py", "llm/hf/runtime.py"}  # the backend hf and its engine
    naming = {path.relative_to(PACKAGE).as_posix() for path in files("") if "cuda" in path.read_text("utf-8").lower()}
    assert naming <= allowed


def test_the_package_sets_no_logging_up() -> None:
    for path in files(""):
        if path.relative_to(PACKAGE).parts[0] in ("cli", "cli.py"):
            continue
        calls = [
            node.func for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
        ]
        named = {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls}
        assert "basicConfig" not in named, path
