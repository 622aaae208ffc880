from __future__ import annotations

from dataclasses import replace

from arbitrag.cli.explain import explained
from arbitrag.errors import BackendError
from arbitrag.kit import Kit
from arbitrag.run import answer
from arbitrag.testing import FixedRetriever, ScriptedLLM
from arbitrag.trace import Call, Trace
from arbitrag.types import Passage, Question


async def explain(llm: ScriptedLLM, method: str = "trustmargin", **parts: ScriptedLLM) -> str:
    kit = Kit.of(llm, FixedRetriever([Passage("It was Oskar.", id="p1")]), **parts)  # type: ignore[arg-type]
    return explained((await answer("Who?", method, kit)).trace, 80)


async def test_every_call_and_decision_is_shown() -> None:
    llm = ScriptedLLM({"passages below": "Oskar", "Question": "Mira"}, lambda prompt, text: -1.0)
    text = await explain(llm)
    assert text.startswith(
        "Method    trustmargin with weight 0.5, threshold -1.5, k 20, candidate rag\n"
        "Model     scripted\n"
        "Passages  from 1 given passages\n"
    )
    assert text.count("\nCall ") == 7
    assert "  got     │ 1 passage\n          │ p1\n" in text
    assert "  user    │ Question: Who?\n          │ Answer:\n" in text
    assert "  got     │ -1.0000  Mira\n          │ -1.0000  Oskar\n" in text
    assert "\nDecision  margin: evidence\n          because prior + weight * binding > threshold\n" in text
    assert text.endswith("          threshold = -1.5")
    assert "Scorer" not in text


async def test_a_scorer_of_its_own_is_named() -> None:
    text = await explain(ScriptedLLM(["Mira", "Oskar"]), scorer=ScriptedLLM((), lambda *_: -1.0, name="judge"))
    assert "\nScorer    judge\n" in text


def test_other_kinds_and_failures() -> None:
    plain = {"text": "q", "messages": [], "lead": ""}
    trace = Trace(Question("q"), "own", {}, "a", "a", "", {}, {})
    calls = (
        Call(
            "inspect",
            "llm",
            "a",
            {"prompt": plain, "layers": [1]},
            {"1": {"shape": [2]}},
            prompt_tokens=7,
            cached_tokens=7,
            cached=True,
        ),
        Call("generate", "llm", "a", {"prompt": plain}, error=f"{BackendError.__name__}: down\x1b[0m", began=1),
    )
    text = explained(replace(trace, calls=calls))
    assert text.split("\n\n")[1:] == [
        "Call 1    inspect by llm · 7 prompt tokens (7 cached), from the cache, 0.000 s\n"
        "  text    │ q\n"
        '  asked   │ {"layers": [1]}\n'
        '  got     │ {"1": {"shape": [2]}}',
        "Call 2    generate by llm · 0.000 s\n  text    │ q\n  failed  │ BackendError: down\\u001b[0m",
    ]
