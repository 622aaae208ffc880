"""A lazily opened encoder: an index states its identity and width, and it is opened when there is a text to encode."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from arbitrag.encode import open_encoder
from arbitrag.encode.base import Encoder, Kind
from arbitrag.errors import IndexFileError
from arbitrag.security.trust import FromFile
from arbitrag.text import printable

if TYPE_CHECKING:
    import numpy as np


def default_encoder() -> Encoder:
    """``hash``, which is opened (and numpy imported, 0.15 s) when there is something to encode."""
    return LazyEncoder("hash", "hash:256:1", 256)


class LazyEncoder:
    """Stands for the encoder at an address, whose vectors have this identity and width."""

    def __init__(self, address: str, identity: str, width: int, source: FromFile | None = None) -> None:
        self.name = address
        self.identity = identity
        self._width = width
        self._source = source
        self._opening = asyncio.Lock()
        self._opened: Encoder | None = None

    @property
    def width(self) -> int:
        return self._width

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        """As the encoder does it. Raises what ``opened`` raises."""
        return await (await self.opened()).encode(texts, kind=kind)

    async def aclose(self) -> None:
        if self._opened is not None:
            await self._opened.aclose()

    async def opened(self) -> Encoder:
        """The encoder itself.

        Raises what opening it raises, and IndexFileError when the one at the address is no longer the one that the
        index knows.
        """
        async with self._opening:
            if self._opened is None:
                opened = await asyncio.to_thread(open_encoder, self.name, source=self._source)
                if opened.identity != self.identity:
                    await opened.aclose()
                    raise IndexFileError(
                        f"the index was made by {printable(self.identity)}, and {printable(self.name)} is now "
                        f"{printable(opened.identity)}; make the index again, or give --encoder"
                    )
                self._opened = opened
        return self._opened
