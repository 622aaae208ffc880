"""The openai backend against ``transformers serve``, a real server that nobody here wrote, with the lab's checkpoint.

It answers 200 to ``echo`` and ``logprobs`` and ignores both. The probe must find that out, and what needs likelihoods
must be refused before the first question.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from arbitrag.errors import CapabilityError
from arbitrag.kit import Kit, Limits
from arbitrag.llm.http.openai import OpenAILLM
from arbitrag.methods.direct import Direct
from arbitrag.methods.rag import Rag
from arbitrag.methods.trustmargin import TrustMargin
from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.run import answer, check
from arbitrag.types import Need, Passage, Strategy

CHECKPOINT = Path(__file__).parents[3] / "shared" / "lab" / "model"
TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
START_S = 80.0
PACKAGES = ("torch", "transformers", "fastapi", "uvicorn")
MISSING = [name for name in PACKAGES if find_spec(name) is None]

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(MISSING), reason=f"transformers serve needs {', '.join(MISSING)}"),
    pytest.mark.skipif(not CHECKPOINT.is_dir(), reason="the lab's checkpoint is not here"),
]

PASSAGES = [
    Passage("The film The Silent Orchard was directed by Mira Talven and first shown in 1931.", id="1"),
    Passage("Mira Talven was born in the harbour town of Ostrel.", id="2"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkpoint with a chat template, which it lacks."""
    folder = tmp_path_factory.mktemp("served") / "lab"
    folder.mkdir()
    for file in CHECKPOINT.iterdir():
        shutil.copyfile(file, folder / file.name)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "chat_template": TEMPLATE}))
    return folder


@pytest.fixture(scope="module")
def base_url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running ``transformers serve``."""
    log = tmp_path_factory.mktemp("log") / "serve.log"
    port = _free_port()
    command = [sys.executable, "-c", "from transformers.cli.transformers import main; main()", "serve", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "NO_PROXY": "127.0.0.1"}
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **offline})
    try:
        _wait_until_up(process, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_up(process: subprocess.Popen[bytes], health: str, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            pytest.fail(f"transformers serve ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(health, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    pytest.fail(f"transformers serve was not up after {START_S:.0f} s:\n{log.read_text()[-2000:]}")


async def test_methods_run_and_likelihoods_are_refused(base_url: str, model: Path) -> None:
    llm = OpenAILLM(str(model), base_url=base_url, concurrency=4)
    kit = Kit.of(llm, FixedRetriever(PASSAGES), limits=Limits(context_tokens=256, answer_tokens=8))
    question = "Who directed the film The Silent Orchard?"
    try:
        # what the model says is the lab's business; that a real server was asked and answered is ours
        from_memory = await answer(question, Direct(), kit)
        assert from_memory.strategy in (Strategy.MEMORY, Strategy.REFUSE)
        assert 1 <= from_memory.usage.completion_tokens <= 8
        assert from_memory.usage.prompt_tokens > 10

        from_passages = await answer(question, Rag(k=2), kit)
        assert from_passages.kept == tuple(PASSAGES)
        assert from_passages.strategy in (Strategy.EVIDENCE, Strategy.REFUSE)
        assert from_passages.usage.prompt_tokens > from_memory.usage.prompt_tokens

        again = await answer(question, Rag(k=2), kit)
        assert again.candidates == from_passages.candidates  # greedy means greedy there too

        capabilities = await llm.capabilities()
        assert capabilities.needs == Need.GENERATE
        evidence = "\n".join(capabilities.evidence)
        assert "generate: yes; chat/completions answered" in evidence
        assert "logprobs: no; asked chat/completions: the server answered 200, but it does not return" in evidence
        assert "score: no; asked by /tokenize and prompt_logprobs" in evidence
        assert "max_tokens=1: the server answered 200, but echo and logprobs bring back no tokens" in evidence
        assert "score: yes" not in evidence

        with pytest.raises(CapabilityError) as refused:
            await check(TrustMargin(), kit)
        said = str(refused.value)
        assert said.startswith("trustmargin needs generate and score; openai:")
        assert "offers generate." in said
        assert "Give it a scorer (--scorer hf:MODEL), serve the model with vLLM" in said
    finally:
        await llm.aclose()
