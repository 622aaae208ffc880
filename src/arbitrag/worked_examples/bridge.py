"""Worked examples of ``bridge``."""

from __future__ import annotations

from arbitrag.worked_examples.case import (
    PASSAGES,
    UNKNOWN,
    UNREADABLE,
    Case,
    MethodExamples,
    RefusalCase,
)

_QUERIES = (
    "1. Who is the director of The Silent Orchard?\n2. The Silent Orchard is a film by whom?\n"
    "3. Which person directed the film The Silent Orchard?\n4. Whose film is The Silent Orchard?"
)
_CASE = Case(
    "bridge n=4",
    {
        "bridge/allocate": "retrieval: 75\ngeneration: 25",
        "bridge/rewrite": _QUERIES,
        "bridge/recall": "evidence: The Silent Orchard was directed by Oskar Brend in 1931.",
        "bridge/recall_many": "1. Oskar Brend directed The Silent Orchard.",
        "bridge/answer": "answer: Oskar Brend",
    },
    passages=PASSAGES[:2],
)
# Memory recalls something else than the passages say, so that the tree has to choose.
_APART = _CASE.but(
    replies={
        "bridge/recall": "evidence: Rivers freeze over early.",
        "bridge/recall_many": "1. Snow falls in winter.",
    }
)
_REFLECTION = (
    "contradiction: one names a director, the other rivers\nkind: factual\n"
    "1. Who made The Silent Orchard in 1931?\n2. Whose work is The Silent Orchard?\n"
    "3. Who was at the helm of The Silent Orchard?\n4. The Silent Orchard was whose film?"
)

EXAMPLES = MethodExamples(
    "Asks how far the question rests on memory and on passages, asks both by sub-questions, and measures how "
    "far what they say agrees. By those numbers it trusts both, one, or neither, or asks again.",
    _CASE,
    (
        RefusalCase(
            "sources disagree, and the trust in the likelier one is too low (alpha)", _APART.but("alpha=9 beta=9")
        ),
        RefusalCase(
            "reflections did not raise the trust in the passages to beta",
            _APART.but("alpha=0 beta=9 cycles=1", replies={"bridge/reflect": _REFLECTION}),
        ),
        RefusalCase("it would reflect, and there are no passages", _APART.but("alpha=0 beta=9", ())),
        RefusalCase(
            "a reflection could not be read, nor put into its form",
            _APART.but("alpha=0 beta=9", replies={"bridge/reflect": UNREADABLE, "reading/repair": UNREADABLE}),
        ),
        RefusalCase("the source that is trusted holds no text", _APART.but("alpha=0 beta=0", ())),
        RefusalCase(
            "the reply from the source that is trusted only says that it does not know",
            _CASE.but(replies={"bridge/answer": f"answer: {UNKNOWN}"}),
        ),
        RefusalCase(
            "the last reply could not be read, nor put into its form",
            _CASE.but(replies={"bridge/answer": UNREADABLE, "reading/repair": UNREADABLE}),
        ),
    ),
)
