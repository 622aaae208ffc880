"""Settings from ``arbitrag.toml`` and the environment: which goes first, what is refused, what a stranger's may do."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arbitrag.cli.config import KEYS, TAKEN, found, load
from arbitrag.errors import DataError, UsageError
from arbitrag.testing import ScriptedServer

if TYPE_CHECKING:
    from tests.conftest import Command

QUESTION = "By whom was The Stolen Desert directed?"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without settings of its own, above which nothing is looked at."""
    for name in [name for name in os.environ if name.startswith(("ARBITRAG_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ARBITRAG_CACHE", "off")
    home = tmp_path / "home"
    work = home / "work"
    work.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(work)
    return work


def write(folder: Path, text: str) -> Path:
    (folder / "arbitrag.toml").write_text(text, encoding="utf-8")
    return folder / "arbitrag.toml"


def answered(command: Command, *arguments: str) -> dict[str, object]:
    ran = command("ask", QUESTION, "--json", *arguments)
    assert ran.status == 0, ran.err
    found: dict[str, object] = json.loads(ran.out)
    return found


def settings_of(command: Command, *arguments: str) -> object:
    return answered(command, "--explain", *arguments)["trace"]["settings"]  # type: ignore[index]


def test_the_command_line_goes_first_then_the_environment_then_the_file(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, 'llm = "lab"\nindex = "lab"\nmethod = "rag"\n')
    told = answered(command)
    assert (told["method"], told["configuration"]) == (
        "rag",
        {"--index": "arbitrag.toml line 2", "--llm": "arbitrag.toml line 1", "--method": "arbitrag.toml line 3"},
    )
    monkeypatch.setenv("ARBITRAG_METHOD", "trustmargin")
    told = answered(command)
    assert (told["method"], told["configuration"]["--method"]) == ("trustmargin", "ARBITRAG_METHOD")  # type: ignore[index]
    told = answered(command, "--method", "direct")
    assert told["method"] == "direct"
    assert "--method" not in told["configuration"]  # type: ignore[operator]


def test_without_anything_set_nothing_is_said(command: Command) -> None:
    typed = ("--llm", "lab", "--method", "direct")
    assert "configuration" not in answered(command, *typed)
    assert "Settings" not in command("ask", QUESTION, *typed).out


def test_the_verdict_says_where_a_value_came_from(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, 'llm = "lab"\nindex = "lab"\n[limits]\nanswer_tokens = 8\n[settings.rag]\nk = 2\n')
    monkeypatch.setenv("ARBITRAG_METHOD", "rag")
    shown = " ".join(command("ask", QUESTION).out.split())
    said = "Settings answer-tokens (line 4), index (line 2), llm (line 1), settings.rag from arbitrag.toml; "
    assert said + "method from ARBITRAG_METHOD" in shown


def test_settings_of_a_method_give_way_to_what_is_typed(folder: Path, command: Command) -> None:
    write(folder, 'llm = "lab"\nindex = "lab"\nmethod = "rag"\n[settings.rag]\nk = 2\n')
    for typed, k in (((), 2), (("--set", "k=1"), 1), (("--method", "rag k=3"), 3), (("--method", "rag"), 2)):
        assert settings_of(command, *typed) == {"k": k}


def test_a_method_in_the_file_may_have_its_settings_behind_it(folder: Path, command: Command) -> None:
    write(folder, 'llm = "lab"\nindex = "lab"\nmethod = "rag k=1"\n')
    assert settings_of(command) == {"k": 1}


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ('\nlmm = "lab"\n', UsageError, r"arbitrag.toml line 2: unknown key 'lmm'; did you mean 'llm'\?"),
        (
            'llm = "lab"\n[limits]\n# answers\nanswer_token = 3\n',
            UsageError,
            r"line 4: unknown key 'limits.answer_token'; did you mean 'limits.answer_tokens'\?",
        ),
        ('api_key = "sk-1"\n', UsageError, r"A key goes into OPENAI_API_KEY, never into a file"),
        ("llm = 3\n", UsageError, r"line 1: llm is a text in quotes; got 3"),
        ('[limits]\nanswer_tokens = "x"\n', UsageError, r"line 2: .*answer_tokens is a whole number above 0; got 'x'"),
        ("[limits]\nanswer_tokens = 0\n", UsageError, r"line 2: .*answer_tokens is a whole number above 0; got 0"),
        ("[limits]\nanswer_tokens = true\n", UsageError, r"line 2: .* is a whole number above 0; got True"),
        ("where = 3\n", UsageError, r"line 1: where is a table of texts"),
        ("[settings.rag]\nkk = 3\n", UsageError, r"line 2: unknown option of rag 'kk'. Did you mean 'k'\?"),
        ('[settings.rag]\nk = "many"\n', UsageError, r"line 2: rag: k is a whole number; got 'many'"),
        ("[settings.rga]\nk = 3\n", UsageError, r"line 1: unknown key 'settings.rga'; did you mean 'settings.rag'\?"),
        ("llm = \n", DataError, r"arbitrag.toml is not TOML: .*line 1"),
        ("llm = 'a'\nllm = 'b'\n", DataError, r"arbitrag.toml is not TOML"),
    ],
)
def test_what_is_wrong_in_a_file(text: str, error: type[Exception], message: str, folder: Path) -> None:
    path = write(folder, text)
    with pytest.raises(error, match=message):
        load(str(path), {}, folder)


