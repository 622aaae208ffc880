"""``index`` and ``search`` beyond the plain case: vectors, modes, filters on metadata, addresses of servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Command

ROWS = [
    {"text": "Mira Talven directed The Silent Orchard.", "id": "a", "language": "en"},
    {"text": "Mira Talven filmte den stillen Garten.", "id": "b", "language": "de"},
]


@pytest.fixture
def index(tmp_path: Path, command: Command) -> Path:
    rows = tmp_path / "films.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    target = tmp_path / "docs.idx"
    assert command("index", rows, "-o", target, "--encoder", "hash").status == 0
    return target


def found(command: Command, *arguments: object) -> list[str]:
    result = command("search", *arguments, "--json")
    assert result.status == 0, result.err
    return [passage["metadata"]["language"] for passage in json.loads(result.out)]


def test_where_keeps_passages_by_their_metadata(index: Path, command: Command) -> None:
    assert sorted(found(command, index, "Mira Talven")) == ["de", "en"]
    assert found(command, index, "Mira Talven", "--where", "language=de") == ["de"]
    assert found(command, index, "Mira Talven", "--where", "language=fr") == []


@pytest.mark.parametrize("mode", ["bm25", "dense", "hybrid"])
def test_a_mode_can_be_chosen(index: Path, command: Command, mode: str) -> None:
    assert found(command, index, "Who directed The Silent Orchard?", "-k", "1", "--mode", mode) == ["en"]


def test_where_reaches_the_passages_that_are_read(index: Path, command: Command) -> None:
    result = command(
        "ask", "Who?", "--llm", "lab", "--method", "rag", "--index", index, "--where", "language=de", "--json"
    )
    assert result.status == 0, result.err
    assert [passage["text"] for passage in json.loads(result.out)["kept"]] == [ROWS[1]["text"]]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--mode", "denes"), "unknown mode 'denes'. Did you mean 'dense'?"),
        (("--where", "language"), "--where takes NAME=VALUE, such as language=en; got 'language'"),
        (("--encoder", "hahs"), "unknown encoder 'hahs'. Did you mean 'hash'?"),
    ],
)
def test_a_wrong_choice_is_one_line(index: Path, command: Command, arguments: tuple[str, ...], says: str) -> None:
    result = command("search", index, "Mira", *arguments)
    assert result.status == 2
    assert says in result.err
    assert len(result.err.splitlines()) == 1


def test_an_unknown_server_is_named(command: Command) -> None:
    result = command("search", "postgers:postgresql://me:secret@host/library", "Mira")
    assert result.status == 2
    assert "Did you mean 'postgres'?" in result.err
    assert "secret" not in result.err
