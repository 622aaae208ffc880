"""Nothing imports what is above it: the order in ``tools/layers.py``, held by every module of the package."""

from __future__ import annotations

from pathlib import Path

import layers

import arbitrag

PACKAGE = Path(arbitrag.__file__).parent


def explained(found: layers.Import) -> str:
    return (
        f"{found.importer} imports {found.imported} (line {found.line}, {found.when}), which is not below it in "
        "tools/layers.py. Move what it needs into a lower layer, or hand it in from above."
    )


def test_no_module_imports_what_is_above_it() -> None:
    upward = layers.upward(layers.imports(PACKAGE), layers.modules(PACKAGE))
    assert not upward, "\n".join(map(explained, upward))


def test_no_modules_import_one_another() -> None:
    """Directly or around a corner, also where an import is for types only."""
    assert layers.cycles(layers.imports(PACKAGE), types_too=True) == []


def test_every_module_has_a_place_in_the_order() -> None:
    assert layers.unplaced(layers.modules(PACKAGE)) == [], "enter it in LAYERS or INSIDE of tools/layers.py"


def test_every_name_in_the_order_is_there() -> None:
    known = layers.modules(PACKAGE)
    components = {layers.component(module) for module in known}
    assert {name for layer in layers.LAYERS for name in layer} == components
    parts = {f"{name}.{part}" for name, order in layers.INSIDE.items() for layer in order for part in layer}
    assert {part for part in parts if not part.endswith(layers.REST)} <= {*known}
