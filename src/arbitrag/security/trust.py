"""Trust in addresses: whether a person typed one, or a file named it, which may be a stranger's.

An address that a person types on the command line, in Python or in a configuration of his own is opened as it is. One
that stands in a file (an index names its encoder, a run file its models) is opened only when nothing leaves this
machine by it:

- ``lab`` and ``hash``, which come with the package
- ``hf:``, ``st:``, ``bge-m3:`` and ``onnx:``, from files that are here already: the hub is not asked, and code that
  lies beside a model is never run
- ``openai:MODEL@URL`` at a loopback address, and without the key in OPENAI_API_KEY

Everything else has to be typed again, and is then the person's own.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from arbitrag.errors import UsageError
from arbitrag.registry import ENCODERS, LLMS
from arbitrag.security.addresses import Url, shown, split_server
from arbitrag.text import one_line

CACHE_FILE = "responses.sqlite"


@dataclass(frozen=True, slots=True)
class FromFile:
    """The mark of an address that stands in a file. What opens an address takes it as ``source``; None is typed.

    ``option`` is the one with which the address is typed again, such as ``--encoder``.
    """

    file: str
    option: str

    def check(self, address: str) -> None:
        """Raise UsageError unless nothing leaves this machine when the model or encoder at the address is opened."""
        if not is_local(address):
            raise self._refused(address)

    def check_index(self, address: str | Path) -> None:
        """Raise UsageError unless this is a path on this machine; a server of passages is always typed."""
        if not is_local_path(str(address)):
            raise self._refused(str(address))

    def check_cache(self, folder: str | Path) -> None:
        """Raise UsageError unless responses are kept in this folder already: nothing new is made where a file says."""
        if not is_local_cache(folder):
            raise self._refused(str(folder))

    def _refused(self, address: str) -> UsageError:
        named = one_line(shown(address), 200)
        return UsageError(
            f"{one_line(self.file, 200)} names {named}, which is not on this machine. An address in a file may be a "
            f"stranger's, who would get your texts and your key.\nIf you know it, type it again: "
            f"{self.option} {named} (from Python: {self.option.strip('-').replace('-', '_')}=...)"
        )


def is_local(address: str) -> bool:
    """Whether a model or an encoder is in this process, or behind a loopback address."""
    kind, _, rest = address.partition(":")
    rows = [table[kind] for table in (LLMS, ENCODERS) if kind in table]
    if any(row.server for row in rows):
        return _is_loopback(split_server(rest)[1])
    return bool(rows) and is_local_path(rest)


def is_local_path(text: str) -> bool:
    """Whether a path is no URL, no address of a server, and no share of another machine (``\\\\host\\share``)."""
    kind, colon, _ = text.partition(":")
    is_address = bool(colon) and len(kind) > 1 and kind.isalnum()  # C:\docs.idx is a path
    return "://" not in text and not is_address and not text.replace("\\", "/").startswith("//")


def is_local_cache(folder: str | Path) -> bool:
    """Whether this is a folder of this machine in which responses are kept already."""
    file = Path(folder) / CACHE_FILE
    return is_local_path(str(folder)) and file.is_file() and not file.is_symlink()


def _is_loopback(text: str) -> bool:
    try:
        host = Url.of(text).host
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except (UsageError, ValueError):
        return False
