"""What users see is what tests/frozen/*.txt holds. After a change that is meant: python tests/support/freeze.py"""

from __future__ import annotations

import pytest
from freeze import FOLDER, difference, frozen, settled

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


def test_numbers_that_are_near_settle_and_others_do_not() -> None:
    known = "a -1.250\nb 2.000 of 3\nc 0.5\n"
    assert settled("a -1.248\nb 1.999 of 3\nc 0.5\n", known) == known
    assert settled("a -1.247\nb 2.000 of 4\nc 0.6\n", known) == "a -1.247\nb 2.000 of 4\nc 0.6\n"
    assert settled("new\na -1.251\n", known) == "new\na -1.250\n"
