"""The response cache: what it keeps, what it counts, and how it behaves when its file does not."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from arbitrag.errors import BackendError, DataError, UsageError
from arbitrag.llm.base import Distributions, Generation, Inspection, Price, Prompt, Sampling, Tokens
from arbitrag.llm.cache import FILE, VERSION, CachedLLM
from arbitrag.testing import ScriptedLLM

HELLO = Prompt(text="hello there")


class Counting(ScriptedLLM):
    """Answers every prompt with the number of the call; has insides."""

    def __init__(self, name: str = "counting") -> None:
        self.calls = 0
        super().__init__(self._next, lambda prompt, text: -1.0 / 3 * len(text), name=name, price=Price(1.0, 2.0))

    def _next(self, prompt: Prompt) -> str:
        self.calls += 1
        return f"answer {self.calls}"

    async def inspect(self, prompt: Prompt, layers: Sequence[int]) -> Inspection:
        self.calls += 1
        states = {layer: np.array([layer, 0.1, -1e-30], dtype=np.float32) for layer in layers}
        return Inspection(states, Tokens(prompt_tokens=7, cached_tokens=2))

    async def next_token(self, prompts: Sequence[Prompt]) -> Distributions:
        self.calls += 1
        return Distributions(np.full((len(prompts), 4), -1.1, dtype=np.float32), Tokens(prompt_tokens=7))


async def test_a_repeated_request_is_answered_from_disk(tmp_path: Path) -> None:
    backend = Counting()
    cached = CachedLLM(backend, tmp_path / "made" / "here")
    first = await cached.generate(HELLO, Sampling())
    again = await cached.generate(HELLO, Sampling())
    await cached.aclose()
    assert (first.text, first.cached, first.tokens) == ("answer 1", False, Tokens(prompt_tokens=2, completion_tokens=2))
    assert (again.text, again.cached, again.tokens) == ("answer 1", True, Tokens(prompt_tokens=2, cached_tokens=2))
    assert (first.computed, again.computed) == (None, Tokens(prompt_tokens=2, completion_tokens=2))
    assert again.finish == "stop"
    assert backend.calls == 1
    reopened = CachedLLM(Counting(), tmp_path / "made" / "here")
    assert (await reopened.generate(HELLO, Sampling())).text == "answer 1"
    reopened.close()


async def test_it_stands_in_for_its_model(tmp_path: Path) -> None:
    backend = Counting()
    cached = CachedLLM(backend, tmp_path)
    assert (cached.name, cached.identity, cached.wording) == ("counting", "counting", None)
    assert cached.price == Price(1.0, 2.0)
    assert cached.count_tokens("three small words") == 3
    assert await cached.capabilities() == await backend.capabilities()
    cached.close()
    cached.close()
    with pytest.raises(UsageError, match="is closed"):
        cached._file.read("key")


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(), True),
        (Sampling(temperature=0.7, seed=1), True),
        (Sampling(temperature=0.7, seed=0), True),
        (Sampling(temperature=0.7), False),
    ],
)
async def test_only_what_would_come_out_the_same_is_kept(tmp_path: Path, sampling: Sampling, kept: bool) -> None:
    cached = CachedLLM(Counting(), tmp_path)
    texts = [(await cached.generate(HELLO, sampling)).text for _ in range(2)]
    cached.close()
    assert texts == ["answer 1", "answer 1" if kept else "answer 2"]


async def test_everything_that_decides_an_answer_is_in_the_key(tmp_path: Path) -> None:
    backend = Counting()
    cached = CachedLLM(backend, tmp_path)
    await cached.generate(HELLO, Sampling())
    await cached.generate(Prompt.user("hello there"), Sampling())
    await cached.generate(Prompt(text="hello there", lead=" "), Sampling())
    await cached.generate(HELLO, Sampling(max_tokens=33))
    await cached.generate(HELLO, Sampling(seed=1))
    await cached.generate(HELLO, Sampling(stop=(".",)))
    assert backend.calls == 6
    cached.close()
    other = Counting(name="another model")
    await (again := CachedLLM(other, tmp_path)).generate(HELLO, Sampling())
    again.close()
    assert other.calls == 1


async def test_likelihoods_come_back_exactly(tmp_path: Path) -> None:
    cached = CachedLLM(Counting(), tmp_path)
    first = await cached.score(HELLO, ["a", "bc"])
    again = await cached.score(HELLO, ["a", "bc"])
    other = await cached.score(HELLO, ["bc", "a"])
    cached.close()
    assert again.likelihoods == first.likelihoods
    assert again.means == (-1.0 / 3, -2.0 / 3)
    assert (again.cached, again.tokens) == (True, Tokens(prompt_tokens=2, cached_tokens=2))
    assert not other.cached


async def test_arrays_come_back_exactly(tmp_path: Path) -> None:
    cached = CachedLLM(Counting(), tmp_path)
    await cached.inspect(HELLO, [0, 3])
    inside = await cached.inspect(HELLO, [0, 3])
    await cached.next_token([HELLO, HELLO])
    after = await cached.next_token([HELLO, HELLO])
    cached.close()
    assert list(inside.states) == [0, 3]
    np.testing.assert_array_equal(inside.states[3], np.array([3, 0.1, -1e-30], dtype=np.float32))
    assert (inside.cached, inside.tokens) == (True, Tokens(prompt_tokens=7, cached_tokens=7))
    np.testing.assert_array_equal(after.logprobs, np.full((2, 4), -1.1, dtype=np.float32))
    assert (after.cached, after.tokens) == (True, Tokens(prompt_tokens=7, cached_tokens=7))


class Gated(ScriptedLLM):
    """Answers when the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.started = asyncio.Event()
        self.calls = self.cancelled = 0

    async def score(self, prompt: Prompt, continuations: Sequence[str]):  # type: ignore[no-untyped-def]
        self.calls += 1
        self.started.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise BackendError("no luck")

    async def generate(self, prompt: Prompt, sampling: Sampling):  # type: ignore[no-untyped-def]
        self.calls += 1
        self.started.set()
        await self.gate.wait()
        self._replies = ["done"]
        return await super().generate(prompt, sampling)


