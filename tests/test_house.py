"""What ``tools/house.py`` counts, on trees that are made for it."""

from __future__ import annotations

import json
from pathlib import Path

import additions
import duplicates
import house
import layers
import pytest

SMALL = {
    "__init__.py": '__version__ = "1"\n',
    "errors.py": "class Oops(Exception):\n    pass\n",
    "llm/__init__.py": "",
    "llm/base.py": "import arbitrag.errors\nfrom arbitrag import __version__\n\n\nclass Model:\n    pass\n",
    "llm/cache.py": "from ..errors import Oops\nfrom . import base\n",
}


def write(root: Path, files: dict[str, str], folder: str = "src/arbitrag") -> Path:
    for name, text in files.items():
        path = root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root / folder


def edges(package: Path) -> list[tuple[str, str, str]]:
    return [(each.importer, each.imported, each.when) for each in layers.imports(package)]


def test_imports_are_found_by_their_full_and_by_their_relative_names(tmp_path: Path) -> None:
    assert edges(write(tmp_path, SMALL)) == [
        ("llm.base", "errors", "at the top"),
        ("llm.cache", "errors", "at the top"),
        ("llm.cache", "llm.base", "at the top"),
    ]


def test_an_import_says_when_it_runs(tmp_path: Path) -> None:
    text = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from arbitrag.errors import Oops\n"
        "else:\n    import arbitrag.text\n"
        "def late():\n    if True:\n        from arbitrag.llm.base import Model\n"
        "class Early:\n    from arbitrag.llm import cache\n"
    )
    package = write(tmp_path, {**SMALL, "text.py": "", "llm/cache.py": "", "kit.py": text})
    assert [each for each in edges(package) if each[0] == "kit"] == [
        ("kit", "errors", "for types only"),
        ("kit", "llm.base", "in a function"),
        ("kit", "llm.cache", "at the top"),
        ("kit", "text", "at the top"),
    ]


@pytest.mark.parametrize(
    ("importer", "imported", "broken"),
    [
        ("llm.base", "errors", False),
        ("errors", "llm.base", True),
        ("llm.cache", "llm.base", False),  # its own component
        ("display", "plugins", True),  # another component of the same layer
        ("methods.rag", "__init__", True),
        ("address", "hiding", False),  # both are in `security` now
        ("address", "llm.base", True),
        ("elsewhere", "errors", False),  # not judged, but named by `unplaced`
    ],
)
def test_an_import_against_the_order_is_upward(
    importer: str, imported: str, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = (("errors",), ("display", "plugins"), ("security",), ("llm",), ("methods",), ("__init__",))
    monkeypatch.setattr(layers, "LAYERS", order)
    monkeypatch.setattr(layers, "INSIDE", {})
    found = layers.Import(importer, imported, 1, "at the top")
    assert layers.upward([found], []) == ([found] if broken else [])


@pytest.mark.parametrize(
    ("importer", "imported", "broken"),
    [
        ("llm.http.openai", "llm.base", False),
        ("llm.base", "llm.http.openai", True),
        ("llm.http.openai", "llm.http.probe", False),
        ("llm.http.openai", "llm.onnx.backend", True),
        ("llm.budget", "llm.cache", False),  # both are of the parts that the order does not name
        ("llm.budget", "llm.onnx.backend", False),
        ("llm.onnx.backend", "llm.budget", True),
        ("llm", "llm.budget", False),
        ("llm.budget", "llm", True),
    ],
)
def test_the_parts_of_a_component_have_an_order_too(
    importer: str, imported: str, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "LAYERS", (("llm",),))
    monkeypatch.setattr(layers, "INSIDE", {"llm": (("base",), ("http", "onnx"), ("*",))})
    found = layers.Import(importer, imported, 1, "at the top")
    assert layers.upward([found], ["llm", "llm.base"]) == ([found] if broken else [])
    assert layers.upward([found], ["llm", "llm.base", "told"]) == []  # a tree from before these folders


def test_a_module_without_a_place_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "LAYERS", (("errors",), ("llm",), ("retrieve",)))
    monkeypatch.setattr(layers, "INSIDE", {"llm": (("base",), ("http",)), "retrieve": (("base",), ("*",))})
    known = ["errors", "llm", "llm.base", "llm.new", "llm.http.openai", "retrieve.new", "kit"]
    assert layers.unplaced(known) == ["llm.new", "kit"]


