"""docs/architecture.md draws the layers as they are, and every path that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import layers
import pytest

import arbitrag

PACKAGE = Path(arbitrag.__file__).parent
ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
KNOWN = layers.modules(PACKAGE)
TOP = {"__init__", "__main__"}  # the names that the package shows, which the picture leaves out


def drawn() -> list[tuple[str, list[str]]]:
    """The components of the picture from the top down, each with its parts, as they are written."""
    found: list[tuple[str, list[str]]] = []
    for line in PAGE.split("```")[1].strip().splitlines():
        names = re.split(r" {2,}", line.strip())[0].split()
        if line.startswith(" "):
            found[-1][1].extend(names)
        else:
            found.extend((name, []) for name in names)
    return found


def heights(order: layers.Order, names: list[str]) -> list[int]:
    places = {name: place for place, layer in enumerate(order) for name in layer}
    return [places.get(name, places.get(layers.REST, -1)) for name in names]


def test_every_component_is_drawn_once_and_in_the_order_of_the_layers() -> None:
    names = [name for name, _ in drawn()]
    assert sorted(names) == sorted({layers.component(module) for module in KNOWN} - TOP)
    assert heights(layers.LAYERS, names) == sorted(heights(layers.LAYERS, names), reverse=True)


@pytest.mark.parametrize(("component", "parts"), drawn(), ids=[name for name, _ in drawn()])
def test_the_parts_of_a_component_are_drawn(component: str, parts: list[str]) -> None:
    folders = {path.parent.name for path in (PACKAGE / component).glob("*/__init__.py")} - {"__pycache__"}
    order = layers.INSIDE.get(component, ())
    named = {part for layer in order for part in layer} - {layers.REST}
    assert sorted(parts) == sorted(set(parts) | folders | named)
    assert [part for part in parts if f"{component}.{part}" not in KNOWN] == []
    if order:
        assert heights(order, parts) == sorted(heights(order, parts), reverse=True)


PATHS = sorted(set(re.findall(r"`((?:src|tests|tools|docs|examples|benchmarks|training)/[\w./*]*)`", PAGE)))


@pytest.mark.parametrize("path", [path for path in PATHS if "NAME" not in path])
def test_a_path_of_the_page_is_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("module", sorted(set(re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE)) - set(PATHS)))
def test_a_module_of_the_page_is_there(module: str) -> None:
    assert (PACKAGE / module).exists()


def test_the_page_is_short_and_linked() -> None:
    assert len(PAGE.splitlines()) < 150
    for page in ("README.md", "CONTRIBUTING.md"):
        assert "(docs/architecture.md)" in (ROOT / page).read_text("utf-8")
