"""What was found out about a server, kept on disk for a day, so that a known server is not asked again.

One small JSON file for each model at an address. Its name is a hash of address, model and versions; neither keys, users
and passwords nor a query of the address are part of it or of the file. It is read and written in silence: where there
is no place to write, a server is asked anew each time. ``ARBITRAG_CACHE=off`` turns it off, and any other value is the
folder to use.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from arbitrag import __version__
from arbitrag.serialization import parse_json
from arbitrag.storage.checksums import seal, unseal
from arbitrag.storage.files import draft_of

SWITCH = "ARBITRAG_CACHE"
LIFETIME_S = 24 * 3600
_FORMAT = 1
_MOST_BYTES = 100_000


class Kept:
    """The file of one server. ``identity`` names the model, its address without secrets, and how it is asked."""

    def __init__(self, identity: str) -> None:
        made_by = f"{_FORMAT}\n{__version__}\n{identity}"
        folder = cache_folder()
        name = hashlib.sha256(made_by.encode(errors="replace")).hexdigest()[:32]
        self.path = None if folder is None else folder / "servers" / f"{name}.json"

    def read(self) -> tuple[Any, float] | None:
        """What was kept, and how many seconds ago; None where there is nothing, or nothing that is of use."""
        if self.path is None:
            return None
        try:
            with self.path.open("rb") as file:
                plain = unseal(parse_json(file.read(_MOST_BYTES).decode()))
            age_s = time.time() - plain["written"]
            return (plain["found"], age_s) if 0 <= age_s < LIFETIME_S else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def write(self, found: Any) -> None:
        """Keep plain JSON values, for this user's eyes only."""
        if self.path is None:
            return
        text = json.dumps(seal({"written": time.time(), "found": found}), allow_nan=False)
        with suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = draft_of(self.path)
            try:
                number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
                with os.fdopen(number, "wb") as file:
                    file.write(text.encode())
                draft.replace(self.path)
            finally:
                draft.unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove the file, because the server is not, or no longer, what it says."""
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)


def cache_folder() -> Path | None:
    """The user's folder for files that can be lost; None where it is turned off, or there is no home."""
    switch = os.environ.get(SWITCH, "")
    if switch.lower() == "off":
        return None
    if switch:
        return Path(switch)
    if base := os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"):
        return Path(base) / "arbitrag"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "arbitrag"
