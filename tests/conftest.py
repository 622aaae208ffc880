"""Shared by all tests: no network beyond loopback, and the folder of material that stands beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_socket import socket_allow_hosts

ROOT = Path(__file__).resolve().parent.parent


def pytest_runtest_setup() -> None:
    """Connections go to this machine only; a test that tries another host fails."""
    socket_allow_hosts(["127.0.0.1", "::1"], allow_unix_socket=True)


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
