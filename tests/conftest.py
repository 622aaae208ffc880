"""Shared by all tests: no network beyond loopback, and the folder of material that stands beside the repository."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest
from pytest_socket import socket_allow_hosts

ROOT = Path(__file__).resolve().parent.parent

# How long an example takes says nothing on a busy machine.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_runtest_setup() -> None:
    """Connections go to this machine only; a test that tries another host fails."""
    socket_allow_hosts(["127.0.0.1", "::1"], allow_unix_socket=True)


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are as wide as where there is no terminal, also in a worker that was told another width."""
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test finds out about a server is forgotten with it: ports come again, with other servers."""
    monkeypatch.setenv("ARBITRAG_CACHE", "off")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The repository's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder ``shared`` beside the repository: papers, data sets and the lab's checkpoint. Skips without it."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("there is no folder 'shared' beside the repository")
    return folder


@dataclass(frozen=True)
class Ran:
    """What a command did: its exit status, and the texts on standard output and standard error."""

    status: int
    out: str
    err: str


Command = Callable[..., Ran]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command line in this process: ``command("ask", "Who?", stdin=b"")``."""
    from arbitrag.cli import main

    def run(*arguments: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        return Ran(status, *capsys.readouterr())

    return run
