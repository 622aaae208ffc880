"""The options of a run are declared once: commands, settings, Python and run files have what the declaration says."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any

import pytest
import typer

from arbitrag import cli
from arbitrag.arguments import check_arguments
from arbitrag.cli.bench.options import BenchOptions
from arbitrag.cli.config import KEYS, TAKEN
from arbitrag.cli.terminal import completion
from arbitrag.errors import UsageError
from arbitrag.kit import Limits
from arbitrag.run import ask, open_kit
from arbitrag.run_options import OPTIONS, RunOptions, flag

COMMANDS = ("ask", "bench run", "bench retry", "search", "index", "doctor")


def typed_in(command: str) -> dict[str, Any]:
    """The options of a command, by the flag."""
    found: Any = cli._command()
    for name in command.split():
        found = found.get_command(typer.Context(found), name)
    return {opt: each for each in found.params if each.param_type_name == "option" for opt in each.opts}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_its_options_as_they_are_declared(command: str) -> None:
    typed = typed_in(command)
    found = {name for name in OPTIONS if flag(name) in typed}
    for name in found:
        declared, option = OPTIONS[name].of(command), typed[flag(name)]
        assert option.help == declared.help, name
        assert option.metavar == declared.metavar, name
        assert getattr(option.default, "value", option.default) == declared.default, name
    assert {name for name, declared in OPTIONS.items() if command in declared.settable and declared.key} <= found


def test_what_can_be_set_is_what_the_commands_take() -> None:
    assert {command: len(options) for command, options in TAKEN.items()} == {
        "ask": 17,
        "bench run": 16,
        "doctor": 1,
        "search": 3,
        "index": 1,
    }
    assert TAKEN["search"] == {"--encoder", "--mode", "--where"}
    assert KEYS["limits.max_cost"].variable == "ARBITRAG_MAX_COST"
    assert KEYS["cache"].variable == "ARBITRAG_RESPONSE_CACHE"


def test_the_limits_of_python_are_those_of_the_command_line() -> None:
    assert Limits() == Limits(context_tokens=2048, answer_tokens=32, writing_tokens=256)
    assert {each.name for each in fields(Limits)} <= OPTIONS.keys()


def test_every_option_that_python_checks_is_an_argument_there() -> None:
    in_python = {name for name, declared in OPTIONS.items() if declared.in_python}
    assert in_python == {"llm", "scorer", "encoder", "mode", "where", "price", "cache", "wording"}
    kit = inspect.signature(open_kit).parameters
    assert kit.keys() - OPTIONS.keys() == {"retriever", "limits"}  # objects; the command line has numbers
    assert in_python <= kit.keys()
    assert inspect.signature(ask).parameters.keys() - kit.keys() == {"question", "method", "form"}


@pytest.mark.parametrize("name", [name for name, declared in OPTIONS.items() if declared.in_python])
def test_an_argument_of_another_kind_is_refused_in_the_declared_words(name: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"{name}= takes {OPTIONS[name].in_python}; got a set")):
        check_arguments(**{name: {1}})


def test_a_run_remembers_what_decides_its_answers_and_no_secret() -> None:
    every: dict[str, Any] = {each.name: None for each in fields(RunOptions)}
    given = BenchOptions(
        **{
            **every,
            "llm": "lab",
            "index": "postgres:postgresql://me:secret@host/db",
            "scorer": "openai:m@http://me:secret@host/v1",
            "where": ("a=b",),
            "seed": 0,
            "answer_tokens": 8,
            "max_tokens": 5,
            "concurrency": 2,
            "cache": "kept",
        }
    )
    kept = given.remembered()
    assert "secret" not in str(kept)
    assert kept.keys() == {"index", "scorer", "where", "seed", "answer_tokens", "cache"}
    assert (kept["where"], kept["seed"], kept["answer_tokens"], kept["cache"]) == (["a=b"], 0, 8, "kept")
    assert given.elsewhere().keys() == {"index", "scorer", "cache"}


def test_what_completes_an_option_is_there() -> None:
    assert {each.completes for each in OPTIONS.values()} - {""} == {"models", "encoders", "modes", "methods"}
    assert all(callable(getattr(completion, each.completes)) for each in OPTIONS.values() if each.completes)
