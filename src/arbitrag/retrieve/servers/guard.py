"""What stands around each request to a server of passages: its errors as Arbitrag's, and a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass

from arbitrag.errors import BackendError
from arbitrag.security.redaction import Secrets


@dataclass(frozen=True, slots=True)
class RequestGuard:
    """Contexts for the requests of one client library.

    ``translated(shown, secrets)`` raises the library's errors as Arbitrag's. ``shown`` is the index and its server, as
    errors name them, and no error has one of the ``secrets`` in it.
    """

    translated: Callable[[str, Secrets], AbstractContextManager[None]]

    @contextmanager
    def errors(self, shown: str, secrets: Secrets) -> Iterator[None]:
        """For requests without a time limit of their own."""
        with secrets.kept(), self.translated(shown, secrets):
            yield

    @asynccontextmanager
    async def within(self, timeout_s: float | None, shown: str, secrets: Secrets) -> AsyncIterator[None]:
        """For requests that end, to the last byte of the response, within ``timeout_s``; None is no limit."""
        with self.errors(shown, secrets):
            try:
                async with asyncio.timeout(timeout_s):
                    yield
            except TimeoutError:
                raise BackendError(f"{shown} gave no whole answer within {timeout_s:g} s") from None
