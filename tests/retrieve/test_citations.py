"""A passage of a PDF is cited with its page, wherever a passage is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arbitrag.cli.explain import explained
from arbitrag.cli.verdict import render
from arbitrag.kit import Kit
from arbitrag.methods.rag import Rag
from arbitrag.retrieve import open_index
from arbitrag.run import answer
from arbitrag.testing import ScriptedLLM
from arbitrag.types import Passage, Strategy, Verdict

if TYPE_CHECKING:
    from tests.conftest import Command

PAGES = ["Cover.", "Mira Talven runs the harbour.", "Nothing more."]


@pytest.fixture
def index(tmp_path: Path, command: Command, make_pdf: Callable[..., Path]) -> Path:
    (tmp_path / "docs").mkdir()
    make_pdf(tmp_path / "docs" / "report.pdf", PAGES, title="Report")
    assert command("index", tmp_path / "docs", "-o", tmp_path / "x.idx").status == 0
    return tmp_path / "x.idx"


def test_search_names_the_page(index: Path, command: Command) -> None:
    result = command("search", index, "Who runs the harbour?", "-k", "1")
    assert result.out.splitlines()[0].endswith("report.pdf, page 2  Report")
    (found,) = json.loads(command("search", index, "Who runs the harbour?", "-k", "1", "--json").out)
    assert (found["source"], found["metadata"], found["line"]) == ("report.pdf", {"page": "2"}, None)


async def test_a_verdict_and_its_trace_name_the_page(index: Path) -> None:
    retriever = open_index(index)
    try:
        verdict = await answer("Who runs the harbour?", Rag(k=1), Kit.of(ScriptedLLM(["Mira Talven"]), retriever))
    finally:
        await retriever.aclose()
    assert "[1] report.pdf, page 2" in render(verdict)
    assert "report.pdf, page 2" in explained(verdict.trace)
    assert verdict.to_dict()["kept"][0]["metadata"] == {"page": "2"}


def test_the_page_stays_where_a_path_is_too_long() -> None:
    passage = Passage("t", source="folder/" * 30 + "report.pdf", metadata={"page": "7"})
    text = render(Verdict("x", Strategy.EVIDENCE, "y", kept=(passage,)), 80)
    assert "…" in text
    assert "folder/report.pdf, page 7" in text
    assert max(map(len, text.splitlines())) <= 80