async def test_the_same_request_at_the_same_time_is_computed_once(tmp_path: Path) -> None:
    backend = Gated()
    cached = CachedLLM(backend, tmp_path)
    asked = [asyncio.create_task(cached.generate(HELLO, Sampling())) for _ in range(5)]
    await backend.started.wait()
    asked[0].cancel()  # the one who asked first goes; the others still get their answer
    await asyncio.sleep(0)
    backend.gate.set()
    answers = await asyncio.gather(*asked[1:])
    with pytest.raises(asyncio.CancelledError):
        await asked[0]
    cached.close()
    assert backend.calls == 1
    assert [answer.text for answer in answers] == ["done"] * 4
    assert [answer.cached for answer in answers] == [True] * 4


async def test_an_error_reaches_everyone_and_is_not_kept(tmp_path: Path) -> None:
    backend = Gated()
    backend.gate.set()
    cached = CachedLLM(backend, tmp_path)
    found = await asyncio.gather(*(cached.score(HELLO, ["a"]) for _ in range(3)), return_exceptions=True)
    assert [str(error) for error in found] == ["no luck"] * 3
    with pytest.raises(BackendError, match="no luck"):
        await cached.score(HELLO, ["a"])
    cached.close()
    assert backend.calls == 2


async def test_a_request_that_nobody_waits_for_is_cancelled(tmp_path: Path) -> None:
    backend = Gated()
    cached = CachedLLM(backend, tmp_path)
    asked = [asyncio.create_task(cached.score(HELLO, ["a"])) for _ in range(2)]
    await backend.started.wait()
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    await asyncio.sleep(0)
    backend.gate.set()
    with pytest.raises(BackendError):  # asked anew, not joined to the one that was given up
        await cached.score(HELLO, ["a"])
    cached.close()
    assert (backend.calls, backend.cancelled) == (2, 1)


