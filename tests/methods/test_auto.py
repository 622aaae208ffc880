"""The default method: another one, under that one's name, with the reason in its notes."""

from __future__ import annotations

import inspect
from dataclasses import fields

import arbitrag
from arbitrag import Kit, Passage
from arbitrag.methods import AUTO, METHODS, load, method_from, running_with
from arbitrag.methods.auto import WHY, Auto
from arbitrag.methods.base import needs_of, settings, summary
from arbitrag.testing import FixedRetriever, ScriptedLLM
from arbitrag.types import Need

PASSAGES = [Passage("Oskar Brend directed it.", id="1"), Passage("Nothing.", id="2")]


async def test_it_answers_as_rag_and_says_why() -> None:
    kit = Kit.of(ScriptedLLM(["Oskar Brend"]), FixedRetriever(PASSAGES))
    verdict = await arbitrag.answer("Who directed it?", "auto", kit)
    assert (verdict.answer, verdict.method, verdict.trace.method) == ("Oskar Brend", "rag", "rag")
    assert verdict.notes == (f"method rag, chosen by auto: {WHY}",)


def test_it_takes_the_settings_of_the_method_that_it_stands_for() -> None:
    assert settings(method_from("auto k=3")) == {"k": 3}
    assert {each.name for each in fields(Auto)} == {each.name for each in fields(load("rag"))}  # type: ignore[arg-type]
    assert summary(Auto).startswith("Answer as rag does: it runs on every model")


def test_it_runs_wherever_there_are_passages() -> None:
    assert needs_of(Auto()) == Need.GENERATE | Need.RETRIEVE
    assert inspect.signature(arbitrag.ask).parameters["method"].default == AUTO


def test_what_runs_is_found_from_settings_and_parts() -> None:
    """By its class alone ``stack`` would run on a model without likelihoods; its default arbiter needs them."""
    plain = Need.GENERATE | Need.RETRIEVE | Need.ENCODE
    assert running_with(Need.GENERATE) == ("direct",)
    assert running_with(Need.GENERATE | Need.RETRIEVE) == ("astute", "direct", "rag")
    assert running_with(plain) == ("astute", "bridge", "direct", "rag", "trustrag")
    assert running_with(plain | Need.SCORE) == tuple(name for name in METHODS if name != AUTO)
