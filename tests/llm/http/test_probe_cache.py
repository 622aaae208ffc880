"""What is asked of a server beside the question: nothing for text, a probe for likelihoods, and that once a day."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import needs
import pytest

import arbitrag
from arbitrag.errors import BackendError, CapabilityError, UnreachableError
from arbitrag.kit import Kit, Limits
from arbitrag.llm.base import Prompt, Sampling, capabilities_of
from arbitrag.llm.cache import CachedLLM
from arbitrag.llm.http import probe_cache
from arbitrag.llm.http.openai import ESTIMATED, OpenAILLM
from arbitrag.run import Failure, answer, answer_all, check
from arbitrag.testing import Fault, FixedRetriever, ScriptedLLM, ScriptedServer
from arbitrag.types import Need, Passage, Question

if TYPE_CHECKING:
    from tests.conftest import Command

SHORT = [Passage(f"The harbour of Oru is run by Mira Talven, says {n}.", id=str(n)) for n in range(3)]
LONG = [Passage(f"number{n} " + "word " * 120, id=str(n)) for n in range(20)]
PLAIN = Prompt(text="one two one", lead=" ")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where results are kept in this test."""
    monkeypatch.setenv(probe_cache.SWITCH, str(tmp_path / "kept"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "kept"


def opened(server: ScriptedServer, **options: Any) -> OpenAILLM:
    return OpenAILLM("scripted", base_url=server.base_url, **options)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


def paths(server: ScriptedServer) -> list[str]:
    """The paths that were asked for since the last look."""
    found = [request.path for request in server.requests]
    server.requests.clear()
    return found


async def ask(server: ScriptedServer, method: str, passages: Sequence[Passage] = SHORT, **limits: int) -> Any:
    """One question, as a command of its own would ask it."""
    llm = opened(server)
    try:
        return await answer("Who runs it?", method, Kit.of(llm, FixedRetriever(passages), limits=Limits(**limits)))
    finally:
        await llm.aclose()


@pytest.mark.parametrize("method", ["rag", "direct"])
async def test_text_costs_no_request_but_its_own(folder: Path, method: str) -> None:
    with ScriptedServer() as server:
        for _ in range(2):
            await ask(server, method)
            assert paths(server) == ["/v1/chat/completions"]
    assert files(folder) == []


async def test_likelihoods_are_probed_once_and_nothing_else_is(folder: Path) -> None:
    with ScriptedServer(style="ids") as server:
        await ask(server, "trustmargin")
        first = paths(server)
        assert "/v1/models" not in first
        assert first.count("/tokenize") > 2
        await ask(server, "trustmargin")
        assert paths(server) == ["/v1/chat/completions"] * 2
    assert len(files(folder)) == 1


async def test_a_kept_result_goes_for_a_day(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(style="ids") as server:
        await ask(server, "trustmargin")
        paths(server)
        now = time.time()
        for later, probes in [(probe_cache.LIFETIME_S - 60, False), (probe_cache.LIFETIME_S + 60, True)]:
            monkeypatch.setattr("arbitrag.llm.http.probe_cache.time.time", lambda later=later: now + later)
            await ask(server, "trustmargin")
            assert (len(paths(server)) > 2) == probes
        monkeypatch.setattr("arbitrag.llm.http.probe_cache.time.time", lambda: now - 3600)  # a clock that was set back
        await ask(server, "trustmargin")
        assert len(paths(server)) > 2


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"written": "x"}', b"\xff", b'{"written": 1e999, "found": 1}'])
async def test_a_damaged_file_is_no_file(folder: Path, damage: bytes) -> None:
    with ScriptedServer(style="ids") as server:
        await ask(server, "trustmargin")
        (file,) = files(folder)
        good = paths(server)
        file.write_bytes(damage)
        await ask(server, "trustmargin")
        assert paths(server) == good
        assert json.loads(file.read_text())["found"]["scoring"]["way"] == "ids"


async def test_values_that_no_probe_finds_are_not_believed(folder: Path) -> None:
    with ScriptedServer(style="ids") as server:
        await ask(server, "trustmargin")
        (file,) = files(folder)
        plain = json.loads(file.read_text())
        plain["found"]["scoring"]["way"] = "guess"
        plain["found"]["limit"] = "max_money"
        file.write_text(json.dumps(plain))
        paths(server)
        await ask(server, "trustmargin")
        assert all("max_money" not in request.body for request in server.requests if request.body)
        assert len(paths(server)) > 2


async def test_a_refusal_is_never_taken_from_the_file(folder: Path) -> None:
    """Whoever gives the server what it lacked is believed at once."""
    with ScriptedServer(style="none") as server:
        with pytest.raises(CapabilityError, match="trustmargin needs generate and score"):
            await ask(server, "trustmargin")
        server._style, server._logprobs = "ids", True
        await ask(server, "trustmargin")


async def test_another_server_at_the_same_address_is_found_out(folder: Path) -> None:
    """What was kept of vLLM does not fit the server that took its place: it is probed again, and the question lives."""
    with ScriptedServer(style="ids") as server:
        llm = opened(server, chat=False)
        await llm.capabilities_of(Need.SCORE)
        await llm.aclose()
        server._style = "echo"
        llm = opened(server, chat=False)
        likely, unlikely = (await llm.score(PLAIN, ["two", "six"])).likelihoods
        assert likely.total > unlikely.total
        await llm.aclose()
        (file,) = files(folder)
        assert json.loads(file.read_text())["found"]["scoring"]["way"].startswith("echo")
        server._style = "none"
        llm = opened(server, chat=False)
        with pytest.raises(BackendError, match="offers no likelihoods"):
            await llm.score(PLAIN, ["two", "six"])
        await llm.aclose()


async def test_a_server_that_is_down_for_a_moment_is_not_forgotten(folder: Path) -> None:
    with ScriptedServer(style="ids") as server:
        llm = opened(server)
        await llm.capabilities_of(Need.SCORE)
        await llm.aclose()
        (file,) = files(folder)
        server.faults.extend([Fault.error(503)] * 20)
        llm = opened(server, retries=0)
        with pytest.raises(BackendError, match="503"):
            await llm.score(PLAIN, ["two"])
        await llm.aclose()
    assert file.exists()


async def test_the_name_of_the_limit_is_kept(folder: Path) -> None:
    with ScriptedServer(refuses_max_tokens=True) as server:
        await ask(server, "direct")
        assert len(paths(server)) == 2
        await ask(server, "direct")
        assert len(paths(server)) == 1


def test_doctor_probes_afresh_and_says_what_was_kept(folder: Path, command: Command) -> None:
    with ScriptedServer(style="ids", context_tokens=4096) as server:
        address = f"openai:scripted@{server.base_url}"
        assert "kept: a result of" not in command("doctor", "--llm", address).out
        first = paths(server)
        told = command("doctor", "--llm", address).out
        assert paths(server) == first
        assert "kept: a result of 0.0 hours ago was in" in told
        assert re.search(rf"known servers +{folder}/servers", told)
        command("methods", "--llm", address)
        assert paths(server) == []


async def test_no_secret_is_in_the_file_and_nobody_else_reads_it(folder: Path) -> None:
    with ScriptedServer(style="ids") as server:
        address = server.base_url.replace("http://", "http://anna:pass-word@") + "?token=tok-en-secret"
        llm = OpenAILLM("scripted", base_url=address, api_key="sk-secret-0123456789")
        server.faults.append(Fault.error(404, "no models for sk-secret-0123456789, pass-word, tok-en-secret"))
        await llm.capabilities()
        await llm.aclose()
    (file,) = files(folder)
    text = file.read_text() + file.name
    assert not [secret for secret in ("anna", "pass-word", "tok-en", "sk-secret") if secret in text]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("switch", ["off", "OFF"])
async def test_the_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    monkeypatch.setenv(probe_cache.SWITCH, switch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with ScriptedServer(style="ids") as server:
        await ask(server, "trustmargin")
    assert files(tmp_path) == []


async def test_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(probe_cache.SWITCH)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert probe_cache.cache_folder() == tmp_path / "arbitrag"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert probe_cache.cache_folder() == tmp_path / ".cache" / "arbitrag"
    monkeypatch.setattr("sys.platform", "darwin")
    assert probe_cache.cache_folder() == tmp_path / "Library" / "Caches" / "arbitrag"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    assert probe_cache.cache_folder() == tmp_path / "Local" / "arbitrag"


async def test_a_place_that_cannot_be_written_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")  # works for root as well, whom no permission stops
    monkeypatch.setenv(probe_cache.SWITCH, str(blocked / "kept"))
    with ScriptedServer(style="ids") as server:
        for _ in range(2):
            await ask(server, "trustmargin")
    assert blocked.read_text() == "no folder"


@needs.links
async def test_a_link_in_the_folder_is_replaced_and_not_followed(folder: Path) -> None:
    with ScriptedServer(style="ids") as server:
        await ask(server, "trustmargin")
        (file,) = files(folder)
        precious = folder / "precious"
        precious.write_text("precious")
        file.unlink()
        os.symlink(precious, file)
        await ask(server, "trustmargin")
    assert precious.read_text() == "precious"
    assert not file.is_symlink()


async def test_wrappers_pass_on_what_is_needed(folder: Path, tmp_path: Path) -> None:
    with ScriptedServer() as server:
        cached = CachedLLM(opened(server), tmp_path)
        assert (await capabilities_of(cached, Need.GENERATE)).needs == Need.GENERATE
        await check(arbitrag.methods.load("rag")(), Kit.of(cached, FixedRetriever(SHORT)))
        assert server.requests == []
        await cached.aclose()
    assert (await capabilities_of(ScriptedLLM(likelihoods={}), Need.GENERATE)).needs == Need.GENERATE | Need.SCORE


async def test_passages_that_may_not_fit_are_counted_by_the_servers_tokenizer(folder: Path) -> None:
    """A token is a word there, so 1,000 tokens hold 8 passages of 121 words; by bytes it would be 6 and a piece."""
    with ScriptedServer(style="ids") as server:
        verdict = await ask(server, "rag", LONG, context_tokens=1000)
        counted = [request.body["prompt"] for request in server.requests if request.path == "/tokenize"]
        assert paths(server)[-1] == "/v1/chat/completions"
        passages = [server._encode({"prompt": f"{each.text}", "add_special_tokens": False}) for each in verdict.kept]
        again = await ask(server, "rag", LONG, context_tokens=1000)
    whole = [each for each in verdict.kept if each.text == LONG[int(each.id)].text]
    assert len(whole) == 8
    assert len(counted) == len(set(counted)) < 30
    assert sum(map(len, passages)) <= 1000
    assert again.kept == verdict.kept
    assert ESTIMATED not in verdict.notes


async def test_without_a_tokenizer_the_estimate_is_said_where_it_cost_something(folder: Path) -> None:
    with ScriptedServer() as server:
        verdict = await ask(server, "rag", LONG, context_tokens=1000)
        assert sorted(paths(server)) == ["/tokenize", "/v1/chat/completions", "/v1/models"]
        assert verdict.notes == (ESTIMATED,)
        verdict = await ask(server, "rag", SHORT)
        assert paths(server) == ["/v1/chat/completions"]
        assert verdict.notes == ()
        await ask(server, "rag", LONG)
        assert paths(server) == ["/v1/chat/completions"]


async def test_the_context_length_is_asked_for_where_it_may_matter(folder: Path) -> None:
    with ScriptedServer(context_tokens=700) as server:
        verdict = await ask(server, "rag", LONG)
        assert 0 < len(verdict.kept) < 6
        assert "/v1/models" in paths(server)


async def test_a_tokenizer_that_fails_later_fails_the_question(folder: Path) -> None:
    class Breaking(ScriptedServer):
        broken = False

        def _answer(self, request: Any) -> tuple[int, dict[str, Any]]:
            broken = self.broken and request.path == "/tokenize"
            return (200, {"tokens": "many"}) if broken else super()._answer(request)

    with Breaking(style="ids") as server:
        await ask(server, "rag", LONG, context_tokens=1000)
        server.broken = True
        with pytest.raises(BackendError, match="/tokenize brought back no tokens"):
            await ask(server, "rag", [*LONG[5:], *LONG[:5]], context_tokens=999)


async def test_a_run_ends_at_the_first_question_when_nobody_is_there(folder: Path) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with ScriptedServer() as server:
        pass
    kit = Kit.of(OpenAILLM("scripted", base_url=server.base_url, sleep=sleep))
    with pytest.raises(UnreachableError, match="cannot be reached"):
        _ = [row async for row in answer_all([Question(f"Who is {n}?") for n in range(50)], "direct", kit)]
    assert len(waits) < 50 * 5
    await kit.aclose()


async def test_a_refused_key_ends_a_run_too(folder: Path) -> None:
    with ScriptedServer(faults=[Fault.error(401, "no such key")] * 99) as server:
        kit = Kit.of(opened(server))
        with pytest.raises(UnreachableError, match="answered 401"):
            _ = [row async for row in answer_all([Question(f"Who is {n}?") for n in range(50)], "direct", kit)]
        await kit.aclose()


async def test_a_server_that_goes_away_later_fails_rows_and_not_the_run(folder: Path) -> None:
    with ScriptedServer(faults=[None, *[Fault.error(401)] * 2]) as server:
        kit = Kit.of(opened(server))
        rows = [row async for row in answer_all([Question(f"{n}?") for n in range(4)], "direct", kit, concurrency=1)]
        await kit.aclose()
    assert [isinstance(row, Failure) for row in rows] == [False, True, True, False]
    assert [type(row.error) for row in rows if isinstance(row, Failure)] == [BackendError] * 2


async def test_a_file_says_nothing_about_another_model_or_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer(style="ids") as server:
        places = {probe_cache.Kept(f"{model}@{server.base_url}").path for model in ("a", "b")}
        monkeypatch.setattr("arbitrag.llm.http.probe_cache.__version__", "9.9")
        places.add(probe_cache.Kept(f"a@{server.base_url}").path)
    assert len(places) == 3


async def test_generation_works_with_what_was_kept(folder: Path) -> None:
    with ScriptedServer(style="ids") as server:
        llm = opened(server)
        await llm.capabilities()
        await llm.aclose()
        llm = opened(server)
        assert (await llm.capabilities()).needs == Need.GENERATE | Need.SCORE
        assert (await llm.generate(Prompt.user("x"), Sampling())).text == "yes"
        await llm.aclose()