def test_cycles_go_around_corners_and_those_for_types_count_apart() -> None:
    run = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")]
    found = [layers.Import(one, other, 1, "at the top") for one, other in run]
    found.append(layers.Import("e", "d", 1, "for types only"))
    assert layers.cycles(found) == [["a", "b", "c"]]
    assert layers.cycles(found, types_too=True) == [["a", "b", "c"], ["d", "e"]]


BODY = [f"    value += {number}" for number in range(8)]


def code(name: str, body: list[str]) -> str:
    return "\n".join([f"def {name}(value):", *body, f"    return {name}", ""])


def test_eight_equal_lines_are_a_block_and_seven_are_none() -> None:
    files = {"a.py": code("one", BODY), "b.py": '"""B."""\nimport os\n\n' + code("two", BODY)}
    assert [str(each) for each in duplicates.blocks(files)] == ["a.py:2 = b.py:5 (8 lines)"]
    assert duplicates.blocks({**files, "b.py": code("two", BODY[:7])}) == []


def test_a_longer_run_is_one_block_and_layout_does_not_hide_it() -> None:
    more = [*BODY, "    value -= 1", "    value -= 2"]
    spread = [line for each in more for line in (f"    {each.replace('+= ', '+=  ')}  # so", "", "    )" * 0)]
    files = {"a.py": code("one", more), "b.py": "def two(value):\n    if value:\n" + "\n".join(spread) + "\n"}
    assert [block.lines for block in duplicates.blocks(files)] == [10]


def test_a_run_within_one_file_does_not_overlap_itself() -> None:
    same = ["    value += 1"] * 15
    assert duplicates.blocks({"a.py": code("one", same)}) == []
    assert [block.lines for block in duplicates.blocks({"a.py": code("one", [*same, same[0]])})] == [8]


def test_types_that_are_defined_twice() -> None:
    one = 'Kind = Literal["a"]\nT = TypeVar("T")\nMODES = dict[str, int]\nclass Case:\n    pass\n'
    two = "Kind = int | str\nT = int | str\ndef make():\n    class Case:\n        pass\n"
    assert duplicates.classes({"one.py": one, "two.py": two}) == {"Case": ["one.py", "two.py"]}
    assert duplicates.aliases({"one.py": one, "two.py": two}) == {"Kind": ["one.py", "two.py"]}


def test_equal_files_are_grouped_and_empty_ones_are_not(tmp_path: Path) -> None:
    for name, text in {"a": "x", "b": "x", "c": "y", "d": "", "e": ""}.items():
        (tmp_path / name).write_text(text)
    assert duplicates.equal_files(sorted(tmp_path.iterdir())) == [[tmp_path / "a", tmp_path / "b"]]


def test_what_lists_every_sibling_has_to_know_a_new_one(tmp_path: Path) -> None:
    package = write(
        tmp_path,
        {
            "llm/onnx/backend.py": 'NAME = "onnx, hf, openai"\n',
            "llm/__init__.py": 'KINDS = {"openai": "openai:MODEL", "hf": "hf:NAME", "onnx": "onnx:FOLDER"}\n',
            "lab/model.py": "from arbitrag.llm import open_onnx\n",
            "text.py": '"""Of onnx, hf and openai."""\n\n# onnx hf openai\nshelf = "onnxruntime"\n',
        },
    )
    write(tmp_path, {"backends.md": "Openai, hf, ONNX", "log.md": "onnx, hf, openai"}, "docs")
    found = additions.places(additions.read(tmp_path, package), additions.ADDITIONS["backend"])
    assert found.named == ("docs/backends.md", "src/arbitrag/lab/model.py", "src/arbitrag/llm/__init__.py")
    assert found.to_touch == ("docs/backends.md", "src/arbitrag/llm/__init__.py")


def test_the_table_of_a_tree_and_of_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "before", {**SMALL, "errors.py": "from arbitrag.llm.base import Model\n"})
    write(tmp_path / "after", SMALL)
    house.main(["--root", str(tmp_path / "after"), "--compare", str(tmp_path / "before")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["| | before | after |", "|---|---|---|"]
    assert {
        "| lines in src/ | 10 | 11 |",
        "| files in the package | 5 | 5 |",
        "| largest folder, files | llm 3 | llm 3 |",
        "| upward imports | 1 | 0 |",
        "| import cycles | 1 | 0 |",
    } <= set(lines)
    house.main(["--root", str(tmp_path / "before"), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["rows"]["upward imports"] == "1"
    assert found["lists"]["upward imports"] == ["errors:1 -> llm.base (at the top)"]
    assert found["lists"]["import cycles"] == ["errors <-> llm.base"]


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"is no folder; --root takes the folder of a checkout"):
        house.main(["--root", str(tmp_path)])
