"""What the hostile tests share with ``benchmarks/faults.py``, of which they run a bounded part."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fault_suite.fault_server import KEY
from fault_suite.worker import Worker


@pytest.fixture(scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """Runs command lines in a process of its own, with short waits for endpoints and a key that nobody may see."""
    with Worker(tmp_path_factory.mktemp("home"), {"OPENAI_API_KEY": KEY}) as running:
        yield running
