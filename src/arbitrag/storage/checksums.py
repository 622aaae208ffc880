"""Checksums in JSON objects, which detect damaged files.

It is a CRC-32 over the object's values, not over its bytes: a file that was only laid out anew still has it. It tells
damage, not a forger. An object without one, written before there were checksums, is read as it is.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

KEY = "checksum"


def seal(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The object with its checksum as the last key."""
    return {**plain, KEY: _checksum(plain)}


def unseal(found: Mapping[str, Any]) -> dict[str, Any]:
    """The object without its checksum; raises ValueError when it has another one than it should."""
    plain = {key: value for key, value in found.items() if key != KEY}
    if KEY in found and found[KEY] != _checksum(plain):
        raise ValueError("it was changed or damaged after it was written (its checksum is another one)")
    return plain


def _checksum(plain: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(plain, sort_keys=True).encode('ascii')):08x}"
