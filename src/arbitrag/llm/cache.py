"""Responses on disk, so that the same request is paid for once: one sqlite file, safe for several processes.

The key is the SHA-256 of the model's identity, the kind of request, the prompt and the settings. What is kept is JSON
as a trace has it (arrays as base64 of float32), never pickle. A generation is kept when it would come out the same
again: at temperature 0, or with a seed. One at a temperature without a seed is always asked for.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from arbitrag.errors import DataError, UsageError
from arbitrag.llm.base import (
    LLM,
    Distributions,
    Generation,
    Inspection,
    OnText,
    Prompt,
    Sampling,
    Scores,
    Tokens,
    generated,
)
from arbitrag.llm.results import M, ModelResult, Request, as_cached, decode, encode, tokens_of_format_1
from arbitrag.llm.wrapped import WrappedLLM
from arbitrag.security.trust import CACHE_FILE
from arbitrag.serialization import to_plain
from arbitrag.storage.checksums import seal, unseal
from arbitrag.storage.files import check_plain

FILE = CACHE_FILE
VERSION = 2
READABLE = (0, 1, 2)  # 0 is a new file; 1 counted prompt tokens without the cached ones
BUSY_S = 10.0


@dataclass
class _Flight:
    """A request under way, and how many callers wait for it."""

    task: asyncio.Task[Any]
    waiting: int = 0


class CachedLLM(WrappedLLM):
    """A model whose responses are kept in ``folder``.

    A response from the cache has ``cached`` set, and all its prompt tokens count as cached. Requests
    that are alike and made at the same time are computed once. A cache that cannot be written (a full disk) is said
    once, as a RuntimeWarning, and costs no answer.
    """

    def __init__(self, backend: LLM, folder: Path) -> None:
        """Raises UsageError when the folder cannot be made, DataError for a file that is no cache of this version."""
        super().__init__(backend)
        self._flights: dict[str, _Flight] = {}
        self._warned = False
        # sqlite blocks, so it has a thread of its own, which is also the only one to touch the connection.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="response-cache")
        self._file = _File(folder / FILE)
        try:
            self._thread.submit(self._file.open).result()
        except BaseException:
            self._thread.shutdown()
            raise

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        if sampling.temperature > 0 and sampling.seed is None:
            return await self.backend.generate(prompt, sampling)
        settings = [to_plain(prompt), to_plain(sampling)]
        return await self._answer("generate", settings, lambda: self.backend.generate(prompt, sampling))

    async def stream(self, prompt: Prompt, sampling: Sampling, on_text: OnText) -> Generation:
        """What is kept comes at once; the rest as the model streams it."""
        if sampling.temperature > 0 and sampling.seed is None:
            return await generated(self.backend, prompt, sampling, on_text)
        settings = [to_plain(prompt), to_plain(sampling)]
        return await self._answer("generate", settings, lambda: generated(self.backend, prompt, sampling, on_text))

    async def score(self, prompt: Prompt, continuations: Sequence[str]) -> Scores:
        settings = [to_plain(prompt), list(continuations)]
        return await self._answer("score", settings, lambda: self.backend.score(prompt, continuations))

    async def inspect(self, prompt: Prompt, layers: Sequence[int]) -> Inspection:
        settings = [to_plain(prompt), list(layers)]
        return await self._answer("inspect", settings, lambda: self.backend.inspect(prompt, layers))

    async def next_token(self, prompts: Sequence[Prompt]) -> Distributions:
        return await self._answer("next_token", to_plain(list(prompts)), lambda: self.backend.next_token(prompts))

    def close(self) -> None:
        """Close the cache, not the model."""
        if not self._file.closed:
            self._thread.submit(self._file.close).result()
            self._thread.shutdown()

    async def aclose(self) -> None:
        """Close the cache and the model."""
        self.close()
        await self.backend.aclose()

    async def _answer(self, kind: Request, settings: Any, ask: Callable[[], Awaitable[M]]) -> M:
        asked = json.dumps([self.identity, kind, settings], ensure_ascii=True, sort_keys=True)
        key = hashlib.sha256(asked.encode()).hexdigest()
        flight = self._flights.get(key)
        first = flight is None
        if flight is None:
            flight = self._start(key, self._look_up_or_ask(key, kind, ask))
        flight.waiting += 1
        try:
            answer: M = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():  # nobody wants it any more
                self._landed(key, flight)
                flight.task.cancel()
        return answer if first else as_cached(answer, answer.tokens)

    def _start(self, key: str, work: Coroutine[Any, Any, Any]) -> _Flight:
        flight = self._flights[key] = _Flight(asyncio.create_task(work))
        flight.task.add_done_callback(lambda _: self._landed(key, flight))
        return flight

    def _landed(self, key: str, flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def _look_up_or_ask(self, key: str, kind: Request, ask: Callable[[], Awaitable[M]]) -> M:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._thread, self._file.read, key)
        except sqlite3.OperationalError as error:
            self._warn("read", error)
            found = None
        if found is not None:
            return cast(M, self._decoded(kind, found))
        answer = await ask()
        text = json.dumps(seal({"answer": encode(answer), "tokens": to_plain(answer.tokens)}))
        try:
            await loop.run_in_executor(self._thread, self._file.write, key, kind, text)
        except sqlite3.Error as error:
            self._warn("written", error)
        return answer

    def _decoded(self, kind: Request, text: str) -> ModelResult:
        try:
            kept = unseal(json.loads(text))
            answer = decode(kind, kept["answer"])
            return as_cached(answer, _tokens(kept["tokens"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._file.corrupt("holds an entry that cannot be read") from None

    def _warn(self, done: str, error: sqlite3.Error) -> None:
        if not self._warned:
            self._warned = True
            said = f"the response cache {self._file.path} cannot be {done} ({error}); going on without it"
            warnings.warn(said, RuntimeWarning, stacklevel=2)


def _tokens(plain: Mapping[str, int]) -> Tokens:
    """The counts of an entry, by the names that its version gave them."""
    return tokens_of_format_1(plain) if "read" in plain else Tokens(**plain)


class _File:
    """The sqlite file; used from one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None

    @property
    def closed(self) -> bool:
        return self._connection is None

    def open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"the cache folder {self.path.parent} cannot be made: {error.strerror}") from None
        check_plain(self.path)
        try:
            # Every statement is a transaction of its own, so no other process waits for long.
            self._connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
            self._prepare(self._connection)
        except sqlite3.OperationalError as error:
            self.close()
            raise DataError(f"the response cache {self.path} cannot be opened: {error}") from None
        except sqlite3.DatabaseError as error:
            self.close()
            raise self.corrupt(f"is not a response cache ({error})") from None
        except UnicodeDecodeError:  # of sqlite's own message, which repeats what it cannot read
            self.close()
            raise self.corrupt("is damaged (its tables are not text)") from None

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in READABLE:
            self.close()
            raise DataError(
                f"the response cache {self.path} is of version {version}, and this is version {VERSION}; "
                "type another folder, or delete the file"
            )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")  # a crash of the machine may cost the last answers, no more
        connection.execute(
            "CREATE TABLE IF NOT EXISTS responses (key TEXT PRIMARY KEY, kind TEXT NOT NULL, answer TEXT NOT NULL) "
            "WITHOUT ROWID"
        )
        if version != VERSION:
            connection.execute(f"PRAGMA user_version = {VERSION}")

    def read(self, key: str) -> str | None:
        """Raises DataError for a damaged file, sqlite3.OperationalError for one that cannot be read now."""
        try:
            row = self._open.execute("SELECT answer FROM responses WHERE key = ?", (key,)).fetchone()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            raise self.corrupt(f"is damaged ({error})") from None
        return None if row is None else str(row[0])

    def write(self, key: str, kind: str, answer: str) -> None:
        self._open.execute("INSERT OR IGNORE INTO responses VALUES (?, ?, ?)", (key, kind, answer))

    def corrupt(self, what: str) -> DataError:
        return DataError(f"the response cache {self.path} {what}; delete the file, and its answers are asked for again")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise UsageError(f"the response cache {self.path} is closed")
        return self._connection
