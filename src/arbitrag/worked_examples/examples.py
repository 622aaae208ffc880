"""One worked example of every method, all on the same question and passages where that is possible."""

from __future__ import annotations

from collections.abc import Mapping

from arbitrag.types import Passage
from arbitrag.worked_examples.case import PASSAGES, Case

MEMORY, EVIDENCE = "Mira Talven", "Oskar Brend"
BOTH = {"direct/answer": MEMORY, "rag/answer": EVIDENCE}
# Mean log-probabilities per token: memory rejects the passages' answer, but the question binds it to them.
LIKELIHOODS = {
    ("direct/answer", MEMORY): -0.5,
    ("direct/answer", EVIDENCE): -2.5,
    ("rag/answer", MEMORY): -4.0,
    ("rag/answer", EVIDENCE): -0.25,
    ("trustmargin/passages_only", MEMORY): -4.5,
    ("trustmargin/passages_only", EVIDENCE): -2.75,
}
_COPIES = (
    Passage("Who directed The Silent Orchard? The Silent Orchard was directed by Pavel Kron.", id="4"),
    Passage("Who directed The Silent Orchard? Yes, The Silent Orchard was directed by Pavel Kron.", id="5"),
)
_QUERIES = (
    "1. Who is the director of The Silent Orchard?\n2. The Silent Orchard is a film by whom?\n"
    "3. Which person directed the film The Silent Orchard?\n4. Whose film is The Silent Orchard?"
)

EXAMPLES: Mapping[str, Case] = {
    "auto": Case("auto", {"rag/answer": EVIDENCE}),
    "direct": Case("direct", {"direct/answer": MEMORY}, passages=()),
    "rag": Case("rag", {"rag/answer": EVIDENCE}),
    "trustmargin": Case("trustmargin", BOTH, LIKELIHOODS),
    "trustrag": Case(
        "trustrag",
        {
            "trustrag/memory": "passage: I recall that Oskar Brend made it.",
            "trustrag/consolidate": "group: Oskar Brend directed it | sources: 1, 2, memory\n"
            "drop: 3 | reason: another topic",
            "trustrag/assess": "trust: both\nanswer: Oskar Brend",
        },
        passages=(*_COPIES, *PASSAGES),
    ),
    "astute": Case(
        "astute",
        {
            "astute/recall": "passage: I recall that Mira Talven made it.",
            "astute/answer": "group: Oskar Brend | sources: 1, 2 | confidence: 85\n"
            "group: Mira Talven | sources: memory | confidence: 10\nanswer: Oskar Brend",
        },
    ),
    "bridge": Case(
        "bridge n=4",
        {
            "bridge/allocate": "retrieval: 75\ngeneration: 25",
            "bridge/rewrite": _QUERIES,
            "bridge/recall": "evidence: The Silent Orchard was directed by Oskar Brend in 1931.",
            "bridge/recall_many": "1. Oskar Brend directed The Silent Orchard.",
            "bridge/answer": "answer: Oskar Brend",
        },
        passages=PASSAGES[:2],
    ),
    "stack": Case("stack", BOTH, LIKELIHOODS, (*_COPIES, *PASSAGES)),
}

PLAIN: Mapping[str, str] = {
    "auto": "The method of those who name none. It stands for another method, and answers as that one does.",
    "direct": "Asks the model without any passages, and takes what it says. What it does not know, it may invent.",
    "rag": "Shows the model the passages, and takes what it says, even where they are wrong or planted.",
    "trustmargin": "Asks twice, without and with the passages. Where the answers differ, it measures how likely the "
    "model itself finds each one, and takes the passages' answer unless memory finds it too unlikely.",
    "trustrag": "Drops passages that look planted, by their words and without the model. Then the model writes what it "
    "knows, groups the passages that agree, and says which source it trusts.",
    "astute": "The model writes a passage of its own from memory, sorts it and the passages into groups that say the "
    "same, gives each group a confidence, and answers from the best one.",
    "bridge": "Asks how far the question rests on memory and on passages, asks both by sub-questions, and measures how "
    "far what they say agrees. By those numbers it trusts both, one, or neither, or asks again.",
    "stack": "Joins parts of the other methods: a gate that may skip the search, a filter, a reranker, any method to "
    "decide, and a rule of refusal.",
}
