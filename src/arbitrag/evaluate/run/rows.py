"""How the values of a run lie in its file: as JSON texts, compressed blobs, and checksums over both.

Every row of every table has the CRC-32 of its other values, and every system's rows on a set are counted. So what a
report stands on is what was recorded, to the row and to the letter: sqlite itself notices a page that is out of order,
and not a letter that changed, a page of an older time, or rows that are gone with the page that held them. A file from
before these checksums has none, and is read without.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping
from typing import Any

from arbitrag.evaluate.questions import Item
from arbitrag.serialization import to_plain
from arbitrag.types import Passage, Question, Strategy, Usage

TO_2 = """
ALTER TABLE conditions ADD COLUMN crc INTEGER;
ALTER TABLE sessions ADD COLUMN crc INTEGER;
ALTER TABLE systems ADD COLUMN crc INTEGER;
ALTER TABLE sets ADD COLUMN questions INTEGER;
ALTER TABLE sets ADD COLUMN crc INTEGER;
ALTER TABLE items ADD COLUMN crc INTEGER;
ALTER TABLE items ADD COLUMN passages_crc INTEGER;
ALTER TABLE rows ADD COLUMN crc INTEGER;
CREATE TABLE texts (digest TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE counts (
    set_number INTEGER NOT NULL, system_number INTEGER NOT NULL, rows INTEGER NOT NULL,
    PRIMARY KEY (set_number, system_number)
) WITHOUT ROWID;
INSERT INTO counts SELECT sets.number, systems.number, (
    SELECT count(*) FROM rows WHERE set_number = sets.number AND system_number = systems.number
) FROM sets, systems;
"""  # checksums and counts, which a file of version 1 has not
TO_3 = """
UPDATE rows SET alone = cost_of_version_2(alone), paid = cost_of_version_2(paid), crc = crc_of_version_3(
    crc, set_number, system_number, place, answer, strategy, why, error, scores, alone, paid, attempts, cut,
    parse_failures
);
ALTER TABLE rows RENAME COLUMN alone TO standalone;
ALTER TABLE rows RENAME COLUMN paid TO incremental;
"""  # costs whose prompt tokens include the cached ones
QUICKLY = 1  # zlib's level; the slower ones make a verdict hardly smaller
MOST_BYTES = 1 << 28  # of a verdict or a trace; one of a stranger's may be made to fill the memory


def crc(*values: Any) -> int:
    """The checksum of values of one row: texts, numbers or None."""
    return zlib.crc32("\x1f".join(map(str, values)).encode("utf-8", "surrogatepass"))


def agrees(found: int | None, *values: Any) -> bool:
    """Whether a row is as it was written, as far as its checksum says; a row from before there were any has none."""
    return found is None or found == crc(*values)


def text(value: Any) -> str:
    return json.dumps(to_plain(value), ensure_ascii=True)


def listed(usage: Usage | None) -> str | None:
    """The fields' values in their order, which is what ``usage`` reads fastest."""
    return None if usage is None else json.dumps([getattr(usage, each) for each in Usage.__slots__])


def usage(text: str | None) -> Usage | None:
    return None if text is None else Usage(*json.loads(text))


def upgrade(connection: sqlite3.Connection, version: int) -> str:
    """The statements that bring an older file to this version, with the functions that they call."""
    connection.create_function("cost_of_version_2", 1, cost_of_version_2, deterministic=True)
    connection.create_function("crc_of_version_3", 14, _crc_of_version_3, deterministic=True)
    return (TO_2 if version < 2 else "") + TO_3


def cost_of_version_2(text: str | None) -> str | None:
    """A cost as this version has it; one that is damaged stays as it is.

    Versions 1 and 2 counted prompt tokens without the cached ones.
    """
    try:
        values = json.loads(text or "")
        prompt, cached = Usage.__slots__.index("prompt_tokens"), Usage.__slots__.index("cached_tokens")
        values[prompt] += values[cached]
        return json.dumps(values)
    except (ValueError, TypeError, IndexError, KeyError, RecursionError):
        return text


def _crc_of_version_3(found: int | None, *values: Any) -> int | None:
    """The checksum of a row (set, system, place, …) after its costs were brought to this version.

    A row without one stays without, and one that does not agree with its checksum does not come to agree.
    """
    if found is None or not agrees(found, *values):
        return found
    costs = (cost_of_version_2(text) for text in values[8:10])
    return crc(*values[:8], *costs, *values[10:])


def item(text: str, passages: str | None) -> Item:
    plain = json.loads(text)
    question, scenario = plain["question"], plain["scenario"]
    return Item(
        question=Question(question["text"], tuple(question["options"]), question["id"]),
        answers=tuple(plain["answers"]),
        passages=None if passages is None else tuple(Passage(**each) for each in json.loads(passages)),
        scenario=None if scenario is None else Strategy(scenario),
        planted=tuple(plain["planted"]),
        poisoned=frozenset(plain["poisoned"]),
        group=plain["group"],
    )


def packed(value: Mapping[str, Any] | None) -> bytes | None:
    return None if value is None else zlib.compress(json.dumps(value, allow_nan=False).encode(), QUICKLY)


def unpacked(blob: bytes) -> Mapping[str, Any]:
    """What ``packed`` made. Raises ValueError or zlib.error for anything else; its own checksum is zlib's."""
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(blob, MOST_BYTES)
    if not unpacking.eof:
        raise ValueError("a verdict or trace that is cut off, or far too long")
    plain = json.loads(content)
    if not isinstance(plain, dict):
        raise ValueError("a verdict or trace that is not a JSON object")
    return plain
