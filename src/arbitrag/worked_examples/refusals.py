"""When each method gives no answer: every case of it, worked out by the method itself.

A test counts the places in the code where a verdict refuses, so that a new one needs its case here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arbitrag.types import Passage
from arbitrag.worked_examples.case import Case
from arbitrag.worked_examples.examples import EXAMPLES


@dataclass(frozen=True)
class RefusalCase:
    """``when``, in words that follow "gives no answer when", and a case of it."""

    when: str
    case: Case


def _like(name: str, settings: str = "", passages: Sequence[Passage] | None = None, **replies: str) -> Case:
    """The example of a method with other settings, passages and replies; ``__`` is the stroke of a prompt's name."""
    example = EXAMPLES[name]
    changed = {key.replace("__", "/"): text for key, text in replies.items()}
    found = example.passages if passages is None else passages
    method = f"{example.method} {settings}".strip()
    return Case(method, {**example.replies, **changed}, example.likelihoods, found)


UNKNOWN, UNREADABLE = "I don't know", "It depends."
# Memory recalls something else than the passages say, so that BRIDGE's tree has to choose.
_APART: Mapping[str, Any] = {
    "bridge__recall": "evidence: Rivers freeze over early.",
    "bridge__recall_many": "1. Snow falls in winter.",
}
_REFLECTION = (
    "contradiction: one names a director, the other rivers\nkind: factual\n"
    "1. Who made The Silent Orchard in 1931?\n2. Whose work is The Silent Orchard?\n"
    "3. Who was at the helm of The Silent Orchard?\n4. The Silent Orchard was whose film?"
)
_RAG = (
    RefusalCase("nothing was found, or nothing fits into the limits", Case("rag", {}, passages=())),
    RefusalCase("the model's reply only says that it does not know", Case("rag", {"rag/answer": UNKNOWN})),
)

REFUSALS: Mapping[str, tuple[RefusalCase, ...]] = {
    "auto": _RAG,
    "direct": (
        RefusalCase("the model's reply only says that it does not know", _like("direct", direct__answer=UNKNOWN)),
    ),
    "rag": _RAG,
    "trustmargin": (
        RefusalCase(
            "nothing was found, and memory's reply is empty", _like("trustmargin", passages=(), direct__answer="")
        ),
        RefusalCase("both replies are empty", _like("trustmargin", direct__answer="", rag__answer="")),
        RefusalCase(
            "the reply that is chosen only says that it does not know",
            Case("trustmargin", {"direct/answer": UNKNOWN, "rag/answer": UNKNOWN}),
        ),
    ),
    "trustrag": (
        RefusalCase(
            "filter and model left none of the passages, and memory holds nothing",
            _like("trustrag", passages=(), trustrag__memory=UNKNOWN),
        ),
        RefusalCase(
            "the model trusts no answer", _like("trustrag", trustrag__assess="trust: both\nanswer: I don't know")
        ),
        RefusalCase(
            "the last reply could not be read, nor put into its form",
            _like("trustrag", trustrag__assess=UNREADABLE, reading__repair=UNREADABLE),
        ),
        RefusalCase("with resolve=false: nothing is left to read", _like("trustrag", "resolve=false", ())),
        RefusalCase(
            "with resolve=false: the reply only says that it does not know",
            _like("trustrag", "resolve=false", rag__answer=UNKNOWN),
        ),
    ),
    "astute": (
        RefusalCase(
            "nothing was found, and memory wrote no passage", _like("astute", passages=(), astute__recall=UNKNOWN)
        ),
        RefusalCase(
            "no group of documents supports an answer",
            _like("astute", astute__answer="group: rivers | sources: 3 | confidence: 5\nanswer: I don't know"),
        ),
        RefusalCase(
            "the last reply could not be read, nor put into its form",
            _like("astute", astute__answer=UNREADABLE, reading__repair=UNREADABLE),
        ),
    ),
    "bridge": (
        RefusalCase(
            "sources disagree, and the trust in the likelier one is too low (alpha)",
            _like("bridge", "alpha=9 beta=9", **_APART),
        ),
        RefusalCase(
            "reflections did not raise the trust in the passages to beta",
            _like("bridge", "alpha=0 beta=9 cycles=1", bridge__reflect=_REFLECTION, **_APART),
        ),
        RefusalCase("it would reflect, and there are no passages", _like("bridge", "alpha=0 beta=9", (), **_APART)),
        RefusalCase(
            "a reflection could not be read, nor put into its form",
            _like("bridge", "alpha=0 beta=9", bridge__reflect=UNREADABLE, reading__repair=UNREADABLE, **_APART),
        ),
        RefusalCase("the source that is trusted holds no text", _like("bridge", "alpha=0 beta=0", (), **_APART)),
        RefusalCase(
            "the reply from the source that is trusted only says that it does not know",
            _like("bridge", bridge__answer=f"answer: {UNKNOWN}"),
        ),
        RefusalCase(
            "the last reply could not be read, nor put into its form",
            _like("bridge", bridge__answer=UNREADABLE, reading__repair=UNREADABLE),
        ),
    ),
    "stack": (
        RefusalCase("its arbiter gives no answer", Case("stack arbiter=rag", {"rag/answer": UNKNOWN})),
        RefusalCase(
            "with refusal=agreement: memory and the passages do not say the same", _like("stack", "refusal=agreement")
        ),
        RefusalCase(
            "with refusal=number: that number of the verdict is below least",
            _like("stack", 'refusal="number of=margin least=0"'),
        ),
    ),
}