def test_a_file_that_is_named_must_be_there(folder: Path, command: Command) -> None:
    ran = command("ask", QUESTION, "--config", "no.toml")
    assert (ran.status, ran.err) == (1, "DataError: no.toml cannot be read: No such file or directory\n")


def test_a_file_may_be_named_before_the_command(folder: Path, command: Command) -> None:
    path = write(folder, 'llm = "lab"\nindex = "lab"\nmethod = "rag"\n').rename(folder / "mine.toml")
    ran = command("--config", path, "ask", QUESTION, "--json")
    assert json.loads(ran.out)["configuration"]["--method"] == "mine.toml line 3"
    assert command("--config", "no.toml", "ask", QUESTION).status == 1


def test_paths_are_relative_to_the_file(folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "docs").mkdir()
    (folder / "docs" / "a.md").write_text("The harbour is run by Shupeo Cicul.")
    assert command("index", "docs", "-o", "docs.idx").status == 0
    write(folder, 'llm = "lab"\nindex = "docs.idx"\nmethod = "rag"\n')
    inner = folder / "deep" / "er"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    told = answered(command)
    assert [each["source"] for each in told["kept"]] == ["a.md"]  # type: ignore[attr-defined]
    assert told["configuration"]["--index"] == "../../arbitrag.toml line 2"  # type: ignore[index]


