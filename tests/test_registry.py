"""The table of address kinds: each row opens, and help, completion, errors and trust follow from a row."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from arbitrag import registry
from arbitrag.cli.terminal import completion
from arbitrag.errors import UsageError
from arbitrag.llm import open_llm
from arbitrag.registry import ENCODERS, INDEXES, LLMS, Backend
from arbitrag.security.trust import FromFile, is_local

TABLES = [LLMS, ENCODERS, INDEXES]


@pytest.mark.parametrize("row", [row for table in TABLES for row in table.values()], ids=lambda row: row.opens)
def test_what_a_row_opens_is_there(row: Backend) -> None:
    module, _, name = row.opens.partition(":")
    found = find_spec(module)
    assert found is not None
    assert found.origin is not None
    tree = ast.parse(Path(found.origin).read_text(encoding="utf-8"))  # its packages may not be installed
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize("table", TABLES)
def test_a_row_is_shown_as_it_is_typed(table: Mapping[str, Backend]) -> None:
    for kind, row in table.items():
        beginning = f"{kind}:" if row.needs_name else kind
        assert row.example.startswith(beginning)
        assert row.forms
        assert all(form.startswith(beginning) for form in row.forms)


def opened(*given: Any, **options: Any) -> tuple[Any, ...]:
    """What the row of the test opens."""
    return given, options


def test_a_row_is_all_that_a_backend_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Backend(
        f"{__name__}:opened",
        "mine:FILE (in this process)",
        ("mine:FILE",),
        files=True,
        settings={"threads": int},
        from_file={"careful": True},
    )
    monkeypatch.setattr(registry, "LLMS", {**LLMS, "mine": row})
    monkeypatch.setattr("arbitrag.llm.LLMS", registry.LLMS)
    monkeypatch.setattr("arbitrag.security.trust.LLMS", registry.LLMS)

    found: Any = open_llm("mine:file?threads=2", seed=1)
    assert found == (("file",), {"threads": 2, "seed": 1})
    found = open_llm("mine:file", source=FromFile("mine.db", "--llm"))
    assert found == (("file",), {"careful": True})
    with pytest.raises(UsageError, match=r"'mine' names no model; an address looks like mine:FILE"):
        open_llm("mine")
    with pytest.raises(UsageError, match="threads in the address is a whole number; got 'two'"):
        open_llm("mine:file?threads=two")
    assert is_local("mine:file")
    assert not is_local("mine://elsewhere/file")
    assert completion.models("m") == ["mine:"]
    assert registry.forms(registry.LLMS)[-1] == "mine:FILE"


def test_an_address_of_a_server_is_local_on_loopback_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Backend(f"{__name__}:opened", "far:MODEL@URL", ("far:MODEL@URL",), server=True)
    monkeypatch.setattr("arbitrag.security.trust.LLMS", {**LLMS, "far": row})
    assert is_local("far:m@http://127.0.0.1:8000/v1")
    assert not is_local("far:m@http://example.com/v1")
    assert not is_local("far:m")
