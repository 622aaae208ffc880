"""The filter ``reference`` keeps the passages that the reference TrustRAG keeps.

``trustrag.json`` holds what HuichiZhou/TrustRAG@11dcea0 kept; ``make_trustrag_fixture.py`` made it. It holds positions
of the first passage with a text, since the reference returns texts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arbitrag.stages.filters.reference import reference
from arbitrag.types import Passage

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "trustrag.json").read_text(encoding="utf-8"))["rows"]


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_the_same_passages_are_kept(row: dict[str, Any]) -> None:
    passages = [Passage(text, id=str(number)) for number, text in enumerate(row["texts"])]
    found = reference(passages, np.array(row["vectors"], np.float32))
    kept = [passage.text for passage in found.kept]
    assert sorted(kept) == sorted(row["texts"][number] for number in row["kept"])
    assert kept == [passage.text for passage in passages if passage in found.kept]  # in the order of retrieval
    assert len(found.kept) + len(found.dropped) == len(passages)


def test_the_recorded_sets_reach_every_rule() -> None:
    kept = [len(row["kept"]) / len(row["texts"]) for row in ROWS]
    assert kept.count(0.0) > 10
    assert kept.count(1.0) > 10
    assert sum(0 < share < 1 for share in kept) > 50
