"""Answering a question writes nothing into the home folder and calls nobody, whatever libraries take part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arbitrag.security import telemetry

PASSAGES = '{"text": "The Silent Orchard was directed by Ann Lee.", "id": "1"}\n'
# Runs a command with an audit hook: what Python connects to, looks up, or opens for writing, as JSON at the end.
WATCHED = """
import json, os, sys
seen = []
def watch(event, given):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        seen.append([event, repr(given[1:])])
sys.addaudithook(watch)
{code}
print("SEEN", json.dumps(seen), file=sys.stderr)
"""
ASK = "from arbitrag.cli import main; assert main({arguments!r}) == 0"
FRAMEWORKS = """
import asyncio
from arbitrag.integrations import from_haystack, from_langchain, from_llamaindex
from haystack import Document
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from langchain_core.documents import Document as Text
from langchain_core.retrievers import BaseRetriever
from llama_index.core.retrievers import BaseRetriever as Index
from llama_index.core.schema import NodeWithScore, TextNode

store = InMemoryDocumentStore()
store.write_documents([Document(content="The Silent Orchard was directed by Ann Lee.")])

class Chain(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Text(page_content="Ann Lee")]

class Nodes(Index):
    def _retrieve(self, query):
        return [NodeWithScore(node=TextNode(text="Ann Lee"), score=1.0)]

for retriever in (from_haystack(InMemoryBM25Retriever(store)), from_langchain(Chain()), from_llamaindex(Nodes())):
    assert "Ann Lee" in asyncio.run(retriever.retrieve("Who directed The Silent Orchard?", 1))[0].text
"""


def run(code: str, home: Path, folder: Path) -> list[object]:
    """Runs the code in a process of its own, at home in ``home``; what it reached for on the network."""
    kept = {name: value for name, value in os.environ.items() if name not in telemetry.SWITCHES}
    kept = {name: value for name, value in kept.items() if not name.startswith(("XDG_", "HF_", "COV_"))}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WATCHED.format(code=code)],
        cwd=folder,
        env={**kept, "HOME": str(home), "USERPROFILE": str(home), "LOCALAPPDATA": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[object] = json.loads(done.stderr.rpartition("SEEN ")[2])
    return found


def ask(llm: str, *more: str) -> str:
    question = ["ask", "Who directed The Silent Orchard?", "--passages", "p.jsonl"]
    return ASK.format(arguments=[*question, "--llm", llm, *more])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    (place / "p.jsonl").write_text(PASSAGES)
    return place


def test_the_embedded_model_answers_with_an_empty_home_and_leaves_it_empty(tmp_path: Path, folder: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    assert run(ask("lab", "--method", "trustmargin"), home, folder) == []
    assert list(home.rglob("*")) == []


def test_the_embedded_model_answers_where_home_cannot_be_written(tmp_path: Path, folder: Path) -> None:
    home = tmp_path / "file"
    home.write_text("no folder, so that nobody can write below it, the superuser included")
    assert run(ask("lab", "--method", "rag"), home, folder) == []
    assert home.read_text().startswith("no folder")


@pytest.mark.slow
def test_transformers_reads_a_folder_without_a_word_to_the_hub(tmp_path: Path, folder: Path, shared: Path) -> None:
    pytest.importorskip("transformers")
    home = tmp_path / "home"
    home.mkdir()
    assert run(ask(f"hf:{shared / 'lab' / 'model'}", "--method", "rag"), home, folder) == []
    assert list(home.rglob("*")) == []


@pytest.mark.slow
def test_retrievers_of_frameworks_report_to_nobody(tmp_path: Path, folder: Path) -> None:
    for name in ("haystack", "langchain_core", "llama_index.core"):
        pytest.importorskip(name)
    home = tmp_path / "home"
    home.mkdir()
    assert run(FRAMEWORKS, home, folder) == []
    assert [path.name for path in home.rglob("*") if path.is_file()] == []


def test_the_switches_are_set_before_onnxruntime_is_imported() -> None:
    code = (
        "import os, sys, arbitrag.llm.onnx.session, arbitrag.encode.onnx; assert 'onnxruntime' not in sys.modules; "
        "from arbitrag.security import telemetry; telemetry.onnxruntime(); print(os.environ['ORT_DISABLE_TELEMETRY'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_nothing_else_in_the_package_imports_onnxruntime(repository: Path) -> None:
    importing = [
        path.name for path in (repository / "src").rglob("*.py") if "import onnxruntime" in path.read_text("utf-8")
    ]
    assert importing == ["telemetry.py"]