def test_parents_are_looked_at_inside_a_project_or_the_home_folder_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "shared" / "project" / "src"
    outside.mkdir(parents=True)
    write(tmp_path / "shared", 'llm = "lab"')
    assert found(outside) is None, "neither a project nor the home folder lies above"
    (tmp_path / "shared" / "project" / ".git").mkdir()
    assert found(outside) is None, "a project ends at its root"
    inner = write(outside.parent, 'llm = "lab"')
    assert found(outside) == inner
    own = write(outside, 'llm = "lab"')
    assert found(outside) == own, "the nearest"
    at_home = write(tmp_path / "home", 'llm = "lab"')
    assert found(tmp_path / "home" / "work") == at_home
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "work"))
    assert found(tmp_path / "home" / "work") is None, "nothing above the home folder"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('llm = "openai:gpt-4o-mini"', "names openai:gpt-4o-mini, which is not on this machine"),
        ('llm = "openai:m@http://evil.example/v1"', "evil.example/v1, which is not on this machine"),
        ('llm = "lab"\nscorer = "openai:m@http://evil.example/v1"', "type it again: --scorer"),
        ('llm = "lab"\nencoder = "openai:m@http://evil.example/v1"', "type it again: --encoder"),
        ('llm = "lab"\nindex = "postgres:host=evil.example"', "type it again: --index"),
        ('llm = "lab"\nmethod = "evil.module:Method"', "the method is code of its own"),
        ('llm = "lab"\nmethod = "evil.module:Method k=1"', "the method is code of its own"),
        ('llm = "lab"\ncache = "../elsewhere"', "'../elsewhere' lies outside the folder of the file"),
    ],
)
def test_a_file_that_was_found_reaches_nothing_beyond_this_machine(
    text: str, message: str, folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-user")
    path = write(folder, text)
    ran = command("ask", QUESTION, "--method", "direct")
    assert ran.status == 2
    assert message in ran.err
    assert f"Or name the file, if it is yours: --config {path}" in ran.err
    load(str(path), {}, folder)
    load(None, {"ARBITRAG_CONFIG": str(path)}, folder)


def test_the_key_goes_to_no_server_of_a_found_file_and_to_one_of_a_named_file(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-user")
    with ScriptedServer(["Oslo"] * 20) as server:
        path = write(folder, f'llm = "openai:scripted@{server.base_url}"\nmethod = "direct"\n')
        assert answered(command)["answer"] == "Oslo"
        assert command("doctor").status == 0
        assert server.requests
        sent = [request.headers.get("authorization", "") for request in server.requests]
        assert not [value for value in sent if "sk-secret" in value]
        server.requests.clear()
        assert answered(command, "--config", str(path))["answer"] == "Oslo"
        assert all("sk-secret" in request.headers.get("authorization", "") for request in server.requests)


def test_a_run_takes_what_is_set_when_it_begins_and_then_goes_on_as_it_began(folder: Path, command: Command) -> None:
    write(folder, 'llm = "lab"\nmethod = "direct"\n[limits]\nanswer_tokens = 9\n')
    ran = command("bench", "run", "x.db", "--questions", "lab:questions?count=2", "--json")
    assert ran.status == 0, ran.err
    assert "Settings: answer-tokens (line 4), llm (line 1), method (line 2) from arbitrag.toml" in ran.err
    assert json.loads(ran.out)["systems"] == ["direct"]
    write(folder, 'llm = "lab"\nmethod = "rag"\n[limits]\nanswer_tokens = 7\n')
    again = command("bench", "run", "x.db", "--json")
    assert (again.status, json.loads(again.out)["systems"]) == (0, ["direct"]), again.err
    assert "Settings" not in again.err


def test_the_form_of_an_answer_can_be_set(folder: Path, command: Command) -> None:
    write(folder, 'llm = "lab"\nindex = "lab"\nanswer = "long"\n')
    assert answered(command)["long"] is not None
    assert answered(command, "--answer", "short")["long"] is None


def test_what_is_typed_stands_in_place_of_what_is_set_beside_it(folder: Path, command: Command) -> None:
    write(folder, 'llm = "lab"\nindex = "no.idx"\nprice = "1,1"\n')
    (folder / "p.jsonl").write_text('{"text": "Oskar Brend directed it."}\n')
    told = answered(command, "--passages", "p.jsonl", "--llm", "lab", "--method", "rag")
    assert told["usage"]["money"] is None  # type: ignore[index]
    assert len(told["kept"]) == 1  # type: ignore[arg-type]


def test_doctor_says_what_is_set_and_where(folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(folder, 'llm = "lab"\n[limits]\nanswer_tokens = 9\n')
    monkeypatch.setenv("ARBITRAG_INDEX", "postgres://me:pass@localhost/db")
    ran = command("doctor")
    assert f"Configuration\n  file            {path}\n" in ran.out
    assert "  llm             lab (from arbitrag.toml line 1)\n" in ran.out
    assert "limits.answer_tokens 9 (from arbitrag.toml line 3)\n" in ran.out
    assert "(from ARBITRAG_INDEX)" in ran.out
    assert "pass@" not in ran.out
    assert json.loads(command("doctor", "--json").out)["configuration"]["llm"] == "lab (from arbitrag.toml line 1)"


def test_the_page_names_every_key_with_its_variable_and_its_example_is_read(repository: Path, folder: Path) -> None:
    page = (repository / "docs" / "config.md").read_text(encoding="utf-8")
    for name, key in KEYS.items():
        assert re.search(rf"^\| `{re.escape(name)}[` ][^|]*\| `{key.variable}` \| `{key.option}`", page, re.MULTILINE)
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    read = load(str(write(folder, example)), {}, folder)
    assert (read.values["--llm"].typed, read.settings["trustmargin"]) == (("lab",), {"threshold": "-1.5"})
    assert {command.split()[0] for command in TAKEN} == {"ask", "bench", "search", "index", "doctor"}


def test_lists_without_end_are_told(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(f"llm = {'[' * 50_000}")
    ran = command("ask", "Who?", "--config", path)
    assert (ran.status, ran.out) == (1, "")
    assert "deep.toml is no file of settings" in ran.err
