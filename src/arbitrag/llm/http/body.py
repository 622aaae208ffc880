"""Read the body of an HTTP answer: decompress it as it arrives, and stop at a limit on decompressed bytes.

A gzip body of 1 MB can hold 1 GB, so the limit applies to what comes out, a piece at a time. Only gzip and deflate are
decompressed, and one layer of it: zlib can stop in the middle of a chunk, and nothing else is asked for. Bodies of up
to SMALL_BYTES are read side by side; a larger one waits for its turn, so that many large answers at the same time take
the memory of one.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import httpx

ACCEPTED = "gzip"  # the Accept-Encoding that is sent
SMALL_BYTES = 256 * 1024
_PIECE_BYTES = 64 * 1024
_EITHER_FORMAT = 32 + zlib.MAX_WBITS  # zlib tells gzip from deflate by the first bytes


class BodyError(Exception):
    """Why a body was not read to its end, in words that follow on "the answer"."""


async def read(
    response: httpx.Response, most_bytes: int, large: asyncio.Lock, on_piece: Callable[[bytes], None] | None = None
) -> bytes:
    """The whole body of a streamed response, decompressed. ``large`` is held while it is larger than SMALL_BYTES.

    ``on_piece`` is given each piece of it as it arrives.

    Raises BodyError for more than ``most_bytes``, for an encoding that was not asked for and for a damaged one, and
    httpx.HTTPError when the connection fails.
    """
    body = bytearray()
    unpacking = _unpacking(response.headers.get("content-encoding", ""))
    waited = False
    async with AsyncExitStack() as turn:
        try:
            async for chunk in response.aiter_raw():
                for piece in unpacking.pieces(chunk):
                    body += piece
                    if len(body) > most_bytes:
                        raise BodyError(f"is larger than {most_bytes:,} bytes, which no answer to this request can be")
                    if len(body) > SMALL_BYTES and not waited:
                        waited = True
                        await turn.enter_async_context(large)
                    if on_piece is not None:
                        on_piece(piece)
        except BaseException:
            body.clear()  # the error's traceback would keep it while the next large body is read
            raise
    return bytes(body)


class _Unpacking(Protocol):
    def pieces(self, chunk: bytes) -> Iterator[bytes]: ...


def _unpacking(encoding: str) -> _Unpacking:
    """What a Content-Encoding header asks for."""
    layers = [
        layer for layer in (each.strip().lower() for each in encoding.split(",")) if layer not in ("", "identity")
    ]
    if not layers:
        return _Plain()
    if len(layers) == 1 and layers[0] in ("gzip", "x-gzip", "deflate"):
        return _Deflated()
    raise BodyError(f"is encoded as '{', '.join(layers)}', which was not asked for (Accept-Encoding: {ACCEPTED})")


class _Plain:
    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk


class _Deflated:
    """Decompresses gzip or deflate, at most _PIECE_BYTES at a time."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_EITHER_FORMAT)

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        while chunk and not self._stream.eof:
            try:
                piece = self._stream.decompress(chunk, _PIECE_BYTES)
            except zlib.error as error:
                raise BodyError(f"cannot be decompressed: {error}") from None
            chunk = self._stream.unconsumed_tail
            yield piece
