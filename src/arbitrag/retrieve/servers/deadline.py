"""A time limit for a request to a server of passages, up to the last byte of the response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from arbitrag.errors import BackendError


@asynccontextmanager
async def deadline(timeout_s: float | None, shown: str) -> AsyncIterator[None]:
    """Raise BackendError where the block takes longer; ``shown`` names the server, and None is no deadline."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise BackendError(f"{shown} gave no whole answer within {timeout_s:g} s") from None
