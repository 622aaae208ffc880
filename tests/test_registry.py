"""The tables of what opens an address: every row names something that is there."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest

from arbitrag.encode import ENCODERS
from arbitrag.llm import BACKENDS
from arbitrag.registry import Opener
from arbitrag.retrieve import WORLD

ROWS = {
    **{f"llm {kind}": row for kind, row in BACKENDS.items()},
    **{f"encoder {k}": row for k, row in ENCODERS.items()},
}


@pytest.mark.parametrize("row", [*ROWS.values(), WORLD], ids=[*ROWS, "world"])
def test_what_a_row_names_can_be_called(row: Opener) -> None:
    assert callable(resolve_name(row.target))


@pytest.mark.parametrize("name", ROWS)
def test_the_example_of_a_row_begins_with_its_kind(name: str) -> None:
    kind, row = name.partition(" ")[2], ROWS[name]
    assert row.address.startswith(f"{kind} (" if row.bare else f"{kind}:")


def test_a_row_passes_on_what_it_is_given() -> None:
    assert Opener("dict", "builtins:dict").open([("a", 1)], b=2) == {"a": 1, "b": 2}
