"""An answer that is small on the wire and large when unpacked costs no memory."""

from __future__ import annotations

from pathlib import Path

import needs
import pytest
from fault_suite.bombs import MB, bombs, peak

UNPACKED = 256 * MB


@pytest.mark.slow
@needs.memory
@pytest.mark.parametrize("number", range(5))
def test_a_bomb_costs_no_memory(tmp_path: Path, number: int) -> None:
    usual_status, usual = peak(None, tmp_path / "good")
    status, size = peak(bombs(UNPACKED)[number], tmp_path / "bomb")
    assert (usual_status, status) == (0, 1)
    assert size - usual < 100 * MB
