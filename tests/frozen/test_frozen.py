"""What users see is what tests/frozen/*.txt holds. After a change that is meant: python tests/support/freeze.py"""

from __future__ import annotations

from pathlib import Path

import pytest
from freeze import FOLDER, difference, frozen, masked, settled

NAMES = sorted(path.name for path in FOLDER.glob("*.txt"))


@pytest.fixture(scope="module")
def now() -> dict[str, str]:
    return frozen()


def test_every_text_has_a_file(now: dict[str, str]) -> None:
    assert sorted(now) == NAMES, "write and remove files: python tests/support/freeze.py"


@pytest.mark.parametrize("name", NAMES)
def test_users_see_the_same(name: str, now: dict[str, str]) -> None:
    found = difference(name, now[name]) if name in now else f"nothing makes {name} any more\n"
    if found:
        pytest.fail(f"{found}If that is meant: python tests/support/freeze.py", pytrace=False)


def test_what_varies_is_masked_and_the_rest_stays() -> None:
    text = '{"path": "/made/docs", "started": "2026-01-02T03:04:05+00:00", "p": -1.23456, "q": 1e-09, "weight": 0.5}'
    shown = '{"path": "FOLDER/docs", "started": "TIME", "p": -1.235, "q": 0.000, "weight": 0.5}'
    assert masked(text, Path("/made")) == shown
    assert masked("18 rows, 35.6/s; 106.1 a second; digest 8ff96bbb7bbf4e70", Path("/made")) == (
        "18 rows, RATE/s; RATE a second; digest 8ff96bbb7bbf4e70"
    )


def test_numbers_that_are_near_settle_and_others_do_not() -> None:
    known = "a -1.250\nb 2.000 of 3\nc 0.5\n"
    assert settled("a -1.248\nb 1.999 of 3\nc 0.5\n", known) == known
    assert settled("a -1.247\nb 2.000 of 4\nc 0.6\n", known) == "a -1.247\nb 2.000 of 4\nc 0.6\n"
    assert settled("new\na -1.251\n", known) == "new\na -1.250\n"