_ELSEWHERE = """
import asyncio, sys
from pathlib import Path
from arbitrag.llm.base import Prompt, Sampling
from arbitrag.llm.cache import CachedLLM
from arbitrag.testing import ScriptedLLM

async def main():
    cached = CachedLLM(ScriptedLLM(lambda prompt: "same " + prompt.text, name="counting"), Path(sys.argv[1]))
    for number in range(50):
        answer = await cached.generate(Prompt(text=f"q{number}"), Sampling())
        assert answer.text == f"same q{number}"
    cached.close()

asyncio.run(main())
"""


def test_several_processes_share_a_cache(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", _ELSEWHERE, str(tmp_path)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (0, "")
    backend = Counting()
    cached = CachedLLM(backend, tmp_path)

    async def ask() -> list[Generation]:
        return [await cached.generate(Prompt(text=f"q{number}"), Sampling()) for number in range(50)]

    answers = asyncio.run(ask())
    cached.close()
    assert backend.calls == 0
    assert all(answer.cached for answer in answers)


@pytest.mark.parametrize(
    "content", [b"this is no database, but long enough to be looked at" * 20, b"SQLite format 3\0bad"]
)
def test_a_file_that_is_no_cache(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(DataError, match=rf"{FILE} is not a response cache .*; delete the file"):
        CachedLLM(Counting(), tmp_path)
    assert (tmp_path / FILE).read_bytes() == content


def test_a_cache_of_another_version(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    with pytest.raises(DataError, match=f"is of version {VERSION + 1}, and this is version {VERSION}"):
        CachedLLM(Counting(), tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="cannot be made"):
        CachedLLM(Counting(), tmp_path / "file" / "cache")


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(DataError, match="cannot be opened"):
        CachedLLM(Counting(), tmp_path)


@pytest.mark.parametrize("entry", ["no json", "{}", '{"answer": {}, "tokens": {}}', '{"answer": null, "tokens": 5}'])
async def test_an_entry_that_cannot_be_read(tmp_path: Path, entry: str) -> None:
    cached = CachedLLM(Counting(), tmp_path)
    await cached.generate(HELLO, Sampling())
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("UPDATE responses SET answer = ?", (entry,))
    connection.commit()
    connection.close()
    with pytest.raises(DataError, match=f"{FILE} holds an entry that cannot be read; delete the file"):
        await cached.generate(HELLO, Sampling())
    cached.close()


async def test_a_file_that_is_damaged_later(tmp_path: Path) -> None:
    cached = CachedLLM(Counting(), tmp_path)
    for number in range(200):
        await cached.generate(Prompt(text=f"q{number}"), Sampling())
    cached.close()
    content = bytearray((tmp_path / FILE).read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    (tmp_path / FILE).write_bytes(content)
    damaged = CachedLLM(Counting(), tmp_path)
    with pytest.raises(DataError, match=r"is damaged \(.*\); delete the file"):
        await damaged.generate(HELLO, Sampling())
    damaged.close()


async def test_a_full_disk_costs_no_answer_and_is_said_once(tmp_path: Path) -> None:
    cached = CachedLLM(Counting(), tmp_path)
    file = cached._file
    pages = await asyncio.wrap_future(cached._thread.submit(lambda: file._open.execute("PRAGMA page_count").fetchone()))
    await asyncio.wrap_future(cached._thread.submit(lambda: file._open.execute(f"PRAGMA max_page_count = {pages[0]}")))
    long = Prompt(text="x " * 10)
    cached.backend._replies = lambda prompt: "word " * 20_000  # type: ignore[attr-defined]
    with pytest.warns(RuntimeWarning, match=r"cannot be written \(database or disk is full\)") as said:
        answers = [await cached.generate(long, Sampling(max_tokens=limit)) for limit in (30_000, 30_001)]
    assert [len(answer.text) for answer in answers] == [100_000, 100_000]
    assert len(said) == 1
    cached.close()


async def test_a_cache_that_cannot_be_read_now_costs_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = CachedLLM(Counting(), tmp_path)

    def locked(key: str) -> str:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(cached._file, "read", locked)
    with pytest.warns(RuntimeWarning, match=r"cannot be read \(database is locked\); going on without it"):
        assert (await cached.generate(HELLO, Sampling())).text == "answer 1"
    cached.close()
