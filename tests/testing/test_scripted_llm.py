"""The scripted model that ships to users."""

from __future__ import annotations

import pytest

from arbitrag.errors import BackendError, UsageError
from arbitrag.llm.base import Message, Prompt, Sampling, Tokens
from arbitrag.testing import ScriptedLLM, prompt_text
from arbitrag.types import Need

HELLO = Prompt.user("which film was it")


async def test_replies_in_the_order_of_the_calls() -> None:
    llm = ScriptedLLM(["one two three", "four"])
    first = await llm.generate(HELLO, Sampling(max_tokens=2))
    second = await llm.generate(HELLO, Sampling())
    assert (first.text, first.finish, first.tokens) == (
        "one two",
        "length",
        Tokens(prompt_tokens=4, completion_tokens=2),
    )
    assert (second.text, second.finish) == ("four", "stop")
    assert llm.prompts == [HELLO, HELLO]
    with pytest.raises(BackendError, match="no more replies"):
        await llm.generate(HELLO, Sampling())
    await llm.aclose()


async def test_replies_by_a_piece_of_the_prompt() -> None:
    llm = ScriptedLLM({"film": "a film", "was": "never reached"})
    assert (await llm.generate(HELLO, Sampling())).text == "a film"
    with pytest.raises(BackendError, match="no reply for: who is it"):
        await llm.generate(Prompt(text="who is it"), Sampling())


async def test_replies_by_a_function_which_may_be_an_error() -> None:
    llm = ScriptedLLM(lambda prompt: BackendError("down") if prompt.text else prompt.messages[0].text.upper())
    assert (await llm.generate(HELLO, Sampling())).text == "WHICH FILM WAS IT"
    with pytest.raises(BackendError, match="down"):
        await llm.generate(Prompt(text="x"), Sampling())


async def test_likelihoods_by_text_or_by_function() -> None:
    by_text = ScriptedLLM(likelihoods={"a": -1.0, "b": -2.0}, context_tokens=64)
    assert (await by_text.score(HELLO, ["b", "a"])).means == (-2.0, -1.0)
    capabilities = await by_text.capabilities()
    assert (capabilities.needs, capabilities.context_tokens) == (Need.GENERATE | Need.SCORE, 64)
    by_function = ScriptedLLM(likelihoods=lambda prompt, text: -float(len(text)))
    assert (await by_function.score(HELLO, ["abc"])).means == (-3.0,)
    with pytest.raises(UsageError, match="an empty continuation has no likelihood"):
        await by_function.score(HELLO, [""])


async def test_what_it_was_not_given_it_does_not_offer() -> None:
    llm = ScriptedLLM()
    assert (await llm.capabilities()).needs == Need.GENERATE
    with pytest.raises(BackendError, match="no likelihoods"):
        await llm.score(HELLO, ["a"])
    with pytest.raises(BackendError, match="no insides"):
        await llm.inspect(HELLO, [0])
    with pytest.raises(BackendError, match="no insides"):
        await llm.next_token([HELLO])


def test_the_text_of_a_prompt() -> None:
    assert prompt_text(Prompt(text="plain")) == "plain"
    assert prompt_text(Prompt(messages=(Message("system", "a"), Message("user", "b")))) == "a\nb"
